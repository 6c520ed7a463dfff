"""Many writers and readers on a few streams, whose calls become a history to check.

The load calls a `Target`, which is Tailrace in this process or a server. It reads no clock: chance
comes from a seed and time from the event loop, so the same load drives a real engine and a
simulation.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from devtools.linearizability import checker as happened
from devtools.linearizability.checker import (
    Acknowledged,
    Duplicate,
    Final,
    History,
    Incarnation,
    Outcome,
    Rejected,
    Unknown,
)
from tailrace.errors import (
    OutcomeUnknown,
    StaleOffset,
    StoreUnavailable,
    StreamClosed,
    StreamGone,
    StreamNotFound,
    StreamTooHot,
    TailraceError,
)
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.log.offsets import START, parse
from tailrace.log.state import Producer
from tailrace.streams import Streams

ATTEMPTS = 6
"""How often a producer sends the same append before it gives up and begins a new epoch."""
PRODUCED_SHARE = 0.5
LARGE_SHARE = 0.03
PAUSE = 0.01
JUMP_PAUSE = 0.1
"""Between two reads from anywhere: each reads half of a stream, which engines are slow at."""

TEXT = "text/plain"
NOT_NOW = (StoreUnavailable.code, StreamTooHot.code)


class Piece(NamedTuple):
    """The answer to one read of a stream."""

    bodies: Sequence[bytes]
    next_offset: str
    up_to_date: bool
    closed: bool
    incarnation: int


class Target(Protocol):
    """A client of streams. Each call raises the error that it was answered with; one without an
    answer raises OutcomeUnknown or, if it only reads, StoreUnavailable."""

    async def create(self, path: str) -> tuple[int, bool]:
        """Create a text stream; returns its incarnation, and whether it is new."""

    async def append(
        self, path: str, body: bytes, producer: Producer | None, *, close: bool
    ) -> Acknowledged | Duplicate: ...

    async def delete(self, path: str) -> None: ...

    async def read(self, path: str, start: str) -> Piece: ...


class InProcess:
    """A target that calls the streams of this process."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    async def create(self, path: str) -> tuple[int, bool]:
        created = await self._streams.create(path, Create(content_type=TEXT))
        return created.stream.id, created.new

    async def append(
        self, path: str, body: bytes, producer: Producer | None, *, close: bool
    ) -> Acknowledged | Duplicate:
        content_type = TEXT if body else None
        request = Append(body, content_type, close, producer=producer)
        appended = await self._streams.append(path, request)
        return (Acknowledged if appended.new else Duplicate)(appended.next_offset)

    async def delete(self, path: str) -> None:
        await self._streams.delete(path)

    async def read(self, path: str, start: str) -> Piece:
        view = await self._streams.read(path, parse(start))
        return Piece(
            view.bodies, view.next_offset, view.up_to_date, view.closed, view.tail.stream.id
        )


