"""The layers of the package: `lint-imports` fails when a module imports one above it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from devtools.processes import ROOT

FORBIDDEN = {
    "log/offsets.py": "import tailrace.store.base",
    "segments/format.py": "import tailrace.streams",
    "protocols/aviso/topics.py": "import tailrace.protocols.durable_streams.parse",
    "settings.py": "import tailrace.auth.origins",
    "client/blocking.py": "import tailrace.errors",
    "client/reading.py": "import httpx",
}
"""A module, and an import that it may not have."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the contracts are about."""
    place = tmp_path_factory.mktemp("tree")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "layers/core/python/tailrace", place / "tailrace", ignore=ignore)
    for other in ("bench", "devtools", "tests"):
        (place / other).mkdir()
        (place / other / "__init__.py").touch()
    shutil.copy(ROOT / "pyproject.toml", place)
    return place


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    env = {**os.environ, "PYTHONPATH": str(tree)}
    return subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True)


def test_the_contracts_hold_and_a_forbidden_import_breaks_them(tree: Path) -> None:
    assert (done := lint(tree)).returncode == 0, done.stdout
    for module, line in FORBIDDEN.items():
        file = tree / "tailrace" / module
        before = file.read_text()
        file.write_text(f"{before}\n{line}\n")
        done = lint(tree)
        file.write_text(before)
        assert done.returncode == 1, f"{line} in {module}: {done.stdout}"
