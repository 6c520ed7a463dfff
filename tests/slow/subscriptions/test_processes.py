"""A server with subscriptions that is killed for minutes."""

from __future__ import annotations

from devtools.server import Server
from tests.integration.subscriptions.test_processes import (
    Connect,
    connect,
    kill_again_and_again,
    tag,
)

KILLS = 60

__all__ = ["connect", "tag"]


def test_nothing_is_lost_however_often_the_server_is_killed(
    own_server: Server, connect: Connect, tag: str
) -> None:
    kill_again_and_again(own_server, connect(own_server), tag, KILLS)