class Recorder:
    """A client whose calls become events."""

    def __init__(self, target: Target, history: History) -> None:
        self._target = target
        self._history = history

    async def create(self, path: str) -> int:
        """The incarnation that is there now; tried until that is known."""
        invoked = self._history.now()
        while True:
            try:
                incarnation, new = await self._target.create(path)
            except (StoreUnavailable, StreamTooHot):
                await asyncio.sleep(PAUSE)
                continue
            returned = self._history.now()
            self._history.record(
                happened.Create(
                    stream=path,
                    incarnation=incarnation,
                    new=new,
                    invoked=invoked,
                    returned=returned,
                )
            )
            return incarnation

    async def delete(self, path: str, incarnation: int) -> None:
        """Tried until it is done. Nobody else may delete or create the stream meanwhile."""
        invoked = self._history.now()
        done = unclear = False
        try:
            while not done:
                try:
                    await self._target.delete(path)
                    done = True
                except (StoreUnavailable, StreamTooHot) as error:
                    unclear |= isinstance(error, OutcomeUnknown)
                    await asyncio.sleep(PAUSE)
                except (StreamNotFound, StreamGone):
                    assert unclear, f"{path} was not there to be deleted"
                    done = True
        finally:
            self._history.record(
                happened.Delete(
                    stream=path,
                    incarnation=incarnation,
                    done=done,
                    invoked=invoked,
                    returned=self._history.now(),
                )
            )

    async def append(
        self, path: str, body: bytes, producer: Producer | None = None, *, close: bool = False
    ) -> Outcome:
        invoked = self._history.now()
        outcome: Outcome = Unknown()
        try:
            outcome = await self._send(path, body, producer, close=close)
        finally:
            self._history.record(
                happened.Append(
                    stream=path,
                    body=body,
                    outcome=outcome,
                    producer=producer,
                    close=close,
                    invoked=invoked,
                    returned=self._history.now(),
                )
            )
        return outcome

    async def close(self, path: str) -> Outcome:
        invoked = self._history.now()
        outcome: Outcome = Unknown()
        try:
            outcome = await self._send(path, b"", None, close=True)
        finally:
            self._history.record(
                happened.Close(
                    stream=path, outcome=outcome, invoked=invoked, returned=self._history.now()
                )
            )
        return outcome

    async def read(self, path: str, start: str) -> Piece | None:
        """One piece; None when there was no answer, or no stream. Raises StaleOffset."""
        invoked = self._history.now()
        try:
            piece = await self._target.read(path, start)
        except (StoreUnavailable, StreamTooHot):
            return None
        except (StreamNotFound, StreamGone):
            self._history.record(
                happened.Missing(stream=path, invoked=invoked, returned=self._history.now())
            )
            return None
        self._history.record(
            happened.Read(
                stream=path,
                start=start,
                invoked=invoked,
                returned=self._history.now(),
                **piece._asdict(),
            )
        )
        return piece

    async def _send(
        self, path: str, body: bytes, producer: Producer | None, *, close: bool
    ) -> Outcome:
        try:
            return await self._target.append(path, body, producer, close=close)
        except OutcomeUnknown:
            return Unknown()
        except TailraceError as error:
            return Rejected(error.code)


async def run_load(
    targets: Sequence[Target],
    history: History,
    *,
    writers: int = 16,
    streams: int = 4,
    operations: int = 2000,
    seed: int = 0,
    large_bytes: int = 0,
    prefix: str = "load",
) -> list[str]:
    """The paths of the streams, after so many appends.

    Of every four streams one is closed on the way, and one deleted and created again, twice.
    `large_bytes` is the size of some bodies, `prefix` begins the paths."""
    load = _Load(targets, history, operations, seed, large_bytes)
    await load.run(writers, [f"{prefix}/{number}" for number in range(streams)])
    return load.paths


async def read_final(target: Target, paths: Iterable[str]) -> dict[Incarnation, Final]:
    """All that is there, when nothing is under way any more."""
    final = {}
    for path in paths:
        try:
            pieces = [await target.read(path, START)]
            while not pieces[-1].up_to_date:
                pieces.append(await target.read(path, pieces[-1].next_offset))
        except StreamNotFound:
            continue
        last = pieces[-1]
        content = b"".join(itertools.chain.from_iterable(piece.bodies for piece in pieces))
        name = Incarnation(path, last.incarnation)
        final[name] = Final(content, last.next_offset, last.closed)
    return final


def tally(history: History) -> Counter[str]:
    """How many events of each kind there are, appends by their outcome."""
    return Counter(
        f"{type(event).__name__} {_word(event.outcome)}"
        if isinstance(event, happened.Append | happened.Close)
        else type(event).__name__
        for event in history.events
    )


def _word(outcome: Outcome) -> str:
    return outcome.code if isinstance(outcome, Rejected) else type(outcome).__name__


