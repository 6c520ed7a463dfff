"""The pins of the requirements files."""

from __future__ import annotations

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from devtools.processes import ROOT

FOLDER = ROOT / "requirements"


def pins(name: str) -> dict[str, str]:
    """The version of each package of a `.txt` file."""
    lines = (FOLDER / f"{name}.txt").read_text().splitlines()
    found = [Requirement(line.rstrip(" \\")) for line in lines if line[:1].isalnum()]
    versions: dict[str, str] = {}
    for pin in found:
        (exactly,) = pin.specifier
        assert exactly.operator == "==", pin
        versions[canonicalize_name(pin.name)] = exactly.version
    return versions
