"""The servers of a round, and what they stand on: a disk, or DynamoDB behind a fault proxy."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from devtools.chaos import jumping_clock
from devtools.chaos.calls import Caller, eventually, problem
from devtools.chaos.plan import Kind, Round
from devtools.chaos.report import Report
from devtools.engines.ministack import Engine
from devtools.fault_proxy.proxy import FaultProxy
from devtools.processes import fresh_name, lasting_port
from devtools.server import Server
from tailrace.auth.jws import sign_token

SECRET: Final = "a-secret-of-more-than-32-bytes-for-a-campaign"
TOKEN_SECONDS: Final = 10 * 24 * 3600
"""Longer than a clock jumps ahead."""

SETTINGS: Final = {
    "TAILRACE_SECRET": SECRET,
    "TAILRACE_PUBLIC_STREAMS": "open/**",
    "TAILRACE_LONG_POLL_TIMEOUT": "2",
    "TAILRACE_SSE_LIFETIME": "3600",
    "TAILRACE_AVISO_HEARTBEAT": "1",
    "TAILRACE_PING_INTERVAL": "1",
    "TAILRACE_CHUNK_BYTES": "8192",
    "TAILRACE_INLINE_BYTES": "4096",
    "TAILRACE_HOT_BYTES": "262144",
    "TAILRACE_OPEN_STREAMS": "16",
    "TAILRACE_SWEEP_INTERVAL": "0.5",
    "TAILRACE_COMPACT_INTERVAL": "0.5",
    "TAILRACE_SEGMENT_MAX_MESSAGES": "40",
}
"""Small caches, chunks and segments, which fill within seconds. Live responses do not end by
themselves, so that a reader who stays shows whether it is told of everything."""

DISK_MB: Final = 64
PEAK_MB: Final = 400
"""Bound of a server's memory, whatever happens to it."""
REST_FILES: Final = 128
"""Bound of a server's open files when all clients have left: half of them to DynamoDB and S3."""
SETTLE_SECONDS: Final = 90.0
PEAK: Final = f"highest memory of a server, of {PEAK_MB} MB"
FILES: Final = f"most files of a server at rest, of {REST_FILES}"


@dataclass
class Node:
    """A server, with a clock that can be set."""

    server: Server
    clock: Path
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the server is stopped, paused, or short of something."""

    async def start(self) -> None:
        """Start the server; raises AssertionError with its output if it does not come up."""
        await asyncio.to_thread(self.server.start)

    async def kill(self) -> None:
        await asyncio.to_thread(self.server.kill)

    def set_clock(self, seconds: int) -> None:
        jumping_clock.set_clock(self.clock, seconds)


class Disk:
    """A small file system of its own, which can be filled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """Mount the disk; afterwards its files are in the folder itself."""
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=700", "tmpfs"]
        subprocess.run([*command, self.folder], check=True, capture_output=True)
        try:
            yield
        finally:
            kept = self.folder.with_name(f"{self.folder.name}-kept")
            shutil.copytree(self.folder, kept)
            subprocess.run(["umount", "--lazy", self.folder], check=True)
            self.folder.rmdir()
            kept.rename(self.folder)

    def fill(self) -> None:
        """Take all the space that there is at the moment."""
        with suppress(OSError), self._ballast.open("ab", buffering=0) as ballast:
            while ballast.write(bytes(1 << 16)):
                pass

    def make_room(self) -> None:
        self._ballast.unlink(missing_ok=True)


