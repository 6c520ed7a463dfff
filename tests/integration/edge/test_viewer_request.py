"""The viewer-request function, run by vitest as CloudFront would run it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from devtools.node import find_node, run_vitest
from infra.viewer_request import MAX_BYTES, code
from tests.conftest import fail_with

FOLDER = Path(__file__).parent


def test_the_function_and_the_stand_in_for_its_runtime(tmp_path: Path) -> None:
    tests = run_vitest(FOLDER, tmp_path / "report.json", {})
    fail_with(test for test in tests if test.status != "passed")
    assert tests


def test_the_function_leaves_room_for_more() -> None:
    assert len(code().encode()) < MAX_BYTES * 0.95


@pytest.mark.parametrize(
    ("access", "ds_path"), [("open", "/ds"), ("closed", "/a-b/c"), ("open", "")]
)
def test_vitest_runs_the_deployed_code(access: str, ds_path: str) -> None:
    call = f"code('{access}', '{ds_path}')"
    script = f"import {{ code }} from './code.mjs'; process.stdout.write({call})"
    command = [find_node(), "--input-type=module", "--eval", script]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=True)
    assert done.stdout == code(access, ds_path)
