"""The console that is checked in is the one that its sources make."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from devtools.node import find_node
from devtools.processes import ROOT
from tailrace import console

MODULES = ROOT / "node_modules"
BUILT = Path(console.__file__).parent / "built"
SECONDS = 600.0


def run(*arguments: str | Path) -> None:
    process = subprocess.run(
        [find_node(), *arguments], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS
    )
    assert process.returncode == 0, f"{process.stdout}\n{process.stderr}"


def test_its_types_are_right() -> None:
    run(MODULES / "typescript" / "bin" / "tsc", "--project", "console")


def test_its_sources_make_the_same_bytes(tmp_path: Path) -> None:
    """When this fails: `make console`."""
    config = ("--config", ROOT / "console" / "vite.config.ts")
    run(MODULES / "vite" / "bin" / "vite.js", "build", *config, "--outDir", tmp_path / "built")
    again = {
        file.relative_to(tmp_path / "built").as_posix(): file.read_bytes()
        for file in (tmp_path / "built").rglob("*")
        if file.is_file()
    }
    assert again.keys() == console.names()
    for name, body in again.items():
        assert body == (BUILT / name).read_bytes(), name


def test_it_names_no_other_site() -> None:
    for name in console.names():
        text = (BUILT / name).read_text()
        sites = set(re.findall(r"https?://[a-z0-9.-]+", text))
        assert sites <= {"http://www.w3.org"}, name
        assert "/tmp/" not in text
        assert str(ROOT) not in text