@dataclass
class Site:
    """All servers of a round."""

    nodes: list[Node]
    report: Report
    lenient: bool
    disk: Disk | None = None
    proxy: FaultProxy | None = None
    weather: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the engine misbehaves; servers are started in good weather."""

    def caller(self, headers: Mapping[str, str]) -> Caller:
        ports = [node.server.port for node in self.nodes]
        return Caller(ports, self.report, headers, partial(problem, lenient=self.lenient))

    async def close(self) -> None:
        """Check the servers at rest, stop them, and read their logs."""
        for node in self.nodes:
            await check_rest(node.server, self.report)
            try:
                code = await asyncio.to_thread(node.server.stop)
            except AssertionError as error:
                self.report.violation("stops", str(error))
            else:
                self.report.count("stops")
                if code != 0:
                    self.report.violation("stops", f"exit code {code}: {node.server.output()}")
            check_log(node.server, self.report, lenient=self.lenient)


def check_memory(server: Server, report: Report) -> None:
    """Check the highest memory of a server that is about to end."""
    peak = server.peak_kb() >> 10
    report.most(PEAK, peak)
    if peak > PEAK_MB:
        report.violation(PEAK, f"{peak} of {PEAK_MB} MB")


async def check_rest(server: Server, report: Report) -> None:
    """Check the memory and the open files of a server whose clients have all left."""
    check_memory(server, report)
    if not await eventually(lambda: server.open_files() <= REST_FILES, SETTLE_SECONDS):
        report.violation(FILES, f"more than {REST_FILES}, although all clients have left")
    report.most(FILES, server.open_files())


def check_log(server: Server, report: Report, *, lenient: bool) -> None:
    """Look for tracebacks, and unless there was reason for them for errors."""
    report.count("logs")
    found = Counter[str]()
    entry = ""
    for line in server.log.read_text(errors="replace").splitlines():
        if line[:2] == "20":
            entry = line.split(" ", 2)[-1]
        if "Traceback" in line:
            found[f"a traceback after {entry!r}"] += 1
        elif " ERROR " in line and not lenient:
            found[entry] += 1
    for complaint, times in found.items():
        report.violation("logs", f"{server.log}: {times} x {complaint}")


def credentials() -> dict[str, str]:
    """Headers of a client that may do everything."""
    claims = {"scope": "admin", "sub": "load", "exp": int(time.time()) + TOKEN_SECONDS}
    return {"Authorization": f"Bearer {sign_token(claims, SECRET.encode(), 'HS256')}"}


def _node(folder: Path, name: str, settings: Mapping[str, str]) -> Node:
    clock = folder / f"{name}.clock"
    jumping_clock.set_clock(clock, 0)
    program = ("-m", "devtools.chaos.jumping_clock", str(clock))
    server = Server(folder / name, settings, program)
    server.port = lasting_port()
    return Node(server, clock)


@asynccontextmanager
async def embedded(
    plan: Round,
    folder: Path,
    settings: Mapping[str, str],
    report: Report,
    *,
    start: bool = True,
) -> AsyncIterator[Site]:
    """One server on its own files."""
    node = _node(folder, "data", {**SETTINGS, **settings})
    site = Site([node], report, plan.lenient)
    with ExitStack() as stack:
        if any(fault.kind is Kind.DISK for fault in plan.faults):
            site.disk = _mount(stack, node.server.data, report)
        stack.enter_context(_killed(site))
        if start:
            await node.start()
        yield site


def _mount(stack: ExitStack, folder: Path, report: Report) -> Disk | None:
    disk = Disk(folder)
    folder.mkdir()
    try:
        stack.enter_context(disk.mounted())
    except (OSError, subprocess.CalledProcessError):
        report.note("left out: a full disk, since that needs the right to mount a file system")
        return None
    return disk


@asynccontextmanager
async def shared(
    plan: Round, folder: Path, settings: Mapping[str, str], report: Report, engine: Engine
) -> AsyncIterator[Site]:
    """Two servers on one table, whose calls go through a proxy that can fail them."""
    seed = plan.chance("proxy").getrandbits(32)
    async with FaultProxy(engine.url, s3=engine.s3_url, seed=seed) as proxy:
        env = {
            **SETTINGS,
            **settings,
            **Engine(engine.name, proxy.url, proxy.url).env,
            "TAILRACE_STORE": "dynamodb",
            "TAILRACE_TABLE": fresh_name("chaos"),
            "TAILRACE_BUCKET": fresh_name("chaos"),
        }
        nodes = [_node(folder, name, env) for name in ("first", "second")]
        site = Site(nodes, report, plan.lenient, proxy=proxy)
        with _killed(site):
            for node in nodes:
                await node.start()
            yield site


@contextmanager
def _killed(site: Site) -> Iterator[None]:
    """End all servers that still run when the round has ended, or failed."""
    try:
        yield
    finally:
        for node in site.nodes:
            node.server.kill()
