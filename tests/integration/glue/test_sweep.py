"""The sweep on Spark: it tells first, removes only what nobody needs, and finds all of that."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from glue_jobs import sweep
from glue_jobs.shared import items
from glue_jobs.shared.job import start_job
from glue_jobs.sweep import Summary
from glue_jobs.sweeping import orphans
from glue_jobs.sweeping.findings import Amount
from tailrace.clock import system_clock
from tailrace.errors import OffsetTrimmed, StreamNotFound
from tailrace.limits import UNCOMMITTED_SEGMENT_SECONDS
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.log.offsets import BEGINNING, token
from tailrace.log.state import Entry, Fork, State
from tailrace.segments.reader import Manifest
from tailrace.store.dynamodb import actions, layout
from tests.integration.glue.lab import DAY, JSON, TEXT, Lab
from tests.support.archiving import Most, archive

LATER: Final = 40 * DAY
RULES: Final = "old/**=30d; sized=1KB; **=forever"
NOT_OURS: Final = ("bodies/not-ours", "export/not-ours")


def arguments(lab: Lab, now: int, *flags: str) -> list[str]:
    return [*lab.flags, "--retention", RULES, "--now", str(now), *flags]


async def swept(lab: Lab, now: int, *flags: str) -> Summary:
    return await asyncio.to_thread(_sweep, arguments(lab, now, *flags))


def _sweep(argv: Sequence[str]) -> Summary:
    with start_job(sweep.NAME, "", argv, sweep.add_arguments) as job:
        return sweep.run(job)


def counts(summary: Summary) -> dict[str, tuple[int, int, int]]:
    """Streams, items and objects of each kind."""
    return {each.kind: (each.streams, each.items, each.objects) for each in summary.amounts}


def of_kind(summary: Summary, kind: str) -> Amount:
    (amount,) = (each for each in summary.amounts if each.kind == kind)
    return amount


async def chain_of(lab: Lab, path: str) -> int:
    return (await lab.streams.find(path)).stream.id


async def read(lab: Lab, path: str, position: int = BEGINNING) -> bytes:
    bodies: list[bytes] = []
    while True:
        view = await lab.streams.view(path, position)
        bodies += view.bodies
        if view.up_to_date:
            return b"".join(bodies)
        position = view.end


async def everything(lab: Lab) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """All that is in the table and in the bucket."""
    found = await lab.items()
    return sorted(found, key=lambda item: (item["p"]["S"], item["s"]["S"])), lab.objects()


async def archived(lab: Lab, path: str, most: int) -> None:
    """All the segments that a stream fills."""
    stream = (await lab.streams.find(path)).stream
    while await archive(lab.store._table, lab.bucket, stream, Most(most), system_clock()):
        pass


async def plant_chain(lab: Lab, at: int) -> int:
    """Two entries, one of them large, a segment and a producer, of no stream."""
    chain, table = secrets.randbits(62), lab.store._table
    for n, key in enumerate([None, f"bodies/{chain:016x}/body"]):
        entry = Entry(n, b"lost", State(n + 1, 4 * (n + 1), 4 * (n + 1), at))
        await table.put_new(layout.entry_item(chain, entry, "t", key))
    segment = f"segments/{chain:016x}/0-"
    await table.put_new(
        layout.manifest_item(Manifest(chain, 0, 1, segment, 4, 5, 6, at, 0, 0, 4, 4))
    )
    await plant_producer(lab, chain)
    for key in (f"bodies/{chain:016x}/body", segment):
        await lab.bucket.put(key, b"lost")
    return chain


async def plant_producer(lab: Lab, chain: int) -> None:
    key = layout.producer_key(chain, "till-7")
    await lab.store._table.put_new({**key, "e": layout.number(0), "q": layout.number(1)})


async def plant_edge(lab: Lab, path: str) -> int:
    """A fork of a stream that its source believes in, and nobody else."""
    fork = secrets.randbits(62)
    edge = actions.add_edge(Fork(path, await chain_of(lab, path), 0, 0, ()), fork, 0)
    await lab.store._table.transact(edge)
    return fork


def test_rules_that_make_no_sense_are_refused_before_anything_is_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        sweep.main(["--table", "t", "--bucket", "b", "--retention", "a=7 days"])
    assert "TAILRACE_RETENTION has the rule 'a=7 days'" in capsys.readouterr().err


class Litter(NamedTuple):
    """Removals other than of named streams."""

    chain: int
    producer: int
    edge: int
    objects: Sequence[str]


async def litter(lab: Lab, now: int) -> Litter:
    """Of each kind one that goes by then, and something like it that stays."""
    streams = lab.streams
    await streams.create("expiring", Create(b"x", TEXT, ttl=60))
    await lab.fill("deleted", TEXT, 3)
    await streams.delete("deleted")
    for path in ("old/many", "old/forked", "kept"):
        await lab.fill(path, JSON, 20)
    await lab.fill("old/few", TEXT, 3)
    await lab.fill("old/soft", TEXT, 3)
    await lab.fork("old/fork", "old/forked", 10)
    await lab.fork("of-soft", "old/soft", 2)
    await streams.delete("old/soft")
    await streams.create("sized", Create(content_type=TEXT))
    for i in range(30):
        await streams.append("sized", Append(b"%d" % (i % 10) * 100, TEXT))
    for path, most in {"old/many": 6, "old/forked": 6, "kept": 6, "sized": 7}.items():
        await archived(lab, path, most)
    assert lab.store._bodies is not None
    await lab.store._bodies.upload("bodies/0123456789abcdef", b"never taken")
    # A chain without a name is an orphan once it is older than this.
    cutoff = now - (UNCOMMITTED_SEGMENT_SECONDS + lab.settings.trim_grace) * 1000
    await plant_chain(lab, cutoff)
    chain = await plant_chain(lab, cutoff - 1)
    lone = secrets.randbits(62)
    await plant_producer(lab, lone)
    kept = f"{await chain_of(lab, 'kept'):016x}"
    lost = [f"{folder}/{kept}/lost" for folder in ("bodies", "segments")]
    for key in lost:
        await lab.bucket.put(key, b"lost")
    for key in NOT_OURS:
        await lab.bucket.put(key, b"x")
    return Litter(chain, lone, await plant_edge(lab, "kept"), lost)


async def test_a_dry_run_reports_exactly_what_a_run_then_removes(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    streams, table, now = lab.streams, lab.store._table, system_clock() + LATER
    planted = await litter(lab, now)
    before = await everything(lab)
    dry = await swept(lab, now)
    assert await everything(lab) == before
    # Of 30 entries ten are enough, and every seven are a segment; of 20 all but the last go.
    assert counts(dry) == {
        "expired": (1, 1, 0),
        "deleted": (1, 4, 1),
        "claims": (1, 1, 1),
        "retention": (3, (14 + 2) + (19 + 3) + 2, 2 + (5 + 3)),
        "orphan chains": (1, 4, 2),
        "orphan producers": (1, 1, 0),
        "orphan edges": (1, 1, 0),
        "orphan bodies": (1, 0, 1),
        "orphan segments": (1, 0, 1),
    }
    assert of_kind(dry, "expired").examples == ["expiring"]
    assert "old/few before slot 2" in of_kind(dry, "retention").examples
    assert of_kind(dry, "orphan bodies").examples == [planted.objects[0]]
    assert of_kind(dry, "orphan edges").examples == [f"kept to {planted.edge:016x}"]
    assert of_kind(dry, "orphan bodies").bytes == 4
    assert dry.metrics == {"history_swept_total": 0}

    wet = await swept(lab, now, "--dry-run", "false")
    assert wet == Summary(False, dry.amounts, 0)
    assert wet.metrics == {
        "history_swept_total": sum(each.items + each.objects for each in dry.amounts)
    }
    with pytest.raises(StreamNotFound):
        await streams.find("expiring")
    assert (await lab.hot("old/many"), await lab.manifests("old/many")) == ([19], [])
    epoch = (await streams.find("old/many")).stream.config.epoch
    with pytest.raises(OffsetTrimmed, match=token(19, 19, epoch)):
        await streams.view("old/many", 0)
    assert (await streams.view("sized", BEGINNING)).start_offset() == 1400
    assert await read(lab, "sized") == b"".join(b"%d" % (i % 10) * 100 for i in range(14, 30))
    # Forks and what they need, and whatever has no rule.
    for path in ("old/forked", "kept"):
        assert await lab.hot(path) == list(range(20))
    assert len((await streams.view("old/fork", 0)).bodies) > 0
    assert len((await streams.view("of-soft", 0)).bodies) == 2
    items, objects = await everything(lab)
    assert not objects.keys() & set(planted.objects)
    for partition in (f"{each:016x}" for each in (planted.chain, planted.producer)):
        assert not [item for item in items if item["p"]["S"].endswith(partition)]
        assert not [key for key in objects if partition in key]
    name = await table.get(layout.name_key("kept"))
    assert name is not None
    assert layout.name_of(name).forked == 0

    # What was let go of goes a grace period later. What expired long ago went at once.
    later = now + DAY + 60_000
    argv = arguments(lab, later, "--dry-run", "false")
    assert await asyncio.to_thread(sweep.main, argv) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "removed:"
    assert [line.split()[0] for line in told[3:] if ":" not in line and line[0] != " "] == [
        "claims",
        "orphan",
    ]
    await nothing_unnamed(lab)


async def nothing_unnamed(lab: Lab) -> None:
    """Every object but those of others is named by an item."""
    named = list(filter(None, map(layout.object_key_of, await lab.items())))
    assert sorted(lab.objects().keys() - {"made", *NOT_OURS}) == sorted(named)


def test_an_object_is_an_orphan_once_it_is_old_and_if_nothing_names_it(
    spark: SparkSession,
) -> None:
    chain = f"{7:016x}"
    keys = {each: f"bodies/{chain}/{each}" for each in ("old", "young", "named", "claimed")}
    modified = {"young": 100}
    listing = frame(
        spark, "key string, bytes long, modified long",
        [{"key": key, "bytes": 4, "modified": modified.get(each, 99)} for each, key in keys.items()]
        + [{"key": "bodies/not-ours", "bytes": 4, "modified": 0}],
    )  # fmt: skip
    scanned = frame(
        spark, "kind string, s string, key string",
        [{"kind": "C", "s": "0", "key": keys["named"]},
         {"kind": "B", "s": keys["claimed"], "key": None}],
    )  # fmt: skip
    found = orphans.orphan_objects(scanned, listing, 100).collect()
    assert [(row.chain, row.key, row.bytes) for row in found] == [(chain, keys["old"], 4)]


def test_a_report_has_a_table_examples_and_says_whether_anything_was_done() -> None:
    amount = Amount("claims", 2, 1_000, 3, 4_000_000, ["bodies/a", "bodies/b"])
    told = str(Summary(True, [amount], 0)).splitlines()
    assert told == [
        "would remove:",
        "kind    streams  items  objects  bytes",
        "------  -------  -----  -------  ---------",
        "claims  2        1,000  3        4,000,000",
        "claims: Objects that are no longer needed, and unused uploads. For example:",
        "    bodies/a",
        "    bodies/b",
        "nothing was removed, this was a dry run: pass --dry-run false to remove it",
    ]
    told = str(Summary(False, [amount], 7)).splitlines()
    assert told[0] == "removed:"
    assert told[-1] == "7 items are due but were not removed: run the sweep again"


async def test_names_are_read_again_despite_sparks_cache(lab: Lab) -> None:
    def paths() -> set[str]:
        with start_job(sweep.NAME, "", lab.flags, sweep.add_arguments) as job:
            return {row.path for row in items.read_names(job).frame.select("path").collect()}

    await lab.fill("a", TEXT, 1)
    assert await asyncio.to_thread(paths) == {"a"}
    await lab.fill("b", TEXT, 1)
    assert await asyncio.to_thread(paths) == {"a", "b"}


# What was true when the table was read may not be true any more


def frame(spark: SparkSession, schema: str, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    return spark.createDataFrame(list(rows), schema)


async def test_an_object_that_is_referenced_meanwhile_is_kept(lab: Lab) -> None:
    await lab.fill("a", TEXT, 6)
    await archived(lab, "a", 3)
    chain = await chain_of(lab, "a")
    claimed = f"bodies/{chain:016x}/claimed"
    await lab.store._table.transact([actions.put_upload_intent(claimed, 0)])
    free = [f"bodies/{chain:016x}/free", f"segments/{chain:016x}/free"]
    for key in (claimed, *free):
        await lab.bucket.put(key, b"x")
    before = lab.objects()
    spark = lab.spark
    assert spark is not None
    suspects = frame(
        spark, "chain string, key string, bytes long",
        [{"chain": f"{chain:016x}", "key": key, "bytes": 1} for key in before if key != "made"],
    )  # fmt: skip

    def remove_objects(dry: bool) -> list[Any]:
        return orphans.remove_objects(suspects, lab.settings, dry=dry).collect()

    for dry in (True, False):
        found = await asyncio.to_thread(remove_objects, dry)
        assert sorted((row.kind, row.what, row.objects) for row in found) == [
            ("orphan bodies", free[0], 1),
            ("orphan segments", free[1], 1),
        ]
        assert lab.objects().keys() == before.keys() - (set() if dry else {*free})


async def test_a_chain_that_came_into_use_meanwhile_is_kept(lab: Lab) -> None:
    await lab.fill("a", TEXT, 3)
    await lab.fill("deleted", TEXT, 3)
    chains = {path: await chain_of(lab, path) for path in ("a", "deleted")}
    await lab.streams.delete("deleted")
    chains["lost"] = await plant_chain(lab, system_clock())
    spark, now = lab.spark, system_clock()
    assert spark is not None

    def erase_chains(cutoff: int, kind: str, *which: int) -> list[str]:
        suspects = frame(
            spark, "chain string, kind string, items long, objects long, bytes long",
            [{"chain": f"{chain:016x}", "kind": kind, "items": 1, "objects": 1, "bytes": 1}
             for chain in which],
        )  # fmt: skip
        rows = orphans.erase_chains(suspects, lab.settings, cutoff, dry=False).collect()
        return [row.chain for row in rows]

    everyone = chains.values()
    before = await everything(lab)
    assert await asyncio.to_thread(erase_chains, now - DAY, "orphan chains", *everyone) == []
    assert await asyncio.to_thread(erase_chains, now, "orphan producers", *everyone) == []
    assert await everything(lab) == before
    later = now + DAY
    gone = await asyncio.to_thread(
        erase_chains, later, "orphan chains", chains["deleted"], chains["lost"]
    )
    assert gone == [f"{chains['lost']:016x}"]
    # An edge to a chain that has entries is none of ours.
    edges = frame(
        spark, "parent string, fork string, path string",
        [{"parent": f"{1:016x}", "fork": f"{chains['a']:016x}", "path": None}],
    )  # fmt: skip
    cut = await asyncio.to_thread(
        lambda: orphans.remove_edges(edges, lab.settings, now, dry=False).collect()
    )
    assert cut == []


def test_a_chain_that_a_fork_reads_through_is_no_orphan_even_without_a_name(
    spark: SparkSession,
) -> None:
    fork, parent, grandparent, other = (f"{n:016x}" for n in (10, 0x2A, (1 << 61) + 5, 7))
    lineage = f"[[{(1 << 61) + 5}, 3], [42, 9]]"
    config = f'{{"fork": ["a/b", 42, 9, 0, {lineage}], "base": [9, 9, 9]}}'
    names = frame(
        spark, "chain string, config string",
        [{"chain": fork, "config": config}, {"chain": f"{8:016x}", "config": '{"fork": null}'}],
    )  # fmt: skip
    columns = (
        "chain string, slots long, newest long, due long, items long, objects long, bytes long"
    )
    rows = [
        {"chain": chain, "slots": 1, "newest": 5, "due": due, "items": 1, "objects": 0, "bytes": 0}
        for chain, due in ((fork, None), (parent, None), (grandparent, None), (other, None),
                           (f"{9:016x}", 1))
    ]  # fmt: skip
    lost = orphans.orphan_chains(frame(spark, columns, rows), orphans.needed(names, names), 6)
    assert [(row.chain, row.kind) for row in lost.collect()] == [(other, "orphan chains")]
    young = orphans.orphan_chains(frame(spark, columns, rows), orphans.needed(names), 5)
    assert young.collect() == []
