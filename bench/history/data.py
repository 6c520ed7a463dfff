"""A table as DynamoDB would export it: many streams, some of them much longer than others.

In every fourth stream several appends share a slot."""

from __future__ import annotations

import gzip
import itertools
import random
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from tailrace.log.content import length
from tailrace.log.state import Config, Entry, Part, State, Stream
from tailrace.store.dynamodb.layout import entry_item, name_item

FILES = 16
BEGUN = 1_790_000_000_000
KINDS = ("application/json", "text/plain", "application/octet-stream")
TOGETHER = 10
"""Appends that share a slot, at most."""


class Size(NamedTuple):
    entries: int
    streams: int


class Made(NamedTuple):
    size: Size
    folder: Path
    appends: int
    bytes: int
    """Of the bodies."""
    names: Sequence[dict[str, Any]]
    lasts: Sequence[dict[str, Any]]
    """The last entry of each stream: what always stays in the table."""


def make(size: Size, folder: Path) -> Made:
    """Stream k has a share of 1/k: the longest a tenth of all entries."""
    rng = random.Random(size.entries)
    whole = sum(1 / k for k in range(1, size.streams + 1))
    data = folder / "AWSDynamoDB" / "01-bench" / "data"
    data.mkdir(parents=True)
    names, lasts, appends, total = [], [], 0, 0
    left = size.entries
    with ExitStack() as stack:
        files = [
            stack.enter_context(gzip.open(data / f"{i:02d}.json.gz", "wb", 1)) for i in range(FILES)
        ]
        for k in range(1, size.streams + 1):
            count = min(left, max(1, round(size.entries / k / whole)))
            left -= count
            kind = KINDS[k % len(KINDS)]
            stream = Stream(f"bench/{k}", rng.getrandbits(63), Config(kind, BEGUN))
            name = name_item(stream)
            names.append(name)
            file = files[zlib.crc32(stream.path.encode()) % FILES]
            file.write(_line(name))
            item: dict[str, Any] = {}
            together = TOGETHER if k % 4 == 1 else 1
            for entry in itertools.islice(_entries(rng, stream, together), count):
                item = entry_item(stream.id, entry, f"{rng.getrandbits(64):016x}", None)
                file.write(_line(item))
                appends += len(entry.parts) or 1
                total += len(entry.body or b"")
            if item:
                lasts.append(item)
    return Made(size, folder, appends, total, names, lasts)


def _entries(rng: random.Random, stream: Stream, together: int) -> Iterator[Entry]:
    state = stream.config.initial_state()
    mode = stream.config.mode
    while True:
        bodies = [_body(rng, state.slot) for _ in range(rng.randint(1, together))]
        parts = [Part(len(body), length(mode, body)) for body in bodies]
        n, body = state.slot, b"".join(bodies)
        state = State(
            n + 1, state.offset + sum(part.step for part in parts), state.size + len(body),
            state.written_at + rng.randint(0, 500),
        )  # fmt: skip
        yield Entry(n, body, state, parts=parts if len(parts) > 1 else ())


def _body(rng: random.Random, slot: int) -> bytes:
    noise = rng.randbytes(rng.randint(20, 180)).hex()
    return b'{"at":%d,"of":"%b"}' % (slot, noise.encode())


def _line(item: dict[str, Any]) -> bytes:
    return orjson.dumps({"Item": item}) + b"\n"
