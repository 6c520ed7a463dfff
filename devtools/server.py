"""Tailrace's server as a process on loopback."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import httpx

from devtools.processes import Process

READY = re.compile(r"ready on (http://127\.0\.0\.1:(\d+))")


class Server(Process):
    """A server process on loopback; its data directory is kept when it stops.

    `settings` are environment variables, such as `{"TAILRACE_LONG_POLL_TIMEOUT": "2"}`; `program`
    runs Tailrace's command line.
    """

    env: dict[str, str]

    def __init__(
        self,
        data: Path,
        settings: Mapping[str, str] | None = None,
        program: Sequence[str] = ("-m", "tailrace"),
    ) -> None:
        super().__init__(
            "the server",
            [],
            data.with_name(f"{data.name}.log"),
            # A test that finds anything in the log then knows that something went wrong.
            env={"TAILRACE_LOG_LEVEL": "warning", **os.environ, **(settings or {})},
            cwd=data.parent,
            ready=self._answers,
        )
        self.data = data
        self.port = 0
        self._program = [sys.executable, *program, "serve"]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start the server, on the same port as before, and wait until it responds."""
        self.command = [*self._program, "--port", str(self.port), "--data", str(self.data)]
        return super().start()

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def _answers(self) -> bool:
        ready = READY.search(self.printed())
        if ready is None:
            return False
        self.port = int(ready[2])
        try:
            return httpx.get(f"{self.url}/health", trust_env=False).is_success
        except httpx.TransportError:
            return False
