"""Any schedule: whatever happens, what was acknowledged is there, once, for everybody.

A seed is a story. TEST_SEED is the first one, TEST_SEEDS how many are tried in all;
tests/slow has thousands.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest

from devtools.dynamodb_simulator.loop import run
from tailrace.aws.client.failures import Item
from tailrace.errors import (
    ForkOutOfRange,
    OffsetMismatch,
    OffsetTrimmed,
    OutcomeUnknown,
    ProducerFenced,
    ProducerGap,
    SequenceConflict,
    StaleOffset,
    StoreUnavailable,
    StreamClosed,
    StreamConflict,
    StreamGone,
    StreamNotFound,
)
from tailrace.log import producers, slots
from tailrace.log.state import Entry, Fork, Part, State
from tailrace.segments import merge
from tailrace.segments.reader import Manifest
from tailrace.store.dynamodb import (
    actions,
    batches,
    layout,
    reading,
    segments,
    store,
    trimming,
)
from tailrace.store.dynamodb.batches import Batch
from tailrace.store.dynamodb.chain import Chain
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.store.dynamodb.table import Action, Table
from tests.integration.simulation.actors import MIXES
from tests.integration.simulation.rules import judge
from tests.integration.simulation.truth import Truth
from tests.integration.simulation.world import (
    RIVAL_SLOT_BYTES,
    SLOT_APPENDS,
    SLOT_BYTES,
    Make,
    World,
)

FIRST = int(os.environ.get("TEST_SEED", "0"))
SEEDS = int(os.environ.get("TEST_SEEDS", "60"))
STORIES = range(FIRST, FIRST + max(1, SEEDS // len(MIXES)))
"""An equal share of the seeds for every mix."""
STEPS = 60_000
"""Far more than any run takes: whoever needs them is going round in circles."""
SHOWN = 80
ENOUGH = 100
"""Seeds in which everything happens; ten are usually enough."""


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Few partitions to sweep, producers that spill soon, small slots, segments that are merged
    soon, no log of faults that are meant to be."""
    monkeypatch.setattr(layout, "NAME_SHARDS", 2)
    monkeypatch.setattr(producers, "PRODUCER_STATE_BYTES", 90)
    monkeypatch.setattr(batches, "SLOT_APPENDS", SLOT_APPENDS)
    monkeypatch.setattr(store, "SLOT_BYTES", SLOT_BYTES)
    monkeypatch.setattr(store, "RIVAL_SLOT_BYTES", RIVAL_SLOT_BYTES)
    monkeypatch.setattr(merge, "MERGE_SEGMENTS", 2)
    caplog.set_level(logging.CRITICAL, "tailrace")


def play(mix: str, seed: int, make: Make = DynamoStore) -> Truth:
    world = World(MIXES[mix], seed, make)
    try:
        return run(seed, lambda: judge(world), steps=STEPS)
    except Exception as error:
        story = [str(event) for event in world.table.trace() if event.at <= world.ended]
        again = f'TEST_SEED={seed} TEST_SEEDS=1 make test ARGS="-k promise[{mix}]"'
        message = [f"{mix}, seed {seed}: {error}", *story[-SHOWN:], f"Again: {again}"]
        raise AssertionError("\n".join(message)) from error


class Told(NamedTuple):
    """The final state of a run without a violation."""

    story: str
    seen: frozenset[str]


@cache
def told(mix: str, seed: int) -> Told:
    truth = play(mix, seed)
    return Told(truth.world.table.story(), frozenset(happenings(truth)))


@pytest.mark.parametrize("mix", MIXES)
def test_every_schedule_keeps_every_promise(mix: str) -> None:
    for seed in STORIES:
        told(mix, seed)


@pytest.mark.parametrize("mix", MIXES)
def test_one_seed_is_one_story(mix: str) -> None:
    again = play(mix, FIRST).world.table.story()
    assert again == told(mix, FIRST).story != told(mix, FIRST + 1).story


