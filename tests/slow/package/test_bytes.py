"""Packages are reproducible: what nobody has changed is uploaded once."""

from __future__ import annotations

from pathlib import Path

from scripts import package
from scripts.package import build, digest


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    once, again = build("host"), build("host", tmp_path)
    for kind in ("layers", "functions", "glue"):
        assert digest(once / kind) == digest(again / kind)
    newest = max(path.stat().st_mtime for path in (again / "layers").rglob("*"))
    assert newest == package.TIMESTAMP
