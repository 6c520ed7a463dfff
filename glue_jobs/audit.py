"""The job `audit`: verifies the whole store. It only reads.

read       read names, list the bucket, then read every item once, without bodies
verify     read whole segments, and compare their checksums and contents
compare    run the checks of `glue_jobs.auditing.checks`, which return suspects
recheck    check each suspect again in the current store; what is still wrong is a problem
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final, NamedTuple

import orjson
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from glue_jobs.auditing import checks
from glue_jobs.auditing.checks import CHECKS
from glue_jobs.auditing.recheck import recheck_suspects
from glue_jobs.auditing.snapshot import Snapshot, streams, take_snapshot
from glue_jobs.auditing.verify_objects import verify_objects
from glue_jobs.shared import items
from glue_jobs.shared.items import Names
from glue_jobs.shared.job import Job, finish, start_job, switch, table
from glue_jobs.shared.listing import list_objects
from glue_jobs.shared.metadata import read_metadata

NAME: Final = "audit"
ABOUT: Final = "Verify the table and the bucket; changes nothing."

MAX_SHOWN: Final = 50
"""Problems that the report lists."""


class Checked(NamedTuple):
    check: str
    about: str
    looked: int
    """The number of items that it checks."""
    problems: int
    warning: bool


class Found(NamedTuple):
    check: str
    stream: str
    """The stream's path, or the chain if it has no name."""
    slot: int | None
    what: str
    fix: str


class Report(NamedTuple):
    checked: Sequence[Checked]
    found: Sequence[Found]
    """The first problems."""

    @property
    def problems(self) -> int:
        return sum(each.problems for each in self.checked if not each.warning)

    @property
    def warnings(self) -> int:
        return sum(each.problems for each in self.checked if each.warning)

    @property
    def metrics(self) -> dict[str, float]:
        return {"history_problems_num": self.problems}

    def as_json(self) -> bytes:
        value = {
            "ok": not self.problems,
            "problems": self.problems,
            "warnings": self.warnings,
            "checks": [each._asdict() for each in self.checked],
            "found": [each._asdict() for each in self.found],
        }
        return orjson.dumps(value, option=orjson.OPT_INDENT_2)

    def __str__(self) -> str:
        rows = [
            (each.check, f"{each.looked:,}", f"{each.problems:,}", each.about)
            for each in self.checked
        ]
        parts = [table(rows, ("check", "looked at", "problems", "what holds"))]
        if self.found:
            shown = [["-" if cell is None else cell for cell in each] for each in self.found]
            parts.append(table(shown, ("check", "stream", "slot", "what is wrong", "what to do")))
        more = self.problems + self.warnings - len(self.found)
        if more:
            parts.append(f"and {more:,} more")
        parts.append(f"{self.problems:,} problems, {self.warnings:,} warnings")
        return "\n\n".join(parts)


def main(argv: Sequence[str]) -> int:
    with start_job(NAME, ABOUT, argv, add_arguments) as job:
        report = run(job)
        sys.stdout.write(f"{report.as_json().decode() if job.arguments.json else report}\n")
        job.publish(report.metrics)
        return 1 if report.problems else 0


def run(job: Job) -> Report:
    names = items.read_names(job)
    job.progress.step("listing the bucket")
    objects = list_objects(job).persist()
    objects.count()
    job.progress.step("reading the table")
    scanned = read_metadata(job, checksums=job.arguments.checksums).persist()
    held = [names.frame, objects, scanned]
    try:
        looked = _count_items(job, names, scanned)
        snapshot = take_snapshot(names, scanned, objects)
        if job.arguments.checksums:
            slots = verify_objects(snapshot.manifests, job.settings).persist()
            snapshot = snapshot._replace(archived_slots=slots)
        held += [snapshot.streams, snapshot.chains, snapshot.archived_slots]
        suspects = _suspects(job, snapshot, held)
        if suspects is None:
            return _report(looked, {}, [])
        job.progress.step("rechecking")
        found = recheck_suspects(_add_current_names(job, suspects, held), job.settings).persist()
        held.append(found)
        counts = {row["check"]: row["count"] for row in found.groupBy("check").count().collect()}
        return _report(looked, counts, _first_problems(found))
    finally:
        for frame in held:
            frame.unpersist()


def _suspects(job: Job, snapshot: Snapshot, held: list[DataFrame]) -> DataFrame | None:
    """Run the checks one by one: Spark takes longer to plan all of them together."""
    found = []
    for check in CHECKS:
        job.progress.step(f"comparing: {check.name}")
        suspects = checks.suspects(check, snapshot).persist()
        held.append(suspects)
        if suspects.count():
            found.append(suspects)
    return reduce(DataFrame.unionByName, found).distinct() if found else None


def _add_current_names(job: Job, suspects: DataFrame, held: list[DataFrame]) -> DataFrame:
    """Add the current names of chains: a stream that was created meanwhile is no orphan."""
    names = items.read_names(job).frame
    held.append(names)
    paths = names.groupBy("chain").agg(F.min("path").alias("current"))
    others = paths.select(F.col("chain").alias("key"), F.col("current").alias("other"))
    return (
        suspects.join(paths, on="chain", how="left")
        .join(others, on="key", how="left")
        .select("check", "chain", F.coalesce("path", "current").alias("path"), "n", "key", "other")
    )


def _count_items(job: Job, names: Names, scanned: DataFrame) -> Mapping[str, int]:
    """Count the items of each check."""
    counted = scanned.groupBy("kind").agg(F.count("*").alias("all"), F.count("key").alias("keys"))
    of = {row["kind"]: row for row in counted.collect()}
    entries, segments, edges, claims = (of[kind]["all"] if kind in of else 0 for kind in "CSEB")
    named, forks = streams(names.frame).agg(F.count("*"), F.count("parent")).collect()[0]
    return {
        "slots": entries,
        "manifests": segments,
        "seams": segments,
        "segments": segments if job.arguments.checksums else 0,
        "objects": sum(row["keys"] for row in of.values()),
        "claims": claims,
        "forks": forks,
        "edges": edges,
        "orphans": sum(row["all"] for row in of.values()),
        **dict.fromkeys(("beginnings", "pointers", "tombstones", "twins"), named),
    }


def _first_problems(found: DataFrame) -> Sequence[Found]:
    names = ", ".join(f"'{each.name}'" for each in CHECKS)
    order = F.expr(f"array_position(array({names}), check)")
    rows = found.orderBy(order, "stream", "slot", "what").limit(MAX_SHOWN).collect()
    return [Found(*(row[name] for name in Found._fields)) for row in rows]


def _report(looked: Mapping[str, int], counts: Mapping[str, int], found: Sequence[Found]) -> Report:
    checked = [
        Checked(each.name, each.about, looked[each.name], counts.get(each.name, 0), each.warning)
        for each in CHECKS
    ]
    return Report(checked, found)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checksums",
        type=switch,
        default=True,
        metavar="true|false",
        help="Read and verify every segment. [default: true]",
    )
    parser.add_argument(
        "--json",
        type=switch,
        default=False,
        metavar="true|false",
        help="Print the report as JSON. [default: false]",
    )


if __name__ == "__main__":
    finish(main(sys.argv[1:]))
