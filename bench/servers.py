"""The servers under test, each a process with its own data directory."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from devtools.other_servers import RUST_PROGRAM, rust_program
from devtools.processes import Process, free_port

READY = re.compile(r"http://127\.0\.0\.1:(\d+)")
NAMES = ("tailrace", "rust", "node-file", "node-mem")
REFERENCE = "@durable-streams/server"


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    label: str
    command: Callable[[Path], list[str]]


def kinds(node_modules: Path) -> dict[str, Kind]:
    """The servers; `node_modules` contains the reference server."""

    def tailrace(data: Path) -> list[str]:
        return [sys.executable, "-m", "tailrace", "serve", "--port", "0", "--data", str(data)]

    def reference(*extra: str) -> list[str]:
        return ["node", str(Path(__file__).with_name("reference.mjs")), str(node_modules), *extra]

    def rust(data: Path) -> list[str]:
        program = rust_program() or RUST_PROGRAM
        return [program, "--port", str(free_port()), "--data-dir", str(data)]

    return {
        "tailrace": Kind("tailrace", "Tailrace", tailrace),
        "rust": Kind("rust", "Rust server", rust),
        "node-file": Kind(
            "node-file", "reference (file)", lambda data: reference(str(data / "reference"))
        ),
        "node-mem": Kind("node-mem", "reference (memory)", lambda _: reference()),
    }


@dataclass(frozen=True, slots=True)
class Cores:
    """One core for the server and another for the load, if the machine has two."""

    server: frozenset[int]
    load: frozenset[int]

    @classmethod
    def split(cls) -> Cores:
        available = sorted(os.sched_getaffinity(0))
        if len(available) < 2:
            return cls(frozenset(available), frozenset(available))
        return cls(frozenset(available[:1]), frozenset(available[1:2]))


class Server(Process):
    """A server under test on its own core, whose data is deleted when it stops."""

    def __init__(self, kind: Kind, cores: Cores | None = None, parent: Path | None = None) -> None:
        self.kind = kind
        self.host = "127.0.0.1"
        self.port = 0
        self._cores = cores
        self._home = Path(tempfile.mkdtemp(prefix=f"bench-{kind.name}-", dir=parent))
        data = self._home / "data"
        data.mkdir()
        super().__init__(
            kind.name,
            kind.command(data),
            self._home / "log",
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            ready=self._is_ready,
        )

    def start(self) -> Self:
        # A child inherits the mask of the thread that starts it. Setting the mask afterwards
        # would miss the threads it has started by then.
        if self._cores:
            os.sched_setaffinity(0, self._cores.server)
        try:
            return super().start()
        finally:
            if self._cores:
                os.sched_setaffinity(0, self._cores.load)

    def stop(self) -> int | None:
        code = super().stop()
        shutil.rmtree(self._home, ignore_errors=True)
        return code

    def kill(self) -> None:
        super().kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def _is_ready(self) -> bool:
        ready = READY.search(self.printed())
        if ready is not None:
            self.port = int(ready[1])
        return ready is not None
