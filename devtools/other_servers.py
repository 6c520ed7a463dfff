"""Other servers of the protocol as processes on loopback: the reference server, the Rust server."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final

from devtools.node import find_node
from devtools.processes import ENGINES, ROOT, Process, free_port

READY: Final = re.compile(r"http://127\.0\.0\.1:(\d+)")
RUST_PROGRAM: Final = "durable-streams-server"
RUST_PLACE: Final = ENGINES / "rust" / "bin"
"""Where `make rust-server` installs it."""


class OtherServer(Process):
    """A server of the protocol; its data is in `data`, and is kept when it stops."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        super().__init__(
            name, command, log, env={**os.environ, "PYTHONUNBUFFERED": "1"}, ready=self._is_ready
        )
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _is_ready(self) -> bool:
        ready = READY.search(self.printed())
        if ready is not None:
            self.port = int(ready[1])
        return ready is not None


def reference_server(data: Path) -> OtherServer:
    """The reference server, which keeps its data in files."""
    script, modules = ROOT / "bench" / "reference.mjs", ROOT / "node_modules"
    command = [find_node(), str(script), str(modules), str(data)]
    return OtherServer("the reference server", command, data.with_suffix(".log"))


def rust_program() -> str | None:
    """The official Rust server; None where it is not installed."""
    return shutil.which(RUST_PROGRAM, path=f"{RUST_PLACE}{os.pathsep}{os.environ.get('PATH', '')}")


def rust_server(data: Path) -> OtherServer:
    program = rust_program()
    assert program is not None, "the Rust server is missing; `make rust-server` installs it"
    command = [program, "--port", str(free_port()), "--data-dir", str(data)]
    return OtherServer("the Rust server", command, data.with_suffix(".log"))
