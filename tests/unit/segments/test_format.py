"""The segment format: fixed bytes, whatever is written can be read, and damage is noticed."""

from __future__ import annotations

import zlib
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.limits import MAX_INTEGER
from tailrace.log.content import Mode, join_bodies
from tailrace.log.state import Producer
from tailrace.segments.format import (
    TRAILER_BYTES,
    BadSegment,
    Index,
    Record,
    Trailer,
    pack,
    read_index,
    seal,
    unpack,
)

CHAIN = 0x1F00000000000001

bounded = settings(max_examples=40, deadline=None, derandomize=True)


def records(*bodies: bytes, n: int = 0, offset: int = 0, size: int = 0) -> list[Record]:
    """Bytes or text from a slot on, a second apart."""
    made = []
    for body in bodies:
        offset += len(body)
        size += len(body)
        made.append(Record(n, offset, size, 1_700_000_000_000 + n * 1000, body))
        n += 1
    return made


def signed(made: list[Record], *by: Producer | None) -> list[Record]:
    """The same, written by these producers."""
    return [record._replace(author=one) for record, one in zip(made, by, strict=True)]


def by_hand(data: bytes, about: bytes, *columns: list[int]) -> bytes:
    """A segment after docs/segments.md."""
    numbers = (number.to_bytes(8, "little") for column in columns for number in column)
    index = zlib.compress(about + b"".join(numbers), 6)
    return b"".join(
        (
            data,
            index,
            len(data).to_bytes(8, "little"),
            len(index).to_bytes(4, "little"),
            zlib.crc32(data).to_bytes(4, "little"),
            zlib.crc32(index).to_bytes(4, "little"),
            b"\x01",
            b"tailrace-1\n",
        )
    )


def opened(segment: bytes) -> Index:
    trailer = Trailer.read(segment)
    assert trailer.size == len(segment)
    assert zlib.crc32(segment[: trailer.data_bytes]) == trailer.data_checksum
    packed = segment[trailer.data_bytes : trailer.data_bytes + trailer.index_bytes]
    return read_index(packed, trailer.index_checksum)


def test_the_bytes_of_a_segment_are_these() -> None:
    """Written by hand: what is stored must stay readable."""
    about = b'["1f00000000000001","text",7,2,100,100]\n'
    whole = by_hand(b"onetwo!", about, [3, 4], [3, 4], [1_700_000_007_000, 1000])
    found = opened(whole)
    assert (found.chain, found.mode, found.first, found.stop) == (CHAIN, Mode.TEXT, 7, 9)
    assert [found.start_of(n) for n in (7, 8, 9)] == [(100, 100), (103, 103), (107, 107)]
    assert [found.time(n) for n in (7, 8)] == [1_700_000_007_000, 1_700_000_008_000]
    assert [*unpack(whole).producers()] == [None, None]
    made = records(b"one", b"two!", n=7, offset=100, size=100)
    assert seal(CHAIN, Mode.TEXT, (100, 100), made) == whole
    assert pack(unpack(whole)) == whole


def test_the_bytes_of_a_segment_with_producers_are_these() -> None:
    about = b'["1f00000000000001","json",7,4,100,90,[["till-7",3],["\xc3\xa4",0]]]\n'
    whole = by_hand(
        b"1,2,3,{},4", about,
        [3, 1, 2, 1], [2, 1, 1, 1], [1_700_000_000_000, 0, 5, 1000],
        [1, 0, 2, 1], [41, 0, 0, 42],
    )  # fmt: skip
    authors = Producer("till-7", 3, 41), None, Producer("ä", 0, 0), Producer("till-7", 3, 42)
    parts = unpack(whole)
    assert [*parts.producers()] == [*authors]
    assert [*parts.bodies()] == [b"1,2", b"3", b"{}", b"4"]
    assert (parts.stop, parts.end) == (11, (105, 97))
    index = opened(whole)
    assert [index.start_of(n) for n in range(7, 12)] == [
        (100, 90), (102, 93), (103, 94), (104, 96), (105, 97),
    ]  # fmt: skip
    now = 1_700_000_000_000
    made = [
        Record(7, 102, 93, now, b"1,2", authors[0]),
        Record(8, 103, 94, now, b"3"),
        Record(9, 104, 96, now + 5, b"{}", authors[2]),
        Record(10, 105, 97, now + 1005, b"4", authors[3]),
    ]
    assert seal(CHAIN, Mode.JSON, (100, 90), made) == whole
    assert pack(parts) == whole