def test_the_worlds_are_eventful() -> None:
    expected = {
        *(f"{verb} fine" for verb in ("create", "append", "delete", "find", "read", "sweep")),
        *(f"{verb} unheard" for verb in ("create", "append", "delete", "read")),
        *(f"{verb} {OutcomeUnknown.code}" for verb in ("create", "append")),
        *(f"{verb} {StreamNotFound.code}" for verb in ("append", "delete", "find", "read")),
        *(f"{verb} {StreamGone.code}" for verb in ("append", "delete", "read")),
        *(f"append {kind.code}" for kind in (ProducerFenced, ProducerGap, SequenceConflict)),
        *(f"append {kind.code}" for kind in (StreamClosed, StoreUnavailable, OffsetMismatch)),
        f"create {StreamConflict.code}", f"create {ForkOutOfRange.code}",
        f"read {OffsetTrimmed.code}", f"read {StaleOffset.code}",
        "lost", "recovered", "spilled", "large", "expired", "trimmed", "erased",
        "shared", "shared to the full", "spilled together", "closed together",
        "a fork", "a fork within a slot", "a fork within an append", "a fork of a fork",
        "kept for a fork",
        "archived", "merged", "archived for a fork", "read from a segment", "a segment is gone",
    }  # fmt: skip
    for seed in range(ENOUGH):
        expected -= {what for mix in MIXES for what in told(mix, seed).seen}
        if not expected:
            break
    assert not expected


def happenings(truth: Truth) -> Iterator[str]:
    world = truth.world
    yield from (f"{call.verb} {call.outcome}" for call in world.calls)
    yield from (outcome for process in world.processes for outcome in process.store.outcomes)
    yield from ("large" for key in world.objects.ever if key.startswith("bodies/"))
    yield from ("a segment is gone" for key in world.objects.gone if key in truth.segments)
    readers = (process.store._segments for process in world.processes)
    yield from ("read from a segment" for reader in readers if reader and reader._used)
    for change in world.table.changes:
        if change.key[0][0] == "S" and change.after:
            yield "merged" if change.before else "archived"
            past = truth.pasts[layout.manifest_of(change.after).chain]
            yield "archived for a fork" if past.died < change.at else "archived"
    for at, past, _ in truth.removed:
        yield "trimmed" if at < past.died else "erased"
    for past in truth.pasts.values():
        fork = past.stream.config.fork
        if past.expires and past.died < world.ended:
            yield "expired"
        if past.died < past.released:
            yield "kept for a fork"
        if past.last.spilled:
            yield "spilled"
        if past.copied:
            yield "a fork within a slot"
        for entry in past.entries.values():
            if entry.parts:
                yield "shared"
                yield "closed together" if entry.state.closed else "shared"
                yield "spilled together" if entry.state.spilled else "shared"
            if len(entry.parts) == SLOT_APPENDS:
                yield "shared to the full"
        if fork is not None:
            yield "a fork within an append" if fork.sub_offset else "a fork"
            yield "a fork of a fork" if truth.pasts[fork.parent].stream.config.fork else "a fork"


# The simulation notices a store that is wrong on purpose


class IgnoresItsAttempts(DynamoStore):
    """Takes its own entry, of which only the answer was lost, for that of somebody else."""

    def _won(self, *given: Any) -> bool:
        chain, error, _, begun = given
        return super()._won(chain, error, "of somebody else", begun)


class BelievesItsMemory(DynamoStore):
    """Answers from a remembered tail without asking whether it is still the tail."""

    async def confirm(self, *_: Any) -> bool:
        return True


class KeepsTheName(DynamoStore):
    """Reads a chain that it knows without asking whether the name still stands for it."""

    async def _has_name(self, *_: Any) -> bool:
        return True


