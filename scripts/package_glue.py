"""The assets of Glue: the scripts of the jobs, and one zip of wheels with all that they import.

Glue recognizes such a zip by its suffix, unpacks it and has pip install the packages that its
`requirements.txt` names. With `--no-index` there is no other source of packages, so the zip has a
wheel of each package that Glue lacks or has in another version.
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
"""Glue's only processor architecture."""

ZIP = "tailrace.gluewheels.zip"
"""Glue recognizes a zip of wheels by this suffix."""

LEFT_OUT = (
    "__main__.py",
    "api.py",
    "app.py",
    "server.py",
    *(f"aws/{package}" for package in ("edge", "handlers", "runtime")),
    "cli",
    "client",
    "console",
    "docs",
    "inspection.py",
    "protocols",
    "web",
)
"""Modules that no job needs; most of them import packages that are not in the zip."""

TIMESTAMP = (1980, 1, 1, 0, 0, 0)

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
"""The project as Glue needs it. Its dependencies are pinned, or pip would keep older versions of
Glue. Glue's pip is old, hence the version of the metadata."""


class NotBuilt(Exception):
    """hatchling failed to build the wheel of the product."""


def script(job: str) -> str:
    return f"{job.replace('-', '_')}.py"


def sources(root: Path) -> list[Path]:
    """The sources of the wheel and the scripts."""
    trees = (root / "layers/core/python/tailrace", root / "glue_jobs")
    files = [
        file for tree in trees for pattern in ("*.py", "py.typed") for file in tree.rglob(pattern)
    ]
    return sorted([root / "pyproject.toml", *files])


def assemble(root: Path, wheels: Path, target: Path) -> None:
    """Put scripts and zip into `target`; `wheels` has those of the other packages."""
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
        raise NotBuilt(f"hatchling failed to build the wheel of the jobs:\n{done.stderr}")
    (wheel,) = place.glob("*.whl")
    return wheel


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
    """Zip wheels without compression, since they are compressed, all with one time and one mode."""
    files = {wheel.name: wheel.read_bytes() for wheel in wheels}
    pins = "".join(f"{_pin(Path(name))}\n" for name in sorted(files))
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in sorted({**files, "requirements.txt": pins.encode()}.items()):
            entry = zipfile.ZipInfo(f"wheels/{name}", TIMESTAMP)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
