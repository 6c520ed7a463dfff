"""What every job stands on: arguments, Spark, its workers, and the store as frames."""
