"""A table as DynamoDB would export it: many streams, some of them much longer than others."""

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
from tailrace.log.state import Config, Entry, State, Stream
from tailrace.store.dynamodb.layout import entry_item, name_item

FILES = 16
BEGUN = 1_790_000_000_000
KINDS = ("application/json", "text/plain", "application/octet-stream")


class Size(NamedTuple):
    entries: int
    streams: int


class Made(NamedTuple):
    size: Size
    folder: Path
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
    names, lasts, total = [], [], 0
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
            for entry in itertools.islice(_entries(rng, stream), count):
                item = entry_item(stream.id, entry, f"{rng.getrandbits(64):016x}", None)
                file.write(_line(item))
                total += len(entry.body or b"")
            if item:
                lasts.append(item)
    return Made(size, folder, total, names, lasts)


def _entries(rng: random.Random, stream: Stream) -> Iterator[Entry]:
    state = stream.config.initial_state()
    mode = stream.config.mode
    while True:
        noise = rng.randbytes(rng.randint(20, 180)).hex()
        body = b'{"at":%d,"of":"%b"}' % (state.slot, noise.encode())
        n = state.slot
        state = State(
            n + 1, state.offset + length(mode, body), state.size + len(body),
            state.written_at + rng.randint(0, 500),
        )  # fmt: skip
        yield Entry(n, body, state)


def _line(item: dict[str, Any]) -> bytes:
    return orjson.dumps({"Item": item}) + b"\n"
