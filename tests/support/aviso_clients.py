"""pyaviso, library and command line, for tests of any server."""

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
"""A generous limit: notifications normally arrive at once."""


def connect(url: str, token: str = "") -> Any:
    """Create a client with a timeout that suits a busy machine."""
    auth = pyaviso.Bearer(token) if token else None
    return pyaviso.AvisoClient(base_url=url, auth=auth, timeout=SECONDS)


class Listener:
    """A listener in a thread of its own."""

    def __init__(self, client: Any, *args: Any, **more: Any) -> None:
        self._iterator = client.listen(*args, **more)
        self._items: queue.Queue[Any] = queue.Queue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            for notification in self._iterator:
                self._items.put(notification)
        except pyaviso.AvisoError as error:
            self._items.put(error)

    def next(self, count: int) -> list[int]:
        sequences = []
        for _ in range(count):
            item = self._items.get(timeout=SECONDS)
            assert isinstance(item, pyaviso.Notification), item
            sequences.append(item.sequence)
        return sequences

    def until(self, sequence: int) -> list[int]:
        """All sequences up to and including this one."""
        sequences = self.next(1)
        while sequences[-1] < sequence:
            sequences += self.next(1)
        return sequences

    @property
    def empty(self) -> bool:
        """Whether all received notifications have been taken."""
        return self._items.empty()

    def close(self) -> list[Any]:
        """End it; returns the items that were received but not taken."""
        self._iterator.close()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        return list(self._items.queue)


@contextmanager
def listening(client: Any, *args: Any, **more: Any) -> Iterator[Listener]:
    listener = Listener(client, *args, **more)
    try:
        yield listener
    finally:
        remaining = listener.close()
    assert remaining == []


def replay(client: Any, *args: Any, **more: Any) -> list[int]:
    notifications = client.listen(*args, mode="replay_only", **more)
    return [notification.sequence for notification in notifications]


class CommandLine:
    """The command `aviso`, with its own home directory."""

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

    def output(self, *arguments: str) -> str:
        process = self.run(*arguments)
        assert process.returncode == 0, process.stderr
        return process.stdout

    @contextmanager
    def running(self, *arguments: str) -> Iterator[queue.Queue[str]]:
        """The output lines of a command that keeps running."""
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
