"""What `export-history` is made of: a plan, the messages of its segments, and their files."""
