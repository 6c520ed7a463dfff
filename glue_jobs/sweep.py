"""The job `sweep`: what nobody is to have any more, and what nobody could have, is removed.

    due        streams that expired, deleted ones after their grace period, objects let go of
    retention  what streams are not to keep, by the rules of `--retention`
    orphans    chains without a name, and objects that nothing names, once they are old

It only tells what it would remove, unless it is run with `--dry-run false`. It may be ended at any
moment and run again, and two may run at once: everything that it removes it finds again until it
is gone, and whatever protects a thing is a condition of its removal.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import DataFrame

from glue_jobs.shared import items
from glue_jobs.shared.job import Job, finish, running, switch, table
from glue_jobs.shared.listing import listing
from glue_jobs.shared.metadata import metadata
from glue_jobs.sweeping import orphans
from glue_jobs.sweeping.findings import KINDS, Amount, amounts
from glue_jobs.sweeping.retaining import retained
from tailrace.clock import system_clock
from tailrace.limits import OBJECT_SECONDS
from tailrace.settings import Settings
from tailrace.store.dynamodb import sweeping
from tailrace.store.dynamodb.provision import connect
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.store.dynamodb.table import Table
from tailrace.streams import Streams

NAME: Final = "sweep"
ABOUT: Final = "Remove what expired, what is not to be kept, and what belongs to nothing."

COLUMNS: Final = (
    "kind", "chain", "s", "n", "key", "at", "size", "length", "index_bytes", "due",
)  # fmt: skip
"""Of the table's metadata."""


PATIENCE: Final = 5
"""Looks without any change after which what is due is left at that."""

PAUSE: Final = 1.0
"""Seconds between two of them."""


class Facts(NamedTuple):
    """What was read of the store, in this order."""

    objects: DataFrame
    before: DataFrame
    """Names."""
    scanned: DataFrame
    after: DataFrame
    """Names again."""
    chains: DataFrame
    needed: DataFrame


class Summary(NamedTuple):
    """What a run has removed, or would have."""

    dry: bool
    amounts: Sequence[Amount]
    left: int
    """Things that were due and could not be removed."""

    @property
    def metrics(self) -> dict[str, float]:
        removed = 0 if self.dry else sum(each.items + each.objects for each in self.amounts)
        return {"history_swept_total": removed}

    def __str__(self) -> str:
        if not self.amounts:
            return "there is nothing to remove"
        rows = [each[:5] for each in self.amounts]
        numbers = [(kind, *(f"{number:,}" for number in rest)) for kind, *rest in rows]
        told = "would remove" if self.dry else "removed"
        lines = [f"{told}:", table(numbers, ("kind", "streams", "items", "objects", "bytes"))]
        for each in self.amounts:
            lines.append(f"{each.kind}: {KINDS[each.kind]} For example:")
            lines += [f"    {example}" for example in each.examples]
        if self.dry:
            lines.append("nothing was removed: this was a dry run, --dry-run false removes it")
        if self.left:
            lines.append(f"{self.left:,} things are due and are still there: run it again")
        return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    with running(NAME, ABOUT, argv, add_arguments) as job:
        summary = run(job)
        sys.stdout.write(f"{summary}\n")
        job.publish(summary.metrics)
        return 1 if summary.left else 0


def run(job: Job) -> Summary:
    dry: bool = job.arguments.dry_run
    job.progress.step("listing objects")
    objects = _read(listing(job))
    before = items.names(job)
    job.progress.step("reading the table")
    scanned = _read(metadata(job, checksums=False).select(*COLUMNS))
    after = items.names(job)
    held = [objects, before.frame, scanned, after.frame]
    try:
        left = 0
        if not dry:
            job.progress.step("removing what is due")
            left = asyncio.run(_settle(job.remote, job.now))
        job.progress.step("looking for what goes" if dry else "removing")
        chains = orphans.chains(scanned).persist()
        needed = orphans.needed(before.frame, after.frame).persist()
        held += [chains, needed]
        facts = Facts(objects, before.frame, scanned, after.frame, chains, needed)
        return Summary(dry, amounts(_findings(job, facts, dry=dry)), left)
    finally:
        for frame in held:
            frame.unpersist()


def _findings(job: Job, known: Facts, *, dry: bool) -> DataFrame:
    """All that goes; it goes when this is counted, unless the run is dry."""
    settings, now = job.remote, job.now
    # Compaction commits nothing that is older, and what is let go of stays for the grace period.
    cutoff = now - (OBJECT_SECONDS + settings.trim_grace) * 1000
    objects, before, scanned, after, chains, needed = known
    lost = orphans.orphan_chains(chains, needed, cutoff)
    edges = orphans.orphan_edges(scanned, chains, needed, after)
    unnamed = orphans.orphan_objects(scanned, objects, cutoff)
    streams = before.join(chains, on="chain", how="left")
    found = [
        orphans.deleted(chains, now),
        orphans.claims(scanned, objects, now),
        retained(streams, settings, now, dry=dry),
        orphans.erased(lost, settings, cutoff, dry=dry),
        orphans.cut(edges, settings, now, dry=dry),
        orphans.removed(unnamed, settings, dry=dry),
    ]
    return reduce(DataFrame.unionByName, found)


async def _settle(settings: Settings, now: int) -> int:
    """Remove what is due, as a server would in the end; how much could not be."""
    ahead = now - system_clock()

    def clock() -> int:
        return system_clock() + ahead

    backend = await connect(settings)
    store = DynamoStore(settings, clock, backend)
    await store.open()
    try:
        streams, rows = Streams(store, settings, clock), Table(backend.client, settings.table)
        due, idle = await sweeping.due(rows, now), 0
        # One look sees as much as fits a page of the index, and the index lags behind.
        while due and idle < PATIENCE:
            await streams.sweep()
            left = await sweeping.due(rows, now)
            idle = idle + 1 if left == due else 0
            due = left
            if idle:
                await asyncio.sleep(PAUSE)
        return len(due)
    finally:
        await store.close()


def _read(frame: DataFrame) -> DataFrame:
    """A frame that is as it was now, however often it is used."""
    frame = frame.persist()
    frame.count()
    return frame


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run",
        type=switch,
        default=True,
        metavar="true|false",
        help="Only tell what would be removed. [default: true]",
    )


if __name__ == "__main__":
    finish(main(sys.argv[1:]))
