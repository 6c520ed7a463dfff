"""Answers that go on: reads of streams as server-sent events. It may only read."""

from tailrace.aws.handlers.application import Function

app = Function("live", read_only=True)
