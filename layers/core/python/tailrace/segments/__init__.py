"""Segments: immutable objects of archived entries; their format, index and merging. No I/O."""
