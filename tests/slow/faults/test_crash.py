"""More crashes than tests/integration has time for."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.server import Server
from tests.integration.faults.test_crash import environment, server, survive
from tests.support.splitting import SplittingServer

__all__ = ["server"]


def test_many_crashes(server: Server) -> None:
    survive(server, 48)


@pytest.mark.parametrize("kind", ["sqlite", "compacting"])
def test_crashes_with_two_appends_for_one(tmp_path: Path, kind: str) -> None:
    with SplittingServer(tmp_path / "data", environment(kind)) as server:
        survive(server, 12)
