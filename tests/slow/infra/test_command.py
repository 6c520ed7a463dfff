"""The command of cdk.json, as the CDK's command line runs it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

from devtools.processes import ROOT


def test_the_command_of_cdk_json_synthesises(tmp_path: Path) -> None:
    command = shlex.split(json.loads((ROOT / "cdk.json").read_bytes())["app"])
    context = {"stage": "prod", "aws:cdk:disable-asset-staging": True}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={
            **os.environ,
            "CDK_OUTDIR": str(tmp_path),
            "CDK_CONTEXT_JSON": json.dumps(context),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tailrace-prod.template.json").exists()
