"""The job `compact-history`: older entries move from the table into segments in the bucket.

    read       every item, once: from the table itself, or from an export of it
    archive    entries that fill a segment are written to the bucket, then committed in order
    merge      small segments of the chains that grew become large ones
    trim       slots leave the table, a grace period after they were archived

It may be ended at any moment and run again, and two may run at once: an object that was not
committed is swept, a commit names what it follows, and what is merged or let go stays readable.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from glue_jobs.compaction.committing import committed
from glue_jobs.compaction.sealing import Rules, in_cells, sealed, waiting
from glue_jobs.compaction.tidying import merged, trimmed
from glue_jobs.shared import items
from glue_jobs.shared.items import Names
from glue_jobs.shared.job import Job, finish, running, table

NAME: Final = "compact-history"
ABOUT: Final = "Move older entries from the table into segments in the bucket."

SHOWN: Final = 20
"""Refusals that the log has in full."""


class Summary(NamedTuple):
    """What a run has done."""

    streams: int
    segments: int
    entries: int
    bytes: int
    lost: int
    """Segments that another run was faster with."""
    refused: Sequence[tuple[str, int, int, str]]
    """Path, first slot, the slot after the last, and why."""
    waiting: int
    """Entries that fill segments, but are still in the table alone."""
    merged: int
    trimmed: int

    @property
    def metrics(self) -> dict[str, float]:
        return {
            "history_archived_total": self.entries,
            "history_merged_total": self.merged,
            "history_trimmed_total": self.trimmed,
            "history_refused_total": len(self.refused),
            "history_waiting_num": self.waiting,
        }

    def __str__(self) -> str:
        amount = f"{self.entries:,} entries ({self.bytes:,} bytes) of {self.streams:,} streams"
        lines = [
            f"archived {amount} in {self.segments:,} segments",
            f"merged away {self.merged:,} segments, let {self.trimmed:,} entries go",
        ]
        if self.lost:
            lines.append(f"{self.lost:,} segments were already there: another run was faster")
        if self.refused:
            shown = table(self.refused[:SHOWN], ("stream", "first", "stop", "why not"))
            lines.append(f"refused {len(self.refused):,} segments:\n{shown}")
        return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    with running(NAME, ABOUT, argv, add_arguments) as job:
        summary = run(job)
        sys.stdout.write(f"{summary}\n")
        job.publish(summary.metrics)
        return 1 if summary.refused else 0


def run(job: Job) -> Summary:
    with tempfile.TemporaryDirectory(prefix="tailrace-export-") as folder:
        source = job.arguments.export
        if source and source.startswith("s3://") and not job.on_glue:
            job.progress.step("fetching the export")
            source = items.local_export(source, Path(folder))
        names = items.names(job)
        commits = _archive(job, names, source).persist()
        try:
            return _tidy(job, names, commits)
        finally:
            commits.unpersist()
            names.frame.unpersist()


def _archive(job: Job, names: Names, export: str | None) -> DataFrame:
    """What comes of each segment."""
    rules = Rules.of(job.settings, job.now)
    entries = names.of(items.entries(items.items(job, export)), "mode", "archived")
    cells = in_cells(waiting(entries), rules.grid)
    return committed(names.of(sealed(cells, job.remote, rules), "path", "config"), job.remote)


def _tidy(job: Job, names: Names, commits: DataFrame) -> Summary:
    job.progress.step("archiving")
    done, lost, refused = (F.col("outcome") == each for each in ("committed", "lost", "refused"))
    slots = F.col("stop") - F.col("first")
    counts = commits.agg(
        F.countDistinct(F.when(done, F.col("chain"))).alias("streams"),
        F.count(F.when(done, 1)).alias("segments"),
        F.sum(F.when(done, slots)).alias("entries"),
        F.sum(F.when(done, F.col("bytes"))).alias("bytes"),
        F.count(F.when(lost, 1)).alias("lost"),
        F.count(F.when(refused, 1)).alias("refused"),
    ).collect()[0]
    rows = commits.where(refused).orderBy("path", "first").collect() if counts.refused else []
    gone = 0
    if counts.segments:
        job.progress.step("merging")
        grown = commits.where(done).groupBy("chain").agg(F.min("first").alias("first"))
        gone = _sum(merged(grown, job.remote, job.now))
    job.progress.step("trimming")
    return Summary(
        streams=counts.streams,
        segments=counts.segments,
        entries=counts.entries or 0,
        bytes=counts.bytes or 0,
        lost=counts.lost,
        refused=[(row.path, row.first, row.stop, row.reason) for row in rows],
        waiting=sum(row.stop - row.first for row in rows),
        merged=gone,
        trimmed=_sum(trimmed(names.frame, job.remote, job.now)),
    )


def _sum(tidied: DataFrame) -> int:
    return int(tidied.agg(F.sum("count")).collect()[0][0] or 0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--export",
        metavar="PATH",
        help="Read the files of a DynamoDB export (DYNAMODB_JSON; a folder, or s3://…) instead of"
        " the table: without read units, for large tables.",
    )


if __name__ == "__main__":
    finish(main(sys.argv[1:]))
