"""Long streams come in chunks whose boundaries are the same for all readers.

Readers that start at different offsets soon request the same URLs, so that a cache serves both.
"""

from __future__ import annotations

import base64
import json
import random
from typing import NamedTuple

import httpx
import pytest

from tests.integration.durable_streams.conftest import Connect
from tests.support.events import EventStream
from tests.support.wire import CLOSE, START

CHUNK_BYTES = 1024


class Written(NamedTuple):
    path: str
    kind: str
    bodies: list[bytes]
    offsets: list[str]
    """The offset of each body, and of the end of the last one."""

    def content(self, first: int = 0) -> bytes:
        rest = self.bodies[first:]
        return b"[" + b",".join(rest) + b"]" if self.kind == "application/json" else b"".join(rest)


def write(client: httpx.Client, path: str, kind: str, sizes: list[int], seed: int) -> Written:
    random_ = random.Random(seed)
    created = client.put(path, headers={"content-type": kind})
    written = Written(path, kind, [], [created.headers["stream-next-offset"]])
    for size in sizes:
        body = random_.randbytes(size)
        if kind == "application/json":
            body = json.dumps(body.hex()[:size]).encode()
        answer = client.post(path, content=body, headers={"content-type": kind})
        assert answer.status_code == 204
        written.bodies.append(body)
        written.offsets.append(answer.headers["stream-next-offset"])
    return written


def walk(client: httpx.Client, path: str, offset: str = START) -> list[tuple[str, httpx.Response]]:
    """Read every chunk from an offset to the tail, each with the offset it was requested by."""
    chunks = []
    while True:
        read = client.get(path, params={"offset": offset})
        assert read.status_code == 200
        chunks.append((offset, read))
        if "stream-up-to-date" in read.headers:
            return chunks
        assert "stream-closed" not in read.headers
        assert read.headers["stream-next-offset"] > offset
        offset = read.headers["stream-next-offset"]


def joined(kind: str, chunks: list[tuple[str, httpx.Response]]) -> bytes:
    if kind != "application/json":
        return b"".join(read.content for _, read in chunks)
    parts = [read.content[1:-1] for _, read in chunks]
    return b"[" + b",".join(part for part in parts if part) + b"]"


MIXED = [random.Random(1).randrange(1, 900) for _ in range(25)]
EXACT = [512, 512, 1024, 1024, 256, 768, 2048, 1024, 1]


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("application/json", MIXED),
        ("application/octet-stream", [10, 70_000, 10, 1023, 1, 1025, 3]),
    ],
    ids=["json", "bytes"],
)
def test_readers_from_any_offset_converge_on_the_same_chunks(
    cramped_client: httpx.Client, path: str, kind: str, sizes: list[int]
) -> None:
    client = cramped_client
    written = write(client, path, kind, sizes, seed=len(sizes))
    canonical = [offset for offset, _ in walk(client, path)]
    for n, offset in enumerate(written.offsets):
        chunks = walk(client, path, offset)
        assert joined(kind, chunks) == written.content(n)
        offsets = [each for each, _ in chunks[1:]]
        assert offsets == canonical[len(canonical) - len(offsets) :]

    client.post(path, headers=CLOSE)
    *full, (_, last) = walk(client, path)
    assert [offset for offset, _ in full] == canonical[: len(full)]
    assert last.headers["stream-closed"] == "true"


def test_a_chunk_ends_with_the_append_that_fills_it(
    cramped_client: httpx.Client, path: str
) -> None:
    write(cramped_client, path, "text/plain", EXACT, seed=0)
    lengths = [len(read.content) for _, read in walk(cramped_client, path)]
    assert lengths == [1024, 1024, 1024, 1024, 2048, 1024, 1]


def test_chunks_do_not_change_when_the_stream_grows(
    cramped_client: httpx.Client, path: str
) -> None:
    kind = "application/octet-stream"
    seen: dict[str, tuple[bytes, str]] = {}
    cramped_client.put(path, headers={"content-type": kind})
    for n in range(8):
        for size in (300, 501):
            body = random.Random(n).randbytes(size)
            cramped_client.post(path, content=body, headers={"content-type": kind})
        *full, _ = walk(cramped_client, path)
        for offset, read in full:
            now = (read.content, read.headers["etag"])
            assert seen.setdefault(offset, now) == now
    assert len(seen) > 4


@pytest.mark.parametrize("kind", ["application/octet-stream", "application/json"])
def test_event_streams_have_the_same_chunks(
    cramped_client: httpx.Client,
    connect: Connect,
    request: pytest.FixtureRequest,
    path: str,
    kind: str,
) -> None:
    cramped = request.getfixturevalue("cramped")
    cramped_client.put(path, headers={"content-type": kind})
    for n in range(25):
        body = json.dumps(f"{n}:" + "x" * 100).encode()
        cramped_client.post(path, content=body, headers={"content-type": kind})
    cramped_client.post(path, headers=CLOSE)
    chunks = walk(cramped_client, path)
    events = list(EventStream(connect(cramped), path))
    data, controls = events[::2], [event.control for event in events[1::2]]
    payloads = [event.data.encode() for event in data]
    if kind == "application/octet-stream":
        payloads = [base64.b64decode(payload, validate=True) for payload in payloads]
    assert payloads == [read.content for _, read in chunks]
    assert [control["streamNextOffset"] for control in controls] == [
        read.headers["stream-next-offset"] for _, read in chunks
    ]
    assert [control.get("upToDate") for control in controls] == [None] * (len(chunks) - 1) + [True]
    assert ["streamClosed" in control for control in controls] == [False] * (len(chunks) - 1) + [
        True
    ]


def test_long_polls_have_the_same_chunks(cramped_client: httpx.Client, path: str) -> None:
    write(cramped_client, path, "text/plain", MIXED, seed=3)
    for offset, read in walk(cramped_client, path):
        poll = cramped_client.get(path, params={"offset": offset, "live": "long-poll"})
        assert poll.content == read.content
        for name in ("stream-next-offset", "stream-up-to-date", "etag"):
            assert poll.headers.get(name) == read.headers.get(name)


@pytest.mark.parametrize("at", [0, 7])
def test_a_fork_has_the_chunks_of_its_source(
    cramped_client: httpx.Client, path: str, at: int
) -> None:
    client = cramped_client
    written = write(client, path, "text/plain", [200] * 12, seed=at)
    fork = f"{path}/fork"
    client.put(
        fork,
        content=b"F" * 700,
        headers={
            "stream-forked-from": f"/v1/stream/{path}",
            "stream-fork-offset": written.offsets[at],
        },
    )
    for _ in range(10):
        client.post(fork, content=b"f" * 150, headers={"content-type": "text/plain"})
    expected = b"".join(written.bodies[:at]) + b"F" * 700 + b"f" * 1500
    canonical = [offset for offset, _ in walk(client, fork)]
    for n, offset in enumerate(written.offsets[: at + 1]):
        chunks = walk(client, fork, offset)
        assert joined("text/plain", chunks) == expected[200 * n :]
        offsets = [each for each, _ in chunks[1:]]
        assert offsets == canonical[len(canonical) - len(offsets) :]
    shared = min(at * 200 // CHUNK_BYTES, len(canonical))
    assert canonical[:shared] == [offset for offset, _ in walk(client, path)][:shared]
