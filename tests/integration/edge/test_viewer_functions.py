"""The viewer functions, run by vitest as CloudFront would run them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from devtools.node import find_node, run_vitest
from infra.viewer_functions import MAX_BYTES, request_code, response_code
from tests.conftest import fail_with

FOLDER = Path(__file__).parent


def test_the_function_and_the_stand_in_for_its_runtime(tmp_path: Path) -> None:
    tests = run_vitest(FOLDER, tmp_path / "report.json", {})
    fail_with(test for test in tests if test.status != "passed")
    assert tests


def test_the_function_leaves_room_for_more() -> None:
    assert len(request_code().encode()) < MAX_BYTES * 0.985


@pytest.mark.parametrize(
    ("access", "ds_path", "wait"), [("open", "/ds", 20), ("closed", "/a-b/c", 110), ("open", "", 5)]
)
def test_vitest_runs_the_deployed_code(access: str, ds_path: str, wait: int) -> None:
    assert printed(f"code('{access}', '{ds_path}', {wait})") == request_code(access, ds_path, wait)
    assert printed("responseCode()") == response_code()


@pytest.mark.parametrize("writes", ["functions", "containers"])
def test_vitest_runs_the_code_of_containers(writes: str) -> None:
    parts = ("closed", "/ds", 25, "shared", "containers", writes)
    assert printed(f"code(...{json.dumps(parts)})") == request_code(*parts)
    assert len(request_code(*parts).encode()) < MAX_BYTES * 0.985


def printed(call: str) -> str:
    script = f"import {{ code, responseCode }} from './code.mjs'; process.stdout.write({call})"
    command = [find_node(), "--input-type=module", "--eval", script]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=True)
    return done.stdout
