"""The authorizer: what a request shows, whether it is genuine, and what it allows."""