def test_json_bodies_are_stored_as_they_are_served() -> None:
    made = [Record(0, 2, 3, 1, b"1,2"), Record(1, 3, 4, 2, b"3"), Record(2, 4, 6, 3, b"{}")]
    segment = seal(CHAIN, Mode.JSON, (0, 0), made)
    assert segment.startswith(b"1,2,3,{}")
    index = opened(segment)
    whole = index.range(0, 3, 1 << 40)
    assert (whole.begin, whole.end, whole.slot, whole.offset, whole.size) == (0, 8, 3, 4, 6)
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
    held = made[n - first : found.slot - first]
    assert index.split(n, found.slot, segment[found.begin : found.end]) == [r.body for r in held]
    served = join_bodies(mode, [record.body for record in held])
    raw = segment[found.begin : found.end]
    assert served == (b"[%b]" % raw if mode is Mode.JSON else raw)
    assert (found.offset, found.size) == (held[-1].offset, held[-1].size)
    # It ends at the first slot that passes the boundary, and not before that without a reason.
    assert all(record.size < boundary for record in held[:-1])
    assert found.slot == min(stop, index.stop) or held[-1].size >= boundary


@bounded
@given(bodies)
def test_positions_and_times_are_kept(contents: list[bytes]) -> None:
    made = records(*contents, n=3, offset=50, size=50)
    index = opened(seal(CHAIN, Mode.BYTES, (50, 50), made))
    assert [index.time(record.slot) for record in made] == [record.written_at for record in made]
    for one, two in pairwise(made):
        assert index.start_of(two.slot) == (one.offset, one.size)
    assert index.start_of(made[0].slot) == (50, 50)
    assert index.start_of(index.stop) == (made[-1].offset, made[-1].size)


producers = st.none() | st.builds(
    Producer, st.text(max_size=4), st.integers(0, 3), st.integers(0, MAX_INTEGER)
)


@bounded
@given(modes, bodies, st.integers(0, 1 << 40), st.data())
def test_a_sealed_segment_unpacks_and_packs_to_the_same_bytes(
    mode: Mode, contents: list[bytes], first: int, data: st.DataObject
) -> None:
    authors = data.draw(st.lists(producers, min_size=len(contents), max_size=len(contents)))
    made = signed(records(*contents, n=first, offset=9, size=5), *authors)
    segment = seal(CHAIN, mode, (9, 5), made)
    parts = unpack(segment)
    assert (parts.chain, parts.mode, parts.first, parts.stop) == (
        CHAIN, mode, first, first + len(made),
    )  # fmt: skip
    assert (parts.offset, parts.size, parts.end) == (9, 5, (made[-1].offset, made[-1].size))
    assert [*parts.bodies()] == contents
    assert [*parts.producers()] == authors
    assert pack(parts) == segment
    index = opened(segment)
    assert [index.time(record.slot) for record in made] == [record.written_at for record in made]


