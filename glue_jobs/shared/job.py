"""The frame of a job: settings from its arguments, progress, metrics, errors as messages."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Final

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from glue_jobs.shared.progress import Progress
from glue_jobs.shared.spark import session
from tailrace.clock import system_clock
from tailrace.configuration import load_settings
from tailrace.errors import BadSetting, TailraceError
from tailrace.settings import Settings
from tailrace.store.dynamodb.provision import require

SETTINGS: Final = (
    "table",
    "bucket",
    "endpoint_url",
    "trim_grace",
    "segment_max_messages",
    "segment_max_bytes",
    "segment_target_bytes",
    "retention",
)
"""The settings that jobs accept, as flags with the same names."""

METRICS: Final[dict[str, str]] = {
    "history_runs_total": "Completed runs of a job.",
    "history_archived_total": "Entries that compaction archived in segments.",
    "history_merged_total": "Segments that compaction merged into larger ones.",
    "history_trimmed_total": "Archived entries that compaction removed from the table.",
    "history_refused_total": "Segments that compaction refused, for a reason in its log.",
    "history_waiting_num": "Entries that fill segments but were not archived by the run.",
    "history_exported_total": "Exported messages.",
    "history_swept_total": "Items and objects that the sweep removed.",
    "history_problems_num": "Problems that the audit found.",
}
"""Published in the namespace `Tailrace` with the dimensions `job` and `table`."""

_TAILRACE_ERROR: Final = re.compile(r"^tailrace\.\S+: (.+)$", re.MULTILINE)
"""An error of Tailrace at the end of a worker's traceback."""

Extend = Callable[[argparse.ArgumentParser], None]


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a job."""

    name: str
    settings: Settings
    arguments: argparse.Namespace
    spark: SparkSession
    progress: Progress
    on_glue: bool
    now: int
    """Start time in milliseconds, the reference of grace periods and ages."""

    def publish(self, counts: Mapping[str, float]) -> None:
        """Publish the metrics of this run, if it runs on Glue."""
        if not self.on_glue:
            return
        import boto3

        dimensions = [
            {"Name": "job", "Value": self.name},
            {"Name": "table", "Value": self.settings.table},
        ]
        boto3.client("cloudwatch").put_metric_data(
            Namespace="Tailrace",
            MetricData=[
                {"MetricName": name, "Value": value, "Unit": "Count", "Dimensions": dimensions}
                for name, value in {"history_runs_total": 1, **counts}.items()
            ],
        )


def parse(
    name: str, about: str, argv: Sequence[str], extend: Extend | None = None
) -> tuple[Settings, argparse.Namespace]:
    """Parse the settings and arguments of a job; exit with a message if they are invalid.

    Arguments that Glue adds are ignored."""
    parser = argparse.ArgumentParser(name, description=about, allow_abbrev=False)
    for setting in fields(Settings):
        if setting.name in SETTINGS:
            flag = f"--{setting.name.replace('_', '-')}"
            text = f"{setting.metadata['doc']} [default: {setting.default!r}]".replace("%", "%%")
            parser.add_argument(flag, metavar="VALUE", help=text)
    parser.add_argument("--region", metavar="REGION", help="AWS region of table and bucket.")
    parser.add_argument(
        "--cores", type=int, metavar="N", help="Cores that a local Spark uses. [default: all]"
    )
    # For tests, which cannot wait for a grace period of a day.
    parser.add_argument("--now", type=int, help=argparse.SUPPRESS)
    if extend is not None:
        extend(parser)
    arguments = parser.parse_known_args(argv)[0] if on_glue(argv) else parser.parse_args(argv)
    values: dict[str, Any] = {setting: getattr(arguments, setting, None) for setting in SETTINGS}
    try:
        # On Glue, settings come from arguments only.
        return load_settings(store="dynamodb", **values), arguments
    except BadSetting as error:
        parser.error(str(error))


def on_glue(argv: Sequence[str]) -> bool:
    return "--JOB_NAME" in argv


def switch(text: str) -> bool:
    """Parse `true` or `false`: Glue does not pass flags without a value."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


@contextmanager
def start_job(
    name: str, about: str, argv: Sequence[str], extend: Extend | None = None
) -> Iterator[Job]:
    """Run a job with a Spark session, which is stopped at the end unless it existed before."""
    settings, arguments = parse(name, about, argv, extend)
    if arguments.region:
        os.environ["AWS_REGION"] = os.environ["AWS_DEFAULT_REGION"] = arguments.region
    glue = on_glue(argv)
    with _report_errors(name):
        asyncio.run(require(settings))
    ours = SparkContext._active_spark_context is None and not glue  # noqa: SLF001 (no other way)
    spark = session(f"tailrace {name}", local=not glue, cores=arguments.cores)
    progress = Progress(name, spark.sparkContext)
    begun = time.monotonic()
    try:
        now = system_clock() if arguments.now is None else arguments.now
        with _report_errors(name):
            yield Job(name, settings, arguments, spark, progress, glue, now)
        progress.say(f"done in {time.monotonic() - begun:.1f} s")
    finally:
        progress.stop()
        if ours:
            spark.stop()


@contextmanager
def _report_errors(name: str) -> Iterator[None]:
    """Report errors for operators as a message, also those raised in a worker."""
    try:
        yield
    except TailraceError as error:
        sys.stderr.write(f"{name}: {error}\n")
        raise SystemExit(2 if isinstance(error, BadSetting) else 1) from error
    except PySparkException as error:
        messages = _TAILRACE_ERROR.findall(str(error))
        if not messages:
            raise
        sys.stderr.write(f"{name}: {messages[-1]}\n")
        raise SystemExit(1) from error


def finish(code: int) -> None:
    """Exit a script: Glue treats every call of `sys.exit` as a failure, even with code 0."""
    if code:
        sys.exit(code)


def table(rows: Sequence[Sequence[Any]], headers: Sequence[str]) -> str:
    """Format rows as aligned text."""
    cells = [[str(value) for value in row] for row in [headers, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
             for row in cells]  # fmt: skip
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])
