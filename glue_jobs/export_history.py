"""The job `export-history`: what is in segments becomes Parquet, message by message.

    plan       which segments have slots that were not exported; it is written down
    write      files of Parquet, whose names follow from the plan
    register   partitions in the Glue catalogue: now Athena sees them
    note       names remember how far their streams are exported; the plan is done

It may be ended at any moment and run again: a plan that was not done is finished first. Whoever
does a part of it again makes the same files and partitions, so that no message is there twice.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pyspark.sql import functions as F

from glue_jobs.exporting import plans
from glue_jobs.exporting.catalogue import Catalogue
from glue_jobs.exporting.files import FOLDER, place, written
from glue_jobs.exporting.plans import noted, planned
from glue_jobs.exporting.summary import Refused, Summary
from glue_jobs.exporting.turn import LEASE_SECONDS, Plan, Turn
from glue_jobs.shared import items
from glue_jobs.shared.job import Job, finish, running, switch
from tailrace.aws.client.endpoint import boto_client
from tailrace.errors import BadSetting
from tailrace.store.dynamodb.provision import LOCAL_BUCKET

NAME: Final = "export-history"
ABOUT: Final = "Export what is in segments as Parquet, for Athena and whoever else reads it."

MOST_BUCKETS: Final = 1000
"""Each is a file of its own, for every day and run."""


def main(argv: Sequence[str]) -> int:
    with running(NAME, ABOUT, argv, add_arguments) as job:
        summary = run(job)
        sys.stdout.write(f"{summary}\n")
        job.publish(summary.metrics)
        return 1 if summary.held.times or summary.damaged.times else 0


def run(job: Job) -> Summary:
    s3 = boto_client("s3", job.settings)
    bucket = _bucket(job, s3)
    catalogue = _catalogue(job, bucket) if job.arguments.catalogue else None
    begun = datetime.fromtimestamp(job.now / 1000, UTC)
    run_id = f"{begun:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    new = Plan(run_id, "planning", job.arguments.buckets)
    with Turn(s3, bucket, job.arguments.lease) as turn:
        export = _Export(job, s3, bucket, turn, catalogue)
        left = turn.take(new, job.progress.step)
        done = Summary()
        if left.state == "planned":
            job.progress.say(f"run {left.run} was left unfinished: it comes first")
            done = export.finish(left, done)
            if done.damaged.times:
                return done
            turn.write(new)
        plan, held = export.plan(new)
        done = done._replace(held=held)
        return export.finish(plan, done) if plan.parts else done


class _Export(NamedTuple):
    job: Job
    s3: Any
    bucket: str
    turn: Turn
    catalogue: Catalogue | None

    def plan(self, plan: Plan) -> tuple[Plan, Refused]:
        """Nobody else plans now, so that what others have left of their plans can go."""
        self._clean()
        names = items.names(self.job)
        self.job.progress.step("planning")
        rows = planned(names.frame, self.job.remote, plan.run, plan.buckets).persist()
        try:
            found = rows.where("part IS NOT NULL").collect()
            held = Refused.among(rows)
        finally:
            rows.unpersist()
            names.frame.unpersist()
        plan = plan._replace(
            state="planned" if found else "done",
            parts=tuple(row.part for row in found),
            streams=sum(row.streams for row in found),
            segments=sum(row.segments for row in found),
        )
        self.turn.write(plan)
        return plan, held

    def finish(self, plan: Plan, done: Summary) -> Summary:
        """What was done before, and this."""
        made, done = self._write(plan, done)
        if done.damaged.times:
            return done
        # Who took too long is told so here: the rest is done by another, or has been.
        self.turn.write(plan)
        if self.catalogue is not None:
            self.job.progress.step("registering partitions")
            self.catalogue.register(
                ((row.day, str(row.bucket), plan.run), self._url(row.day, row.bucket, plan.run))
                for row in made
            )
        self.job.progress.step("noting how far streams are exported")
        noted(self.job.spark, plan, self.job.remote).count()
        self.turn.write(plan._replace(state="done", parts=()))
        self._clean()
        return done._replace(
            finished=(*done.finished, plan.run),
            streams=done.streams + plan.streams,
            segments=done.segments + plan.segments,
        )

    def _write(self, plan: Plan, done: Summary) -> tuple[Sequence[Any], Summary]:
        """The partitions that have files now."""
        self.job.progress.step("writing files")
        files = written(self.job.spark, plan, self.job.remote).persist()
        try:
            rows = files.groupBy("day", "bucket").agg(
                F.count("*").alias("files"),
                F.sum("messages").alias("messages"),
                F.sum("bytes").alias("bytes"),
                F.sum(F.col("stop") - F.col("first")).alias("missing"),
                F.count("refused").alias("refused"),
            )
            found = rows.orderBy("day", "bucket").collect()
            if any(row.refused for row in found):
                return [], done._replace(damaged=Refused.among(files))
        finally:
            files.unpersist()
        made = [row for row in found if row.day is not None]
        return made, done._replace(
            messages=done.messages + sum(row.messages for row in made),
            partitions=done.partitions + len(made),
            files=done.files + sum(row.files for row in made),
            bytes=done.bytes + sum(row.bytes for row in made),
            gone=done.gone + sum(row.missing or 0 for row in found),
        )

    def _url(self, day: str, bucket: int, run_id: str) -> str:
        return f"s3://{self.bucket}/{place(day, bucket, run_id)}"

    def _clean(self) -> None:
        pages = self.s3.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self.bucket, Prefix=plans.FOLDER):
            keys = [{"Key": found["Key"]} for found in page.get("Contents", ())]
            # A page has no more than S3 deletes at once.
            if keys:
                self.s3.delete_objects(Bucket=self.bucket, Delete={"Objects": keys, "Quiet": True})


def _bucket(job: Job, s3: Any) -> str:
    from botocore.exceptions import ClientError

    name = job.settings.bucket or LOCAL_BUCKET
    try:
        s3.head_bucket(Bucket=name)
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("404", "NoSuchBucket"):
            raise
        raise BadSetting(
            f"there is no bucket '{name}': name another with --bucket, or run compact-history first"
        ) from error
    return name


def _catalogue(job: Job, bucket: str) -> Catalogue:
    job.progress.step("looking at the catalogue")
    wanted = job.arguments
    catalogue = Catalogue(
        boto_client("glue", job.settings),
        wanted.database,
        wanted.catalogue_table,
        f"s3://{bucket}/{FOLDER}",
    )
    catalogue.prepare()
    return catalogue


def _count(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if not 1 <= number <= MOST_BUCKETS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MOST_BUCKETS}")
    return number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--buckets",
        type=_count,
        default=8,
        metavar="N",
        help="Parts that each day's streams are spread over; it stays as it was first."
        " [default: 8]",
    )
    parser.add_argument(
        "--catalogue",
        type=switch,
        default=True,
        metavar="true|false",
        help="Register what is exported in the Glue catalogue. [default: true]",
    )
    parser.add_argument(
        "--database", default="tailrace", help="Database in the catalogue. [default: tailrace]"
    )
    parser.add_argument(
        "--catalogue-table", default="messages", help="Table in that database. [default: messages]"
    )
    # Of use to tests only.
    parser.add_argument("--lease", type=float, default=LEASE_SECONDS, help=argparse.SUPPRESS)


if __name__ == "__main__":
    finish(main(sys.argv[1:]))
