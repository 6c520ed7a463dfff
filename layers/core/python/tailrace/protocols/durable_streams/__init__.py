"""Durable Streams over HTTP: parse, call the streams, render."""
