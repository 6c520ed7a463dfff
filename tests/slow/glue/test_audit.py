"""The audit of stores that nothing is wrong with, at rest and in use."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from glue_jobs.auditing.checks import CHECKS
from tailrace.clock import system_clock
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.segments.merge import Grid
from tailrace.store.dynamodb import sweeping
from tailrace.store.dynamodb.bodies import Bodies
from tests.integration.glue.lab import DAY, TEXT, Lab
from tests.integration.glue.test_audit import FAULTS, GRACE, Site, healthy, run
from tests.support import archiving
from tests.support.archiving import Most


async def test_a_store_that_nothing_is_wrong_with_is_clean(lab: Lab) -> None:
    """Without a look into its segments."""
    await healthy(lab)
    for name, fault in FAULTS.items():
        await fault.prepare(Site(lab, name))
    code, output = await run(lab, "--checksums", "false")
    assert code == 0, output
    counts = {line.split()[0]: line.split()[1:3] for line in output.splitlines() if line}
    for check in CHECKS:
        looked, problems = counts[check.name]
        assert (looked != "0") == (check.name != "segments"), "each has something to look at"
        assert problems == "0"
    assert output.endswith("0 problems, 0 warnings\n")


async def test_a_store_in_use_gives_no_false_alarm(
    lab: Lab, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = [f"busy/{i}" for i in range(3)]
    for path in paths:
        await lab.streams.create(path, Create(content_type=TEXT))
    end = asyncio.Event()
    busy = [write(lab, path, end) for path in paths]
    async with asyncio.TaskGroup() as group:
        for each in (*busy, come_and_go(lab, end), compact(lab, paths, end)):
            group.create_task(each)
        code, output = await run(lab)
        end.set()
    assert (code, output.endswith("0 problems, 0 warnings\n")) == (0, True), output
    assert "rechecking" in capfd.readouterr().err, "nothing has happened meanwhile"


async def write(lab: Lab, path: str, end: asyncio.Event) -> None:
    i = 0
    while not end.is_set():
        i += 1
        bodies = [b"%d" % i * (1000 if i % 10 == 0 else 1), b"%d" % i * 3]
        await asyncio.gather(*(lab.streams.append(path, Append(body, TEXT)) for body in bodies))
        await asyncio.sleep(0.01)


async def come_and_go(lab: Lab, end: asyncio.Event) -> None:
    i = 0
    while not end.is_set():
        i += 1
        path = f"guest/{i}"
        await lab.fill(path, TEXT, 3)
        await lab.fork(f"{path}/fork", path, 2)
        for each in (path, f"{path}/fork") if i % 2 else (f"{path}/fork", path):
            await lab.streams.delete(each)


async def compact(lab: Lab, paths: Sequence[str], end: asyncio.Event) -> None:
    """Everything at once: what is archived is let go and swept, days before its time."""
    table, later = lab.store._table, system_clock() + 2 * DAY
    bodies = Bodies(table, lab.bucket, system_clock)
    while not end.is_set():
        for path in paths:
            stream = (await lab.streams.find(path)).stream
            await archiving.archive(table, lab.bucket, stream, Most(5), system_clock())
            await archiving.merge(table, lab.bucket, stream.id, Grid(400, 40), system_clock())
            await archiving.trim(table, path, later, GRACE)
        await sweeping.sweep(table, bodies, later, GRACE)
