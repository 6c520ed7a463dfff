"""The segment format: fixed bytes, whatever is written can be read, and damage is noticed."""

from __future__ import annotations

import zlib
from itertools import accumulate, chain

import pytest
from hypothesis import given

from tailrace.log.content import Mode
from tailrace.log.state import Producer
from tailrace.segments.format import (
    BLOCK_BYTES,
    TRAILER_BYTES,
    BadSegment,
    Parts,
    Record,
    Trailer,
    pack,
    read_index,
    seal,
    unpack,
)
from tailrace.segments.index import Index
from tests.unit.segments.records import CHAIN, Drawn, bounded, drawn, records, signed

NOW = 1_700_000_000_000


def by_hand(data: bytes, about: bytes, *columns: list[int], version: int = 2) -> bytes:
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
            version.to_bytes(1, "little"),
            b"tailrace-1\n",
        )
    )


def opened(segment: bytes) -> Index:
    trailer = Trailer.read(segment)
    assert trailer.size == len(segment)
    assert zlib.crc32(segment[: trailer.data_bytes]) == trailer.data_checksum
    packed = segment[trailer.data_bytes : trailer.data_bytes + trailer.index_bytes]
    return read_index(packed, trailer.index_checksum)


def listed(parts: Parts) -> list[Record]:
    """The records that a segment was made of."""
    counts = parts.counts or [1] * len(parts.pauses)
    slots = chain.from_iterable([parts.first + i] * count for i, count in enumerate(counts))
    times = list(accumulate(parts.pauses))
    return [
        Record(slot, offset, size, times[slot - parts.first], body, by)
        for slot, offset, size, body, by in zip(
            slots,
            list(accumulate(parts.steps, initial=parts.offset))[1:],
            list(accumulate(parts.lengths, initial=parts.size))[1:],
            parts.bodies(),
            parts.producers(),
            strict=True,
        )
    ]


AUTHORS = Producer("till-7", 3, 41), None, Producer("ä", 0, 0), Producer("till-7", 3, 42)

MANY = [
    Record(7, 102, 93, NOW, b"1,2", AUTHORS[0]),
    Record(7, 103, 94, NOW, b"3"),
    Record(7, 104, 96, NOW, b"{}", AUTHORS[2]),
    Record(8, 105, 97, NOW + 5, b"4", AUTHORS[3]),
]


def test_the_bytes_of_a_segment_are_these() -> None:
    """Written by hand: what is stored must stay readable."""
    about = b'[2,"1f00000000000001","text",7,2,2,100,100,[]]\n'
    checksum = zlib.crc32(b"onetwo!")
    whole = by_hand(b"onetwo!", about, [3, 4], [3, 4], [NOW + 7000, 1000], [checksum])
    made = records(b"one", b"two!", n=7, offset=100, size=100)
    assert seal(CHAIN, Mode.TEXT, (100, 100), made) == whole
    assert listed(unpack(whole)) == made


def test_the_bytes_of_a_segment_with_slots_of_several_appends_are_these() -> None:
    about = b'[2,"1f00000000000001","json",7,2,4,100,90,[["till-7",3],["\xc3\xa4",0]]]\n'
    whole = by_hand(
        b"1,2,3,{},4", about,
        [3, 1, 2, 1], [2, 1, 1, 1], [NOW, 5], [3, 1], [1, 0, 2, 1], [41, 0, 0, 42],
        [zlib.crc32(b"1,2,3,{},4")],
    )  # fmt: skip
    assert seal(CHAIN, Mode.JSON, (100, 90), MANY) == whole
    parts = unpack(whole)
    assert listed(parts) == MANY
    assert (parts.stop, parts.end) == (9, (105, 97))


VERSION_1 = bytes.fromhex(
    "6f6e6574776f21"
    "789c8b56324c334006864a3a4a25a915254a3ae63a463a860606201ccbc5cc00012c501a9d1fd1fcf47c372303c30ba8"
    "040089e80cc3"
    "0700000000000000 36000000 4d5b5198 9cf67c10 01 7461696c726163652d310a"
)
VERSION_1_PRODUCED = bytes.fromhex(
    "312c322c332c7b7d"
    "789c8b56324c334006864a3a4a59c5f9794a3ae63ac63a8606063a96063ad1d14a25993939bae64a3ac6b13ad14a8797"
    "28e918c4c6c6723133400023946642a319d168868ca7e7bbe11c060656747934fd9a0cd80100f9f412a3"
    "0800000000000000 5a000000 b6fe6d58 7315e0fb 01 7461696c726163652d310a"
)


@pytest.mark.parametrize(
    ("whole", "mode", "start", "made"),
    [
        (
            VERSION_1, Mode.TEXT, (100, 100),
            records(b"one", b"two!", n=7, offset=100, size=100),
        ),
        (
            VERSION_1_PRODUCED, Mode.JSON, (100, 90),
            [
                Record(7, 102, 93, NOW, b"1,2", AUTHORS[0]),
                Record(8, 103, 94, NOW, b"3"),
                Record(9, 104, 96, NOW + 5, b"{}", AUTHORS[2]),
            ],
        ),
    ],
    ids=["plain", "produced"],
)  # fmt: skip
def test_version_1_stays_readable(
    whole: bytes, mode: Mode, start: tuple[int, int], made: list[Record]
) -> None:
    parts, index = unpack(whole), opened(whole)
    assert (parts.chain, parts.mode, parts.first, parts.stop) == (CHAIN, mode, 7, 7 + len(made))
    assert listed(parts) == made
    assert [index.start_of(7), *(index.start_of(each.slot + 1) for each in made)] == [
        start, *((each.offset, each.size) for each in made)
    ]  # fmt: skip
    assert [index.time(each.slot) for each in made] == [each.written_at for each in made]
    assert pack(parts) == seal(CHAIN, mode, start, made), "it is written as version 2"


