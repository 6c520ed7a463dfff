"""What every function shares: secrets, logs and metrics, and calls of other functions."""
