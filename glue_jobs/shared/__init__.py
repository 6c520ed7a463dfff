"""The common base of the jobs: arguments, Spark, its workers, and the store as frames."""
