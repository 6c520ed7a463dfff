"""Records the memory and open files of a process over time."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass

from devtools.processes import Process

GROWTH_SHARE = 0.20
GROWTH_KB = 30 * 1024
SPARE_FILES = 4
"""Database handles that are opened on first use."""
FILES_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Memory:
    warm_kb: float
    final_kb: float
    slope_kb_per_minute: float

    @property
    def growth_kb(self) -> float:
        return self.final_kb - self.warm_kb

    @property
    def flat(self) -> bool:
        return self.growth_kb <= GROWTH_KB or self.growth_kb <= GROWTH_SHARE * self.warm_kb


class Health:
    def __init__(self, process: Process, warm_up: float) -> None:
        self._process = process
        self._began = time.monotonic()
        self.warm_up = warm_up
        self._samples: list[tuple[float, int]] = []

    def sample(self) -> None:
        self._samples.append((time.monotonic() - self._began, self._process.rss_kb()))

    def memory(self) -> Memory:
        """Memory after the warm-up and now, each the median over a tenth of the time between."""
        warm = [(at, kb) for at, kb in self._samples if at >= self.warm_up] or self._samples
        tenth = max(1, len(warm) // 10)
        slope = 0.0
        if len(warm) > 1:
            slope = statistics.linear_regression(*zip(*warm, strict=True)).slope * 60
        return Memory(
            statistics.median(kb for _, kb in warm[:tenth]),
            statistics.median(kb for _, kb in warm[-tenth:]),
            slope,
        )


async def files_settle(process: Process, baseline: int) -> int:
    """The number of open files when it is back at the baseline, or after a time limit."""
    deadline = time.monotonic() + FILES_SECONDS
    while (files := process.open_files()) > baseline + SPARE_FILES:
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(0.2)
    return files
