"""The assets of Glue: the scripts of the jobs, and one zip of wheels with all that they import.

Glue knows such a zip by the end of its name, unpacks it beside itself and has pip install what
`requirements.txt` in it names. With `--no-index` there is no other place to look for a package, so
each that Glue does not have itself in the wanted version is a wheel in there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

JOBS = ("compact-history", "export-history", "sweep", "audit")

GLUE_VERSION = "5.1"
PYTHON_VERSION = {"5.1": "3.11", "6.0": "3.13"}[GLUE_VERSION]
MACHINE = "x86_64"
"""Glue has no other."""

ZIP = "tailrace.gluewheels.zip"
"""Only with this end does Glue take it for a zip of wheels."""

LEFT_OUT = (
    "__main__.py",
    "api.py",
    "app.py",
    "server.py",
    *(f"aws/{package}" for package in ("edge", "handlers", "runtime")),
    "cli",
    "docs",
    "protocols",
    "web",
)
"""Modules that no job needs; most of them import packages that are not in the zip."""

MOMENT = (1980, 1, 1, 0, 0, 0)

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "tailrace"
dynamic = ["version"]
requires-python = "{python}"
dependencies = {dependencies}

[tool.hatch.version]
path = "tailrace/__init__.py"

[tool.hatch.build.targets.wheel]
packages = ["tailrace", "glue_jobs"]
core-metadata-version = "2.1"
"""
"""The project as Glue needs it. Its dependencies are pinned, or pip would be content with the older
ones that Glue brings; that pip is an old one too, hence the version of the metadata."""


class NotBuilt(Exception):
    """hatchling could not make the wheel of the product."""


def script(job: str) -> str:
    return f"{job.replace('-', '_')}.py"


def sources(root: Path) -> list[Path]:
    """All that the wheel and the scripts are made from."""
    trees = (root / "layers/core/python/tailrace", root / "glue_jobs")
    files = [
        file for tree in trees for pattern in ("*.py", "py.typed") for file in tree.rglob(pattern)
    ]
    return sorted([root / "pyproject.toml", *files])


def assemble(root: Path, wheels: Path, target: Path) -> None:
    """Puts scripts and zip into `target`; `wheels` has those of the other packages."""
    target.mkdir()
    for job in JOBS:
        shutil.copyfile(root / "glue_jobs" / script(job), target / script(job))
    with TemporaryDirectory() as directory:
        place = Path(directory)
        others = sorted(wheels.glob("*.whl"))
        own = _wheel(root, place, [_pin(wheel) for wheel in others])
        _zip([own, *others], target / ZIP)


def _wheel(root: Path, place: Path, dependencies: list[str]) -> Path:
    """The wheel of the product and its jobs."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "layers/core/python/tailrace", place / "tailrace", ignore=ignore)
    for path in LEFT_OUT:
        remove(place / "tailrace" / path)
    shutil.copytree(root / "glue_jobs", place / "glue_jobs", ignore=ignore)
    whole = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    project = PROJECT.format(python=whole["requires-python"], dependencies=dependencies)
    (place / "pyproject.toml").write_text(project)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", "."]
    env = {**os.environ, "SOURCE_DATE_EPOCH": "315532800"}
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True)
    if done.returncode:
        raise NotBuilt(f"hatchling could not make the wheel of the jobs:\n{done.stderr}")
    (made,) = place.glob("*.whl")
    return made


def remove(path: Path) -> None:
    """Remove a file or folder; one that is not there is an error: the tree has changed."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _pin(wheel: Path) -> str:
    name, version = wheel.name.split("-")[:2]
    return f"{name}=={version}"


def _zip(wheels: Iterable[Path], target: Path) -> None:
    """Stored as they are, for wheels are compressed; with one time and one mode for all."""
    files = {wheel.name: wheel.read_bytes() for wheel in wheels}
    pins = "".join(f"{_pin(Path(name))}\n" for name in sorted(files))
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in sorted({**files, "requirements.txt": pins.encode()}.items()):
            entry = zipfile.ZipInfo(f"wheels/{name}", MOMENT)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
