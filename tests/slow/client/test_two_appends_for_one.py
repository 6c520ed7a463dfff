"""The stock clients, each of whose appends of two or more messages or bytes is stored as two."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.node import run_vitest
from tests.conftest import fail_with
from tests.integration.client.test_python import (
    test_append_and_catch_up,
    test_async_read,
    test_bytes_and_text,
    test_fork_by_headers,
    test_live_read_gets_later_appends,
    test_sequence_conflict,
    test_sse_ends_on_a_closed_stream,
    url,
)
from tests.support.splitting import SplittingServer

__all__ = [
    "test_append_and_catch_up",
    "test_async_read",
    "test_bytes_and_text",
    "test_fork_by_headers",
    "test_live_read_gets_later_appends",
    "test_sequence_conflict",
    "test_sse_ends_on_a_closed_stream",
    "url",
]

TESTS = Path(__file__).parents[2] / "integration" / "client"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SplittingServer]:
    data = tmp_path_factory.mktemp("splitting") / "data"
    with SplittingServer(data, {"TAILRACE_LONG_POLL_TIMEOUT": "2"}) as server:
        yield server


def test_javascript_client(server: SplittingServer, tmp_path: Path) -> None:
    tests = run_vitest(TESTS, tmp_path / "report.json", {"SERVER_URL": server.url})
    fail_with(test for test in tests if test.status != "passed")
    assert tests
