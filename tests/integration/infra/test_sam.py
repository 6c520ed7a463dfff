"""`sam local invoke`: aws-sam-cli itself reads the template, up to where it would need Docker."""

from __future__ import annotations

from pathlib import Path

from tests.integration.infra.stacks import Stacks
from tests.support.sam import check_invocations


def test_sam_finds_code_layers_and_environment_of_every_function(
    dev: Stacks, tmp_path: Path
) -> None:
    check_invocations(dev.folder / "tailrace-dev.template.json", tmp_path)
