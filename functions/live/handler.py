"""Answers that go on: reads of streams as server-sent events. It may only read."""

from tailrace.aws.function import Function

app = Function("live", read_only=True)
