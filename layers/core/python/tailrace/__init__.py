"""Tailrace: durable streams, served over HTTP from one append-only log."""

__version__ = "0.1.0"
