"""How far a job is: a line for each step, and on a terminal one that moves meanwhile."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark import SparkContext

PAUSE: Final = 0.5
"""Seconds between two looks at Spark."""

QUIET: Final = 30.0
"""Seconds between two lines of one step, where lines stay."""

CLEAR: Final = "\r\x1b[K"


class Progress:
    """Writes to standard error: what a job found is its output, how it got there is not."""

    def __init__(self, name: str, context: SparkContext) -> None:
        self._name = name
        self._context = context
        self._moving = sys.stderr.isatty()
        self._lock = threading.Lock()
        self._step = ""
        self._begun = self._told = time.monotonic()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)
        self._thread.start()

    def step(self, what: str) -> None:
        """What comes next; Spark's tasks from now on count for it."""
        with self._lock:
            self._step = what
            self._begun = self._told = time.monotonic()
            self._context.setJobGroup(f"{self._name}: {what}", what)
            self._write(f"{what} …")

    def say(self, what: str) -> None:
        with self._lock:
            self._step = ""
            self._write(what)

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _write(self, line: str) -> None:
        sys.stderr.write(f"{CLEAR if self._moving else ''}{self._name}: {line}\n")
        sys.stderr.flush()

    def _watch(self) -> None:
        while not self._end.wait(PAUSE):
            with self._lock:
                now = time.monotonic()
                if not self._step or not (self._moving or now - self._told >= QUIET):
                    continue
                done, tasks = self._tasks()
                if not tasks:
                    continue
                self._told = now
                line = f"{self._step}: {done} of {tasks} tasks, {now - self._begun:.0f} s"
                if self._moving:
                    sys.stderr.write(f"{CLEAR}{self._name}: {line}")
                    sys.stderr.flush()
                else:
                    self._write(line)

    def _tasks(self) -> tuple[int, int]:
        """Done and all of the stages of the step that are under way or over."""
        tracker = self._context.statusTracker()
        done = tasks = 0
        for job in tracker.getJobIdsForGroup(f"{self._name}: {self._step}"):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                seen = tracker.getStageInfo(stage)
                if seen is not None:
                    done += seen.numCompletedTasks
                    tasks += seen.numTasks
        return done, tasks
