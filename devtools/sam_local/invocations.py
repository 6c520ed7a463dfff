"""Invocations as `sam local invoke` would start them, according to aws-sam-cli itself."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devtools.processes import ENGINES, ROOT

PYTHON: Final = ENGINES / "sam" / "bin" / "python"
ENV_VARS: Final = ROOT / "events" / "env.json"


@dataclass(frozen=True, slots=True)
class Invocation:
    """The function as SAM would mount and start it."""

    code: Path
    layers: tuple[Path, ...]
    handler: str
    runtime: str
    image: str
    """Of the container; SAM raises for a runtime that it does not know."""
    architecture: str
    memory: int
    seconds: int
    environment: dict[str, str]


def read_invocations(template: Path, home: Path) -> dict[str, Invocation]:
    """The invocation of each function of a template, by logical id, with `events/env.json`.

    SAM keeps its own settings in `home`."""
    done = subprocess.run(
        [PYTHON, Path(__file__).with_name("functions.py"), template, ENV_VARS],
        env=_environment(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise AssertionError(f"SAM cannot read {template}:\n{done.stderr}")
    return {
        name: Invocation(
            **{
                **found,
                "code": template.parent / found["code"],
                "layers": tuple(template.parent / layer for layer in found["layers"]),
            }
        )
        for name, found in json.loads(done.stdout).items()
    }


def _environment(home: Path) -> dict[str, str]:
    """Without an account, and without variables that SAM would prefer to those of the template."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("AWS_", "SAM_", "TAILRACE_", "POWERTOOLS_"))
    }
    return {
        **kept,
        "HOME": str(home),
        "AWS_EC2_METADATA_DISABLED": "true",
        "SAM_CLI_TELEMETRY": "0",
    }
