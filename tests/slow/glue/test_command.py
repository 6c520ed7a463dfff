"""Compaction as a process of its own, over an S3 that checks signatures and conditions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence

import pytest

from devtools.engines.ministack import Engine
from devtools.engines.seaweedfs import Seaweedfs
from devtools.processes import ROOT
from tests.integration.glue.lab import JSON, TEXT, TINY, Lab

COMMAND = [sys.executable, "-m", "glue_jobs.compact_history", "--cores", "2"]


@pytest.fixture
async def signed(
    aws: Engine, seaweedfs: Seaweedfs, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Lab]:
    for name, value in {**aws.env, **seaweedfs.client_env}.items():
        monkeypatch.setenv(name, value)
    async with Lab.over(None) as made:
        yield made


def ended(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)


def killed(command: Sequence[str], lab: Lab, objects: int) -> None:
    """Once there are that many segments in the bucket, committed or not."""
    running = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 600
        while len(lab.objects("segments/")) < objects and running.poll() is None:
            assert time.monotonic() < end, "it has written nothing"
            time.sleep(0.005)
    finally:
        running.kill()
        running.wait()


async def test_the_job_is_killed_and_then_ends_well(signed: Lab) -> None:
    await signed.fill("json", JSON, 30)
    await signed.fill("text", TEXT, 30, by="writer")
    before = {path: await signed.everything(path) for path in ("json", "text")}
    command = [*COMMAND, *signed.flags, *TINY]
    await asyncio.to_thread(killed, command, signed, 2)
    assert {path: await signed.everything(path) for path in before} == before
    done = await asyncio.to_thread(ended, command)
    assert done.returncode == 0, done.stderr
    assert "archived " in done.stdout
    assert "compact-history: done in" in done.stderr
    assert " WARN " not in done.stderr
    assert {path: await signed.everything(path) for path in before} == before
    for path in before:
        made = await signed.manifests(path)
        assert made[0].first == 0
        assert made[-1].stop >= 27
