"""Segments: that they follow each other, say what the table says, and are undamaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from glue_jobs.auditing.columns import any_of, length, many, moved
from glue_jobs.auditing.entries import ends_wrong
from glue_jobs.auditing.problems import BACKUP, POINTERS, RESTORE, Problem
from glue_jobs.auditing.snapshot import Snapshot
from glue_jobs.auditing.store_probe import TRIES, StoreProbe
from glue_jobs.auditing.verify_objects import open_segment, segment_slots
from glue_jobs.shared.metadata import body_checksum
from glue_jobs.shared.workers import Row
from tailrace.log.content import Mode
from tailrace.segments.format import BadSegment
from tailrace.segments.reader import Manifest
from tailrace.store.dynamodb.layout import Name, Stored

MANIFEST: Final = (
    "first", "stop", "key", "data_bytes", "index_bytes", "index_checksum", "begin", "offset", "size"
)  # fmt: skip

# Suspects


def suspect_manifests(snapshot: Snapshot) -> DataFrame:
    window = Window.partitionBy("chain", "path").orderBy("first")
    placed = (
        snapshot.manifests.withColumn("following", F.lead("first").over(window))
        .withColumn("before", F.lag(F.struct("stop", "offset", "size")).over(window))
        .withColumn("step", F.expr(f"offset - {_start('offset')}"))
        .withColumn("commas", F.expr("data_bytes - (size - begin)"))
        .withColumn("many", F.col("mode") == "json")
    )
    wrong = placed.where(
        any_of(
            *(f"{column} IS NULL" for column in MANIFEST),
            "stop <= first",
            # A comma is between two appends, and they are as many as messages at most.
            "if(many, commas < stop - first - 1 OR commas >= step, commas != 0)",
            "before IS NULL AND (first < base OR first > greatest(base, earliest))",
            "first != before.stop",
            f"begin != {_start('size')}",
            "if(many, step < stop - first, step != size - begin)",
            "following IS NULL AND stop != archived",
        )
    )
    without = snapshot.streams.where(
        "archived > greatest(base, earliest) AND coalesce(segments, 0) = 0"
    )
    return wrong.select("chain", "path").unionByName(without.select("chain", "path"))


def _start(what: str) -> str:
    """Where a segment has to begin, as far as that is known."""
    return f"coalesce(before.{what}, if(first = base, base_{what}, NULL))"


def suspect_seams(snapshot: Snapshot) -> DataFrame:
    """Entries of which a name or a segment says where they begin, or end."""
    place = "n", "from_offset", "from_size", "to_offset", "to_size"
    marks = snapshot.streams.selectExpr(
        *("chain", "base AS n", "base_offset AS from_offset", "base_size AS from_size"),
        *("CAST(NULL AS BIGINT) AS to_offset", "CAST(NULL AS BIGINT) AS to_size"),
    ).unionByName(
        snapshot.manifests.selectExpr(
            "chain",
            "stack(3, first, NULL, begin, NULL, NULL,"
            " stop, offset, size, NULL, NULL,"
            f" stop - 1, NULL, NULL, offset, size) AS ({', '.join(place)})",
        )
    )
    overlap = snapshot.entries.where("n >= earliest AND (n <= archived OR n = base)")
    met = overlap.join(marks, on=["chain", "n"])
    step = F.coalesce("steps", F.when(many(), F.lit(1)).otherwise(length()))
    begin = F.coalesce("from_offset", F.col("offset") - step)
    ends = F.expr("to_offset != offset OR to_size != size")
    apart = met.where(ends | moved(begin, F.col("from_size")))
    return apart.select("chain", "path", "n").unionByName(_differing(snapshot))


def _differing(snapshot: Snapshot) -> DataFrame:
    """Entries that are not what their segments have; the first of each segment, since to look at
    one is to read all of it."""
    hot = snapshot.entries.where("n >= earliest AND n < archived").drop("key", "path")
    both = hot.alias("hot").join(
        snapshot.archived_slots.where("NOT wrong").alias("cold"), on=["chain", "n"]
    )
    differ = any_of(
        *(f"hot.{each} != cold.{each}" for each in ("offset", "size", "at", "checksum"))
    )
    first = both.where(differ).groupBy("chain", "path", "key").agg(F.min("n").alias("n"))
    return first.select("chain", "path", "n")


def suspect_segments(snapshot: Snapshot) -> DataFrame:
    return snapshot.archived_slots.where("wrong")


# Rechecks


async def manifest_problem(probe: StoreProbe) -> Problem | None:
    for _ in range(TRIES):
        name = await probe.name()
        if name is None:
            return None
        found = await probe.manifests(name.earliest)
        again = await probe.name()
        # A segment is committed together with its name.
        if again is not None and (again.archived, again.earliest) == (name.archived, name.earliest):
            return _broken(found, name)
    return None


def _broken(manifests: Sequence[Manifest], name: Name) -> Problem | None:
    """The first thing that is wrong with the segments of a chain."""
    base, *begin = name.stream.config.base
    stop, start = max(base, name.earliest), None
    for i, each in enumerate(manifests):
        # Only the first may begin before what retention has left.
        if not (stop if i else base) <= each.first <= stop:
            return Problem(each.first, f"a segment begins here, not at slot {stop}", RESTORE)
        what = _sums_wrong(each, begin if each.first == base else start, name.stream.config.mode)
        if what is not None:
            return Problem(each.first, what, RESTORE)
        stop, start = each.stop, [each.offset, each.size]
    if stop != name.archived and (manifests or name.archived > stop):
        what = f"segments end here, but for the name they do at slot {name.archived}"
        return Problem(stop, what, RESTORE if stop < name.archived else POINTERS)
    return None


def _sums_wrong(manifest: Manifest, start: Sequence[int] | None, mode: Mode) -> str | None:
    """`start`: offset and size where it has to begin, if they are known."""
    count, data = manifest.stop - manifest.first, manifest.size - manifest.begin
    of = f"a segment of {count} slots and {data} bytes"
    json, commas = mode is Mode.JSON, manifest.data_bytes - data
    if count < 1 or (commas < count - 1 if json else commas):
        return f"{of} stores {manifest.data_bytes} bytes"
    if start is None:
        return None
    if manifest.begin != start[1]:
        return f"{of} begins at size {manifest.begin}, not {start[1]}"
    step = manifest.offset - start[0]
    right = step > commas if json else step == data
    return None if right else f"{of} moves the offset by {step}"


async def seam_problem(probe: StoreProbe) -> Problem | None:
    assert probe.n is not None
    entry = await probe.entry(probe.n)
    before, own = await probe.covering(probe.n - 1), await probe.covering(probe.n)
    name = await probe.name()
    if entry is None or name is None or probe.n < name.earliest:
        return None
    config = name.stream.config
    starts = [config.base] if probe.n == config.base[0] else []
    if before is not None and before.stop == probe.n:
        starts.append((before.stop, before.offset, before.size))
    wrong = [ends_wrong(entry, offset, size, config.mode) for _, offset, size in starts]
    what = next(filter(None, wrong), None)
    if what is None and own is not None:
        what = await _differs(probe, entry, own, config.mode)
    return None if what is None else Problem(probe.n, what, RESTORE)


async def _differs(probe: StoreProbe, entry: Stored, manifest: Manifest, mode: Mode) -> str | None:
    """Of an entry whose slot is in a segment."""
    if entry.slot == manifest.first and (what := ends_wrong(entry, None, manifest.begin, mode)):
        return what
    hot = {"offset": entry.offset, "size": entry.size, "at": entry.state.written_at}
    if entry.object_key is None:
        hot["checksum"] = body_checksum(entry.body, entry.parts)
    cold: Row = {"offset": manifest.offset, "size": manifest.size}
    if entry.slot < manifest.stop - 1 or all(hot[each] == value for each, value in cold.items()):
        segment = await probe.object(manifest.key)
        try:
            cold = (
                {}
                if segment is None
                else next(segment_slots(open_segment(segment, manifest, mode), entry.slot))
            )
        except BadSegment:
            return None  # This is told of the segment.
    for what, value in hot.items():
        if cold.get(what, value) != value:
            return f"its {what} is {value} in the table, {cold[what]} in its segment"
    return None


async def segment_problem(probe: StoreProbe) -> Problem | None:
    assert probe.n is not None
    manifest, name = await probe.manifest(probe.n), await probe.name()
    if manifest is None or manifest.key != probe.key or name is None:
        return None
    segment = await probe.object(probe.key)
    if segment is None:
        return None  # This is told of the object.
    try:
        open_segment(segment, manifest, name.stream.config.mode)
    except BadSegment as error:
        return Problem(probe.n, f"the segment {probe.key} is wrong: {error}", BACKUP)
    return None
