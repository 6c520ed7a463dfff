"""The console in a real browser, shortly; `tests/slow/console` drives all of it."""

from __future__ import annotations

from pathlib import Path

from devtools.node import run_vitest
from devtools.server import Server
from tests.conftest import fail_with
from tests.support.console.chromium import find_or_skip

SMOKE = Path(__file__).parent / "smoke"


def test_a_browser_uses_the_console(tmp_path: Path) -> None:
    program = find_or_skip()
    with Server(tmp_path / "data") as server:
        env = {"SERVER_URL": server.url, "CHROMIUM": program}
        tests = run_vitest(SMOKE, tmp_path / "report.json", env)
    fail_with(test for test in tests if test.status != "passed")
    assert tests
