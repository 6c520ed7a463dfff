"""More crashes than tests/integration has time for."""

from __future__ import annotations

from devtools.server import Server
from tests.integration.faults.test_crash import server, survive

__all__ = ["server"]


def test_many_crashes(server: Server) -> None:
    survive(server, 48)
