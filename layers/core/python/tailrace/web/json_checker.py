"""Checks large JSON bodies in a helper process.

Parsing holds the interpreter's lock, so a thread would block the event loop as well. The local
server starts the helper for the first large body and ends it after some time without one. The
helper gets one body at a time through a pipe and answers with a verdict: the text to store is a
part of the body, which the server has already.

    to the helper      8 bytes: the length of the body; the body
    to the server      a line of JSON: [start, stop, count], or why the body is not JSON

The helper ends with the server, which closes its pipe. The kernel ends it when it takes too much
CPU time: that does not depend on the load of the machine, so the body is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Self

import orjson

from tailrace.errors import BodyTooLarge, CheckUnavailable, InvalidJson
from tailrace.limits import (
    JSON_CHECK_CPU_SECONDS,
    JSON_CHECK_MEMORY_BYTES,
    JSON_CHECK_TIMEOUT_SECONDS,
    JSON_CHECKER_IDLE_SECONDS,
)
from tailrace.log import json_mode

COMMAND: Final = (sys.executable, "-P", "-m", "tailrace.web.json_checker")

_HEAD: Final = 8
_STOPPING: Final = "the server is stopping and no longer checks large JSON bodies"
_NICENESS: Final = 5
_MEMORY_PER_BYTE: Final = 16

Helper = subprocess.Popen[bytes]


class JsonChecker:
    """Checks one body at a time, in the order of their arrival."""

    def __init__(
        self,
        command: tuple[str, ...] = COMMAND,
        wait: float = JSON_CHECK_TIMEOUT_SECONDS,
        idle: float = JSON_CHECKER_IDLE_SECONDS,
    ) -> None:
        self._command = command
        self._wait = wait
        self._idle = idle
        self._lock = asyncio.Lock()
        self._helper: Helper | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._thread = ThreadPoolExecutor(1, "tailrace-json")
        """Writes to the pipe, reads the answer, and closes the pipe: one at a time."""
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        self._end_helper()
        await asyncio.get_running_loop().run_in_executor(self._thread, _no_op)
        self._thread.shutdown(wait=False)

    @property
    def pid(self) -> int | None:
        """The process id of the helper, if it runs."""
        return None if self._helper is None else self._helper.pid

    async def flatten(self, body: bytes) -> json_mode.Flat | InvalidJson:
        """Do as `json_mode.flatten` does, but return the error of an invalid body."""
        async with self._lock:
            verdict = await self._verdict(body)
        if isinstance(verdict, str):
            return InvalidJson(verdict)
        start, stop, count = verdict
        return body[start:stop], count

    async def _verdict(self, body: bytes) -> json_mode.Span | str:
        helper = self._running_helper()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._wait):
                answer = await loop.run_in_executor(self._thread, _request_verdict, helper, body)
        except TimeoutError:
            self._end_helper()
            raise CheckUnavailable("checking the body took too long; try again") from None
        except BaseException:
            self._end_helper()
            raise
        if answer:
            self._idle_timer = loop.call_later(self._idle, self._end_helper)
            verdict = orjson.loads(answer)
            return verdict if isinstance(verdict, str) else json_mode.Span(*verdict)
        self._end_helper()
        if self._closed:
            raise CheckUnavailable(_STOPPING)
        status = await loop.run_in_executor(self._thread, helper.wait)
        if status == -signal.SIGXCPU:
            raise BodyTooLarge(
                f"checking this JSON takes more than {JSON_CHECK_CPU_SECONDS} s; send it in parts"
            )
        raise CheckUnavailable("the process that checks large JSON bodies ended; try again")

    def _running_helper(self) -> Helper:
        """Get the helper, and start it if it does not run."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._closed:
            raise CheckUnavailable(_STOPPING)
        if self._helper is None:
            try:
                self._helper = subprocess.Popen(  # noqa: S603 - a module of ours
                    self._command,
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                    # Ctrl-C must end the server alone, which lets requests finish.
                    start_new_session=True,
                )
            except OSError as error:
                why = os.strerror(error.errno) if error.errno else str(error)
                raise CheckUnavailable(f"large JSON bodies cannot be checked: {why}") from None
        return self._helper

    def _end_helper(self) -> None:
        """End the helper; the next body gets another one."""
        helper, self._helper = self._helper, None
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if helper is not None:
            helper.kill()
            self._thread.submit(partial(helper.__exit__, None, None, None))


def _no_op() -> None:
    """Submitted to the thread to wait until it has done everything else."""


def _request_verdict(helper: Helper, body: bytes) -> bytes:
    """Send a body to the helper and read its verdict; empty if the helper has ended."""
    assert helper.stdin is not None
    assert helper.stdout is not None
    with contextlib.suppress(OSError):
        for data in (len(body).to_bytes(_HEAD), body):
            view = memoryview(data)
            while view:
                view = view[helper.stdin.write(view) :]
    answer = b""
    while not answer.endswith(b"\n"):
        data = helper.stdout.read(4096)
        if not data:
            return b""
        answer += data
    return answer


# The helper


def main() -> None:
    """Check bodies until the pipe is closed."""
    gc.disable()
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A write to a server that has died ends the helper quietly.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    with open(0, "rb") as source, open(1, "wb", buffering=0) as sink:
        while len(head := source.read(_HEAD)) == _HEAD:
            size = int.from_bytes(head)
            _limit(resource.RLIMIT_CPU, int(time.process_time()) + 1 + JSON_CHECK_CPU_SECONDS)
            _limit(resource.RLIMIT_AS, JSON_CHECK_MEMORY_BYTES + _MEMORY_PER_BYTE * size)
            body = source.read(size)
            if len(body) < size:
                return
            sink.write(orjson.dumps(_check(body)) + b"\n")
            del body


def _check(body: bytes) -> list[int] | str:
    try:
        return list(json_mode.check(body))
    except InvalidJson as error:
        return str(error)


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


if __name__ == "__main__":
    main()
