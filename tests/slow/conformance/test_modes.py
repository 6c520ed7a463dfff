"""The official conformance suite in other modes of the stores."""

from __future__ import annotations

from pathlib import Path

from devtools.engines.ministack import Engine
from devtools.server import Server
from tests.conftest import on_dynamodb
from tests.slow.conformance.relay import Relay
from tests.support.conformance.official import check


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
