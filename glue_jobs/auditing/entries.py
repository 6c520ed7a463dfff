"""Entries in the table: that they follow each other, and begin and end where their names say."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from glue_jobs.auditing.columns import any_of, moved
from glue_jobs.auditing.problems import (
    FORGOTTEN,
    LATE,
    MISTAKEN,
    POINTERS,
    RESTORE,
    UNREACHED,
    Problem,
)
from glue_jobs.auditing.snapshot import Snapshot
from glue_jobs.auditing.store_probe import StoreProbe
from tailrace.log.content import Mode
from tailrace.store.dynamodb import layout
from tailrace.store.dynamodb.layout import Name, Stored

BLOCK: Final = 1 << 16
"""Slots of a chain that are looked at together: a long chain is spread over many workers."""

# Suspects


def suspect_slots(snapshot: Snapshot) -> DataFrame:
    linked = links(snapshot.entries.where("n IS NULL OR n >= earliest"))
    apart = F.expr("n = before.n + 1") & moved(F.col("before.offset"), F.col("before.size"))
    hole = "n > greatest(archived, earliest)"
    wrong = F.coalesce(apart, F.lit(False)) | any_of(
        "n IS NULL OR offset IS NULL OR size IS NULL OR at IS NULL",
        "length IS NULL AND end IS NULL AND NOT gone",
        "before.gone",
        "before.end IS NOT NULL AND NOT gone",
        "at < before.at",
        f"n != before.n + 1 AND {hole}",
        "torn OR (uneven AND mode != 'json')",
    )
    # A chain has one slot that none is before, or there is a hole where two blocks meet.
    begins = F.expr("n IS NOT NULL AND before IS NULL")
    flagged = linked.select(
        *("chain", "path", "n"),
        F.expr("if(n IS NULL, s, NULL)").alias("key"),
        begins.alias("begins"),
        F.expr(hole).alias("hole"),
        wrong.alias("wrong"),
    ).where("begins OR wrong")
    other = F.lag("n").over(Window.partitionBy("chain", "path", "begins").orderBy("n"))
    return flagged.withColumn("other", other).where(
        "wrong OR (begins AND hole AND other IS NOT NULL)"
    )


def links(entries: DataFrame) -> DataFrame:
    """Each entry with the one before it: of its block, or the last slot of the block before."""
    own, following = (F.expr(f"(n + {i}) div {BLOCK}") for i in (0, 1))
    copies = entries.withColumn("block", F.explode(F.array_distinct(F.array(own, following))))
    window = Window.partitionBy("chain", "path", "block").orderBy("n")
    before = F.lag(F.struct("n", "offset", "size", "at", "end", "gone")).over(window)
    return copies.withColumn("before", before).where(F.col("block").eqNullSafe(own))


def suspect_beginnings(snapshot: Snapshot) -> DataFrame:
    kept = "greatest(archived, earliest)"
    return snapshot.streams.withColumn("n", F.col("first")).where(
        any_of("n < base", "n < let_go", f"n > {kept}", f"n IS NULL AND {kept} > base")
    )


def suspect_pointers(snapshot: Snapshot) -> DataFrame:
    return snapshot.streams.where(
        any_of("earliest < base", "let_go < base", "archived < let_go", "archived < exported")
    )


def suspect_tombstones(snapshot: Snapshot) -> DataFrame:
    return snapshot.streams.withColumn("n", F.coalesce("tombstone", "grave")).where(
        "n IS NOT NULL AND (tombstone IS NULL OR grave IS NULL OR grave != tombstone)"
    )


# Rechecks


async def slot_problem(probe: StoreProbe) -> Problem | None:
    if probe.n is None:
        partition = layout.chain_partition(probe.chain)
        if not await probe.has({"p": layout.text(partition), "s": layout.text(probe.key)}):
            return None
        return Problem(None, f"'{probe.key}' in {partition} is no slot", MISTAKEN)
    entry, before = await probe.entry(probe.n), await probe.last(probe.n)
    # The name after them: it says that a slot is archived, or not retained, before the slot goes.
    name = await probe.name()
    if entry is None or name is None or probe.n < name.earliest:
        return None
    state = entry.state
    if not (entry.has_data or state.closed or state.deleted):
        what = "it has no data, and neither closes nor deletes the stream"
        return Problem(probe.n, what, RESTORE)
    torn = _appends_wrong(entry, name.stream.config.mode)
    if torn is not None:
        return Problem(probe.n, torn, RESTORE)
    return None if before is None else _follows_wrong(entry, before, name)


def _appends_wrong(entry: Stored, mode: Mode) -> str | None:
    parts = entry.parts
    length = sum(part.length for part in parts)
    if parts and length != entry.length:
        return f"its appends have {length} bytes, but its body has {entry.length}"
    for number, (size, step, *_) in enumerate(parts, 1):
        if min(size, step) < 1 or (mode is not Mode.JSON and size != step):
            return f"append {number} of it has {size} bytes, but moves the offset by {step}"
    return None


def _follows_wrong(entry: Stored, before: Stored, name: Name) -> Problem | None:
    state, prior = entry.state, before.state
    if prior.deleted:
        return Problem(entry.slot, f"it comes after the tombstone in slot {before.slot}", UNREACHED)
    if prior.closed and not state.deleted:
        return Problem(
            entry.slot, f"it comes after slot {before.slot}, a closed stream's last", UNREACHED
        )
    what = None
    if state.written_at < prior.written_at:
        what = f"it is {prior.written_at - state.written_at} ms older than slot {before.slot}"
    elif entry.slot == before.slot + 1:
        what = ends_wrong(entry, before.offset, before.size, name.stream.config.mode)
    elif entry.slot > max(name.archived, name.earliest):
        what = _nowhere(before.slot + 1, entry.slot)
    return None if what is None else Problem(entry.slot, what, RESTORE)


def ends_wrong(entry: Stored, offset: int | None, size: int, mode: Mode) -> str | None:
    """Of an entry that begins there."""
    length = entry.length if entry.has_data else 0
    if entry.size != size + length:
        return f"the size after it is {entry.size}, not {size + length}"
    if offset is None:
        return None
    step = sum(part.step for part in entry.parts)
    if mode is Mode.JSON and length and not step:
        right, expected = entry.offset > offset, f"more than {offset}"
    else:
        end = offset + (step or length)
        right, expected = entry.offset == end, f"{end}"
    return None if right else f"the offset after it is {entry.offset}, not {expected}"


def _nowhere(first: int, stop: int) -> str:
    which = f"slot {first} is" if stop == first + 1 else f"slots {first} to {stop - 1} are"
    return f"{which} neither in the table nor in a segment"


async def beginning_problem(probe: StoreProbe) -> Problem | None:
    name = await probe.name()
    if name is None:
        return None
    base, earliest, let_go = name.stream.config.base[0], name.earliest, name.trimmed
    stray, again = await probe.first(0, base), await probe.first(earliest, let_go)
    first, name = await probe.first(earliest), await probe.name()
    if name is None or name.earliest != earliest:
        return None  # Retention is at work on it.
    if stray is not None:
        return Problem(stray.slot, f"it is before slot {base}, where its chain begins", UNREACHED)
    if again is not None:
        what = f"it is in the table again: all slots before {let_go} were let go"
        return Problem(again.slot, what, LATE)
    kept = max(name.archived, earliest)
    if first is None:
        what = "the last entry is not in the table; who appends now begins the stream anew"
        return Problem(kept, what, RESTORE) if kept > base else None
    return Problem(first.slot, _nowhere(kept, first.slot), RESTORE) if first.slot > kept else None


async def pointer_problem(probe: StoreProbe) -> Problem | None:
    name = await probe.name()
    if name is None:
        return None
    base = name.stream.config.base[0]
    if min(name.earliest, name.trimmed) < base:
        slot = min(name.earliest, name.trimmed)
        return Problem(slot, f"slots before it are gone, but the chain begins at {base}", POINTERS)
    furthest = max(name.trimmed, name.exported)
    if furthest > name.archived:
        done = "let go" if furthest == name.trimmed else "exported"
        what = f"slots before it were {done}, but archived are those before {name.archived}"
        return Problem(furthest, what, POINTERS)
    return None


async def tombstone_problem(probe: StoreProbe) -> Problem | None:
    last, name = await probe.last(), await probe.name()
    if name is None:
        return None
    if name.tombstone is None:
        what = "it is a tombstone, but the stream still has its name"
        return (
            Problem(last.slot, what, FORGOTTEN) if last is not None and last.state.deleted else None
        )
    tombstone = await probe.entry(name.tombstone)
    if tombstone is not None and tombstone.state.deleted:
        return None
    return Problem(name.tombstone, "the stream is deleted, but this is no tombstone", RESTORE)
