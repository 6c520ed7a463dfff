"""The door: what a request shows, whether it is genuine, and what it allows."""
