"""The stock JavaScript client against the server, over either store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Server, fail_with, run_vitest


@pytest.mark.parametrize("store", ["sqlite", "dynamodb"])
def test_javascript_client(request: pytest.FixtureRequest, tmp_path: Path, store: str) -> None:
    name = "server" if store == "sqlite" else "dynamodb_server"
    server: Server = request.getfixturevalue(name)
    tests = run_vitest(
        Path(__file__).parent, tmp_path / "report.json", {"SERVER_URL": server.url}, seconds=110
    )
    fail_with(test for test in tests if test.status != "passed")
    assert tests
