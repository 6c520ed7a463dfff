"""The jobs that keep history: on Glue, or on this machine with plain pyspark."""
