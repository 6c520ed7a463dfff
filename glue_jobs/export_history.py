"""The job `export-history`: exports the messages in segments as Parquet.

    plan       list the segments with unexported slots, and store the list
    write      write Parquet files, whose names follow from the plan
    register   add partitions to the Glue catalogue, where Athena finds them
    record     store in names how far their streams are exported; the plan is done

A run may be killed at any time and repeated: an unfinished plan is completed first. A repeated step
creates the same files and partitions, so no message is exported twice.
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
from glue_jobs.exporting.export_lease import LEASE_SECONDS, ExportLease, Plan
from glue_jobs.exporting.files import FOLDER, partition_folder, write_files
from glue_jobs.exporting.plans import plan_parts, record_progress
from glue_jobs.exporting.summary import Refused, Summary
from glue_jobs.shared import items
from glue_jobs.shared.job import Job, finish, start_job, switch
from tailrace.aws.client.service_access import boto_client
from tailrace.errors import BadSetting
from tailrace.store.dynamodb.provision import LOCAL_BUCKET

NAME: Final = "export-history"
ABOUT: Final = "Export segments as Parquet, for Athena and other tools."

MOST_BUCKETS: Final = 1000
"""Each has at least one file per day and run."""


def main(argv: Sequence[str]) -> int:
    with start_job(NAME, ABOUT, argv, add_arguments) as job:
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
    with ExportLease(s3, bucket, job.arguments.lease) as lease:
        export = _Export(job, s3, bucket, lease, catalogue)
        unfinished = lease.acquire(new, job.progress.step)
        done = Summary()
        if unfinished.state == "planned":
            job.progress.say(f"completing run {unfinished.run}, which was unfinished")
            done = export.finish(unfinished, done)
            if done.damaged.times:
                return done
            lease.write(new)
        plan, held = export.plan(new)
        done = done._replace(held=held)
        return export.finish(plan, done) if plan.parts else done


class _Export(NamedTuple):
    job: Job
    s3: Any
    bucket: str
    lease: ExportLease
    catalogue: Catalogue | None

    def plan(self, plan: Plan) -> tuple[Plan, Refused]:
        """Plan a run. This run has the lease, so parts of abandoned plans can be deleted."""
        self._clean()
        names = items.read_names(self.job)
        self.job.progress.step("planning")
        rows = plan_parts(names.frame, self.job.settings, plan.run, plan.buckets).persist()
        try:
            parts = rows.where("part IS NOT NULL").collect()
            held = Refused.among(rows)
        finally:
            rows.unpersist()
            names.frame.unpersist()
        plan = plan._replace(
            state="planned" if parts else "done",
            parts=tuple(row.part for row in parts),
            streams=sum(row.streams for row in parts),
            segments=sum(row.segments for row in parts),
        )
        self.lease.write(plan)
        return plan, held

    def finish(self, plan: Plan, done: Summary) -> Summary:
        """Export as planned, and add the counts to `done`."""
        partitions, done = self._write(plan, done)
        if done.damaged.times:
            return done
        # Raises an error if the run was too slow and another has taken over.
        self.lease.write(plan)
        if self.catalogue is not None:
            self.job.progress.step("registering partitions")
            self.catalogue.register(
                ((row.day, str(row.bucket), plan.run), self._url(row.day, row.bucket, plan.run))
                for row in partitions
            )
        self.job.progress.step("recording how far streams are exported")
        record_progress(self.job.spark, plan, self.job.settings).count()
        self.lease.write(plan._replace(state="done", parts=()))
        self._clean()
        return done._replace(
            finished=(*done.finished, plan.run),
            streams=done.streams + plan.streams,
            segments=done.segments + plan.segments,
        )

    def _write(self, plan: Plan, done: Summary) -> tuple[Sequence[Any], Summary]:
        """Write the files; return the partitions that have some, and the counts."""
        self.job.progress.step("writing files")
        files = write_files(self.job.spark, plan, self.job.settings).persist()
        try:
            rows = files.groupBy("day", "bucket").agg(
                F.count("*").alias("files"),
                F.sum("messages").alias("messages"),
                F.sum("bytes").alias("bytes"),
                F.sum(F.col("stop") - F.col("first")).alias("missing"),
                F.count("refused").alias("refused"),
            )
            groups = rows.orderBy("day", "bucket").collect()
            if any(row.refused for row in groups):
                return [], done._replace(damaged=Refused.among(files))
        finally:
            files.unpersist()
        partitions = [row for row in groups if row.day is not None]
        return partitions, done._replace(
            messages=done.messages + sum(row.messages for row in partitions),
            partitions=done.partitions + len(partitions),
            files=done.files + sum(row.files for row in partitions),
            bytes=done.bytes + sum(row.bytes for row in partitions),
            gone=done.gone + sum(row.missing or 0 for row in groups),
        )

    def _url(self, day: str, bucket: int, run_id: str) -> str:
        return f"s3://{self.bucket}/{partition_folder(day, bucket, run_id)}"

    def _clean(self) -> None:
        pages = self.s3.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self.bucket, Prefix=plans.FOLDER):
            keys = [{"Key": entry["Key"]} for entry in page.get("Contents", ())]
            # A page has at most as many keys as one DeleteObjects call takes.
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
            f"the bucket '{name}' does not exist: choose another with --bucket, or run"
            " compact-history first"
        ) from error
    return name


def _catalogue(job: Job, bucket: str) -> Catalogue:
    job.progress.step("checking the catalogue")
    arguments = job.arguments
    catalogue = Catalogue(
        boto_client("glue", job.settings),
        arguments.database,
        arguments.catalogue_table,
        f"s3://{bucket}/{FOLDER}",
    )
    catalogue.prepare()
    return catalogue


def _parse_buckets(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if not 1 <= number <= MOST_BUCKETS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MOST_BUCKETS}")
    return number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--buckets",
        type=_parse_buckets,
        default=8,
        metavar="N",
        help="Parts that each day's streams are spread over; fixed by the first export."
        " [default: 8]",
    )
    parser.add_argument(
        "--catalogue",
        type=switch,
        default=True,
        metavar="true|false",
        help="Register the exported files in the Glue catalogue. [default: true]",
    )
    parser.add_argument(
        "--database", default="tailrace", help="Database in the catalogue. [default: tailrace]"
    )
    parser.add_argument(
        "--catalogue-table", default="messages", help="Table in that database. [default: messages]"
    )
    # For tests.
    parser.add_argument("--lease", type=float, default=LEASE_SECONDS, help=argparse.SUPPRESS)


if __name__ == "__main__":
    finish(main(sys.argv[1:]))
