"""The stock clients of Rails, AnyCable and Turbo against the server."""

from __future__ import annotations

from pathlib import Path

from devtools.node import run_vitest
from devtools.server import Server
from tests.conftest import fail_with
from tests.support.cable import SECRET

CLIENTS = Path(__file__).parent / "clients"


def test_stock_clients(cable_server: Server, tmp_path: Path) -> None:
    env = {"SERVER_URL": cable_server.url, "SECRET": SECRET, "RESTORES": "true"}
    tests = run_vitest(CLIENTS, tmp_path / "report.json", env)
    fail_with(test for test in tests if test.status != "passed")
    assert len(tests) > 30
