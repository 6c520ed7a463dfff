"""The rules of the log: what may be written next and what a reader sees, with no I/O."""
