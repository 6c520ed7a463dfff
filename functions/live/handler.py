"""Streams responses: reads of streams as server-sent events. It may only read."""

from tailrace.aws.handlers.application import FunctionApplication

app = FunctionApplication("live", read_only=True)
