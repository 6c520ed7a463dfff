"""The packages of the layers: all that a function needs."""

from __future__ import annotations

from importlib.metadata import distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.package import LAYERS, MACHINE, PYTHON_VERSION, build

ON_LAMBDA = {
    "python_version": PYTHON_VERSION,
    "python_full_version": f"{PYTHON_VERSION}.0",
    "platform_machine": MACHINE,
    "platform_system": "Linux",
    "sys_platform": "linux",
    "extra": "",
}


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