def test_producers_of_many_entries_take_a_byte_or_two_each() -> None:
    made = records(*[b"x" * 100] * 1000)
    authors = [Producer(f"sensor-{i % 5}", 0, i // 5) for i in range(1000)]
    without = Trailer.read(seal(CHAIN, Mode.BYTES, (0, 0), made)).index_bytes
    index = Trailer.read(seal(CHAIN, Mode.BYTES, (0, 0), signed(made, *authors))).index_bytes
    assert index - without < 2000  # 700


@pytest.mark.parametrize(
    "made",
    [
        [],
        [*records(b"a", b"b"), *records(b"d", n=3, size=3, offset=3)],
        [*records(b"a"), *records(b"a")],
        [Record(0, 1, 2, 1, b"a")],
        [Record(0, 5, 1, 1, b"a"), Record(1, 4, 2, 2, b"b")],
        [Record(0, 1, 1, 2, b"a"), Record(1, 2, 2, 1, b"b")],
    ],
    ids=["nothing", "a hole", "twice", "a wrong size", "a falling offset", "a falling time"],
)
def test_records_that_do_not_follow_each_other_are_no_segment(made: list[Record]) -> None:
    with pytest.raises(BadSegment):
        seal(CHAIN, Mode.BYTES, (0, 0), made)


@pytest.mark.parametrize("by", [None, Producer("till-7", 0, 1)], ids=["plain", "produced"])
def test_every_damaged_byte_is_noticed(by: Producer | None) -> None:
    made = signed(records(b"some", b"text", b"more"), None, by, None)
    segment = seal(CHAIN, Mode.TEXT, (0, 0), made)
    for at in range(len(segment)):
        for bit in range(8):
            damaged = bytearray(segment)
            damaged[at] ^= 1 << bit
            with pytest.raises(BadSegment):
                unpack(bytes(damaged))
    assert [*unpack(segment).bodies()] == [b"some", b"text", b"more"]


def test_a_damaged_index_is_noticed_without_the_data() -> None:
    segment = seal(CHAIN, Mode.TEXT, (0, 0), records(b"some", b"text"))
    trailer = Trailer.read(segment)
    packed = segment[trailer.data_bytes : -TRAILER_BYTES]
    for at in range(len(packed)):
        damaged = bytearray(packed)
        damaged[at] ^= 0xFF
        with pytest.raises(BadSegment, match="its index is damaged"):
            read_index(bytes(damaged), trailer.index_checksum)


def test_a_segment_that_is_cut_off_or_goes_on_is_noticed() -> None:
    segment = seal(CHAIN, Mode.TEXT, (0, 0), records(b"some", b"text"))
    for end in range(len(segment)):
        with pytest.raises(BadSegment):
            unpack(segment[:end])
        with pytest.raises(BadSegment):
            unpack(segment[end + 1 :])
    with pytest.raises(BadSegment):
        unpack(segment + b"\0")
    with pytest.raises(BadSegment, match="bytes, not"):
        unpack(b"\0" + segment)


@pytest.mark.parametrize(
    ("data", "columns", "said"),
    [
        (b"ab", [[1, 1], [1, 1], [5]], "as many numbers"),
        (b"ab", [[1, 1], [1, 1], [5, 0], [1]], "as many numbers"),
        (b"abc", [[1, 1], [1, 1], [5, 0]], "does not fit its data"),
        (b"", [[1, 1], [1, 1], [5, 0]], "does not fit its data"),
    ],
)
def test_an_index_that_cannot_be_is_noticed(
    data: bytes, columns: list[list[int]], said: str
) -> None:
    about = b'["1f00000000000001","text",0,2,0,0]\n'
    with pytest.raises(BadSegment, match=said):
        unpack(by_hand(data, about, *columns))


def test_half_a_number_in_an_index_is_noticed() -> None:
    about = b'["1f00000000000001","text",0,1,0,0]\n' + bytes(23)
    with pytest.raises(BadSegment, match="as many numbers"):
        unpack(by_hand(b"", about))


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (b"", "too short"),
        (b"x" * (TRAILER_BYTES - 1), "too short"),
        (b"x" * TRAILER_BYTES, "does not end like a segment"),
        (b"\0" * 20 + b"\x02tailrace-1\n", "version is 2"),
    ],
)
def test_an_object_that_is_no_segment_is_rejected(tail: bytes, said: str) -> None:
    with pytest.raises(BadSegment, match=said):
        Trailer.read(tail)


def test_an_index_is_small() -> None:
    made = records(*[b"x" * 100] * 1000)
    trailer = Trailer.read(seal(CHAIN, Mode.BYTES, (0, 0), made))
    assert trailer.index_bytes < 500  # 107
