"""The official conformance suite while history is made of everything that it writes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devtools.engines.ministack import Engine
from devtools.processes import fresh_name
from devtools.server import Server
from tailrace.clock import system_clock
from tailrace.configuration import load_settings
from tailrace.segments.merge import Grid
from tailrace.settings import Settings
from tailrace.store.dynamodb.layout import name_of, name_partitions
from tailrace.store.dynamodb.provision import connect
from tailrace.store.dynamodb.table import Table
from tests.conftest import on_dynamodb
from tests.integration.glue.lab import DAY, compact
from tests.support.archiving import Most, archive, merge, trim
from tests.support.conformance.official import check

NEWEST = 12
"""Streams that are looked at again and again: the suite is done with the others."""


@pytest.mark.usefixtures("spark")
def test_official_suite_passes_on_dynamodb_that_always_compacts(
    aws: Engine, tmp_path: Path
) -> None:
    """All but the last entry of a stream leave the table within milliseconds, by two rivals: what
    Spark's job does, and a tool of the tests that is faster than it."""
    env = {
        **on_dynamodb(aws),
        "TAILRACE_BUCKET": fresh_name("conformance"),
        "TAILRACE_LONG_POLL_TIMEOUT": "2",
        "TAILRACE_INLINE_BYTES": "1024",
    }
    settings = load_settings(env)
    flags = ["--table", settings.table, "--bucket", settings.bucket]
    flags += ["--segment-max-messages", "1", "--segment-target-bytes", "4096"]
    done = threading.Event()
    counts = {"spark": 0, "tool": 0}

    def by_spark() -> None:
        while not done.is_set():
            # As if a day had passed, so that slots go at once; the server knows its own tails.
            summary = compact([*flags, "--now", str(system_clock() + DAY + 1)])
            assert not summary.refused
            counts["spark"] += summary.entries

    def by_tool() -> None:
        counts["tool"] += asyncio.run(_compact_newest(settings, done))

    with Server(tmp_path / "unused", env) as server, _running(done, by_spark, by_tool):
        check(server, tmp_path)
        assert "Traceback" not in server.output()
    assert counts["spark"] > 0
    assert counts["tool"] > 0


async def _compact_newest(settings: Settings, done: threading.Event) -> int:
    backend = await connect(settings)
    assert backend.bucket is not None
    table, trimmed = Table(backend.client, settings.table), 0
    try:
        while not done.is_set():
            found = await asyncio.gather(
                *(table.begins(partition, "", 1000, None) for partition in name_partitions())
            )
            names = [name_of(item) for page in found for item in page.items]
            names.sort(key=lambda name: -name.stream.config.created)
            for name in names[:NEWEST]:
                stream, later = name.stream, system_clock() + DAY + 1
                while await archive(table, backend.bucket, stream, Most(1), later - DAY - 1):
                    pass
                await merge(table, backend.bucket, stream.id, Grid(4096, 8), later + DAY)
                trimmed += await trim(table, stream.path, later, settings.trim_grace)
    finally:
        await backend.close()
    return trimmed


@contextmanager
def _running(done: threading.Event, *targets: Callable[[], None]) -> Iterator[None]:
    """Runs beside what is inside; what goes wrong there goes wrong here."""
    failures: list[BaseException] = []

    def guarded(target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as error:  # noqa: BLE001 (it is raised below)
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
