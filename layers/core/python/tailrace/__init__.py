"""Tailrace: durable streams over HTTP, on one append-only log."""

__version__ = "0.1.0"
