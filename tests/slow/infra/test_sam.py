"""`sam local invoke` with the template as the CDK's command line writes it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from devtools import cdk
from devtools.processes import ROOT
from tests.support.sam import check_invocations


def test_sam_finds_every_function_in_the_output_of_cdk_synth(tmp_path: Path) -> None:
    done = subprocess.run(
        cdk.command("synth", "--quiet", f"--output={tmp_path / 'cdk.out'}"),
        cwd=ROOT,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            "PATH": cdk.search_path(),
            "AWS_EC2_METADATA_DISABLED": "true",
            "CDK_HOME": str(tmp_path),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    check_invocations(tmp_path / "cdk.out" / "tailrace-dev.template.json", tmp_path)
