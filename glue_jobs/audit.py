"""The job `audit`: proves that all of the store is as it should be. It only reads.

read       names and the bucket's list, then every item, once, without its body
prove      segments are read whole, their checksums and all that they say compared
compare    the checks of `glue_jobs.auditing.checks` say where to look
look       there again, in the table as it is now: what is still wrong is a problem
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
from glue_jobs.auditing.facts import Facts, facts, streams
from glue_jobs.auditing.looking import problems
from glue_jobs.auditing.proving import proved
from glue_jobs.shared import items
from glue_jobs.shared.items import Names
from glue_jobs.shared.job import Job, finish, running, switch, table
from glue_jobs.shared.listing import listing
from glue_jobs.shared.metadata import metadata

NAME: Final = "audit"
ABOUT: Final = "Prove that the table and the bucket are as they should be; changes nothing."

SHOWN: Final = 50
"""Problems that are told one by one."""


class Checked(NamedTuple):
    check: str
    about: str
    looked: int
    """Items that it is about."""
    problems: int
    warning: bool


class Found(NamedTuple):
    check: str
    stream: str
    """Its path; or the chain, when it has no name."""
    slot: int | None
    what: str
    fix: str


class Report(NamedTuple):
    checked: Sequence[Checked]
    found: Sequence[Found]
    """The first of all."""

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
    with running(NAME, ABOUT, argv, add_arguments) as job:
        report = run(job)
        sys.stdout.write(f"{report.as_json().decode() if job.arguments.json else report}\n")
        job.publish(report.metrics)
        return 1 if report.problems else 0


def run(job: Job) -> Report:
    names = items.names(job)
    job.progress.step("listing the bucket")
    objects = listing(job).persist()
    objects.count()
    job.progress.step("reading the table")
    scanned = metadata(job, checksums=job.arguments.checksums).persist()
    held = [names.frame, objects, scanned]
    try:
        looked = _looked(job, names, scanned)
        known = facts(names, scanned, objects)
        if job.arguments.checksums:
            known = known._replace(proved=proved(known.manifests, job.remote).persist())
        held += [known.streams, known.chains, known.proved]
        suspects = _suspects(job, known, held)
        if suspects is None:
            return _report(looked, {}, [])
        job.progress.step("looking again")
        found = problems(_named_again(job, suspects, held), job.remote).persist()
        held.append(found)
        counts = {row["check"]: row["count"] for row in found.groupBy("check").count().collect()}
        return _report(looked, counts, _first(found))
    finally:
        for frame in held:
            frame.unpersist()


def _suspects(job: Job, known: Facts, held: list[DataFrame]) -> DataFrame | None:
    """Of all checks. One after the other: Spark would think longer about all at once."""
    found = []
    for check in CHECKS:
        job.progress.step(f"comparing: {check.name}")
        suspects = checks.suspects(check, known).persist()
        held.append(suspects)
        if suspects.count():
            found.append(suspects)
    return reduce(DataFrame.unionByName, found).distinct() if found else None


def _named_again(job: Job, suspects: DataFrame, held: list[DataFrame]) -> DataFrame:
    """With the names of chains as they are now: what has come meanwhile is no orphan."""
    names = items.names(job).frame
    held.append(names)
    paths = names.groupBy("chain").agg(F.min("path").alias("current"))
    others = paths.select(F.col("chain").alias("key"), F.col("current").alias("other"))
    return (
        suspects.join(paths, on="chain", how="left")
        .join(others, on="key", how="left")
        .select("check", "chain", F.coalesce("path", "current").alias("path"), "n", "key", "other")
    )


def _looked(job: Job, names: Names, scanned: DataFrame) -> Mapping[str, int]:
    """How many items each check is about."""
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


def _first(found: DataFrame) -> Sequence[Found]:
    names = ", ".join(f"'{each.name}'" for each in CHECKS)
    order = F.expr(f"array_position(array({names}), check)")
    rows = found.orderBy(order, "stream", "slot", "what").limit(SHOWN).collect()
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
        help="Read every segment and compare all that it says. [default: true]",
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
