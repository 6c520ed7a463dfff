"""Compares compaction with the minimum that Spark needs to read and write the same data."""
