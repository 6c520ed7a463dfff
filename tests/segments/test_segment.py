"""The segment format: fixed bytes, whatever is written can be read, and damage is noticed."""

from __future__ import annotations

import zlib
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.history.segment import (
    TRAILER_BYTES,
    BadSegment,
    Index,
    Record,
    Trailer,
    read_index,
    seal,
)
from tailrace.log.content import Mode, joined

CHAIN = 0x1F00000000000001

bounded = settings(max_examples=150, deadline=None, derandomize=True)


def records(*bodies: bytes, n: int = 0, offset: int = 0, size: int = 0) -> list[Record]:
    """Bytes or text from a slot on, a second apart."""
    made = []
    for body in bodies:
        offset += len(body)
        size += len(body)
        made.append(Record(n, offset, size, 1_700_000_000_000 + n * 1000, body))
        n += 1
    return made


def opened(segment: bytes) -> Index:
    trailer = Trailer.read(segment)
    assert trailer.size == len(segment)
    assert zlib.crc32(segment[: trailer.data_bytes]) == trailer.data_checksum
    packed = segment[trailer.data_bytes : trailer.data_bytes + trailer.index_bytes]
    return read_index(packed, trailer.index_checksum)


def test_the_bytes_of_a_segment_are_these() -> None:
    """Written by hand after docs/segments.md: what is stored must stay readable."""
    data = b"onetwo!"
    about = b'["1f00000000000001","text",7,2,100,100]\n'
    columns = b"".join(
        value.to_bytes(8, "little")
        for column in ([3, 4], [3, 4], [1_700_000_007_000, 1000])
        for value in column
    )
    index = zlib.compress(about + columns, 6)
    trailer = (
        len(data).to_bytes(8, "little")
        + len(index).to_bytes(4, "little")
        + zlib.crc32(data).to_bytes(4, "little")
        + zlib.crc32(index).to_bytes(4, "little")
        + b"\x01"
        + b"tailrace-1\n"
    )
    whole = data + index + trailer
    found = opened(whole)
    assert (found.chain, found.mode, found.first, found.stop) == (CHAIN, Mode.TEXT, 7, 9)
    assert [found.position(n) for n in (7, 8, 9)] == [(100, 100), (103, 103), (107, 107)]
    assert [found.time(n) for n in (7, 8)] == [1_700_000_007_000, 1_700_000_008_000]
    made = records(b"one", b"two!", n=7, offset=100, size=100)
    written = seal(CHAIN, Mode.TEXT, (100, 100), made)
    # zlib may pack differently elsewhere; what is packed is the same.
    assert written[: len(data)] == data
    cut = Trailer.read(written)
    packed = written[cut.data_bytes : cut.data_bytes + cut.index_bytes]
    assert zlib.decompress(packed) == about + columns


def test_json_bodies_are_stored_as_they_are_served() -> None:
    made = [Record(0, 2, 3, 1, b"1,2"), Record(1, 3, 4, 2, b"3"), Record(2, 4, 6, 3, b"{}")]
    segment = seal(CHAIN, Mode.JSON, (0, 0), made)
    assert segment.startswith(b"1,2,3,{}")
    index = opened(segment)
    whole = index.range(0, 3, 1 << 40)
    assert (whole.begin, whole.end, whole.n, whole.offset, whole.size) == (0, 8, 3, 4, 6)
    last = index.range(1, 3, 1 << 40)
    assert b"[%b]" % segment[last.begin : last.end] == b"[3,{}]"


modes = st.sampled_from(list(Mode))
bodies = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=40)


@bounded
@given(modes, bodies, st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.data())
def test_from_every_slot_the_bytes_are_those_of_its_bodies(
    mode: Mode, contents: list[bytes], first: int, size: int, data: st.DataObject
) -> None:
    made = records(*contents, n=first, offset=size, size=size)
    segment = seal(CHAIN, mode, (size, size), made)
    index = opened(segment)
    n = data.draw(st.integers(first, index.stop - 1))
    stop = data.draw(st.integers(n + 1, index.stop + 5))
    boundary = data.draw(st.integers(0, made[-1].size + 10))
    found = index.range(n, stop, boundary)
    held = made[n - first : found.n - first]
    assert index.split(n, found.n, segment[found.begin : found.end]) == [r.body for r in held]
    served = joined(mode, [record.body for record in held])
    raw = segment[found.begin : found.end]
    assert served == (b"[%b]" % raw if mode is Mode.JSON else raw)
    assert (found.offset, found.size) == (held[-1].offset, held[-1].size)
    # It ends at the first slot that passes the boundary, and not before that without a reason.
    assert all(record.size < boundary for record in held[:-1])
    assert found.n == min(stop, index.stop) or held[-1].size >= boundary


@bounded
@given(bodies)
def test_positions_and_times_are_kept(contents: list[bytes]) -> None:
    made = records(*contents, n=3, offset=50, size=50)
    index = opened(seal(CHAIN, Mode.BYTES, (50, 50), made))
    assert [index.time(record.n) for record in made] == [record.at for record in made]
    for one, two in pairwise(made):
        assert index.position(two.n) == (one.offset, one.size)
    assert index.position(made[0].n) == (50, 50)
    assert index.position(index.stop) == (made[-1].offset, made[-1].size)


@pytest.mark.parametrize(
    "made",
    [
        [],
        [*records(b"a", b"b"), *records(b"d", n=3, size=3, offset=3)],
        [*records(b"a"), *records(b"a")],
        [Record(0, 1, 2, 1, b"a")],
        [Record(0, 5, 1, 1, b"a"), Record(1, 4, 2, 2, b"b")],
    ],
    ids=["nothing", "a hole", "twice", "a wrong size", "an offset that falls"],
)
def test_records_that_do_not_follow_each_other_are_no_segment(made: list[Record]) -> None:
    with pytest.raises(BadSegment):
        seal(CHAIN, Mode.BYTES, (0, 0), made)


def test_every_damaged_byte_of_index_and_trailer_is_noticed() -> None:
    segment = bytearray(seal(CHAIN, Mode.TEXT, (0, 0), records(b"some", b"text")))
    good = opened(bytes(segment))
    for at in range(good.range(0, 2, 1 << 40).end, len(segment)):
        damaged = bytearray(segment)
        damaged[at] ^= 0xFF
        with pytest.raises((BadSegment, AssertionError)):
            opened(bytes(damaged))


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (b"", "too short"),
        (b"x" * (TRAILER_BYTES - 1), "too short"),
        (b"x" * TRAILER_BYTES, "does not end like a segment"),
        (b"\0" * 20 + b"\x02tailrace-1\n", "version is 2"),
    ],
)
def test_what_is_no_segment_is_told_so(tail: bytes, said: str) -> None:
    with pytest.raises(BadSegment, match=said):
        Trailer.read(tail)


def test_an_index_is_small() -> None:
    made = records(*[b"x" * 100] * 1000)
    trailer = Trailer.read(seal(CHAIN, Mode.BYTES, (0, 0), made))
    assert trailer.index_bytes < 500  # 107
