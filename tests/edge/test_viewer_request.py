"""The viewer-request function, run by vitest as CloudFront would run it."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import fail_with, run_vitest
from tests.edge.template import CODE

MAX_BYTES = 10_240
"""CloudFront takes no more, comments included."""


def test_the_function_and_the_stand_in_for_its_runtime(tmp_path: Path) -> None:
    tests = run_vitest(Path(__file__).parent, tmp_path / "report.json", {}, seconds=110)
    fail_with(test for test in tests if test.status != "passed")
    assert tests


def test_the_function_leaves_room_for_the_verification_of_tokens() -> None:
    assert CODE.stat().st_size < MAX_BYTES / 2
