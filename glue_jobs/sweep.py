"""The job `sweep`: removes expired, deleted and orphaned data, and data past its retention.

    due        expired streams; deleted streams and replaced objects after their grace period
    retention  slots that streams should not keep, by the rules of `--retention`
    orphans    chains without a name, and objects that nothing names, once they are old

It only reports what it would remove, unless it is run with `--dry-run false`. A run may be killed
at any time and repeated, and two may run concurrently: what is not removed yet is found again, and
each removal is conditional on what protects the data.
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
from glue_jobs.shared.job import Job, finish, start_job, switch, table
from glue_jobs.shared.listing import list_objects
from glue_jobs.shared.metadata import read_metadata
from glue_jobs.sweeping import orphans
from glue_jobs.sweeping.apply_retention import apply_retention
from glue_jobs.sweeping.findings import KINDS, Amount, amounts
from tailrace.clock import system_clock
from tailrace.limits import UNCOMMITTED_SEGMENT_SECONDS
from tailrace.settings import Settings
from tailrace.store.dynamodb import sweeping
from tailrace.store.dynamodb.provision import connect
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.store.dynamodb.table import Table
from tailrace.streams import Streams

NAME: Final = "sweep"
ABOUT: Final = "Remove expired and orphaned data, and data past its retention."

COLUMNS: Final = (
    "kind", "chain", "s", "n", "key", "at", "size", "length", "index_bytes", "due",
)  # fmt: skip
"""The columns of the table's metadata that the sweep needs."""


PATIENCE: Final = 5
"""Rounds without progress after which the rest of what is due is left."""

PAUSE: Final = 1.0
"""Seconds between two such rounds."""


class SweepData(NamedTuple):
    """The store as it was read, in this order."""

    objects: DataFrame
    before: DataFrame
    """Names, read before the table."""
    scanned: DataFrame
    after: DataFrame
    """Names, read after the table."""
    chains: DataFrame
    needed: DataFrame


class Summary(NamedTuple):
    """The amounts that a run has removed, or would remove."""

    dry: bool
    amounts: Sequence[Amount]
    left: int
    """Items that were due but could not be removed."""

    @property
    def metrics(self) -> dict[str, float]:
        removed = 0 if self.dry else sum(each.items + each.objects for each in self.amounts)
        return {"history_swept_total": removed}

    def __str__(self) -> str:
        if not self.amounts:
            return "there is nothing to remove"
        rows = [each[:5] for each in self.amounts]
        numbers = [(kind, *(f"{number:,}" for number in rest)) for kind, *rest in rows]
        verb = "would remove" if self.dry else "removed"
        lines = [f"{verb}:", table(numbers, ("kind", "streams", "items", "objects", "bytes"))]
        for each in self.amounts:
            lines.append(f"{each.kind}: {KINDS[each.kind]} For example:")
            lines += [f"    {example}" for example in each.examples]
        if self.dry:
            lines.append(
                "nothing was removed, this was a dry run: pass --dry-run false to remove it"
            )
        if self.left:
            lines.append(f"{self.left:,} items are due but were not removed: run the sweep again")
        return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    with start_job(NAME, ABOUT, argv, add_arguments) as job:
        summary = run(job)
        sys.stdout.write(f"{summary}\n")
        job.publish(summary.metrics)
        return 1 if summary.left else 0


def run(job: Job) -> Summary:
    dry: bool = job.arguments.dry_run
    job.progress.step("listing objects")
    objects = _read(list_objects(job))
    before = items.read_names(job)
    job.progress.step("reading the table")
    scanned = _read(read_metadata(job, checksums=False).select(*COLUMNS))
    after = items.read_names(job)
    held = [objects, before.frame, scanned, after.frame]
    try:
        left = 0
        if not dry:
            job.progress.step("removing what is due")
            left = asyncio.run(_remove_due(job.settings, job.now))
        job.progress.step("searching" if dry else "removing")
        chains = orphans.chains(scanned).persist()
        needed = orphans.needed(before.frame, after.frame).persist()
        held += [chains, needed]
        data = SweepData(objects, before.frame, scanned, after.frame, chains, needed)
        return Summary(dry, amounts(_findings(job, data, dry=dry)), left)
    finally:
        for frame in held:
            frame.unpersist()


def _findings(job: Job, data: SweepData, *, dry: bool) -> DataFrame:
    """Return everything to remove. Unless the run is dry, evaluating the frame removes it."""
    settings, now = job.settings, job.now
    # Compaction commits no older objects, and trimmed data stays for the grace period.
    cutoff = now - (UNCOMMITTED_SEGMENT_SECONDS + settings.trim_grace) * 1000
    objects, before, scanned, after, chains, needed = data
    unneeded = orphans.orphan_chains(chains, needed, cutoff)
    edges = orphans.orphan_edges(scanned, chains, needed, after)
    unnamed = orphans.orphan_objects(scanned, objects, cutoff)
    streams = before.join(chains, on="chain", how="left")
    findings = [
        orphans.deleted_chains(chains, now),
        orphans.due_claims(scanned, objects, now),
        apply_retention(streams, settings, now, dry=dry),
        orphans.erase_chains(unneeded, settings, cutoff, dry=dry),
        orphans.remove_edges(edges, settings, now, dry=dry),
        orphans.remove_objects(unnamed, settings, dry=dry),
    ]
    return reduce(DataFrame.unionByName, findings)


async def _remove_due(settings: Settings, now: int) -> int:
    """Remove what is due, as a server would; return how much could not be removed."""
    ahead = now - system_clock()

    def clock() -> int:
        return system_clock() + ahead

    backend = await connect(settings, check_table=False)
    store = DynamoStore(settings, clock, backend)
    await store.open()
    try:
        streams, rows = Streams(store, settings, clock), Table(backend.client, settings.table)
        due, idle = await sweeping.due(rows, now), 0
        # A round handles one page of the index, and the index lags behind the table.
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
    """Evaluate and persist a frame, so that later uses see the same rows."""
    frame = frame.persist()
    frame.count()
    return frame


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run",
        type=switch,
        default=True,
        metavar="true|false",
        help="Only report what would be removed. [default: true]",
    )


if __name__ == "__main__":
    finish(main(sys.argv[1:]))
