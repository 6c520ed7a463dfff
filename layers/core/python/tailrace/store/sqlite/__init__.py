"""The embedded store: SQLite for entries, files for large bodies and segments."""
