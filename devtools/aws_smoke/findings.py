"""Findings of the checks, and the report that has them all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

Number: TypeAlias = int | float | str | bool | Sequence[str] | None


class Outcome(Enum):
    PASS = "pass"
    FAIL = "fail"
    NOT_MEASURED = "not measured"
    NOT_HERE = "not measurable here"
    """The local AWS can refute what a check expects, but cannot confirm it."""


class NotMeasured(Exception):
    """A check could not measure anything; the message says why."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: what was found in one sentence, and the figures behind it."""

    outcome: Outcome
    summary: str
    numbers: Mapping[str, Number] = field(default_factory=dict)


def judge(good: bool, summary: str, **numbers: Number) -> Finding:
    return Finding(Outcome.PASS if good else Outcome.FAIL, summary, numbers)


@dataclass(frozen=True, slots=True)
class Report:
    """The findings by the names of their checks, and what the run left behind in the account."""

    target: str
    findings: Mapping[str, Finding]
    left: Sequence[str] = ()
    interrupted: bool = False
    error: str = ""
    """Why there is nothing to measure."""

    @property
    def failed(self) -> bool:
        failures = [each for each in self.findings.values() if each.outcome is Outcome.FAIL]
        return bool(failures or self.left or self.error)

    def to_json(self) -> str:
        document: dict[str, Any] = {
            "target": self.target,
            "interrupted": self.interrupted,
            "error": self.error,
            "checks": [
                {
                    "name": name,
                    "outcome": finding.outcome.value,
                    "summary": finding.summary,
                    "numbers": dict(finding.numbers),
                }
                for name, finding in self.findings.items()
            ],
            "left": list(self.left),
        }
        return json.dumps(document, indent=2)

    def to_text(self) -> str:
        lines = [f"Measured on {self.target}" + (", interrupted" if self.interrupted else ""), ""]
        for name, finding in self.findings.items():
            lines.append(f"{finding.outcome.value:20} {name}: {finding.summary}")
            lines += [f"{'':20}   {key} = {_show(it)}" for key, it in finding.numbers.items()]
        if self.error:
            lines += ["", f"error: {self.error}"]
        if self.left:
            lines += ["", "LEFT IN THE ACCOUNT, remove it by hand:"]
            lines += [f"  {each}" for each in self.left]
        return "\n".join(lines)


def _show(value: Number) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(value) or "none"
    return str(value)
