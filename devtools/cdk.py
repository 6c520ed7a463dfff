"""The CDK's command line, as `make setup` installs it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from devtools.processes import ROOT

CDK: Final = ROOT / "node_modules" / "aws-cdk" / "bin" / "cdk"
OPTIONS: Final = (
    *("--no-notices", "--no-version-reporting", "--no-color", "--ci", "--progress=events"),
)


class NotInstalled(Exception):
    """Node or the CDK's command line is missing."""


def search_path() -> str:
    """PATH with the project's environment first, which may have the only Node."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def command(*arguments: str | Path) -> list[str | Path]:
    """The command that runs `cdk` with these arguments, without colours and notices."""
    node = shutil.which("node", path=search_path())
    if node is None:
        raise NotInstalled("Node is missing; `make setup` brings it")
    if not CDK.exists():
        raise NotInstalled("the CDK's command line is missing; `make setup` brings it")
    return [node, CDK, *arguments, *OPTIONS]
