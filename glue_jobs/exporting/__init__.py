"""The parts of `export-history`: a plan, the messages of its segments, and their files."""
