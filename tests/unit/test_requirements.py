"""requirements/: compiled files satisfy their `.in` files, and pin every package by hash."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tailrace
from devtools.processes import ROOT
from scripts.lock import ENGINES, LAYERS
from tests.support.requirements import FOLDER, pins

FILES = sorted(file.stem for file in FOLDER.glob("*.in"))


def read_project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def requirements_in(file: Path) -> list[Requirement]:
    """The requirements of an `.in` file, and of the files that it includes."""
    requirements = []
    for line in file.read_text().splitlines():
        text = line.split("#")[0].strip()
        if text.startswith("-r "):
            requirements += requirements_in(FOLDER / text.removeprefix("-r "))
        elif text:
            requirements.append(Requirement(text))
    return requirements


def test_every_file_is_compiled() -> None:
    assert sorted(file.stem for file in FOLDER.glob("*.txt")) == FILES


@pytest.mark.parametrize("name", FILES)
def test_pins_satisfy_the_requirements(name: str) -> None:
    pinned = pins(name)
    for requirement in requirements_in(FOLDER / f"{name}.in"):
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"{name}.txt lacks {requirement}: run `make lock`"
        assert requirement.specifier.contains(version), f"{requirement}, but {version} is pinned"


@pytest.mark.parametrize("name", FILES)
def test_every_pin_has_a_reason_and_hashes(name: str) -> None:
    text = (FOLDER / f"{name}.txt").read_text()
    direct = {
        canonicalize_name(requirement.name)
        for requirement in requirements_in(FOLDER / f"{name}.in")
    }
    for entry in re.split(r"\n(?=[a-z0-9])", text)[1:]:
        package = canonicalize_name(re.split(r"[=\[ ;]", entry)[0])
        assert "--hash=sha256:" in entry, f"{package} in {name}.txt has no hash"
        via = set(re.findall(r"#\s+(?:via )?([a-z0-9][\w.-]*)", entry)) - {"via"}
        assert package in direct or via, f"{name}.txt pins {package}, which nothing requires"


@pytest.mark.parametrize("file", sorted(FOLDER.iterdir()), ids=lambda file: file.name)
def test_no_file_names_a_registry(file: Path) -> None:
    assert "://" not in file.read_text()


def test_versions_agree() -> None:
    """Deployed versions are the tested ones; engines have environments of their own."""
    tested = pins("dev")
    for name in set(FILES) - set(ENGINES):
        assert pins(name).items() <= tested.items(), name


def test_a_package_is_in_one_layer_only() -> None:
    packages = [package for layer in ("layer-shared", *LAYERS) for package in pins(layer)]
    assert len(packages) == len(set(packages))


def test_project_dependencies_are_those_of_the_server() -> None:
    project = read_project()
    extras = project["optional-dependencies"]
    declared = [
        Requirement(each) for each in (*project["dependencies"], *extras["aws"], *extras["aviso"])
    ]
    serving = [each for each in requirements_in(FOLDER / "serve.in") if each.name != "hatchling"]
    assert sorted(map(str, declared)) == sorted(map(str, serving))


def test_the_package_carries_its_types_as_the_classifier_says() -> None:
    assert "Typing :: Typed" in read_project()["classifiers"]
    assert Path(tailrace.__file__).with_name("py.typed").is_file()


def test_the_version_is_written_only_once() -> None:
    project = read_project()
    assert "version" not in project
    assert project["dynamic"] == ["version"]
