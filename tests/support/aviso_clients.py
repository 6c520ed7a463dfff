"""The client of Aviso, library and command line, against whatever serves it."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyaviso

SECONDS = 120.0
"""A safety net: what is waited for comes in a moment."""


def connect(url: str, token: str = "") -> Any:
    """A client that a busy machine does not time out."""
    auth = pyaviso.Bearer(token) if token else None
    return pyaviso.AvisoClient(base_url=url, auth=auth, timeout=SECONDS)


class Listener:
    """What a listener gets, in a thread of its own."""

    def __init__(self, client: Any, *args: Any, **more: Any) -> None:
        self._iterator = client.listen(*args, **more)
        self._got: queue.Queue[Any] = queue.Queue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            for notification in self._iterator:
                self._got.put(notification)
        except pyaviso.AvisoError as error:
            self._got.put(error)

    def next(self, count: int) -> list[int]:
        found = []
        for _ in range(count):
            got = self._got.get(timeout=SECONDS)
            assert isinstance(got, pyaviso.Notification), got
            found.append(got.sequence)
        return found

    def until(self, sequence: int) -> list[int]:
        """All up to this one."""
        found = self.next(1)
        while found[-1] < sequence:
            found += self.next(1)
        return found

    @property
    def silent(self) -> bool:
        """Whether nothing waits to be asked for."""
        return self._got.empty()

    def close(self) -> list[Any]:
        """Ends it; what it got and nobody asked for."""
        self._iterator.close()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        return list(self._got.queue)


@contextmanager
def listening(client: Any, *args: Any, **more: Any) -> Iterator[Listener]:
    listener = Listener(client, *args, **more)
    try:
        yield listener
    finally:
        rest = listener.close()
    assert rest == []


def replayed(client: Any, *args: Any, **more: Any) -> list[int]:
    found = client.listen(*args, mode="replay_only", **more)
    return [notification.sequence for notification in found]


class CommandLine:
    """`aviso`, with a home of its own."""

    def __init__(self, home: Path, url: str, token: str = "") -> None:
        self._url = url
        self._env = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home)}
        if token:
            self._env["AVISO_TOKEN"] = token

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(*arguments),
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )

    def says(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def saying(self, *arguments: str) -> Iterator[queue.Queue[str]]:
        """The lines of one that goes on."""
        process = subprocess.Popen(
            self._command(*arguments),
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        lines: queue.Queue[str] = queue.Queue()
        reader = threading.Thread(target=deque, args=(map(lines.put, process.stdout), 0))
        reader.start()
        try:
            yield lines
        finally:
            process.terminate()
            process.communicate()
            reader.join()

    def _command(self, *arguments: str) -> list[str]:
        program = Path(sys.executable).with_name("aviso")
        return [str(program), *arguments, "--base-url", self._url]
