"""Segments taken apart into messages, and messages put into files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glue_jobs.exporting import files
from glue_jobs.exporting import messages as module
from glue_jobs.exporting.messages import SCHEMA, messages
from tailrace.log.content import Mode
from tailrace.log.state import Producer
from tailrace.segments.format import BadSegment, Parts, Record, seal, unpack

MIDNIGHT = 1_790_035_200_000
"""2026-09-22."""


def segment(
    mode: Mode,
    *appends: tuple[int, bytes, int],
    start: int = 10,
    by: Producer | None = None,
    shared: int = 1,
) -> Parts:
    """Appends with their times, and by how much they move the offset; the first is in slot 5.

    `shared`: how many are in each slot."""
    records, offset, size = [], start, 100
    for i, (at, body, step) in enumerate(appends):
        offset, size = offset + step, size + len(body)
        records.append(Record(5 + i // shared, offset, size, at, body, by if i % 2 else None))
    return unpack(seal(7, mode, (start, 100), records))


def rows(
    parts: Parts, columns: Sequence[str], first: int = 0, stop: int = 1 << 60
) -> list[tuple[Any, ...]]:
    found = []
    for day, table in messages(parts, "a", "x/y", first, stop):
        assert table.schema.equals(SCHEMA)
        found += [(day, *(row[name] for name in columns)) for row in table.to_pylist()]
    return found


def test_a_json_batch_is_split_and_each_message_has_its_offset() -> None:
    parts = segment(
        Mode.JSON,
        (MIDNIGHT - 1, b'{"a":[1,2]} , 2,"x,]"', 3),
        (MIDNIGHT, b"null", 1),
        (MIDNIGHT, b"[],[[]]", 2),
    )
    assert rows(parts, ("slot", "message", "offset_before", "offset", "text", "binary")) == [
        ("2026-09-21", 5, 0, 10, 11, '{"a":[1,2]}', None),
        ("2026-09-21", 5, 1, 11, 12, "2", None),
        ("2026-09-21", 5, 2, 12, 13, '"x,]"', None),
        ("2026-09-22", 6, 0, 13, 14, "null", None),
        ("2026-09-22", 7, 0, 14, 15, "[]", None),
        ("2026-09-22", 7, 1, 15, 16, "[[]]", None),
    ]


def test_other_bodies_are_one_message_and_invalid_utf_8_is_binary() -> None:
    entries = [(MIDNIGHT, body, len(body)) for body in (b"one", b"\xe9t\xe9", "été".encode())]
    place = "offset_before", "offset", "text", "binary"
    assert [row[1:] for row in rows(segment(Mode.TEXT, *entries), place)] == [
        (10, 13, "one", None),
        (13, 16, None, b"\xe9t\xe9"),
        (16, 21, "été", None),
    ]
    assert [row[1:] for row in rows(segment(Mode.BYTES, *entries[:2]), place)] == [
        (10, 13, None, b"one"),
        (13, 16, None, b"\xe9t\xe9"),
    ]


def test_time_and_producer_are_those_of_the_append() -> None:
    parts = segment(Mode.JSON, (1, b"1", 1), (MIDNIGHT + 2, b"2,3", 2), by=Producer("p", 4, 9))
    about = "time", "producer_id", "producer_epoch", "producer_seq"
    second = datetime(2026, 9, 22, 0, 0, 0, 2000, UTC), "p", 4, 9
    assert rows(parts, about) == [
        ("1970-01-01", datetime(1970, 1, 1, 0, 0, 0, 1000, UTC), None, None, None),
        ("2026-09-22", *second),
        ("2026-09-22", *second),
    ]


def test_messages_of_appends_that_share_a_slot_are_counted_on() -> None:
    bodies = [(MIDNIGHT, b"1,2", 2), (MIDNIGHT, b"3", 1), (MIDNIGHT + 1, b"4", 1)]
    parts = segment(Mode.JSON, *bodies, by=Producer("p", 4, 9), shared=2)
    place = "slot", "message", "offset", "text", "producer_seq"
    assert [row[1:] for row in rows(parts, place)] == [
        (5, 0, 11, "1", None),
        (5, 1, 12, "2", None),
        (5, 2, 13, "3", 9),
        (6, 0, 14, "4", None),
    ]
    assert [row[1:] for row in rows(parts, ("message", "text"), 6)] == [(0, "4")]
    texts = segment(Mode.TEXT, *bodies, shared=2)
    assert [row[1:] for row in rows(texts, ("slot", "message", "offset"))] == [
        (5, 0, 12),
        (5, 1, 13),
        (6, 0, 14),
    ]


def test_only_the_slots_that_are_wanted_come() -> None:
    parts = segment(Mode.JSON, *((MIDNIGHT, b"%d,%d" % (i, -i), 2) for i in range(6)))
    assert [row[1:] for row in rows(parts, ("slot", "offset_before", "text"), 7, 9)] == [
        (7, 14, "2"),
        (7, 15, "-2"),
        (8, 16, "3"),
        (8, 17, "-3"),
    ]


@pytest.mark.parametrize("most", [1, 2, 3, 7, 1000])
def test_the_batch_size_does_not_change_the_rows(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    entries = [
        (MIDNIGHT + i * 20_000_000, b",".join(b"%d" % j for j in range(i % 4 + 1)), i % 4 + 1)
        for i in range(20)
    ]
    parts, columns = segment(Mode.JSON, *entries, by=Producer("p", 0, 1)), SCHEMA.names
    whole = rows(parts, columns)
    monkeypatch.setattr(module, "ROWS", most)
    assert all(len(table) <= most for _, table in messages(parts, "a", "x/y", 0, 99))
    assert rows(parts, columns) == whole
    assert len(whole) == sum(step for _, _, step in entries)


def test_a_body_that_is_not_what_its_offset_says_is_refused() -> None:
    parts = segment(Mode.JSON, (MIDNIGHT, b"1,2", 2), (MIDNIGHT, b"1,2", 3))
    with pytest.raises(BadSegment, match="append of slot 6 has 2 messages, but its offset says 3"):
        rows(parts, ())


def test_files_of_many_days_are_written_with_little_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(files, "HELD_BYTES", 2000)
    days = files._Days()
    expected: dict[str, list[Any]] = {}
    for i in range(40):
        parts = segment(Mode.TEXT, *((MIDNIGHT * (k + 1), b"%d" % i, 1) for k in range(3)))
        for day, table in messages(parts, f"stream {i}", "text/plain", 0, 99):
            days.add(day, table)
            expected.setdefault(day, []).extend(table.to_pylist())
            assert days._bytes.total() <= 2000
    found = {day: (count, data) for day, count, data in days.end()}
    assert set(found) == set(expected)
    for day, (count, data) in found.items():
        file = pq.ParquetFile(pa.BufferReader(data))
        assert file.read().to_pylist() == expected[day]
        assert count == len(expected[day]) == 40
        assert 1 < file.num_row_groups < 40
        assert file.metadata.row_group(0).column(0).compression == "ZSTD"
