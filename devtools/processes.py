"""Background processes: starts them, waits until they are ready, stops them, keeps their output."""

from __future__ import annotations

import contextlib
import os
import random
import re
import resource
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

ROOT: Final = Path(__file__).resolve().parent.parent
ENGINES: Final = ROOT / ".engines"
START_SECONDS: Final = 180.0
"""A generous limit: on a busy machine, a start of one second can take half a minute."""
STOP_SECONDS: Final = 60.0
SHOWN_BYTES: Final = 8_000


class Process:
    """A program on this machine, whose output is appended to `log`.

    `env` is its whole environment; by default it inherits that of this process. `ready` checks
    whether the program can be used after it was started.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        ready: Callable[[], object] = lambda: True,
    ) -> None:
        self.name = name
        self.command = command
        self.log = log
        self.env = None if env is None else dict(env)
        self._cwd = cwd
        self._ready = ready
        self._logged = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def running(self) -> bool:
        return self._process is not None

    def start(self) -> Self:
        """Start the program and wait until it is ready; raises AssertionError if it fails."""
        assert self._process is None, f"{self.name} is already running"
        self._logged = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                env=self.env,
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_SECONDS
        try:
            while not self._ready():
                ended = self._process.poll()
                if ended is not None or time.monotonic() > deadline:
                    state = "is not ready" if ended is None else f"ended with {ended}"
                    raise AssertionError(f"{self.name} {state}; its output:\n{self.output()}")
                time.sleep(0.01)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> int | None:
        """Stop the program with SIGTERM; returns its exit code, or None if it was not running.

        A program that does not end is killed, and an AssertionError is raised.
        """
        if self._process is None:
            return None
        self._process.send_signal(signal.SIGTERM)
        return self.wait(f"SIGTERM did not end {self.name}")

    def wait(self, late: str | None = None) -> int:
        """Wait until the program has ended; returns its exit code."""
        try:
            code = self._running.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"{late or f'{self.name} does not end'}:\n{self.output()}"
            ) from None
        self._process = None
        return code

    def signal(self, number: signal.Signals) -> None:
        self._running.send_signal(number)

    def kill(self) -> None:
        """End the program like a crash would; does nothing if it has ended."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def rss_kb(self) -> int:
        """The memory of the process, from /proc."""
        return self._memory_kb("VmRSS")

    def cpu_seconds(self) -> float:
        """The processor time of all threads of the process so far, from /proc."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_kb(self) -> int:
        """The most memory that this run of the program has had."""
        return self._memory_kb("VmHWM")

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def output(self) -> str:
        """The last output of the program, including earlier runs."""
        return self.log.read_bytes()[-SHOWN_BYTES:].decode(errors="replace")

    def printed(self) -> str:
        """The whole output of this run."""
        return self.log.read_bytes()[self._logged :].decode(errors="replace")

    def __enter__(self) -> Self:
        return self if self._process is not None else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.kill()
        if error is not None:
            print(self.output())

    def _memory_kb(self, field: str) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"{field}:\s+(\d+) kB", status)
        assert found is not None, f"{self.name} is not running any more"
        return int(found[1])

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self.name} is not running"
        return self._process


def free_port() -> int:
    (port,) = free_ports(1)
    return port


def free_ports(count: int) -> list[int]:
    """Find free loopback ports; all are open at the same time, so that they differ."""
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [each.getsockname()[1] for each in sockets]


def lasting_port() -> int:
    """Find a free loopback port that no outgoing connection takes while its server is stopped."""
    outgoing, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    while True:
        port = random.randrange(int(outgoing) // 2, int(outgoing))
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def accepts(port: int) -> bool:
    """Whether a server listens on this loopback port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def fresh_name(prefix: str) -> str:
    """A unique name for a table or a bucket."""
    return f"{prefix}-{secrets.token_hex(6)}"


def allow_many_connections() -> None:
    """Raise the soft limit of open files to the hard one; child processes inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def stop_cleanly_when_terminated() -> None:
    """Treat SIGTERM like Ctrl-C, which unwinds the stack, so that every process is stopped."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
