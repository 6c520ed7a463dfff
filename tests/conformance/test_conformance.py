"""The official conformance suite of the protocol, against the server as a real process."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import Server, fail_with, run_vitest

PASSED = 332
OPT_IN_GROUP = "Reserved subscription APIs"
OPT_IN = 6


@pytest.mark.timeout(600)
def test_official_suite_passes_on_sqlite(own_server: Server, tmp_path: Path) -> None:
    check(own_server, tmp_path)


@pytest.mark.timeout(600)
def test_official_suite_passes_on_dynamodb(dynamodb_server: Server, tmp_path: Path) -> None:
    check(dynamodb_server, tmp_path)


def check(server: Server, tmp_path: Path) -> None:
    tests = run_vitest(
        Path(__file__).parent,
        tmp_path / "report.json",
        {"CONFORMANCE_URL": server.url},
        seconds=580,
    )
    fail_with(test for test in tests if test.status == "failed")
    skipped = [test.name for test in tests if test.status != "passed"]
    assert all(OPT_IN_GROUP in name for name in skipped), skipped
    assert Counter(test.status == "passed" for test in tests) == {True: PASSED, False: OPT_IN}
