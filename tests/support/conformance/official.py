"""The official conformance suite of the protocol, against whatever serves it."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final, Protocol

from devtools.node import VitestTest, run_vitest
from tests.conftest import fail_with

PASSED: Final = 338
RACES: Final = re.compile("TTL|Expir|long-?poll", re.IGNORECASE)
"""Tests of the suite that race the clock: they find a stream that lives for one second, or append
within the time that a long-poll waits. A busy machine may lose, so that they get more rounds."""
ROUNDS: Final = 8


class Served(Protocol):
    @property
    def url(self) -> str: ...


def check(server: Served, tmp_path: Path, beside: Collection[str] = ()) -> None:
    """Fails unless every test of the suite passes.

    `beside`: tests that do not count."""
    outcomes = _run(server, tmp_path, "")
    assert len(outcomes) == PASSED
    for name in beside:
        del outcomes[name]
    for _ in range(ROUNDS):
        lost = [name for name, test in outcomes.items() if _has_lost(test)]
        if not lost:
            break
        again = _run(server, tmp_path, f"^({'|'.join(map(re.escape, lost))})$")
        outcomes |= {name: again[name] for name in lost}
    fail_with(test for test in outcomes.values() if test.status == "failed")
    assert [name for name, test in outcomes.items() if test.status != "passed"] == []


def _has_lost(test: VitestTest) -> bool:
    return test.status == "failed" and RACES.search(test.name) is not None


def _run(server: Served, tmp_path: Path, pattern: str) -> dict[str, VitestTest]:
    env = {"CONFORMANCE_URL": server.url, "CONFORMANCE_TESTS": pattern}
    tests = run_vitest(Path(__file__).parent, tmp_path / "report.json", env)
    named = {test.name: test for test in tests}
    assert len(named) == len(tests), "two tests of the suite have one name"
    return named
