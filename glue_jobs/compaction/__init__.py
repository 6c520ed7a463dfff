"""What `compact-history` is made of: entries become segments, and leave the table."""
