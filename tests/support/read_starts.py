"""The last messages of a stream, and those since an instant, against a list of messages."""

from __future__ import annotations

import asyncio
import random

from tailrace.log.append import Append
from tailrace.log.create import Create, ForkFrom
from tailrace.log.json_mode import split
from tailrace.log.offsets import parse
from tailrace.streams import Streams, View
from tests.support.streams import START, Clock

JSON = "application/json"

Model = list[tuple[int, bytes]]
"""Each message, or byte, with the time of its append."""


async def rest(streams: Streams, path: str, view: View) -> list[bytes]:
    """The bodies of a view, and all that follow it by its offset."""
    bodies = [*view.bodies]
    while not view.up_to_date:
        view = await streams.read(path, parse(view.next_offset))
        bodies += view.bodies
    return bodies


async def fill(
    streams: Streams,
    clock: Clock,
    path: str,
    kind: str,
    chance: random.Random,
    count: int = 40,
) -> Model:
    """Append at random, alone and together; returns each message, or byte, with its time."""
    await streams.create(path, Create(content_type=kind))
    model: Model = []
    for number in range(count):
        clock.pass_ms(chance.choice((0, 1, 700)))
        batch = [
            [b"%d.%d.%d" % (number, each, i) for i in range(chance.randint(1, 3))]
            for each in range(chance.choice((1, 1, 3)))
        ]
        if kind == JSON:
            texts = [[b'"%b"' % message for message in messages] for messages in batch]
            bodies = [b"[%b]" % b",".join(messages) for messages in texts]
            model += [(clock.now, message) for messages in texts for message in messages]
        else:
            bodies = [b"".join(messages) for messages in batch]
            model += [(clock.now, bytes([byte])) for body in bodies for byte in body]
        await asyncio.gather(*(streams.append(path, Append(body, kind)) for body in bodies))
    return model


async def check_forks(streams: Streams, path: str, kind: str, model: Model, clock: Clock) -> None:
    """Compare forks, made within slots that several appends share, with the list of their source.

    What a fork copies of such a slot is as old as the rest of what it has from its source."""
    for count in (1, len(model) // 5, len(model) // 2):
        clock.pass_s(1)
        slot, offset, epoch = await streams.last(path, count)
        fork = f"{path}/fork-{count}"
        source = ForkFrom(path, slot, offset=offset, epoch=epoch)
        await streams.create(fork, Create(fork=source))
        inherited = (await streams.find(fork)).committed.offset
        await check(streams, fork, kind, model[:inherited], clock)


def messages(kind: str, bodies: list[bytes]) -> list[bytes]:
    if kind == JSON:
        return [message for body in bodies for message in split(body)]
    return [bytes([byte]) for body in bodies for byte in body]


async def check(streams: Streams, path: str, kind: str, model: Model, clock: Clock) -> None:
    """Compare reads from many starts with a list."""
    for count in {0, 1, 2, 7, len(model) - 1, len(model), len(model) + 5}:
        view = await streams.read_last(path, count)
        found = messages(kind, await rest(streams, path, view))
        assert found == [each for _, each in model[max(0, len(model) - count) :]]
    for instant in {START, clock.now, clock.now + 1, *(time for time, _ in model[::9])}:
        view = await streams.read_since(path, instant)
        found = messages(kind, await rest(streams, path, view))
        assert found == [each for time, each in model if time >= instant]
