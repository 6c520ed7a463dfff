"""Merging: one segment instead of many, the same bytes, and nothing across a line of the grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.limits import MERGE_SEGMENTS
from tailrace.log.content import Mode
from tailrace.log.state import Producer
from tailrace.segments.format import BadSegment, pack, seal, unpack
from tailrace.segments.merge import MOST, Grid, merge, merges
from tailrace.segments.reader import Manifest
from tests.unit.segments.records import CHAIN, Drawn, bounded, drawn, records, signed
from tests.unit.segments.test_format import VERSION_1

WIDE = Grid(1 << 40, 1 << 40)

# Merging


@st.composite
def cut_up(draw: st.DrawFn) -> tuple[Drawn, list[bytes]]:
    """Slots of any kind, and segments of them, cut anywhere between two slots."""
    chain = draw(drawn())
    first, *later = chain.slots()
    cuts = draw(st.sets(st.sampled_from(later), max_size=6)) if later else set()
    edges = [first, *sorted(cuts), chain.slots().stop]
    return chain, [chain.seal(begin, stop) for begin, stop in pairwise(edges)]


def one(segments: Sequence[bytes]) -> bytes:
    return pack(merge([unpack(segment) for segment in segments]))


@bounded
@given(cut_up())
def test_a_merged_segment_equals_one_sealed_at_once(cut: tuple[Drawn, list[bytes]]) -> None:
    chain, parts = cut
    assert one(parts) == chain.seal()


@bounded
@given(cut_up(), st.data())
def test_the_order_in_which_neighbours_are_merged_does_not_matter(
    cut: tuple[Drawn, list[bytes]], data: st.DataObject
) -> None:
    chain, parts = cut
    while len(parts) > 1:
        at = data.draw(st.integers(0, len(parts) - 2))
        parts[at : at + 2] = [one(parts[at : at + 2])]
    assert parts == [chain.seal()]


def test_segments_of_version_1_are_merged_into_version_2() -> None:
    made = [*records(b"one", b"two!", [b"3", b"4"], n=7, offset=100, size=100)]
    last = seal(CHAIN, Mode.TEXT, (107, 107), made[2:])
    assert one([VERSION_1, last]) == seal(CHAIN, Mode.TEXT, (100, 100), made)


ONE = records(b"one")
TWO = records(b"two", n=1, offset=3, size=3)


@pytest.mark.parametrize(
    "second",
    [
        lambda: seal(CHAIN, Mode.TEXT, (3, 3), records(b"two", n=2, offset=3, size=3)),
        lambda: seal(CHAIN, Mode.TEXT, (0, 0), ONE),
        lambda: seal(CHAIN + 1, Mode.TEXT, (3, 3), TWO),
        lambda: seal(CHAIN, Mode.BYTES, (3, 3), TWO),
        lambda: seal(CHAIN, Mode.TEXT, (4, 3), records(b"two", n=1, offset=4, size=3)),
        lambda: seal(CHAIN, Mode.TEXT, (3, 4), records(b"two", n=1, offset=3, size=4)),
        lambda: seal(CHAIN, Mode.TEXT, (3, 3), [TWO[0]._replace(written_at=ONE[0].written_at - 1)]),
    ],
    ids=["a hole", "twice", "another chain", "another mode", "an offset", "a size", "a time"],
)
def test_segments_with_a_gap_are_not_merged(second: Callable[[], bytes]) -> None:
    first = seal(CHAIN, Mode.TEXT, (0, 0), ONE)
    with pytest.raises(BadSegment, match="does not follow"):
        one([first, second()])


def test_a_damaged_segment_is_not_merged() -> None:
    first = bytearray(seal(CHAIN, Mode.TEXT, (0, 0), ONE))
    first[0] ^= 1
    with pytest.raises(BadSegment, match="its data is damaged"):
        one([bytes(first), seal(CHAIN, Mode.TEXT, (3, 3), TWO)])


def test_authors_are_named_once_however_many_segments_they_wrote_to() -> None:
    till, shop = Producer("till", 1, 0), Producer("shop", 0, 5)
    parts = [
        seal(CHAIN, Mode.TEXT, (0, 0), signed(ONE, shop)),
        seal(CHAIN, Mode.TEXT, (3, 3), signed(TWO, None)),
        seal(CHAIN, Mode.TEXT, (6, 6), signed(records(b"3", n=2, offset=6, size=6), till)),
        seal(
            CHAIN, Mode.TEXT, (7, 7),
            signed(records(b"4", b"5", n=3, offset=7, size=7), shop, till),
        ),
    ]  # fmt: skip
    merged = merge([unpack(part) for part in parts])
    assert merged.authors == [("shop", 0), ("till", 1)]
    assert [*merged.producers()] == [shop, None, till, shop, till]


# Planning


def row(*shapes: tuple[int, int] | tuple[int, int, int], size: int = 0) -> list[Manifest]:
    """Segments that follow each other: slots, bytes and, if not 0, the level of each."""
    made, n = [], 0
    for slots, length, *levels in shapes:
        level, end = sum(levels), size + length
        made.append(Manifest(CHAIN, n, n + slots, f"{n}", length, 0, 0, 0, level, size, 0, end))
        n, size = n + slots, end
    return made


def spans(plan: Sequence[Sequence[Manifest]]) -> list[tuple[int, int]]:
    return [(olds[0].first, olds[-1].stop) for olds in plan]


def planned(manifests: Sequence[Manifest], grid: Grid) -> list[tuple[int, int]]:
    return spans([*merges(manifests, grid)])


def carried_out(manifests: Sequence[Manifest], grid: Grid) -> list[Manifest]:
    """The segments after all that is planned was done."""
    left = {each.first: each for each in manifests}
    for olds in merges(manifests, grid):
        assert all(one.stop == two.first for one, two in pairwise(olds))
        assert len({grid.cell(old.first, old.begin) for old in olds}) == 1, "a line was crossed"
        for old in olds:
            del left[old.first]
        one, two = olds[0], olds[-1]
        level = max(old.level for old in olds) + 1
        left[one.first] = one._replace(stop=two.stop, size=two.size, level=level)
    return sorted(left.values(), key=lambda each: each.first)


def committed(manifests: Sequence[Manifest], grid: Grid) -> list[Manifest]:
    """The segments when nothing is left to do."""
    for _ in range(20):
        after = carried_out(manifests, grid)
        if after == manifests:
            return after
        manifests = after
    raise AssertionError("it does not end")


def test_nothing_is_to_be_done_for_nothing_and_for_one() -> None:
    assert planned([], WIDE) == []
    assert planned(row((5, 50)), WIDE) == []
    assert planned(row((5, 50)), Grid(50, 1 << 40)) == []


def test_neighbours_of_one_level_wait_until_they_are_enough() -> None:
    many = [(1, 1)] * MERGE_SEGMENTS
    assert planned(row(*many[1:]), WIDE) == []
    assert planned(row(*many), WIDE) == [(0, MERGE_SEGMENTS)]
    assert planned(row((8, 8, 1), *many), WIDE) == [(8, 8 + MERGE_SEGMENTS)]
    assert planned(row((8, 8, 1), *many[1:]), WIDE) == []
    ones = [(8, 8, 1)] * MERGE_SEGMENTS
    assert planned(row(*ones, (1, 1)), WIDE) == [(0, 8 * MERGE_SEGMENTS)]


def test_a_full_cell_becomes_one_segment_regardless_of_levels() -> None:
    full = row((6, 60, 2), (3, 30, 1), (1, 5), (1, 5))
    assert planned(full, Grid(100, 1 << 40)) == [(0, 11)]
    assert planned(full, Grid(101, 1 << 40)) == [], "a byte is left"
    assert planned(full, Grid(1 << 40, 11)) == [(0, 11)]
    assert planned(full, Grid(1 << 40, 12)) == [], "a slot is left"


def test_a_cell_is_full_when_the_next_one_has_begun() -> None:
    # Its last entry is so large that it reaches into the cell after the next.
    both = row((1, 90), (1, 300), (1, 10))
    assert planned(both, Grid(100, 1 << 40)) == [(0, 2)]


def test_a_chain_that_begins_within_a_cell_keeps_to_the_lines() -> None:
    """A fork begins at a size that its source had."""
    assert planned(row((1, 20), (1, 20), (1, 20), size=160), Grid(100, 1 << 40)) == [(0, 2)]


def test_segments_read_during_another_merge_are_left_alone() -> None:
    many = row(*[(1, 1)] * (2 * MERGE_SEGMENTS))
    assert planned([*many[:3], *many[5:]], WIDE) == [], "a hole"
    merged = many[0]._replace(stop=8, size=8)
    assert planned([merged, *many[4:]], WIDE) == [], "an overlap"


def test_no_more_are_merged_than_one_transaction_can_replace() -> None:
    full = row(*[(1, 1)] * (2 * MOST + 1))
    grid = Grid(2 * MOST + 1, 1 << 40)
    assert planned(full, grid) == [(0, MOST), (MOST, 2 * MOST)]
    assert [(each.first, each.stop) for each in committed(full, grid)] == [(0, 2 * MOST + 1)]
    assert planned(full[:-1], grid) == [(0, MOST), (MOST, 2 * MOST)]
    assert 2 * MOST <= 100, "a transaction has at most 100 actions"


@st.composite
def written(draw: st.DrawFn) -> tuple[list[Manifest], Grid]:
    """Segments as they are written: of slots whose sizes are drawn, none across a line."""
    grid = Grid(draw(st.integers(50, 2000)), draw(st.integers(3, 60)))
    begun = draw(st.integers(0, 5000))
    sizes = draw(st.lists(st.integers(1, 150), max_size=300))
    most = draw(st.integers(1, 9))
    shapes: list[tuple[int, int]] = []
    size, cell = begun, (-1, -1)
    for n, length in enumerate(sizes):
        if grid.cell(n, size) != cell or shapes[-1][0] >= most:
            cell = grid.cell(n, size)
            shapes.append((0, 0))
        slots, bytes_ = shapes[-1]
        shapes[-1] = slots + 1, bytes_ + length
        size += length
    return row(*shapes, size=begun), grid


@bounded
@given(written())
def test_in_the_end_every_full_cell_is_one_segment(given_: tuple[list[Manifest], Grid]) -> None:
    manifests, grid = given_
    after = committed(manifests, grid)
    assert all(one.stop == two.first for one, two in pairwise(after))
    cells = [grid.cell(each.first, each.begin) for each in after]
    last = cells.count(cells[-1]) if cells else 0
    full = cells[: len(cells) - last]
    assert len(full) == len(set(full)), "one for each cell before the last"


@bounded
@given(written())
def test_an_entry_is_rewritten_once_for_each_level(given_: tuple[list[Manifest], Grid]) -> None:
    """Segment after segment, with a merge after each, as compaction goes on for years."""
    manifests, _ = given_
    present: list[Manifest] = []
    rewritten = 0
    for each in manifests:
        present.append(each)
        while (after := carried_out(present, WIDE)) != present:
            rewritten += sum(m.stop - m.first for m in after if m not in present)
            present = after
    slots = sum(each.stop - each.first for each in manifests)
    levels = 0
    while MERGE_SEGMENTS ** (levels + 1) <= len(manifests):
        levels += 1
    assert rewritten <= slots * levels
    assert len(present) <= (MERGE_SEGMENTS - 1) * (levels + 1)
