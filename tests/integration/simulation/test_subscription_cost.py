"""The units of DynamoDB that a wake takes on AWS, counted call by call."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from devtools.dynamodb_simulator.loop import run
from devtools.dynamodb_simulator.network import Event
from tailrace.aws import costs
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.protocols.subscriptions.core.configuration import Configuration
from tailrace.protocols.subscriptions.core.records import Phase
from tailrace.protocols.subscriptions.service import Ack, Fence
from tests.integration.simulation.subscriptions import JSON, WAKES, FunctionWorld, Trouble

CONFIGURATIONS = {
    "webhook": Configuration("webhook", "a/*", (), "https://hook/", None, 30_000, None),
    "pull-wake": Configuration("pull-wake", "a/*", (), None, WAKES, 30_000, None),
}


class Calm(FunctionWorld):
    """Its webhook is done at once."""

    async def run(self) -> None:
        await self.start()
        for work in self.platform():
            asyncio.get_running_loop().create_task(work)
        self.chance.seed(3)


async def spend(kind: str) -> tuple[float, float]:
    world = Calm(Trouble(callbacks=0, repeated=0), 1)
    await world.run()
    server = world.servers[0]
    await server.streams.create(WAKES, Create(b"", JSON))
    await server.service.create("s", CONFIGURATIONS[kind], "http://x", None)
    await server.streams.create("a/1", Create(b"", JSON))
    await asyncio.sleep(5)
    first = len(world.table.trace())
    appended = await server.streams.append("a/1", Append(b"[1]", JSON))
    if kind == "pull-wake":
        await asyncio.sleep(5)
        record, _ = await server.service.claim("s", "w")
        assert record.wake_id is not None
        fence = Fence(record.generation, record.generation, record.wake_id)
        await server.service.acknowledge("s", fence, [Ack("a/1", appended.next_offset)], done=True)
    await asyncio.sleep(20)
    # A call is in the trace more than once: when it is sent, and when it is answered.
    events = {(each.client, each.call): each for each in world.table.trace()[first:]}.values()
    # Without the append itself.
    reads, writes = sum(map(read_units, events)), sum(map(write_units, events)) - 1
    assert (await server.service.find("s")).phase is Phase.IDLE
    return reads, writes


def read_units(event: Event) -> float:
    if event.operation not in ("GetItem", "Query"):
        return 0
    # Looks of the timer are counted by the month.
    return 0 if event.subject.startswith(("g =", "YT")) else 1


def write_units(event: Event) -> float:
    if event.operation == "TransactWriteItems":
        return 2 * (event.subject.count(", ") + 1)
    own = not event.subject.startswith("YT")
    return float(own and event.operation in ("PutItem", "UpdateItem", "DeleteItem"))


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_a_wake_takes_as_many_units(kind: str) -> None:
    reads, writes = run(1, partial(spend, kind), stalls=0)
    assert (reads, writes) == costs.WAKE_UNITS[kind]