def caught(mix: str, violation: str, make: Make = DynamoStore) -> None:
    """Within so many seeds, of which it mostly takes one or two."""
    for seed in range(60):
        try:
            play(mix, seed, make)
        except AssertionError as error:
            if violation in str(error):
                return
    pytest.fail("nobody noticed")


def test_a_lost_answer_taken_for_a_lost_race_is_noticed() -> None:
    caught("faulty", "stored as appends", IgnoresItsAttempts)


def test_an_entry_put_without_a_condition_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def put(table: Table, item: Item) -> None:
        await table._call("PutItem", Item=item)

    monkeypatch.setattr(Table, "put_new", put)
    caught("calm", "acknowledged, but not in")


@pytest.mark.usefixtures("alone")
def test_a_write_into_a_removed_slot_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def trusted(*_: object) -> bool:
        return True

    def first_kept(state: State, archived: int, *_: int) -> int:
        return min(archived, state.slot - 1)

    monkeypatch.setattr(Chain, "trusted", trusted)
    monkeypatch.setattr(trimming, "first_kept", first_kept)
    monkeypatch.setattr(trimming, "_past_grace", lambda manifests, *_: manifests)
    caught("retention", "was filled again")


def test_a_segment_removed_while_readers_may_know_it_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replace = segments.replace

    async def hasty(table: Table, olds: Sequence[Manifest], merged: Manifest, _: int) -> bool:
        return await replace(table, olds, merged, 0)

    monkeypatch.setattr(segments, "replace", hasty)
    caught("history", "but was in use until")


def test_a_body_that_goes_with_its_entry_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    put_upload_intent = actions.put_upload_intent
    monkeypatch.setattr(
        trimming, "_release", lambda table, item, _: table.transact(
            [{"Delete": {"Key": layout.key_of(item)}}, put_upload_intent(item["k"]["S"], 0)]
        ),
    )  # fmt: skip
    caught("history", "but was in use until")


def test_an_offset_that_skips_the_rest_of_a_slot_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def position(entries: Sequence[Entry], _: int) -> int:
        return entries[-1].state.tail

    monkeypatch.setattr(batches, "position", position)
    caught("calm", "is no place of it")


def test_an_offset_that_a_later_append_outdates_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = Batch.done

    def joinable(batch: Batch) -> Awaitable[bool]:
        waiting = asyncio.ensure_future(done(batch))
        asyncio.get_running_loop().call_soon(setattr, batch, "complete", batch.sent)
        return waiting

    monkeypatch.setattr(Batch, "done", joinable)
    caught("calm", "is no place of it")


def test_appends_that_a_reader_gets_again_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def bodies_after(body: bytes, parts: Sequence[Part], end: int, _: int) -> Sequence[bytes]:
        return slots.bodies_after(body, parts, end, -1)

    monkeypatch.setattr(reading, "bodies_after", bodies_after)
    caught("calm", "is told to go on where")


def test_data_of_a_deleted_stream_is_noticed() -> None:
    caught("deletes", "saw what had been deleted", KeepsTheName)


def test_a_rejection_from_memory_is_noticed() -> None:
    caught("calm", "rejected for a gap that is not there", BelievesItsMemory)


def test_a_duplicate_from_memory_is_noticed() -> None:
    caught("crashing", "acknowledged, but not in", BelievesItsMemory)


def test_a_source_released_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    count = actions._count_forks

    def uncounted(fork: Fork, _: int, *given: Any) -> Action:
        return count(fork, 0, *given)

    monkeypatch.setattr(actions, "_count_forks", uncounted)
    caught("forks", "lacks slots")


def test_a_stream_that_expired_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def touch(*_: Any) -> None:
        return

    monkeypatch.setattr(DynamoStore, "touch", touch)
    caught("expiry", "expired at")


def test_a_body_that_was_swept_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        actions,
        "end_upload_intent",
        lambda key: actions.put_new(layout.upload_intent_key(key + ".")),
    )
    caught("crashing", "has lost bodies/")
