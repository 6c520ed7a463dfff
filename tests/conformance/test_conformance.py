"""The official conformance suite of the protocol, against the server as a real process.

`tests/glue/test_conformance.py` runs it on DynamoDB while history is being made.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Protocol

import pytest

from tests.conformance.relay import Relay
from tests.conftest import Server, fail_with, on_dynamodb, run_vitest
from tests.engines import Engine

PASSED = 332
OPT_IN_GROUP = "Reserved subscription APIs"
OPT_IN = 6


@pytest.mark.timeout(600)
def test_official_suite_passes_on_sqlite(own_server: Server, tmp_path: Path) -> None:
    check(own_server, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_official_suite_passes_on_sqlite_that_always_compacts(tmp_path: Path) -> None:
    """Nothing is in memory, and all but the last entries of a stream are on their way to files."""
    env = {
        "TAILRACE_LONG_POLL_TIMEOUT": "2",
        "TAILRACE_HOT_BYTES": "0",
        "TAILRACE_INLINE_BYTES": "1024",
        "TAILRACE_COMPACT_INTERVAL": "0.05",
        "TAILRACE_SWEEP_INTERVAL": "0.05",
        "TAILRACE_SEGMENT_MAX_MESSAGES": "2",
    }
    with Server(tmp_path / "data", env) as server:
        check(server, tmp_path)
        assert list((tmp_path / "data" / "segments").glob("*/*"))
        assert "Traceback" not in server.output()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_official_suite_passes_on_two_servers_that_share_a_table_of_dynamodb(
    aws: Engine, tmp_path: Path
) -> None:
    """Every request goes to the other server, whose memory is outdated by the one before."""
    env = {**on_dynamodb(aws), "TAILRACE_LONG_POLL_TIMEOUT": "2"}
    with (
        Server(tmp_path / "one", env) as one,
        Server(tmp_path / "two", env) as two,
        Relay([one.port, two.port]) as relay,
    ):
        check(relay, tmp_path)


class Served(Protocol):
    @property
    def url(self) -> str: ...


def check(server: Served, tmp_path: Path) -> None:
    tests = run_vitest(
        Path(__file__).parent,
        tmp_path / "report.json",
        {"CONFORMANCE_URL": server.url},
        seconds=580,
    )
    fail_with(test for test in tests if test.status == "failed")
    skipped = [test.name for test in tests if test.status != "passed"]
    assert all(OPT_IN_GROUP in name for name in skipped), skipped
    assert Counter(test.status == "passed" for test in tests) == {True: PASSED, False: OPT_IN}
