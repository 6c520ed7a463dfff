"""The fuzz: requests and frames against an open and a closed server, and reads at the edge."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from devtools.chaos.fuzz import corpus
from devtools.chaos.fuzz.edge import judge_edge
from devtools.chaos.fuzz.frames import FRAMES_PER_CONNECTION, FrameClient
from devtools.chaos.fuzz.requests import Requests
from devtools.chaos.fuzz.wire import FuzzClient
from devtools.chaos.report import Report
from devtools.chaos.site import SECRET, check_log, check_rest
from devtools.health import Health
from devtools.server import Server
from tailrace.configuration import load_settings

OPEN: Final = {
    "TAILRACE_ACCESS": "open",
    "TAILRACE_EVENTS_PATH": "/events",
    "TAILRACE_EVENTS_LIFETIME": "0.1",
    "TAILRACE_LONG_POLL_TIMEOUT": "0.05",
    "TAILRACE_SSE_LIFETIME": "0.1",
    "TAILRACE_AVISO_MAX_DURATION": "0.1",
    "TAILRACE_PING_INTERVAL": "0.2",
    "TAILRACE_MAX_BODY_BYTES": "20000",
    "TAILRACE_HOT_BYTES": "4194304",
    "TAILRACE_OPEN_STREAMS": "64",
    "TAILRACE_SWEEP_INTERVAL": "1",
    "TAILRACE_COMPACT_INTERVAL": "2",
}
"""Settings with which live responses end at once, and caches are soon full."""
CLOSED: Final = {
    **OPEN,
    "TAILRACE_ACCESS": "closed",
    "TAILRACE_SECRET": SECRET,
    "TAILRACE_PUBLIC_STREAMS": "n1*",
}
WARM_UP_SHARE: Final = 0.3
"""The part of the requests after which memory counts: by then caches are full."""
SAMPLE_SECONDS: Final = 0.2
GROWTH: Final = "memory grown by the fuzz, MB"


@dataclass(frozen=True, slots=True)
class Target:
    """A part of the fuzz: its share of the requests, and as many clients as send them."""

    name: str
    share: float
    clients: int
    closed: bool = False
    aviso: bool = False


TARGETS: Final = (
    Target("open streams", 0.45, 16),
    Target("open Aviso", 0.2, 8, aviso=True),
    Target("closed streams", 0.1, 4, closed=True),
    Target("closed Aviso", 0.05, 2, closed=True, aviso=True),
)
FRAMES_SHARE: Final = 0.15
FRAME_CLIENTS: Final = 4
EDGE_SHARE: Final = 0.05


class Fuzz:
    def __init__(self, seed: int, requests: int, report: Report) -> None:
        self._seed = seed
        self._requests = requests
        self._report = report
        self._folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        self._servers = {
            False: Server(self._folder / "open", OPEN),
            True: Server(self._folder / "closed", CLOSED),
        }

    async def run(self) -> None:
        report = self._report
        report.place = f"fuzz, seed {self._seed}"
        judge_edge(self._seed, round(self._requests * EDGE_SHARE), report)
        before = len(report.violations)
        with ExitStack() as stack:
            for server in self._servers.values():
                stack.enter_context(server)
            await self._send_all()
            for server in self._servers.values():
                await check_rest(server, report)
                await asyncio.to_thread(server.stop)
                check_log(server, report, lenient=False)
        if len(report.violations) > before:
            report.note(f"files of the fuzz: {self._folder}; {self._repeat()}")
        else:
            shutil.rmtree(self._folder)

    async def _send_all(self) -> None:
        """Send the first part, then the rest while memory is watched."""
        first = round(self._requests * WARM_UP_SHARE)
        await self._send(first, "first")
        health = [Health(server, warm_up=0) for server in self._servers.values()]
        watch = asyncio.create_task(_sample(health))
        try:
            await self._send(self._requests - first, "rest")
        finally:
            watch.cancel()
        for each in health:
            memory = each.memory()
            self._report.most(GROWTH, max(0, round(memory.growth_kb / 1024)))
            if not memory.flat:
                text = f"from {memory.warm_kb:,.0f} to {memory.final_kb:,.0f} KB"
                self._report.violation(GROWTH, text)

    async def _send(self, requests: int, part: str) -> None:
        async with asyncio.TaskGroup() as group:
            for client in self._clients(requests, part):
                group.create_task(client)

    def _clients(self, requests: int, part: str) -> Iterator[Coroutine[Any, Any, None]]:
        operations = {
            False: corpus.streams(load_settings(OPEN)),
            True: corpus.aviso(load_settings(OPEN)),
        }
        for target in TARGETS:
            more = _limited(round(requests * target.share))
            for number in range(target.clients):
                chance = random.Random(f"{self._seed} {part} {target.name} {number}")
                source = Requests(operations[target.aviso], chance)
                port = self._servers[target.closed].port
                yield FuzzClient(port, source, self._report, target.name).run(more)
        more = _limited(round(requests * FRAMES_SHARE / FRAMES_PER_CONNECTION))
        for number in range(FRAME_CLIENTS):
            chance = random.Random(f"{self._seed} {part} frames {number}")
            yield FrameClient(self._servers[False].port, chance, self._report).run(more)

    def _repeat(self) -> str:
        arguments = f"--only fuzz --requests {self._requests} --seed {self._seed}"
        return f'again: make chaos ARGS="{arguments}"'


def _limited(most: int) -> Callable[[], bool]:
    """True as often as there is to be more, for all clients together."""
    numbers = count()
    return lambda: next(numbers) < most


async def _sample(health: Sequence[Health]) -> None:
    while True:
        await asyncio.sleep(SAMPLE_SECONDS)
        for each in health:
            each.sample()
