"""Compaction as a process of its own, over an S3 that checks signatures and conditions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from tests.engines import Engine
from tests.glue.lab import JSON, TEXT, TINY, Lab
from tests.seaweedfs import Seaweedfs

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = [sys.executable, "-m", "glue_jobs.compact_history", "--cores", "2"]


@pytest.fixture
async def signed(
    aws: Engine, seaweedfs: Seaweedfs, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Lab]:
    for name, value in {**aws.env, **seaweedfs.env}.items():
        monkeypatch.setenv(name, value)
    async with Lab.over(None) as made:
        yield made


def ended(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def killed(command: Sequence[str], lab: Lab, objects: int) -> None:
    """Once there are that many segments in the bucket, committed or not."""
    running = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while len(lab.objects("segments/")) < objects and running.poll() is None:
            assert time.monotonic() < end, "it has written nothing"
            time.sleep(0.005)
    finally:
        running.kill()
        running.wait()


async def test_an_object_is_never_written_over(signed: Lab) -> None:
    await signed.bucket.put("segments/one", b"first")
    await signed.bucket.put("segments/one", b"second")
    assert await signed.bucket.get("segments/one") == b"first"
    assert await signed.bucket.get("segments/one", 1, 3) == b"ir"


@pytest.mark.slow
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


async def test_what_is_wrong_with_a_run_is_said_in_one_sentence(signed: Lab) -> None:
    for flags, said in {
        ("--segment-max-messages", "many"): "must be a whole number",
        ("--no-such-flag", "1"): "unrecognized arguments: --no-such-flag",
        ("--table", "nobody-made-this"): "there is no DynamoDB table 'nobody-made-this'",
    }.items():
        done = await asyncio.to_thread(ended, [*COMMAND, *signed.flags, *flags])
        assert done.returncode == 2, done.stderr
        assert said in done.stderr
        assert "Traceback" not in done.stderr
