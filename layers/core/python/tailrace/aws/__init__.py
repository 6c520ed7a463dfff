"""Tailrace as Lambda functions: what stands around the application there."""
