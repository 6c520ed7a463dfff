"""What `audit` is made of: facts, checks that compare them, and a second look at suspects."""
