"""The protocols: each parses its own requests, and none imports another."""
