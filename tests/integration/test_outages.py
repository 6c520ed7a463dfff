"""Outages of a store: health, readiness, the log and clients say so, and when they are over."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from devtools.chaos.site import Disk
from devtools.engines.ministack import Engine
from devtools.fault_proxy.proxy import FaultProxy
from devtools.server import Server
from tests.conftest import on_dynamodb

TEXT = {"content-type": "text/plain"}
OUT, BACK = "the store could not commit", "the store commits again"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "data"
    folder.mkdir()
    disk = Disk(folder)
    try:
        with disk.mounted():
            yield disk
    except subprocess.CalledProcessError:
        pytest.skip("a full disk needs the right to mount a file system")


def statuses(url: str) -> tuple[int, int, int, int]:
    """Of the server's health, that of its process, readiness, and an append."""
    paths = ("/health", "/health?process", "/ready")
    with httpx.Client(base_url=url, timeout=60) as http:
        first, second, third = (http.get(path).status_code for path in paths)
        append = http.post("/v1/stream/a", headers=TEXT, content=b"x" * 5000)
        return first, second, third, append.status_code


WELL, ILL = (200, 200, 200, 204), (503, 200, 503, 503)


async def becomes(url: str, expected: tuple[int, int, int, int]) -> None:
    until = time.monotonic() + 120
    while (seen := await asyncio.to_thread(statuses, url)) != expected:
        assert time.monotonic() < until, seen
        await asyncio.sleep(0.1)


async def test_an_outage_of_the_disk_shows_and_passes(disk: Disk) -> None:
    with Server(disk.folder, {"TAILRACE_LOG_FORMAT": "text"}) as server:
        await asyncio.to_thread(httpx.put, f"{server.url}/v1/stream/a", headers=TEXT)
        await becomes(server.url, WELL)
        disk.fill()
        await becomes(server.url, ILL)
        read = await asyncio.to_thread(httpx.get, f"{server.url}/v1/stream/a")
        assert read.status_code == 200, "reads go on"
        disk.make_room()
        await becomes(server.url, WELL)
        while BACK not in server.output():
            await becomes(server.url, WELL)
            await asyncio.sleep(0.5)
        log = server.output()
    assert log.count(OUT) == log.count(BACK) == 1, log


async def test_an_outage_of_dynamodb_shows_and_passes(aws: Engine, tmp_path: Path) -> None:
    settings = on_dynamodb(aws)
    async with FaultProxy(aws.url) as proxy:
        settings |= {"AWS_ENDPOINT_URL_DYNAMODB": proxy.url, "TAILRACE_LOG_FORMAT": "text"}
        server = Server(tmp_path / "data", settings)
        await asyncio.to_thread(server.start)
        try:
            await asyncio.to_thread(httpx.put, f"{server.url}/v1/stream/a", headers=TEXT)
            await becomes(server.url, WELL)
            proxy.outage = True
            await becomes(server.url, ILL)
            proxy.outage = False
            await becomes(server.url, WELL)
            log = server.output()
        finally:
            await asyncio.to_thread(server.stop)
    assert log.count("DynamoDB is out of reach") == log.count("DynamoDB is back after") == 1, log
    assert "Traceback" not in log