@bounded
@given(drawn())
def test_a_sealed_segment_unpacks_and_packs_to_the_same_bytes(chain: Drawn) -> None:
    segment, made = chain.seal(), chain.made
    parts = unpack(segment)
    assert (parts.chain, parts.mode, parts.first, parts.stop) == (
        CHAIN, chain.mode, made[0].slot, made[-1].slot + 1,
    )  # fmt: skip
    assert (parts.offset, parts.size) == chain.start
    assert parts.end == (made[-1].offset, made[-1].size)
    assert listed(parts) == made
    assert pack(parts) == segment


def test_json_bodies_are_stored_as_they_are_served() -> None:
    assert seal(CHAIN, Mode.JSON, (100, 90), MANY).startswith(b"1,2,3,{},4")


def test_producers_of_many_appends_take_a_byte_or_two_each() -> None:
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
        [*records(b"a", b"b"), *records(b"c", n=0, size=2, offset=2)],
        [*records(b"a"), *records(b"a")],
        [Record(0, 1, 2, 1, b"a")],
        [Record(0, 5, 1, 1, b"a"), Record(1, 4, 2, 2, b"b")],
        [Record(0, 1, 1, 2, b"a"), Record(1, 2, 2, 1, b"b")],
        [Record(0, 1, 1, 1, b"a"), Record(0, 2, 2, 2, b"b")],
    ],
    ids=[
        "nothing", "a hole", "an earlier slot", "twice", "a wrong size", "a falling offset",
        "a falling time", "two times in a slot",
    ],
)  # fmt: skip
def test_records_that_do_not_follow_each_other_are_no_segment(made: list[Record]) -> None:
    with pytest.raises(BadSegment):
        seal(CHAIN, Mode.BYTES, (0, 0), made)


@pytest.mark.parametrize("by", [None, Producer("till-7", 0, 1)], ids=["plain", "produced"])
def test_every_damaged_byte_is_noticed(by: Producer | None) -> None:
    made = signed(records([b"some", b"text"], b"more"), None, by, None)
    segment = seal(CHAIN, Mode.TEXT, (0, 0), made)
    for at in range(len(segment)):
        for bit in range(8):
            damaged = bytearray(segment)
            damaged[at] ^= 1 << bit
            with pytest.raises(BadSegment):
                unpack(bytes(damaged))
    assert listed(unpack(segment)) == made


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


CHECKSUM = zlib.crc32(b"ab")


@pytest.mark.parametrize(
    ("data", "appends", "columns", "said"),
    [
        (b"ab", 2, [[1, 1], [1, 1], [5], [CHECKSUM]], "the numbers that it should"),
        (b"ab", 2, [[1, 1], [1, 1], [5, 0]], "the numbers that it should"),
        (b"ab", 2, [[1, 1], [1, 1], [5, 0], [CHECKSUM, 0]], "the numbers that it should"),
        (b"ab", 3, [[1, 1, 0], [1, 1, 0], [5, 0], [1, 1], [CHECKSUM]], "the numbers that it"),
        (b"abc", 2, [[1, 1], [1, 1], [5, 0], [CHECKSUM]], "does not fit its data"),
        (b"", 2, [[1, 1], [1, 1], [5, 0], [CHECKSUM]], "does not fit its data"),
        (b"ab", 2, [[1, 1], [1, 1], [5, 0], [CHECKSUM + 1]], "does not fit its data"),
    ],
)
def test_an_index_that_cannot_be_is_noticed(
    data: bytes, appends: int, columns: list[list[int]], said: str
) -> None:
    about = b'[2,"1f00000000000001","text",0,2,%d,0,0,[]]\n' % appends
    with pytest.raises(BadSegment, match=said):
        unpack(by_hand(data, about, *columns))


def test_an_index_of_version_1_that_cannot_be_is_noticed() -> None:
    about = b'["1f00000000000001","text",0,2,0,0]\n'
    with pytest.raises(BadSegment, match="the numbers that it should"):
        unpack(by_hand(b"ab", about, [1, 1], [1, 1], [5], version=1))


def test_half_a_number_in_an_index_is_noticed() -> None:
    about = b'[2,"1f00000000000001","text",0,1,1,0,0,[]]\n' + bytes(23)
    with pytest.raises(BadSegment, match="the numbers that it should"):
        unpack(by_hand(b"", about))


def test_an_index_of_another_version_is_noticed() -> None:
    with pytest.raises(BadSegment, match="version is 3"):
        opened(by_hand(b"", b'[3,"what it may be"]\n'))


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (b"", "too short"),
        (b"x" * (TRAILER_BYTES - 1), "too short"),
        (b"x" * TRAILER_BYTES, "does not end like a segment"),
        (b"\0" * 20 + b"\x03tailrace-1\n", "version is 3"),
    ],
)
def test_an_object_that_is_no_segment_is_rejected(tail: bytes, said: str) -> None:
    with pytest.raises(BadSegment, match=said):
        Trailer.read(tail)


def test_an_index_is_small() -> None:
    made = records(*[b"x" * 100] * 1000)
    trailer = Trailer.read(seal(CHAIN, Mode.BYTES, (0, 0), made))
    assert trailer.index_bytes < 500  # 136
    together = records(*[[b"x" * 100] * 10] * 100)
    assert Trailer.read(seal(CHAIN, Mode.BYTES, (0, 0), together)).index_bytes < 500  # 129
    large = records(*(b"%03d." % i * (BLOCK_BYTES // 4) for i in range(256)))
    assert Trailer.read(seal(CHAIN, Mode.BYTES, (0, 0), large)).index_bytes < 2000  # 1400
