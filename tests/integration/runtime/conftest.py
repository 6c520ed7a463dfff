"""The streaming runtime as Lambda starts it, and a Runtime API for it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from devtools.local_aws.runtime_api import HTTP_RESPONSE, Invocation, RuntimeApi
from devtools.processes import ROOT

LAYER = ROOT / "layers" / "streaming"
WRAPPER = LAYER / "asgi-stream"
APPS = Path(__file__).parent / "apps"
SECONDS = 120.0
"""How long anything may take before a test fails: a safety net, not a measure."""


class Streamed(NamedTuple):
    status: int
    headers: dict[str, str]
    cookies: list[str]
    body: bytes


class Runtime:
    """A process with the runtime and one of the apps, in an environment like Lambda's."""

    def __init__(self, directory: Path) -> None:
        self.task_root = directory / "task"
        self.log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        shutil.copytree(APPS, self.task_root)

    def start(
        self,
        address: str,
        handler: str = "plain.app",
        env: Mapping[str, str] | None = None,
        *,
        options: tuple[str, ...] = (),
        wrapper: Path = WRAPPER,
    ) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [wrapper, sys.executable, *options, "/var/runtime/bootstrap.py"],
                env={
                    "PATH": os.environ["PATH"],
                    "_HANDLER": handler,
                    "LAMBDA_TASK_ROOT": str(self.task_root),
                    "AWS_LAMBDA_RUNTIME_API": address,
                    "AWS_LAMBDA_FUNCTION_NAME": "live",
                    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
                    "PYTHONDONTWRITEBYTECODE": "1",
                    **(env or {}),
                },
                cwd=self.log.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the runtime is not running"
        return self._process

    async def exit_code(self) -> int:
        return await asyncio.to_thread(self.process.wait, SECONDS)

    def memory(self) -> int:
        """Bytes of it that are in memory."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


@pytest.fixture(name="runtime")
def runtime_fixture(tmp_path: Path) -> Iterator[Runtime]:
    runtime = Runtime(tmp_path)
    yield runtime
    runtime.kill()
    if runtime.log.exists():
        print(runtime.output())


@pytest.fixture(name="api")
async def api_fixture() -> AsyncIterator[RuntimeApi]:
    async with RuntimeApi() as api:
        yield api


@pytest.fixture(name="plain")
async def plain_fixture(api: RuntimeApi, runtime: Runtime) -> RuntimeApi:
    """A Runtime API that serves `apps/plain.py`."""
    runtime.start(api.address)
    await until(lambda: api.waiting)
    return api


def event(path: str, query: str = "", **more: Any) -> dict[str, Any]:
    """The event of a function URL for a GET; `more` replaces parts of it."""
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": {"host": "abc.lambda-url.eu-west-1.on.aws", "accept": "*/*"},
        "requestContext": {
            "accountId": "anonymous",
            "domainName": "abc.lambda-url.eu-west-1.on.aws",
            "http": {
                "method": "GET",
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "192.0.2.7",
                "userAgent": "test",
            },
        },
        "isBase64Encoded": False,
        **more,
    }


def due(seconds: float) -> dict[str, str]:
    """For an invocation of which only the runtime thinks that its time is up so soon: a busy
    machine may be late."""
    return {"Lambda-Runtime-Deadline-Ms": str(int((time.time() + seconds) * 1000))}


async def streamed(invocation: Invocation) -> Streamed:
    """The whole of a streamed response that did not fail."""
    response = parsed(await invocation.whole())
    assert invocation.mode == "streaming"
    assert invocation.content_type == HTTP_RESPONSE
    assert invocation.failure is None
    return response


async def see_events(invocation: Invocation, directory: Path) -> None:
    """Reads four events from an app that sends the next one only when a file in `directory` says
    that the last one has arrived: none may wait for another, anywhere on the way."""
    await invocation.begun()
    events = b""
    async for piece in invocation.body():
        events += piece
        for number in range(4):
            if b"data: %d\n\n" % number in events:
                (directory / str(number)).touch()
    assert events.count(b"data: ") == 4


def parsed(raw: bytes) -> Streamed:
    text, _, body = raw.partition(bytes(8))
    prelude = json.loads(text)
    return Streamed(prelude["statusCode"], prelude["headers"], prelude["cookies"], body)


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it does not come true"
        await asyncio.sleep(0.01)
