"""Random notifications and filters: each watch and each replay delivers exactly the matching ones.

The expected notifications are found by brute force. Shapes are rectangles, which can be compared
without a library. Meanwhile the log is compacted, the server restarts, watches reconnect, and some
clients are so slow that their watches must read the log on their own.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from tailrace.store.base import Compacting
from tests.support.aviso import IDENTIFIER, Aviso, StartAviso, Watch

CRAMPED = {
    "segment_max_messages": 4,
    "chunk_bytes": 1024,
    "hot_bytes": 4096,
    "compact_interval": 0.0,
    "aviso_batch": 3,
}

Rectangle = tuple[int, int, int, int]
"""South, west, north, east."""


def ring(box: Rectangle) -> str:
    south, west, north, east = box
    return f"{south},{west},{south},{east},{north},{east},{north},{west},{south},{west}"


@dataclass
class Area:
    name: str
    box: Rectangle

    @classmethod
    def random(cls, chance: random.Random) -> Area:
        south, west = chance.randint(-20, 20), chance.randint(-20, 20)
        box = (south, west, south + chance.randint(1, 9), west + chance.randint(1, 9))
        return cls(chance.choice("abc"), box)

    def sent(self) -> dict[str, Any]:
        return {"event_type": "area", "identifier": {"name": self.name, "polygon": ring(self.box)}}


@dataclass
class AreaFilter:
    name: str | None
    box: Rectangle | None
    point: tuple[int, int] | None

    @classmethod
    def random(cls, chance: random.Random) -> AreaFilter:
        name = chance.choice([None, "a", "b", "d"])
        kind = chance.choice(["box", "point", ""])
        box = Area.random(chance).box if kind == "box" else None
        point = (chance.randint(-20, 20), chance.randint(-20, 20)) if kind == "point" else None
        return cls(name, box, point)

    def sent(self) -> dict[str, Any]:
        identifier: dict[str, Any] = {} if self.name is None else {"name": self.name}
        if self.box is not None:
            identifier["polygon"] = ring(self.box)
        if self.point is not None:
            identifier["point"] = list(self.point)
        return {"event_type": "area", "identifier": identifier}

    def matches(self, area: Area) -> bool:
        if self.name not in (None, area.name):
            return False
        south, west, north, east = area.box
        if self.box is not None:
            s, w, n, e = self.box
            return south <= n and s <= north and west <= e and w <= east
        if self.point is not None:
            return south < self.point[0] < north and west < self.point[1] < east
        return True


@dataclass
class Product:
    step: int
    level: float
    hazard: str

    @classmethod
    def random(cls, chance: random.Random) -> Product:
        level, hazard = chance.choice([-2.5, 0.0, 0.25, 7.0]), chance.choice(["storm", "fire"])
        return cls(chance.randint(0, 20), level, hazard)

    def sent(self) -> dict[str, Any]:
        fields = {"step": self.step, "level": self.level, "hazard": self.hazard}
        return {"event_type": "product", "identifier": {**IDENTIFIER, **fields}}


@dataclass
class ProductFilter:
    between: tuple[int, int] | None
    level: float | None
    hazard: str | None

    @classmethod
    def random(cls, chance: random.Random) -> ProductFilter:
        low = chance.randint(0, 20)
        between = (low, low + chance.randint(0, 10))
        return cls(
            chance.choice([None, between]),
            chance.choice([None, 0.25]),
            chance.choice([None, "fire"]),
        )

    def sent(self) -> dict[str, Any]:
        identifier: dict[str, Any] = {}
        if self.between is not None:
            identifier["step"] = {"between": list(self.between)}
        if self.level is not None:
            identifier["level"] = {"lte": self.level}
        if self.hazard is not None:
            identifier["hazard"] = self.hazard
        return {"event_type": "product", "identifier": identifier}

    def matches(self, product: Product) -> bool:
        return (
            (self.between is None or self.between[0] <= product.step <= self.between[1])
            and (self.level is None or product.level <= self.level)
            and self.hazard in (None, product.hazard)
        )


Kinds: dict[str, tuple[Any, Any]] = {
    "area": (Area, AreaFilter),
    "product": (Product, ProductFilter),
}


@dataclass
class Client:
    """A client that watches, and reconnects from the sequence after the last one it received."""

    filter: Any
    first: int
    """The first sequence that it should receive."""
    watch: Watch
    capacity: int
    received: list[int] = field(default_factory=list)

    def collect(self) -> None:
        self.received += self.watch.sink.sequences()

    async def reconnect(self, aviso: Aviso) -> None:
        assert self.watch.sink.frames[-1].data["reason"] == "server_shutdown"
        self.collect()
        from_id = str(max([self.first, *(each + 1 for each in self.received)]))
        self.watch = await aviso.watch(self.capacity, **self.filter.sent(), from_id=from_id)


@pytest.mark.parametrize("kind", Kinds)
@pytest.mark.parametrize("seed", [0])
async def test_watches_and_replays_deliver_exactly_the_matching_notifications(
    start: StartAviso, kind: str, seed: int
) -> None:
    chance = random.Random(f"{kind} {seed}")
    notification_type, filter_type = Kinds[kind]
    aviso = await start(**CRAMPED)
    published: list[Any] = []
    clients: list[Client] = []

    async def publish() -> None:
        for _ in range(chance.randint(1, 12)):
            next_one = notification_type.random(chance)
            await aviso.notify(**next_one.sent())
            published.append(next_one)

    async def join(*, live: bool = True) -> None:
        for _ in range(chance.randint(1, 25)):
            filter_, capacity = filter_type.random(chance), chance.choice([1, 2, 1000])
            first = len(published) + 1 if live else chance.randint(1, len(published))
            bounds = {} if live else {"from_id": str(first)}
            watch = await aviso.watch(capacity, **filter_.sent(), **bounds)
            clients.append(Client(filter_, first, watch, capacity))

    async def join_meanwhile() -> None:
        # The replay and the notifications overlap in time.
        await asyncio.gather(join(live=False), publish())

    async def restart() -> None:
        nonlocal aviso
        aviso.streams.drain()
        await asyncio.gather(*(client.watch.task for client in clients))
        aviso = await start(**CRAMPED)
        for client in clients:
            await client.reconnect(aviso)

    async def compact() -> None:
        assert isinstance(aviso.streams.store, Compacting)
        assert not (await aviso.streams.store.compact()).failed

    async def replay() -> None:
        filter_, first = filter_type.random(chance), chance.randint(0, len(published) + 1)
        last = chance.randint(first, len(published) + 2)
        sink = await aviso.replay(**filter_.sent(), from_id=str(first), to_id=str(last))
        assert sink.sequences() == expected(filter_, max(1, first), last)

    def expected(filter_: Any, first: int, last: int) -> list[int]:
        matching = [i for i, each in enumerate(published, 1) if filter_.matches(each)]
        return [i for i in matching if first <= i <= last]

    steps = [publish, publish, publish, join, join_meanwhile, replay, compact, restart]
    for step in [publish, join, *chance.choices(steps, k=15), join_meanwhile, restart, publish]:
        await step()
    for client in clients:
        expected_sequences = expected(client.filter, client.first, len(published))
        await client.watch.until(
            lambda sink, c=client, e=expected_sequences: (
                len(c.received) + len(sink.sequences()) >= len(e)
            )  # type: ignore[misc]
        )
    await asyncio.sleep(0.05)
    for client in clients:
        await client.watch.leave()
        client.collect()
        assert client.received == expected(client.filter, client.first, len(published)), (
            client.filter
        )
    assert len(clients) > 5
