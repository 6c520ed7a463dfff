"""Parts that all functions share: secrets, logs and metrics, and calls of other functions."""
