"""SIGKILL at any moment: what was acknowledged is there once and in order, nothing is there twice.

Writers send without waiting, each append with its producer's sequence, and after a crash send again
what was not acknowledged. Readers follow all the while. The server is killed and started again on
the same data, over and over: each time after a counted number of acknowledgements, with as many
appends under way as the writers can send.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import stat
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from devtools.server import Server
from tailrace.log.offsets import parse
from tests.conftest import on_dynamodb
from tests.support.events import EventStream
from tests.support.wire import (
    JSON,
    START,
    Answer,
    Connection,
    Hangup,
    eventually,
    producer,
    request,
    target,
)

SEED = 20_240_611
KILLS = 6
WRITERS = 4
PIPELINE = 12
LARGE_SHARE = 0.06
INLINE_BYTES = 64 << 10
BYTES_STREAMS = ("bytes/0", "bytes/1")
JSON_STREAM = "json"
STREAMS = (*BYTES_STREAMS, JSON_STREAM)
SECONDS = 120.0
"""A safety net for every wait."""
MOST_KILLS = 60
RESUMED = 10
"""Acknowledged offsets of each stream from which it is read."""

Broken = (Hangup, ConnectionError, TimeoutError, OSError)


@dataclass(frozen=True)
class Batch:
    """One append: who sent it, where, and as which of theirs."""

    writer: int
    stream: str
    seq: int
    size: int

    @property
    def mark(self) -> str:
        return f"{self.writer}.{self.seq}"

    @property
    def messages(self) -> list[str]:
        """For the JSON stream: one to three messages, the first of them large or small."""
        return [
            f"{self.mark}.{n}" + ("" if n else "." * self.size) for n in range(1 + self.seq % 3)
        ]

    @property
    def body(self) -> bytes:
        if self.stream == JSON_STREAM:
            return json.dumps(self.messages).encode()
        return f"<{self.mark}|{'.' * self.size}>".encode()

    def request(self) -> bytes:
        kind = JSON if self.stream == JSON_STREAM else {"content-type": "application/octet-stream"}
        headers = kind | producer(f"writer-{self.writer}", 0, self.seq)
        return request("POST", target(self.stream), headers, self.body)


@dataclass
class Writer(threading.Thread):
    """Sends batches without end; after every failure again from the first unacknowledged one."""

    number: int
    port: int
    stop: threading.Event
    acknowledged: dict[Batch, Answer] = field(default_factory=dict)
    sent: set[Batch] = field(default_factory=set)
    unacknowledged: list[Batch] = field(default_factory=list)
    duplicates: int = 0
    refused: tuple[int, ...] = ()
    """Statuses after which the writer sends again, as after a crash."""
    wrong: list[tuple[Batch, Answer]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(name=f"writer-{self.number}")
        self._random = random.Random(f"{SEED} {self.number}")
        self._next = dict.fromkeys(STREAMS, 0)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        while not self.stop.is_set() and not self.wrong:
            try:
                with Connection(self.port, SECONDS) as wire:
                    while not self.stop.is_set() and not self.wrong:
                        self._round(wire)
            except Broken:
                time.sleep(0.01)

    def _round(self, wire: Connection) -> None:
        while len(self.unacknowledged) < PIPELINE:
            self.unacknowledged.append(self._new_batch())
        batches = list(self.unacknowledged)
        self.sent.update(batches)
        wire.send(b"".join(batch.request() for batch in batches))
        for batch in batches:
            answer = wire.answer("POST")
            if answer.status in self.refused:
                raise Hangup
            if answer.status not in (200, 204):
                self.wrong.append((batch, answer))
                return
            self.duplicates += answer.status == 204
            self.acknowledged[batch] = answer
            self.unacknowledged.remove(batch)

    def _new_batch(self) -> Batch:
        stream = self._random.choice(STREAMS)
        seq = self._next[stream]
        self._next[stream] += 1
        large = self._random.random() < LARGE_SHARE
        size = (
            INLINE_BYTES + self._random.randrange(30_000) if large else self._random.randrange(400)
        )
        return Batch(self.number, stream, seq, size)


class Reader(threading.Thread):
    """Collects what it is shown, piece by piece as `steps` yields it until the server fails."""

    def __init__(
        self, name: str, stop: threading.Event, steps: Callable[[str], Iterator[tuple[bytes, str]]]
    ) -> None:
        super().__init__(name=name)
        self._stop_reading = stop
        self._steps = steps
        self.offset = START
        self.seen = b""
        self.pieces = 0

    def run(self) -> None:
        while not self._stop_reading.is_set():
            try:
                for data, offset in self._steps(self.offset):
                    self.seen += data
                    self.pieces += bool(data)
                    self.offset = offset
                    if self._stop_reading.is_set():
                        break
            except Broken:
                time.sleep(0.02)


def inner(body: bytes) -> bytes:
    """A JSON array as a piece of the whole: every message followed by a comma."""
    return body[1:-1] + b"," if body != b"[]" else b""


def catch_up(port: int, stream: str) -> Callable[[str], Iterator[tuple[bytes, str]]]:
    def steps(offset: str) -> Iterator[tuple[bytes, str]]:
        with Connection(port, SECONDS) as wire:
            while True:
                answer = wire.ask("GET", target(stream, offset=offset))
                assert answer.status == 200, answer
                offset = answer.offset
                yield answer.body, offset
                time.sleep(0.005)

    return steps


def long_poll(port: int, stream: str) -> Callable[[str], Iterator[tuple[bytes, str]]]:
    def steps(offset: str) -> Iterator[tuple[bytes, str]]:
        with Connection(port, SECONDS) as wire:
            while True:
                answer = wire.ask("GET", target(stream, offset=offset, live="long-poll"))
                assert answer.status in (200, 204), answer
                offset = answer.offset
                yield answer.body, offset

    return steps


def events(port: int, stream: str) -> Callable[[str], Iterator[tuple[bytes, str]]]:
    def steps(offset: str) -> Iterator[tuple[bytes, str]]:
        with Connection(port, SECONDS) as wire:
            data = b""
            for event in EventStream(wire, stream, offset):
                if event.kind == "data":
                    data = inner(event.data.encode())
                else:
                    yield data, event.control["streamNextOffset"]
                    data = b""

    return steps


def whole(wire: Connection, stream: str, offset: str = START) -> bytes:
    data = b""
    while True:
        answer = wire.ask("GET", target(stream, offset=offset))
        data += inner(answer.body) if stream == JSON_STREAM else answer.body
        offset = answer.offset
        if "stream-up-to-date" in answer.headers:
            return data


def batches_in(stream: str, data: bytes) -> list[str]:
    """The mark of every append in the order of the stream, each checked to be whole."""
    marks = []
    if stream != JSON_STREAM:
        for piece in data.decode().split(">")[:-1]:
            assert piece.startswith("<"), "an append is torn"
            mark, _, padding = piece[1:].partition("|")
            assert set(padding) <= {"."}, "an append is torn"
            marks.append(mark)
        assert data == b"" or data.endswith(b">")
        return marks
    messages: list[str] = json.loads(b"[" + data.removesuffix(b",") + b"]")
    while messages:
        writer, seq = messages[0].split(".")[:2]
        batch = Batch(int(writer), stream, int(seq), messages[0].count(".") - 2)
        count = len(batch.messages)
        assert messages[:count] == batch.messages, "an append is torn"
        del messages[:count]
        marks.append(batch.mark)
    return marks


def environment(kind: str) -> dict[str, str]:
    """Return the settings of the embedded store, `sqlite` or `compacting`."""
    env = {
        "TAILRACE_LONG_POLL_TIMEOUT": "0.5",
        "TAILRACE_INLINE_BYTES": str(INLINE_BYTES),
        "TAILRACE_SWEEP_INTERVAL": "0.2",
        "TAILRACE_COMPACT_INTERVAL": "0",
    }
    if kind == "compacting":
        env |= {
            "TAILRACE_HOT_BYTES": "0",
            "TAILRACE_COMPACT_INTERVAL": "0.02",
            "TAILRACE_SEGMENT_MAX_MESSAGES": "7",
        }
    return env


@pytest.fixture(params=["sqlite", "compacting", "dynamodb"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    env = environment(request.param)
    if request.param == "dynamodb":
        env |= on_dynamodb(request.getfixturevalue("aws"))
    with Server(tmp_path / "data", env) as server:
        yield server


@dataclass
class Progress:
    """The acknowledgements of writers and the data of readers."""

    writers: list[Writer]
    readers: list[Reader]

    @property
    def acknowledged(self) -> int:
        return sum(len(writer.acknowledged) for writer in self.writers)

    @property
    def large(self) -> int:
        batches = [batch for writer in self.writers for batch in list(writer.acknowledged)]
        return sum(len(batch.body) > INLINE_BYTES for batch in batches)

    @property
    def duplicates(self) -> int:
        return sum(writer.duplicates for writer in self.writers)

    def wait(self, more: int) -> None:
        """Returns after so many more acknowledgements, when every reader has seen more, too."""
        count = self.acknowledged + more
        pieces = [reader.pieces for reader in self.readers]

        def enough() -> bool:
            seen = all(r.pieces > before for r, before in zip(self.readers, pieces, strict=True))
            return (self.acknowledged >= count and seen) or self.wrong()

        self.until(enough)

    def until(self, check: Callable[[], bool]) -> None:
        end = time.monotonic() + SECONDS
        while not check():
            assert time.monotonic() < end, "writers or readers do not get on"
            time.sleep(0.001)

    def wrong(self) -> bool:
        return any(writer.wrong for writer in self.writers)


def test_crashes(server: Server) -> None:
    survive(server, KILLS)


def survive(server: Server, kills: int) -> None:
    embedded = "TAILRACE_STORE" not in server.env
    compacting = "TAILRACE_SEGMENT_MAX_MESSAGES" in server.env
    exact = embedded and not compacting
    # A remote store has no commit to interrupt, but many processes' worth of what they remembered.
    kills = kills if exact else kills // 2 if embedded else kills // 3
    most = 40 if embedded else 12
    with Connection(server.port) as wire:
        for stream in STREAMS:
            created = wire.ask("PUT", target(stream), JSON if stream == JSON_STREAM else {})
            assert created.status == 201
    stop = threading.Event()
    refused = () if embedded else (503,)
    writers = [Writer(number, server.port, stop, refused=refused) for number in range(WRITERS)]
    readers = {
        BYTES_STREAMS[0]: Reader("catch-up", stop, catch_up(server.port, BYTES_STREAMS[0])),
        BYTES_STREAMS[1]: Reader("long-poll", stop, long_poll(server.port, BYTES_STREAMS[1])),
        JSON_STREAM: Reader("events", stop, events(server.port, JSON_STREAM)),
    }
    chance = random.Random(SEED)
    progress = Progress(writers, [*readers.values()])
    for thread in (*writers, *readers.values()):
        thread.start()
    done = 0
    try:
        while not stop.is_set():
            progress.wait(chance.randint(1, most))
            done += 1
            # A crash must fall between a commit and its acknowledgement, which chance decides.
            if done >= kills and (progress.duplicates or not exact or done >= MOST_KILLS):
                if embedded:
                    progress.until(lambda: progress.large > 3 or progress.wrong())
                server.kill()
                stop.set()  # What is under way stays unacknowledged for good.
            else:
                server.kill()
            server.start()
            if progress.wrong():
                break
    finally:
        stop.set()
        for thread in (*writers, *readers.values()):
            thread.join(2 * SECONDS)
    assert not [thread for thread in (*writers, *readers.values()) if thread.is_alive()]
    assert not [wrong for writer in writers for wrong in writer.wrong]

    acknowledged = {b: a for writer in writers for b, a in writer.acknowledged.items()}
    sent = {batch for writer in writers for batch in writer.sent}
    large = 0
    with Connection(server.port) as wire:
        for stream in STREAMS:
            data = whole(wire, stream)
            marks = batches_in(stream, data)
            assert len(marks) == len(set(marks)), "an append is there twice"
            there = set(marks)
            mine = {batch.mark: batch for batch in sent if batch.stream == stream}
            assert there <= mine.keys(), "something is there that nobody sent"
            lost = {b.mark for b in acknowledged if b.stream == stream} - there
            assert not lost, "acknowledged appends are lost"
            orders = defaultdict[int, list[int]](list)
            for mark in marks:
                orders[mine[mark].writer].append(mine[mark].seq)
            for writer, order in orders.items():
                assert order == list(range(len(order))), f"writer {writer} is out of order"
            assert_positions(wire, stream, data, marks, mine, acknowledged)
            reader = readers[stream]
            assert data.startswith(reader.seen), f"{reader.name} saw what is not there"
            large += sum(len(mine[mark].body) > INLINE_BYTES for mark in marks)

    if embedded:
        # Bodies of appends that never came to be are marked, and so is what a move left behind.
        eventually(lambda: all(map(is_marked, unnamed_files(server.data))), seconds=SECONDS)
        server.stop()
        for file in filter(is_marked, server.data.glob("*/*/*")):
            os.utime(file, (0, 0))
        server.start()
        eventually(lambda: not unnamed_files(server.data), seconds=SECONDS)
        if compacting:
            eventually(lambda: len(list(server.data.glob("segments/*/*"))) > 3, seconds=SECONDS)
        else:
            assert len(list(server.data.glob("bodies/*/*"))) == large
    assert "Traceback" not in server.output()
    duplicates = progress.duplicates
    assert duplicates or not exact, "no crash fell between a commit and its acknowledgement"
    print(
        f"{done} kills, {len(acknowledged)} acknowledged ({duplicates} as duplicates),"
        f" {len(sent) - len(acknowledged)} not, {large} large"
    )


def unnamed_files(data: Path) -> set[Path]:
    """Files that no row names, and rows' files that are not there."""
    db = sqlite3.connect(data / "tailrace.db")
    try:
        bodies = db.execute("SELECT id, file FROM entries WHERE file IS NOT NULL").fetchall()
        segments = db.execute("SELECT id, name FROM segments").fetchall()
    finally:
        db.close()
    named = {data / "bodies" / f"{chain:x}" / name for chain, name in bodies}
    named |= {data / "segments" / f"{chain:x}" / name for chain, name in segments}
    return named ^ {path for kind in ("bodies", "segments") for path in data.glob(f"{kind}/*/*")}


def is_marked(file: Path) -> bool:
    """Whether a sweep has found that no row names a file, and will remove it a day later."""
    return file.exists() and not file.stat().st_mode & stat.S_IWUSR


def assert_positions(
    wire: Connection,
    stream: str,
    data: bytes,
    marks: list[str],
    mine: dict[str, Batch],
    acknowledged: dict[Batch, Answer],
) -> None:
    """Every acknowledgement names the offset where its append ends."""
    offset = 0
    places: list[tuple[str, int]] = []
    for mark in marks:
        batch = mine[mark]
        offset += len(batch.messages) if stream == JSON_STREAM else len(batch.body)
        answer = acknowledged.get(batch)
        if answer is None:
            continue
        if answer.status == 200:
            assert parse(answer.offset).offset == offset
            assert answer.headers["producer-seq"] == str(batch.seq)
            places.append((answer.offset, offset))
        else:
            assert parse(answer.offset).offset >= offset
            assert int(answer.headers["producer-seq"]) >= batch.seq
    assert places == sorted(places)
    if stream != JSON_STREAM:
        assert offset == len(data)
        for place, begin in random.Random(SEED).sample(places, min(len(places), RESUMED)):
            assert whole(wire, stream, place) == data[begin:]
