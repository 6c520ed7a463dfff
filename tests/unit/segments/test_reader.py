"""Reads of segments: from every slot and offset, only what was verified, and what is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.content import Mode
from tailrace.log.state import Chunk, SlotInfo
from tailrace.segments.format import BLOCK_BYTES, BadSegment, Record, Trailer, seal
from tailrace.segments.reader import FindSegment, Manifest, R, ReadBytes, SegmentReader, Steps
from tests.unit.segments.records import CHAIN, Drawn, bounded, drawn, records
from tests.unit.segments.test_format import VERSION_1

PLENTY = 1 << 60


class Segments:
    """Answers the requests of reads, from segments in memory."""

    def __init__(self, *segments: tuple[int, int, bytes]) -> None:
        """Each with its first slot and the one after its last."""
        self.asked: list[ReadBytes] = []
        self.segments: dict[str, bytes] = {}
        self.manifests: list[Manifest] = []
        for first, stop, segment in segments:
            end = Trailer.read(segment)
            key = f"segment-{first}"
            self.segments[key] = segment
            self.manifests.append(
                Manifest(
                    CHAIN, first, stop, key, end.data_bytes, end.index_bytes, end.index_checksum, 0
                )
            )

    def run(self, steps: Steps[R]) -> R:
        answer: Manifest | bytes | None = None
        try:
            while True:
                request = steps.send(answer)
                if isinstance(request, FindSegment):
                    answer = self._find(*request)
                else:
                    self.asked.append(request)
                    answer = self.segments[request.manifest.key][request.begin : request.end]
        except StopIteration as done:
            result: R = done.value
            return result

    def _find(self, chain: int, slot: int) -> Manifest | None:
        held = (each for each in self.manifests if each.chain == chain)
        return next((each for each in held if each.first <= slot < each.stop), None)


def read(
    segments: Segments, slot: int, stop: int = PLENTY, boundary: int = PLENTY, after: int = 0
) -> Chunk:
    chunk = segments.run(SegmentReader(0).read(CHAIN, slot, stop, boundary, after))
    assert chunk is not None
    return chunk


def expected(chain: Drawn, slot: int, stop: int, boundary: int, after: int) -> Chunk:
    """The chunk that a read returns, by a list of all appends."""
    taken: list[Record] = []
    for record in chain.made:
        if taken and taken[-1].slot != record.slot and taken[-1].size >= boundary:
            break
        if slot <= record.slot < stop:
            taken.append(record)
    last = taken[-1]
    skips = chain.before(slot)[0] < after
    bodies = [e.body for e in taken if not (skips and e.slot == slot and e.offset <= after)]
    return Chunk(bodies, last.slot + 1, last.offset, last.size, cold=True)


lengths = [*range(1, 40), 5_000, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1]


@bounded
@given(drawn(lengths), st.data())
def test_from_every_slot_and_offset_a_read_returns_what_follows(
    chain: Drawn, data: st.DataObject
) -> None:
    slots, sizes = chain.slots(), [record.size for record in chain.made]
    segments = Segments((slots[0], slots[-1] + 1, chain.seal()))
    reader = SegmentReader(PLENTY)
    stop = data.draw(st.integers(slots[0] + 1, slots[-1] + 5))
    boundary = data.draw(st.integers(0, sizes[-1] + 10) | st.sampled_from(sizes))
    for slot in range(slots[0], min(stop, slots[-1] + 1)):
        ends = [record.offset for record in chain.made if record.slot == slot]
        for after in {0, chain.before(slot)[0], *ends, *(end + 1 for end in ends)}:
            chunk = segments.run(reader.read(CHAIN, slot, stop, boundary, after))
            assert chunk == expected(chain, slot, stop, boundary, after)


@bounded
@given(drawn())
def test_positions_and_times_of_every_slot_are_known(chain: Drawn) -> None:
    slots = chain.slots()
    segments, reader = Segments((slots[0], slots[-1] + 1, chain.seal())), SegmentReader(PLENTY)
    for slot in slots:
        appends = [each for each in chain.made if each.slot == slot]
        assert segments.run(reader.start_of(CHAIN, slot)) == chain.before(slot)
        assert segments.run(reader.end_of(CHAIN, slot)) == chain.before(slot + 1)
        info = SlotInfo(appends[-1].offset, appends[-1].written_at)
        assert segments.run(reader.slot_info(CHAIN, slot)) == info


def test_a_slot_in_no_segment_is_not_found() -> None:
    segments, reader = Segments(), SegmentReader(0)
    assert segments.run(reader.read(CHAIN, 0, 9, 9)) is None
    assert segments.run(reader.start_of(CHAIN, 0)) is None
    assert segments.run(reader.end_of(CHAIN, 0)) is None
    assert segments.run(reader.slot_info(CHAIN, 0)) is None


def test_a_read_in_a_slot_that_passes_the_boundary_ends_with_the_slot() -> None:
    """The boundary is found from where the slot begins, wherever in it the read begins."""
    made = records(b"a", [b"bb", b"cc", b"dd"], b"e")
    segments = Segments((0, 3, seal(CHAIN, Mode.TEXT, (0, 0), made)))
    assert read(segments, 1, boundary=4, after=3) == Chunk([b"cc", b"dd"], 2, 7, 7, cold=True)
    assert read(segments, 1, boundary=4, after=4) == Chunk([b"cc", b"dd"], 2, 7, 7, cold=True)
    assert read(segments, 1, boundary=4, after=7) == Chunk([], 2, 7, 7, cold=True)


@pytest.mark.parametrize("mode", Mode)
def test_an_empty_read_takes_nothing_but_the_index(mode: Mode) -> None:
    segments = Segments((0, 1, seal(CHAIN, mode, (0, 0), records([b"1", b"2"]))))
    assert read(segments, 0, after=2) == Chunk([], 1, 2, 2, cold=True)
    assert [request.begin for request in segments.asked] == [segments.manifests[0].data_bytes]


# Verification

BODY = bytes(range(250)) * 20
"""Three of them are a little less than a block."""

WHOLE = seal(CHAIN, Mode.BYTES, (0, 0), records(*[BODY] * 12))


def test_a_read_takes_whole_blocks_and_no_more() -> None:
    segments = Segments((0, 12, WHOLE))
    end = segments.manifests[0].data_bytes
    for slot, begin, stop in ((0, 0, 1), (2, 0, 1), (3, 0, 2), (4, 1, 2), (11, 3, 4)):
        segments.asked.clear()
        assert read(segments, slot, slot + 1).bodies == [BODY]
        blocks = begin * BLOCK_BYTES, min(stop * BLOCK_BYTES, end)
        assert [request[1:] for request in segments.asked[1:]] == [blocks]


def test_a_damaged_block_is_named_and_not_returned() -> None:
    good = Segments((0, 12, WHOLE))
    key, end = good.manifests[0].key, good.manifests[0].data_bytes
    for at in range(0, end, 1_111):
        damaged = bytearray(WHOLE)
        damaged[at] ^= 1
        good.segments[key] = bytes(damaged)
        block = at // BLOCK_BYTES
        for slot in range(12):
            touched = range(
                slot * 5_000 // BLOCK_BYTES, ((slot + 1) * 5_000 - 1) // BLOCK_BYTES + 1
            )
            if block in touched:
                named = f"segment {key} of {CHAIN:016x}: block {block} of its data is damaged"
                with pytest.raises(BadSegment, match=named):
                    read(good, slot, slot + 1)
            else:
                assert read(good, slot, slot + 1).bodies == [BODY]


@pytest.mark.parametrize("whole", [VERSION_1, WHOLE], ids=["version 1", "version 2"])
def test_a_segment_that_is_cut_off_is_named_and_not_returned(whole: bytes) -> None:
    first = 7 if whole is VERSION_1 else 0
    segments, reader = Segments((first, first + 2, whole)), SegmentReader(PLENTY)
    (manifest,) = segments.manifests
    end, wanted = manifest.data_bytes, (CHAIN, first, first + 2, PLENTY)
    segments.segments[manifest.key] = whole[: end + 3]
    with pytest.raises(BadSegment, match=f"{manifest.key} .*: it has 3 of the bytes from {end} up"):
        segments.run(reader.read(*wanted))
    segments.segments[manifest.key] = whole
    segments.run(reader.read(*wanted))
    segments.segments[manifest.key] = whole[:6]
    with pytest.raises(BadSegment, match=f"{manifest.key} .*: it has 6 of the bytes from 0 up"):
        segments.run(reader.read(*wanted))


def test_a_damaged_index_is_named() -> None:
    segments = Segments((0, 12, WHOLE))
    (manifest,) = segments.manifests
    manifest = segments.manifests[0] = manifest._replace(index_checksum=0)
    with pytest.raises(BadSegment, match=f"segment {manifest.key} .*: its index is damaged"):
        read(segments, 0)


def test_version_1_is_verified_as_a_whole_when_it_is_read_first() -> None:
    segments, reader = Segments((7, 9, VERSION_1)), SegmentReader(PLENTY)
    for wanted, chunk in (
        ((7, 9, PLENTY, 0), Chunk([b"one", b"two!"], 9, 107, 107, cold=True)),
        ((7, 9, 103, 0), Chunk([b"one"], 8, 103, 103, cold=True)),
        ((7, 9, PLENTY, 103), Chunk([b"two!"], 9, 107, 107, cold=True)),
    ):
        assert segments.run(reader.read(CHAIN, *wanted)) == chunk
    index, whole, *ranges = [request[1:] for request in segments.asked]
    assert (index, whole) == ((7, 61), (0, len(VERSION_1)))
    assert ranges == [(0, 7)] * 3


def test_a_wrong_bit_of_version_1_is_noticed() -> None:
    for place in range(len(VERSION_1)):
        damaged = bytearray(VERSION_1)
        damaged[place] ^= 1
        segments = Segments((7, 9, VERSION_1))
        (manifest,) = segments.manifests
        segments.segments[manifest.key] = bytes(damaged)
        with pytest.raises(BadSegment, match=f"^segment {manifest.key} of {CHAIN:016x}: [^:]*$"):
            read(segments, 7)
    # One that was read before is damaged later.
    segments, reader = Segments((7, 9, VERSION_1)), SegmentReader(PLENTY)
    segments.run(reader.start_of(CHAIN, 7))
    segments.segments[manifest.key] = b"x" + VERSION_1[1:]
    with pytest.raises(BadSegment, match="block 0 of its data is damaged"):
        segments.run(reader.read(CHAIN, 7, 9, PLENTY))


# Kept indexes


@pytest.mark.parametrize(("most", "kept"), [(0, 1), (12, 1), (13, 2), (19, 2), (20, 3)])
def test_indexes_are_kept_by_the_number_of_their_appends_and_blocks(most: int, kept: int) -> None:
    """Slots of several appends count as those."""
    segments = Segments(
        (0, 1, seal(CHAIN, Mode.TEXT, (0, 0), records([b"x"] * 6))),
        (
            1,
            3,
            seal(CHAIN, Mode.TEXT, (6, 6), records([b"x"] * 3, [b"y"] * 2, n=1, offset=6, size=6)),
        ),
        (3, 4, seal(CHAIN, Mode.TEXT, (11, 11), records([b"x"] * 6, n=3, offset=11, size=11))),
    )
    reader = SegmentReader(most)
    for slot in (0, 1, 3):
        segments.run(reader.start_of(CHAIN, slot))
    segments.asked.clear()
    for slot in (3, 1, 0):
        segments.run(reader.start_of(CHAIN, slot))
    assert len(segments.asked) == 3 - kept
