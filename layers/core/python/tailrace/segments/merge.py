"""Small segments become large ones.

A chain is laid over a grid: its cells end at multiples of `Grid.bytes` of the stream's size, and of
`Grid.slots`. No segment crosses a line, so cells are written and merged without regard to each
other, and in the end every full cell is one segment. Until then, as many neighbours of one level
as `MERGE_SEGMENTS` become one of the next, so that an entry is rewritten once for each level.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise, repeat
from typing import Final, NamedTuple

from tailrace.limits import MERGE_SEGMENTS
from tailrace.log.content import Mode
from tailrace.segments.format import Authors, BadSegment, Parts
from tailrace.segments.reader import Manifest

MOST: Final = 50
"""Segments that become one at a time: each takes two of the hundred actions of a transaction."""


class Grid(NamedTuple):
    bytes: int
    slots: int

    def cell(self, slot: int, size: int) -> tuple[int, int]:
        """The cell of the `slot` that begins where the stream has `size`."""
        return size // self.bytes, slot // self.slots


def merges(manifests: Sequence[Manifest], grid: Grid) -> Iterator[Sequence[Manifest]]:
    """Of a chain's segments in order, those that are to become one, neighbours each."""
    if any(one.stop != two.first for one, two in pairwise(manifests)):
        return  # They were read while another job merged them.
    cells = [list(cell) for _, cell in groupby(manifests, lambda m: grid.cell(m.first, m.begin))]
    for i, cell in enumerate(cells):
        last = cell[-1]
        full = i + 1 < len(cells) or grid.cell(last.stop, last.size) != grid.cell(
            last.first, last.begin
        )
        if full:
            yield from _batches(cell, 2)
        else:
            for _, run in groupby(cell, lambda manifest: manifest.level):
                yield from _batches(list(run), MERGE_SEGMENTS)


def merge(parts: Sequence[Parts]) -> Parts:
    """One segment that holds the slots of all, which follow each other."""
    for one, two in pairwise(parts):
        if (one.chain, one.mode, one.stop, one.end) != (
            two.chain, two.mode, two.first, (two.offset, two.size),
        ) or sum(one.pauses) > two.pauses[0]:  # fmt: skip
            raise BadSegment(f"slot {two.first} of {two.chain:016x} does not follow {one.stop - 1}")
    authors, pauses, counts, at = Authors(), array("Q"), array("Q"), 0
    for part in parts:
        for by in part.producers():
            authors.add(by)
        # The first pause is the time since 1970.
        pauses.append(part.pauses[0] - at)
        pauses.extend(part.pauses[1:])
        counts.extend(part.counts or repeat(1, len(part.pauses)))
        at = sum(part.pauses)
    chain, mode, first, offset, size, *_ = parts[0]
    data = (b"," if mode is Mode.JSON else b"").join(part.data for part in parts)
    return Parts(
        chain, mode, first, offset, size,
        _join_columns(parts, "lengths"), _join_columns(parts, "steps"), pauses,
        *authors.columns(), data, counts,
    )  # fmt: skip


def _batches(neighbours: Sequence[Manifest], least: int) -> Iterator[Sequence[Manifest]]:
    for begin in range(0, len(neighbours), MOST):
        batch = neighbours[begin : begin + MOST]
        if len(batch) >= least:
            yield batch


def _join_columns(parts: Sequence[Parts], column: str) -> array[int]:
    return array("Q", (number for part in parts for number in getattr(part, column)))
