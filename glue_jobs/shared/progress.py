"""The progress of a job: a line per step, updated in place on a terminal."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark import SparkContext

PAUSE: Final = 0.5
"""Seconds between two queries of Spark's status."""

QUIET: Final = 30.0
"""Seconds between two lines of a step, if the output is no terminal."""

CLEAR: Final = "\r\x1b[K"


class Progress:
    """Writes to standard error; standard output has the results of the job."""

    def __init__(self, name: str, context: SparkContext) -> None:
        self._name = name
        self._context = context
        self._in_place = sys.stderr.isatty()
        self._lock = threading.Lock()
        self._step = ""
        self._begun = self._reported = time.monotonic()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)
        self._thread.start()

    def step(self, what: str) -> None:
        """Begin a step; Spark's tasks from now on belong to it."""
        with self._lock:
            self._step = what
            self._begun = self._reported = time.monotonic()
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
        sys.stderr.write(f"{CLEAR if self._in_place else ''}{self._name}: {line}\n")
        sys.stderr.flush()

    def _watch(self) -> None:
        while not self._end.wait(PAUSE):
            with self._lock:
                now = time.monotonic()
                if not self._step or not (self._in_place or now - self._reported >= QUIET):
                    continue
                done, tasks = self._tasks()
                if not tasks:
                    continue
                self._reported = now
                line = f"{self._step}: {done} of {tasks} tasks, {now - self._begun:.0f} s"
                if self._in_place:
                    sys.stderr.write(f"{CLEAR}{self._name}: {line}")
                    sys.stderr.flush()
                else:
                    self._write(line)

    def _tasks(self) -> tuple[int, int]:
        """Completed and total tasks of the step's stages that have started."""
        tracker = self._context.statusTracker()
        done = tasks = 0
        for job in tracker.getJobIdsForGroup(f"{self._name}: {self._step}"):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                stage_info = tracker.getStageInfo(stage)
                if stage_info is not None:
                    done += stage_info.numCompletedTasks
                    tasks += stage_info.numTasks
        return done, tasks
