"""The pins of the layers: complete, and the same as everywhere else."""

from __future__ import annotations

from importlib.metadata import distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.package import LAYERS, MACHINE, PYTHON_VERSION, ROOT, build

LAYER_FILES = ["layer-shared", "layer-web", "layer-tokens", "layer-signing", "layer-aviso"]
SHARED = ["serve", *LAYER_FILES, "dev", "glue", "infra"]
"""The files whose packages are in one environment, where the tests run."""

ON_LAMBDA = {
    "python_version": PYTHON_VERSION,
    "python_full_version": f"{PYTHON_VERSION}.0",
    "platform_machine": MACHINE,
    "platform_system": "Linux",
    "sys_platform": "linux",
    "extra": "",
}


def pins(file: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / f"{file}.txt").read_text().splitlines()
    wanted = [line.split("#")[0].strip() for line in lines if line and line[0] not in "#-"]
    return {
        canonicalize_name(pin.name): str(pin.specifier)
        for pin in (Requirement(line) for line in wanted)
    }


def test_the_tests_run_with_what_is_deployed() -> None:
    versions: dict[str, set[str]] = {}
    for file in SHARED:
        for name, version in pins(file).items():
            versions.setdefault(name, set()).add(version)
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def test_a_package_is_in_one_layer_only() -> None:
    packages = [package for file in LAYER_FILES for package in pins(file)]
    assert len(packages) == len(set(packages))


@pytest.mark.parametrize("function", LAYERS)
def test_a_function_has_every_package_that_its_packages_require(function: str) -> None:
    layers = build("lambda") / "layers"
    paths = [str(layers / layer / "python") for layer in LAYERS[function]]
    found = {canonicalize_name(d.name): d for d in distributions(path=paths)}
    assert found
    for name, distribution in found.items():
        for needed in map(Requirement, distribution.requires or []):
            if needed.marker is None or needed.marker.evaluate(ON_LAMBDA):
                have = found.get(canonicalize_name(needed.name))
                assert have is not None, f"{name} requires {needed}"
                assert needed.specifier.contains(have.version), f"{name} requires {needed}"
