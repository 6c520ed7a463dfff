"""The parts of `audit`: facts, checks that compare them, and a second look at suspects."""
