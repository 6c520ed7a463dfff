"""The official conformance suite in other modes of the stores."""

from __future__ import annotations

from pathlib import Path

from devtools.engines.ministack import Engine
from devtools.server import Server
from tests.conftest import on_dynamodb
from tests.slow.conformance.relay import Relay
from tests.support.conformance.official import check
from tests.support.splitting import SplittingServer


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


THROUGH_AN_APPEND = [
    "Fork - Creation should accept JSON sub-offset equal to flattened message count",
    "Fork - Creation should accept binary sub-offset equal to message length",
    "Fork - Creation should allow sub-offset fork creation from a closed source stream",
    "Fork - Creation should append initial body after the materialized sub-offset prefix",
    "Fork - Creation should fork at a binary sub-offset within an append",
    "Fork - Creation should not inherit producer state across binary sub-offset fork boundary",
    (
        "Fork - Creation should return a Stream-Next-Offset on sub-offset fork creation"
        " that is consumable by reads"
    ),
    "Fork - Creation should support appending to fork after sub-offset boundary",
    "Fork - Recursive should compose sub-offsets across chained forks",
]
"""Tests that count a sub-offset over more than the first half of an append."""


def test_official_suite_passes_on_sqlite_with_two_appends_for_one(tmp_path: Path) -> None:
    with SplittingServer(tmp_path / "data", {"TAILRACE_LONG_POLL_TIMEOUT": "2"}) as server:
        check(server, tmp_path, THROUGH_AN_APPEND)


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
