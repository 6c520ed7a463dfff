"""A thousand refused bodies do not leave memory in use."""

from __future__ import annotations

from devtools.server import Server
from tests.integration.durable_streams.test_hostile_requests import (
    LARGE,
    MARGIN,
    closed,
    memory,
    needs_proc,
)
from tests.support.wire import TEXT, Connection, request, target

__all__ = ["closed"]


@needs_proc
def test_a_thousand_refused_bodies_leave_no_memory(closed: Server) -> None:
    refused = request("POST", target("refused"), TEXT, b"x" * LARGE)
    before = memory(closed)
    for _ in range(1000):
        with Connection(closed.port) as wire:
            wire.send(refused)
            assert wire.answer("POST").status == 401
    assert memory(closed) < before + MARGIN
