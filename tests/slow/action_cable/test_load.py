"""Many clients that reconnect at random: no message is lost, repeated or reordered."""

from __future__ import annotations

import random
import time

from devtools.server import Server
from tests.support.cable_load import check, hear_all


async def test_a_thousand_on_one_stream(cable_server: Server) -> None:
    name = f"open/load/{time.time_ns()}"
    batches = [[name] * random.choice((1, 1, 1, 4)) for _ in range(25)]
    listeners = await hear_all(cable_server, [name], 1000, batches, 20)
    assert {one.offset for one in listeners} == {sum(map(len, batches))}
    check(listeners, 25 * 20)


async def test_a_thousand_streams_with_one_each(cable_server: Server) -> None:
    names = [f"open/load/{time.time_ns()}/{i}" for i in range(1000)]
    waiting = names * 4
    random.shuffle(waiting)
    batches = [waiting[at : at + 40] for at in range(0, len(waiting), 40)]
    listeners = await hear_all(cable_server, names, 1, batches, 10)
    assert {one.offset for one in listeners} == {4}
    check(listeners, len(batches) * 10)
