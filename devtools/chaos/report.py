"""Counts and violations of a campaign, as progress lines and a table."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

PROGRESS_SECONDS: Final = 5.0
PROGRESS: Final = (
    "answers",
    "appends acknowledged",
    "messages delivered live",
    "starts after a kill",
    "fuzzed requests",
    "fuzzed frames",
)
"""The counts in a line of progress."""
SHOWN_VIOLATIONS: Final = 20


@dataclass(frozen=True, slots=True)
class Violation:
    check: str
    text: str
    place: str

    def __str__(self) -> str:
        return f"{self.place}: {self.check}: {self.text}"


@dataclass
class Report:
    """The counts of everything that was done or checked, and the violations that were found."""

    counts: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    """Remarks for the end, each once."""
    place: str = "set-up"
    """The part of the campaign that is under way."""
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """How long the campaign has been running."""
        return time.monotonic() - self.began

    def count(self, what: str, amount: int = 1) -> None:
        self.counts[what] += amount

    def most(self, what: str, amount: int) -> None:
        """Count the highest amount that there was."""
        self.counts[what] = max(self.counts[what], amount)

    def violation(self, check: str, text: str) -> None:
        self.violations.append(Violation(check, text, self.place))
        print(f"VIOLATION in {self.violations[-1]}", flush=True)

    def note(self, text: str) -> None:
        self.notes[text] = None

    def progress(self) -> str:
        shown = (f"{self.counts[what]:,} {what}" for what in PROGRESS if self.counts[what])
        found = f"{len(self.violations)} violations"
        return f"{self.seconds:6.0f} s  {self.place}: {', '.join([*shown, found])}"

    def table(self) -> Iterator[str]:
        """The summary, a row per line; checks that were never violated have a zero."""
        found = Counter(each.check for each in self.violations)
        rows = dict.fromkeys([*self.counts, *found])
        width = max(map(len, rows), default=4)
        yield f"{'what':<{width}}  {'how many':>12}  {'violations':>10}"
        for row in sorted(rows):
            yield f"{row:<{width}}  {self.counts[row]:>12,}  {found[row]:>10}"
        yield from self.notes
        if self.violations:
            yield f"{len(self.violations)} VIOLATIONS"
            for violation in self.violations[:SHOWN_VIOLATIONS]:
                yield f"- {violation}"
        else:
            yield "no violations"
