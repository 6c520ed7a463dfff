"""The job `compact-history`: moves older entries from the table into segments in the bucket.

    read       read every item once, from the table or from an export of it
    archive    write entries that fill a segment to the bucket, then commit segments in order
    merge      merge small segments of the chains that grew
    trim       remove archived slots from the table after a grace period

A run may be killed at any time and repeated, and two may run concurrently: uncommitted objects are
swept, a commit names the segment that it follows, and merged or trimmed slots stay readable.
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

from glue_jobs.compaction.build_segments import (
    Rules,
    assign_cells,
    build_segments,
    select_unarchived,
)
from glue_jobs.compaction.commit_segments import commit_segments
from glue_jobs.compaction.merge_and_trim import merge_segments, trim_entries
from glue_jobs.shared import items
from glue_jobs.shared.items import Names
from glue_jobs.shared.job import Job, finish, start_job, table

NAME: Final = "compact-history"
ABOUT: Final = "Move older entries from the table into segments in the bucket."

MAX_SHOWN: Final = 20
"""Refused segments that the output lists."""


class Summary(NamedTuple):
    """The result of a run."""

    streams: int
    segments: int
    entries: int
    bytes: int
    lost: int
    """Segments that a concurrent run committed first."""
    refused: Sequence[tuple[str, int, int, str]]
    """Path, first slot, slot after the last, reason."""
    waiting: int
    """Entries that fill segments but were not archived."""
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
            f"merged away {self.merged:,} segments, trimmed {self.trimmed:,} entries",
        ]
        if self.lost:
            lines.append(f"{self.lost:,} segments were committed by a concurrent run first")
        if self.refused:
            rows = table(self.refused[:MAX_SHOWN], ("stream", "first", "stop", "reason"))
            lines.append(f"refused {len(self.refused):,} segments:\n{rows}")
        return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    with start_job(NAME, ABOUT, argv, add_arguments) as job:
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
        names = items.read_names(job)
        commits = plan_archive(job, names, source).persist()
        try:
            return execute(job, names, commits)
        finally:
            commits.unpersist()
            names.frame.unpersist()


def plan_archive(job: Job, names: Names, export: str | None) -> DataFrame:
    """Plan building and committing segments: a lazy frame with the outcome of each segment."""
    rules = Rules.of(job.settings, job.now)
    entries = names.join_to(items.entries(items.read_items(job, export)), "mode", "archived")
    cells = assign_cells(select_unarchived(entries), rules.grid)
    segments = build_segments(cells, job.settings, rules)
    return commit_segments(names.join_to(segments, "path", "config"), job.settings)


def execute(job: Job, names: Names, commits: DataFrame) -> Summary:
    """Archive as planned, then merge and trim."""
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
    merged = 0
    if counts.segments:
        job.progress.step("merging")
        grown = commits.where(done).groupBy("chain").agg(F.min("first").alias("first"))
        merged = _sum(merge_segments(grown, job.settings, job.now))
    job.progress.step("trimming")
    return Summary(
        streams=counts.streams,
        segments=counts.segments,
        entries=counts.entries or 0,
        bytes=counts.bytes or 0,
        lost=counts.lost,
        refused=[(row.path, row.first, row.stop, row.reason) for row in rows],
        waiting=sum(row.stop - row.first for row in rows),
        merged=merged,
        trimmed=_sum(trim_entries(names.frame, job.settings, job.now)),
    )


def _sum(counts: DataFrame) -> int:
    return int(counts.agg(F.sum("count")).collect()[0][0] or 0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--export",
        metavar="PATH",
        help="Read a DynamoDB export (DYNAMODB_JSON; a folder or s3://…) instead of the table; this"
        " needs no read units.",
    )


if __name__ == "__main__":
    finish(main(sys.argv[1:]))
