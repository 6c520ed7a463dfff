"""The servers under test, each as its own process with its own data directory."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
READY = re.compile(r"http://127\.0\.0\.1:(\d+)")
NAMES = ("tailrace", "node-file", "node-mem")
REFERENCE = "@durable-streams/server"
START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    label: str
    command: Callable[[Path], list[str]]


def kinds(node_modules: Path) -> dict[str, Kind]:
    """The three contestants; `node_modules` is where the reference server is installed."""

    def tailrace(data: Path) -> list[str]:
        return [sys.executable, "-m", "tailrace", "serve", "--port", "0", "--data", str(data)]

    def reference(*extra: str) -> list[str]:
        return ["node", str(Path(__file__).with_name("reference.mjs")), str(node_modules), *extra]

    return {
        "tailrace": Kind("tailrace", "Tailrace", tailrace),
        "node-file": Kind(
            "node-file", "reference (file)", lambda data: reference(str(data / "reference"))
        ),
        "node-mem": Kind("node-mem", "reference (memory)", lambda _: reference()),
    }


@dataclass(frozen=True, slots=True)
class Cores:
    """One core for the server and another for the load, where the machine has two."""

    server: frozenset[int]
    load: frozenset[int]

    @classmethod
    def split(cls) -> Cores:
        available = sorted(os.sched_getaffinity(0))
        if len(available) < 2:
            return cls(frozenset(available), frozenset(available))
        return cls(frozenset(available[:1]), frozenset(available[1:2]))


class Server:
    def __init__(self, kind: Kind, process: subprocess.Popen[bytes], port: int, home: Path) -> None:
        self.kind = kind
        self.process = process
        self.host = "127.0.0.1"
        self.port = port
        self._home = home

    @classmethod
    def start(cls, kind: Kind, cores: Cores | None = None, parent: Path | None = None) -> Server:
        home = Path(tempfile.mkdtemp(prefix=f"bench-{kind.name}-", dir=parent))
        data = home / "data"
        data.mkdir()
        log = home / "log"
        with log.open("wb") as output:
            # A child inherits the mask of the thread that starts it. Setting the mask afterwards
            # would miss the threads it has started by then.
            if cores:
                os.sched_setaffinity(0, cores.server)
            try:
                process = subprocess.Popen(
                    kind.command(data),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=_environment(),
                )
            finally:
                if cores:
                    os.sched_setaffinity(0, cores.load)
        server = cls(kind, process, 0, home)
        try:
            server.port = _port_from(log, process)
        except RuntimeError:
            server.stop()
            raise
        return server

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self._home, ignore_errors=True)

    def log_tail(self, characters: int = 2000) -> str:
        return (self._home / "log").read_text(errors="replace")[-characters:]

    def rss_kb(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        if found is None:
            raise RuntimeError(f"{self.kind.name} is not running any more")
        return int(found[1])

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


def allow_many_connections() -> None:
    """Raises the soft limit on open files to the hard one; servers inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def stop_cleanly_when_terminated() -> None:
    """Makes SIGTERM act like Ctrl-C, which unwinds everything, so that no server is left behind."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


def _environment() -> dict[str, str]:
    source = str(REPOSITORY / "layers" / "core" / "python")
    inherited = os.environ.get("PYTHONPATH")
    path = f"{source}{os.pathsep}{inherited}" if inherited else source
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def _port_from(log: Path, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        text = log.read_text(errors="replace")
        if found := READY.search(text):
            return int(found[1])
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}:\n{text[-2000:]}")
        time.sleep(0.02)
    raise RuntimeError(f"{process.args!r} was not ready after {START_SECONDS:.0f} s")