class _Load:
    def __init__(
        self,
        targets: Sequence[Target],
        history: History,
        operations: int,
        seed: int,
        large_bytes: int,
    ) -> None:
        self.paths: list[str] = []
        self._recorders = [Recorder(target, history) for target in targets]
        self._operations = operations
        self._seed = seed
        self._large_bytes = large_bytes
        self._begun = 0
        self._milestones = defaultdict[int, asyncio.Event](asyncio.Event)
        self._done = asyncio.Event()
        self._offsets = defaultdict[str, list[str]](lambda: [START])
        """The acknowledgements of each stream."""

    async def run(self, writers: int, paths: list[str]) -> None:
        self.paths = paths
        incarnations = [await self._recorders[0].create(path) for path in paths]
        async with asyncio.TaskGroup() as group:
            for number, path in enumerate(paths):
                group.create_task(self._follow(path))
                group.create_task(self._jump(path))
                if number % 4 == 1:
                    group.create_task(self._close(path))
                if number % 4 == 2:
                    group.create_task(self._recreate(path, incarnations[number]))
            writing = [group.create_task(self._write(number)) for number in range(writers)]
            await asyncio.wait(writing)
            self._done.set()
            for milestone in self._milestones.values():
                milestone.set()

    def _chance(self, role: str) -> random.Random:
        return random.Random(f"{self._seed} {role}")

    # Writers

    async def _write(self, number: int) -> None:
        chance = self._chance(f"writer {number}")
        producers = dict.fromkeys(self.paths, (0, 0))
        open_paths = list(self.paths)
        for count in itertools.count():
            if self._begun >= self._operations or not open_paths:
                return
            self._begun += 1
            if self._begun in self._milestones:
                self._milestones[self._begun].set()
            path = chance.choice(open_paths)
            large = self._large_bytes and chance.random() < LARGE_SHARE
            body = f"<w{number}.{count}{'.' * self._large_bytes if large else ''}>".encode()
            if chance.random() < PRODUCED_SHARE:
                epoch, seq = producers[path]
                producer = Producer(f"w{number}", epoch, seq)
                outcome = await self._produce(path, body, producer, chance)
                accepted = isinstance(outcome, Acknowledged | Duplicate)
                producers[path] = (epoch, seq + 1) if accepted else (epoch + 1, 0)
            else:
                outcome = await chance.choice(self._recorders).append(path, body)
            match outcome:
                case Acknowledged(offset):
                    self._offsets[path].append(offset)
                case Rejected(StreamClosed.code):
                    open_paths.remove(path)
                case Rejected():
                    await asyncio.sleep(PAUSE)

    async def _produce(
        self, path: str, body: bytes, producer: Producer, chance: random.Random
    ) -> Outcome:
        """Sent again, as a producer may, until it is known what came of it."""
        outcome: Outcome = Unknown()
        for _ in range(ATTEMPTS):
            outcome = await chance.choice(self._recorders).append(path, body, producer)
            again = isinstance(outcome, Unknown) or (
                isinstance(outcome, Rejected) and outcome.code in NOT_NOW
            )
            if not again:
                break
            await asyncio.sleep(chance.uniform(0, PAUSE))
        return outcome

    # What happens to streams on the way

    async def _close(self, path: str) -> None:
        await self._milestone(0.75)
        chance = self._chance(f"close {path}")
        body, producer = f"<close {path}>".encode(), Producer("closer", 0, 0)
        closing = chance.random() < 0.5
        while True:
            recorder = chance.choice(self._recorders)
            outcome = await (
                recorder.append(path, body, producer, close=True)
                if closing
                else recorder.close(path)
            )
            if isinstance(outcome, Acknowledged | Duplicate):
                return
            await asyncio.sleep(PAUSE)

    async def _recreate(self, path: str, incarnation: int) -> None:
        chance = self._chance(f"recreate {path}")
        for share in (0.3, 0.6):
            await self._milestone(share)
            await chance.choice(self._recorders).delete(path, incarnation)
            await asyncio.sleep(chance.uniform(0, 5 * PAUSE))
            incarnation = await chance.choice(self._recorders).create(path)

    async def _milestone(self, share: float) -> None:
        count = int(share * self._operations)
        if self._begun < count:
            await self._milestones[count].wait()

    # Readers

    async def _follow(self, path: str) -> None:
        """From the start to the end, and on as it grows."""
        chance = self._chance(f"follow {path}")
        start, incarnation = START, None
        while True:
            last = self._done.is_set()
            try:
                piece = await chance.choice(self._recorders).read(path, start)
            except StaleOffset:
                start, incarnation = START, None
                continue
            if piece is not None:
                known = incarnation in (None, piece.incarnation)
                incarnation = piece.incarnation
                start = piece.next_offset if known else START
                if last and known and piece.up_to_date:
                    return
                if any(piece.bodies):
                    continue
            await asyncio.sleep(PAUSE)

    async def _jump(self, path: str) -> None:
        """From anywhere that somebody was told of."""
        chance = self._chance(f"jump {path}")
        while not self._done.is_set():
            with suppress(StaleOffset):
                await chance.choice(self._recorders).read(path, chance.choice(self._offsets[path]))
            await asyncio.sleep(JUMP_PAUSE)
