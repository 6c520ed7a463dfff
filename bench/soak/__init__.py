"""The soak test: mixed and hostile traffic for minutes, with all responses verified."""
