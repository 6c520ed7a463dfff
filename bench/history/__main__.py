"""`python -m bench.history`: compaction on this machine's Spark, against ministack on loopback.

The source is a DynamoDB export, as for large tables; segments go to S3, commits to DynamoDB. The
same data merely read and written by the same Spark, from the export and from Parquet, says how
fast it could be.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from bench.history.data import Made, Size, make
from bench.history.memory import Peak
from bench.history.page import PAGE, render
from bench.history.reads import Reads, reads
from devtools.engines.ministack import Engine, Ministack
from devtools.processes import fresh_name
from glue_jobs import compact_history
from glue_jobs.shared import items
from glue_jobs.shared.job import start_job
from glue_jobs.shared.spark import session
from tailrace.settings import Settings
from tailrace.store.dynamodb.provision import connect

SIZES = (Size(100_000, 1_000), Size(1_000_000, 10_000))
QUICK = (Size(10_000, 100), Size(50_000, 500))
CORES = 2


class Run(NamedTuple):
    """One size: seconds of each way to treat the data, and what compaction has made of it."""

    size: Size
    appends: int
    bytes: int
    compact: float
    from_export: float
    from_parquet: float
    summary: compact_history.Summary
    megabytes: float
    """The peak memory of Spark and its workers."""


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser("bench.history", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the data")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    arguments = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="tailrace-bench-"))
    try:
        with Ministack(folder) as ministack:
            os.environ.update(Engine("ministack", ministack.url, ministack.url).env)
            runs, read = _measure(folder, QUICK if arguments.quick else SIZES)
    finally:
        shutil.rmtree(folder)
    text = render(runs, read, CORES)
    sys.stdout.write(text)
    if arguments.write:
        PAGE.write_text(text)


def _measure(folder: Path, sizes: Sequence[Size]) -> tuple[list[Run], Reads]:
    spark = session("bench", local=True, cores=CORES)
    try:
        _say("warming up")
        _run(spark, make(QUICK[0], folder / "warm"), folder / "warm-out")
        runs = []
        for size in sizes:
            _say(f"making {size.entries:,} entries of {size.streams:,} streams")
            made = make(size, folder / str(size.entries))
            run, settings = _run(spark, made, folder / f"{size.entries}-out")
            runs.append(run)
        _say("reading")
        read = asyncio.run(reads(settings, made))
    finally:
        spark.stop()
    return runs, read


def _run(spark: SparkSession, made: Made, out: Path) -> tuple[Run, Settings]:
    settings = Settings(store="dynamodb", table=fresh_name("bench"), bucket=fresh_name("bench"))
    asyncio.run(_store(settings, [*made.names, *made.lasts]))
    parquet, export = str(out / "rows"), str(made.folder)
    from_export = _seconds(
        "export to Parquet", lambda: items.read_export(spark, export).write.parquet(parquet)
    )
    from_parquet = _seconds(
        "Parquet to Parquet",
        lambda: spark.read.parquet(parquet).write.parquet(str(out / "again")),
    )
    argv = ["--table", settings.table, "--bucket", settings.bucket, "--export", export]
    with (
        start_job(compact_history.NAME, "", argv, compact_history.add_arguments) as job,
        Peak() as peak,
    ):
        begun = time.monotonic()
        summary = compact_history.run(job)
        compact = time.monotonic() - begun
    _say(f"compaction: {compact:.1f} s; {summary}")
    shutil.rmtree(out)
    run = Run(
        made.size, made.appends, made.bytes, compact, from_export, from_parquet, summary,
        peak.megabytes,
    )  # fmt: skip
    return run, settings


async def _store(settings: Settings, rows: Sequence[dict[str, Any]]) -> None:
    backend = await connect(settings)
    try:
        for i in range(0, len(rows), 25):
            puts = [{"PutRequest": {"Item": item}} for item in rows[i : i + 25]]
            await backend.client.call("BatchWriteItem", {"RequestItems": {settings.table: puts}})
        assert backend.bucket is not None
        await backend.bucket.put("made", b"")
    finally:
        await backend.close()


def _seconds(what: str, action: Callable[[], object]) -> float:
    begun = time.monotonic()
    action()
    took = time.monotonic() - begun
    _say(f"{what}: {took:.1f} s")
    return took


def _say(what: str) -> None:
    print(f"{what} …" if what[-1] != "s" else what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
