"""Retention in the table: which slots a rule removes, and in which steps.

    name        `retained_from` moves up, and with it `archived_to` if slots are removed that are in
                no segment: from now on nothing before is read, no fork may begin there, and
                compaction goes on from there
    segments    their manifests are removed, their objects a grace period later
    slots       are removed from the table; `trimmed_to` moves up when all of them are

A run that ends between two steps leaves the rest to the next one. Slots in segments are removed by
whole segments, the others one by one. A stream that has forks, or is only kept for them, is left
alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from tailrace.aws.client.failures import ConditionFailed, TransactionCanceled
from tailrace.log.retention import Keep, Piece, may_remove
from tailrace.log.state import State
from tailrace.segments.format import read_index
from tailrace.segments.reader import Manifest
from tailrace.store.dynamodb import actions, layout
from tailrace.store.dynamodb.bodies import Bucket
from tailrace.store.dynamodb.layout import Name
from tailrace.store.dynamodb.reading import last_state
from tailrace.store.dynamodb.segments import all_segments
from tailrace.store.dynamodb.table import Table
from tailrace.store.dynamodb.trimming import advance_pointer, remove_slots


class Plan(NamedTuple):
    """The slots to remove from a stream."""

    name: Name
    first: int
    """The first slot that stays."""
    archived: int
    """The first slot that is in no segment."""
    segments: Sequence[Manifest]
    """Those before the first slot that stays."""
    bytes: int
    """Of single slots to remove; roughly, since the length of the first is not read."""


class Removed(NamedTuple):
    items: int
    objects: int
    bytes: int


async def plan(
    table: Table, bucket: Bucket, name: Name, keep: Keep, now: int, grace: int
) -> Plan | None:
    """Plan what a rule removes now, and what an earlier run left; None: nothing.

    A slot that was filled and is empty again must be older than any tail that a writer may still
    trust (see `log.trimming`), so nothing younger than the grace period, in seconds, goes."""
    if name.forked or name.tombstone is not None:
        return None
    segments = await all_segments(table, name.stream.id)
    state = await last_state(table, name.stream)
    if state.deleted:
        return None
    first, size = name.earliest, 0
    archived = max(name.archived, segments[-1].stop if segments else 0)
    for segment in segments:
        if segment.stop <= first:
            continue
        at = await _last_time(bucket, segment, name, keep, state, now, grace)
        if at is None or not may_remove(keep, state, _piece(segment, at), now, grace):
            break
        first = segment.stop
    else:
        async for piece, length in _slots(table, name.stream.id, first):
            if piece.stop != first + 1 or not may_remove(keep, state, piece, now, grace):
                break
            first = piece.stop
            size += length
    before = [segment for segment in segments if segment.stop <= first]
    if first == name.earliest and not before and name.trimmed >= first:
        return None
    return Plan(name, first, archived, before, size)


async def estimate(table: Table, plan: Plan) -> Removed:
    """Count what a plan would remove."""
    return _sum(plan, plan.segments, *await _count(table, plan))


async def carry_out(table: Table, plan: Plan, due: int) -> Removed | None:
    """Carry out a plan; objects are removed when `due`. None: the stream changed, and stays."""
    name, first = plan.name, plan.first
    if first > name.earliest and not await _advance_beginning(table, plan):
        return None
    removed = []
    for segment in plan.segments:
        try:
            await table.transact(
                [actions.remove_segment(segment), actions.put_upload_intent(segment.key, due)]
            )
        except TransactionCanceled:
            continue  # Another run has removed it, or merged it with one that stays.
        removed.append(segment)
    slots, objects = await _count(table, plan)
    if slots:
        await remove_slots(table, name.stream.id, first, due)
    if name.trimmed < first:
        await advance_pointer(table, name, layout.TRIMMED, first)
    return _sum(plan, removed, slots, objects)


def _sum(plan: Plan, segments: Sequence[Manifest], slots: int, objects: int) -> Removed:
    size = plan.bytes + sum(segment.size - segment.begin for segment in segments)
    return Removed(len(segments) + slots, len(segments) + objects, size)


async def _count(table: Table, plan: Plan) -> tuple[int, int]:
    """Slots before the first that stays which are in the table, and objects that they have."""
    slots = objects = 0
    if plan.name.trimmed < plan.first:
        last = layout.slot_text(plan.first - 1)
        async for page in table.all_keys(layout.chain_partition(plan.name.stream.id), "k", last):
            slots += len(page)
            objects += sum("k" in item for item in page)
    return slots, objects


async def _advance_beginning(table: Table, plan: Plan) -> bool:
    """Move a stream's beginning up to the first slot that stays, unless it has forks."""
    name = plan.name
    values: dict[str, Any] = {
        ":id": layout.text(layout.id_text(name.stream.id)),
        ":first": layout.number(plan.first),
        ":zero": layout.number(0),
    }
    change = "SET retained_from = :first"
    condition = (
        "incarnation = :id AND attribute_not_exists(tombstone_slot)"
        " AND (attribute_not_exists(fork_count) OR fork_count = :zero)"
        " AND (attribute_not_exists(retained_from) OR retained_from < :first)"
    )
    if plan.archived < plan.first:
        # Slots that go without having been archived must not be archived meanwhile.
        change += ", archived_to = :first"
        is_base = plan.archived == name.stream.config.base[0]
        none = " OR attribute_not_exists(archived_to)" if is_base else ""
        condition += f" AND (archived_to = :archived{none})"
        values[":archived"] = layout.number(plan.archived)
    try:
        await table.update(layout.name_key(name.stream.path), change, condition, values)
    except ConditionFailed:
        return False
    return True


async def _last_time(
    bucket: Bucket, segment: Manifest, name: Name, keep: Keep, state: State, now: int, grace: int
) -> int | None:
    """When the last entry of a segment was written, as far as it matters; None: it stays anyway.

    That is in the segment's index. But it was after the stream was created and before the segment
    was, and mostly one of these is enough to know."""
    if may_remove(keep, state, _piece(segment, segment.committed_at), now, grace):
        return segment.committed_at
    if not may_remove(keep, state, _piece(segment, name.stream.config.created), now, grace):
        return None
    end = segment.data_bytes + segment.index_bytes
    packed = await bucket.get(segment.key, segment.data_bytes, end)
    return read_index(packed, segment.index_checksum).time(segment.stop - 1)


def _piece(segment: Manifest, at: int) -> Piece:
    return Piece(segment.stop, at, segment.size)


async def _slots(table: Table, chain: int, first: int) -> AsyncIterator[tuple[Piece, int]]:
    """The slots of a chain that are in the table, with the lengths of their bodies if known."""
    partition, size = layout.chain_partition(chain), None
    async for page in table.all_keys(partition, "a, z", first=layout.slot_text(first)):
        for item in page:
            slot, at, end = int(item["s"]["S"]), int(item["a"]["N"]), int(item["z"]["N"])
            yield Piece(slot + 1, at, end), 0 if size is None else end - size
            size = end
