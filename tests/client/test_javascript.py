"""The stock JavaScript client against the server."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import Server, fail_with, run_vitest


def test_javascript_client(server: Server, tmp_path: Path) -> None:
    tests = run_vitest(
        Path(__file__).parent, tmp_path / "report.json", {"SERVER_URL": server.url}, seconds=110
    )
    fail_with(test for test in tests if test.status != "passed")
    assert tests
