"""Splits segments into messages: the rows and columns of the export."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tailrace.log import json_mode
from tailrace.log.content import Mode
from tailrace.segments.format import BadSegment, Parts

ROWS: Final = 100_000
"""Rows per Arrow table: a body can be a batch of millions of small messages."""

DAY: Final = 86_400_000

_SPACE: Final = b" \t\r\n"


class Column(NamedTuple):
    """A column of the export, with its types in Arrow and in the catalogue."""

    name: str
    arrow: pa.DataType
    kind: str
    about: str


COLUMNS: Final = (
    Column("stream", pa.string(), "string", "path of the stream"),
    Column("incarnation", pa.string(), "string", "which stream of that path, 16 hex digits"),
    Column("slot", pa.int64(), "bigint", "the slot it is in, counted from 0"),
    Column("message", pa.int32(), "int", "its place in the slot, counted from 0"),
    Column("offset_before", pa.int64(), "bigint", "offset of the stream before it"),
    Column("offset", pa.int64(), "bigint", "offset of the stream after it"),
    Column("time", pa.timestamp("ms", "UTC"), "timestamp", "when it was appended, UTC"),
    Column("content_type", pa.string(), "string", "content type of the stream"),
    Column("producer_id", pa.string(), "string", "producer that appended it, if one did"),
    Column("producer_epoch", pa.int64(), "bigint", "epoch of that producer"),
    Column("producer_seq", pa.int64(), "bigint", "sequence number of that producer"),
    Column("text", pa.string(), "string", "the JSON message, or the body of text"),
    Column("binary", pa.binary(), "binary", "the body, when it is not text in UTF-8"),
)

PARTITIONS: Final = (
    Column("day", pa.date32(), "date", "day of its time, UTC"),
    Column("bucket", pa.int32(), "int", "crc32 of the incarnation, modulo the number of buckets"),
    Column("run", pa.string(), "string", "run of the job that exported it"),
)
"""Not in the files, but in the names of their folders."""

SCHEMA: Final = pa.schema([(column.name, column.arrow) for column in COLUMNS])


def messages(
    parts: Parts, stream: str, content_type: str, first: int, stop: int
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the messages of the slots from `first` up to `stop`, in order, as (day, rows)."""
    steps, times = _numbers(parts.steps), np.cumsum(_numbers(parts.pauses))
    ones = np.ones_like(steps)
    # The messages of each append, and by how much each of them advances the offset.
    counts, lengths = (steps, ones) if parts.mode is Mode.JSON else (ones, steps)
    offsets = parts.offset + np.cumsum(steps) - steps
    # The slot of each append, and how many messages of the slot are before it.
    appends = _numbers(parts.counts) if parts.counts else np.ones_like(times)
    slots, starts = np.repeat(np.arange(len(appends)), appends), np.cumsum(appends) - appends
    earlier = np.cumsum(counts) - counts
    earlier -= earlier[starts][slots]
    begin, end = np.searchsorted(slots, (first - parts.first, stop - parts.first))
    bodies = islice(parts.bodies(), begin, end)
    laps = np.cumsum(counts[begin:end]) // ROWS
    for one, two in pairwise([begin, *(np.flatnonzero(np.diff(laps)) + begin + 1), end]):
        some = counts[one:two]
        split = _split(parts, slots[one:two], islice(bodies, two - one), some)
        places = np.repeat(np.arange(one, two), some)
        numbers = np.arange(len(places)) - np.repeat(np.cumsum(some) - some, some)
        before = offsets[places] + numbers
        at = times[slots[places]]
        days = at // DAY
        cuts = {0, len(places), *range(0, len(places), ROWS), *(np.flatnonzero(np.diff(days)) + 1)}
        for low, high in pairwise(sorted(cuts)):
            place = places[low:high]
            yield (
                _day(days[low]),
                pa.table(
                    [
                        pa.repeat(stream, high - low),
                        pa.repeat(f"{parts.chain:016x}", high - low),
                        pa.array(parts.first + slots[place]),
                        pa.array(earlier[place] + numbers[low:high], pa.int32()),
                        pa.array(before[low:high]),
                        pa.array(before[low:high] + lengths[place]),
                        pa.array(at[low:high]).cast(pa.timestamp("ms", "UTC")),
                        pa.repeat(content_type, high - low),
                        *_producers(parts, place),
                        *_bodies(parts.mode, split[low:high]),
                    ],
                    schema=SCHEMA,
                ),
            )


def _split(
    parts: Parts, slots: Iterable[int], bodies: Iterator[bytes], counts: Iterable[int]
) -> Sequence[bytes]:
    """Split bodies into messages; `slots`: the place of each body's slot in the segment."""
    if parts.mode is not Mode.JSON:
        return list(bodies)
    split: list[bytes] = []
    for slot, body, count in zip(slots, bodies, counts, strict=True):
        # Most bodies are one message, and parsing them would take most of the time.
        some = [body.strip(_SPACE)] if count == 1 else json_mode.split(body)
        if len(some) != count:
            raise BadSegment(
                f"an append of slot {parts.first + slot} has {len(some)} messages, but its offset"
                f" says {count}"
            )
        split += some
    return split


def _producers(parts: Parts, places: Any) -> Sequence[pa.Array]:
    """The columns `producer_id`, `producer_epoch` and `producer_seq`."""
    if not parts.authors:
        return [pa.nulls(len(places), kind) for kind in (pa.string(), pa.int64(), pa.int64())]
    who = _numbers(parts.who)[places]
    author = pa.array(who - 1, mask=who == 0)
    ids, epochs = zip(*parts.authors, strict=True)
    return [
        pa.array(ids, pa.string()).take(author),
        pa.array(epochs, pa.int64()).take(author),
        pa.array(_numbers(parts.seqs)[places], mask=who == 0),
    ]


def _bodies(mode: Mode, bodies: Sequence[bytes]) -> tuple[pa.Array, pa.Array]:
    """The columns `text` and `binary`, one of which is null in each row."""
    raw = pa.array(bodies, pa.binary())
    if mode is Mode.BYTES:
        return pa.nulls(len(raw), pa.string()), raw
    try:
        return raw.cast(pa.string()), pa.nulls(len(raw), pa.binary())
    except pa.ArrowInvalid:
        # Text may have any charset, but strings must be UTF-8.
        texts = [_text(body) for body in bodies]
        rest = [body if text is None else None for body, text in zip(bodies, texts, strict=True)]
        return pa.array(texts, pa.string()), pa.array(rest, pa.binary())


def _text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _numbers(column: Sequence[int]) -> Any:
    return np.asarray(column, np.uint64).astype(np.int64)


def _day(days: int) -> str:
    return datetime.fromtimestamp(int(days) * DAY / 1000, UTC).date().isoformat()
