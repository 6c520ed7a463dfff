"""The memory of a process and all that it started, at its highest."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

PAUSE = 0.1


class Peak:
    """Samples while it is entered; `megabytes` is the highest sum that was seen."""

    def __init__(self) -> None:
        self.megabytes = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(PAUSE):
            self.megabytes = max(self.megabytes, _resident(os.getpid()) / (1 << 20))


def _resident(pid: int) -> int:
    """Proportional: pages that forked workers share count once."""
    try:
        told = Path(f"/proc/{pid}/smaps_rollup").read_text()
        own = sum(int(line.split()[1]) for line in told.splitlines() if line.startswith("Pss:"))
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, ProcessLookupError):
        return 0
    return own * 1024 + sum(map(_resident, map(int, children)))
