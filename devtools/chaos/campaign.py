"""Runs the rounds of a campaign, one after the other."""

from __future__ import annotations

import shutil
import tempfile
import traceback
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack
from itertools import islice
from pathlib import Path
from typing import Final

from devtools.chaos import damage
from devtools.chaos.calls import Unexpected
from devtools.chaos.load import Load
from devtools.chaos.notifications import write_schema
from devtools.chaos.plan import Kind, Place, Round, rounds
from devtools.chaos.report import Report
from devtools.chaos.site import Site, embedded, shared
from devtools.engines.ministack import Engine, Ministack

KEPT_ROUNDS: Final = 5
"""Rounds with violations whose files are kept."""
FAILURES: Final = (Unexpected, AssertionError, TimeoutError, ValueError, KeyError)
"""Errors that clients raise when a server's answer cannot be right, or is late."""


class Campaign:
    def __init__(self, seed: int, kinds: Collection[Kind], report: Report) -> None:
        self._seed = seed
        self._kinds = kinds
        self._report = report
        self._folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        self._stack = ExitStack()
        self._engine: Engine | None = None
        self._kept = 0

    async def run(self, seconds: float, only: int | None = None) -> None:
        """Run rounds until the time is over; or the one with this number."""
        plans = rounds(self._seed, self._kinds)
        if only is not None:
            plans = islice(plans, only, only + 1)
        try:
            with self._stack:
                for plan in plans:
                    if self._report.seconds >= seconds and only is None:
                        break
                    await self._run(plan)
        finally:
            if not self._kept:
                shutil.rmtree(self._folder)

    async def _run(self, plan: Round) -> None:
        report = self._report
        report.place = f"round {plan.number} ({plan.place})"
        report.count(f"rounds, {plan.place}")
        before = len(report.violations)
        folder = self._folder / f"round-{plan.number}"
        folder.mkdir()
        settings = {"TAILRACE_AVISO_SCHEMA": str(write_schema(folder))}
        try:
            if plan.place is Place.DAMAGED:
                await damage.run(plan, folder, settings, report)
            else:
                async with self._site(plan, folder, settings) as site:
                    await Load(site, plan, report).run()
                    await site.close()
        except* FAILURES as group:
            for error in _leaves(group):
                report.violation(f"rounds, {plan.place}", _describe(error))
        if len(report.violations) > before and self._kept < KEPT_ROUNDS:
            self._kept += 1
            report.note(f"files of round {plan.number}: {folder}; {self._repeat(plan)}")
        else:
            shutil.rmtree(folder)

    def _site(
        self, plan: Round, folder: Path, settings: Mapping[str, str]
    ) -> AbstractAsyncContextManager[Site]:
        if plan.place is Place.EMBEDDED:
            return embedded(plan, folder, settings, self._report)
        if self._engine is None:
            (self._folder / "engine").mkdir()
            running = self._stack.enter_context(Ministack(self._folder / "engine"))
            self._engine = Engine("ministack", running.url, running.url)
        return shared(plan, folder, settings, self._report, self._engine)

    def _repeat(self, plan: Round) -> str:
        kinds = ",".join(kind for kind in Kind if kind in self._kinds)
        arguments = f"--seed {self._seed} --only {kinds} --round {plan.number}"
        return f'again: make chaos ARGS="{arguments}"'


def _describe(error: Exception) -> str:
    """An error, and the last line of this program that it came through."""
    ours = [f for f in traceback.extract_tb(error.__traceback__) if "/devtools/" in f.filename]
    return f"{error!r} in {Path(ours[-1].filename).name} line {ours[-1].lineno}"


def _leaves(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error
