"""A server whose clock is set while it runs."""

from __future__ import annotations

from pathlib import Path

from devtools.chaos.jumping_clock import set_clock
from devtools.server import Server
from tests.support.wire import TEXT, Connection, target


def test_a_clock_that_jumps_ahead_lets_streams_expire(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    set_clock(clock, 0)
    program = ("-m", "devtools.chaos.jumping_clock", str(clock))
    with (
        Server(tmp_path / "data", program=program) as server,
        Connection(server.port) as wire,
    ):
        wire.ask("PUT", target("a"), TEXT | {"Stream-TTL": "600"})
        set_clock(clock, 500)
        assert wire.ask("GET", target("a")).status == 200
        set_clock(clock, 0)
        assert wire.ask("HEAD", target("a")).status == 200
        set_clock(clock, 1200)
        assert wire.ask("GET", target("a")).status == 404
