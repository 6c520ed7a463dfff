"""What compaction costs beside the least that Spark can do with the same data."""
