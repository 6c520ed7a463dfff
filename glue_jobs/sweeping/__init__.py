"""What `sweep` is made of: what is to go, for which reason, and how much of it there is."""
