"""Large JSON bodies are checked in a process of their own.

Parsing holds the interpreter's lock, so a thread would hold up the event loop as much as the loop
itself would. The local server therefore has a helper process, started by the first large body and
ended when there was none for a while. It gets one body at a time through a pipe and answers with
a verdict: the text that is stored is a part of the body, which the server has already.

    to the helper      8 bytes: the length of the body; the body
    to the server      a line of JSON: [start, stop, count], or why it is no JSON

The helper ends when the server does, for then its pipe does. The kernel ends it when it takes too
much CPU time. That is no measure of how busy the machine is, so the body is to blame.
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
    JSON_CHECK_MEMORY,
    JSON_CHECK_SECONDS,
    JSON_CHECK_WAIT,
    JSON_IDLE_SECONDS,
)
from tailrace.log import json_mode

COMMAND: Final = (sys.executable, "-P", "-m", "tailrace.web.json_checker")

_HEAD: Final = 8
_STOPS: Final = "the server stops; large JSON bodies are no longer checked"
_NICENESS: Final = 5
_MEMORY_PER_BYTE: Final = 16

Helper = subprocess.Popen[bytes]


class JsonChecker:
    """Checks bodies in the order in which they come, one at a time."""

    def __init__(
        self,
        command: tuple[str, ...] = COMMAND,
        wait: float = JSON_CHECK_WAIT,
        idle: float = JSON_IDLE_SECONDS,
    ) -> None:
        self._command = command
        self._wait = wait
        self._idle = idle
        self._turn = asyncio.Lock()
        self._helper: Helper | None = None
        self._retiring: asyncio.TimerHandle | None = None
        self._thread = ThreadPoolExecutor(1, "tailrace-json")
        """Writes to the pipe, waits for the answer, and closes the pipe: never two at once."""
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        self._retire()
        await asyncio.get_running_loop().run_in_executor(self._thread, _nothing)
        self._thread.shutdown(wait=False)

    @property
    def pid(self) -> int | None:
        """The process of the helper, if there is one."""
        return None if self._helper is None else self._helper.pid

    async def flatten(self, body: bytes) -> json_mode.Flat | InvalidJson:
        """As `json_mode.flatten`, but that what is wrong with a body is returned."""
        async with self._turn:
            verdict = await self._verdict(body)
        if isinstance(verdict, str):
            return InvalidJson(verdict)
        start, stop, count = verdict
        return body[start:stop], count

    async def _verdict(self, body: bytes) -> json_mode.Span | str:
        helper = self._present()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._wait):
                answer = await loop.run_in_executor(self._thread, _ask, helper, body)
        except TimeoutError:
            self._retire()
            raise CheckUnavailable("checking the body took too long; try again") from None
        except BaseException:
            self._retire()
            raise
        if answer:
            self._retiring = loop.call_later(self._idle, self._retire)
            given = orjson.loads(answer)
            return given if isinstance(given, str) else json_mode.Span(*given)
        self._retire()
        if self._closed:
            raise CheckUnavailable(_STOPS)
        status = await loop.run_in_executor(self._thread, helper.wait)
        if status == -signal.SIGXCPU:
            raise BodyTooLarge(
                f"checking this JSON takes more than {JSON_CHECK_SECONDS} s; send it in parts"
            )
        raise CheckUnavailable("the process that checks large JSON bodies ended; try again")

    def _present(self) -> Helper:
        if self._retiring is not None:
            self._retiring.cancel()
        if self._closed:
            raise CheckUnavailable(_STOPS)
        if self._helper is None:
            try:
                self._helper = subprocess.Popen(  # noqa: S603 - our own module
                    self._command,
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                    # Ctrl-C is for the server: it lets requests finish.
                    start_new_session=True,
                )
            except OSError as error:
                why = os.strerror(error.errno) if error.errno else str(error)
                raise CheckUnavailable(f"large JSON bodies cannot be checked: {why}") from None
        return self._helper

    def _retire(self) -> None:
        """End the helper; the next body gets another one."""
        helper, self._helper = self._helper, None
        if self._retiring is not None:
            self._retiring.cancel()
        if helper is not None:
            helper.kill()
            self._thread.submit(partial(helper.__exit__, None, None, None))


def _nothing() -> None:
    """All that was submitted to the thread before is done."""


def _ask(helper: Helper, body: bytes) -> bytes:
    """What the helper says about a body; nothing when it has ended."""
    assert helper.stdin is not None
    assert helper.stdout is not None
    with contextlib.suppress(OSError):
        for data in (len(body).to_bytes(_HEAD), body):
            view = memoryview(data)
            while view:
                view = view[helper.stdin.write(view) :]
    answer = b""
    while not answer.endswith(b"\n"):
        some = helper.stdout.read(4096)
        if not some:
            return b""
        answer += some
    return answer


# The helper


def main() -> None:
    """Answer until the pipe ends."""
    gc.disable()
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # When the server has died there is nobody to tell.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    with open(0, "rb") as source, open(1, "wb", buffering=0) as sink:
        while len(head := source.read(_HEAD)) == _HEAD:
            size = int.from_bytes(head)
            _limit(resource.RLIMIT_CPU, int(time.process_time()) + 1 + JSON_CHECK_SECONDS)
            _limit(resource.RLIMIT_AS, JSON_CHECK_MEMORY + _MEMORY_PER_BYTE * size)
            body = source.read(size)
            if len(body) < size:
                return
            sink.write(orjson.dumps(_judged(body)) + b"\n")
            del body


def _judged(body: bytes) -> list[int] | str:
    try:
        return list(json_mode.check(body))
    except InvalidJson as error:
        return str(error)


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


if __name__ == "__main__":
    main()
