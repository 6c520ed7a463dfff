"""The command in cdk.json: `cdk synth -c stage=dev` or `stage=prod`."""

from __future__ import annotations

import aws_cdk as cdk

from infra.app import build

build(cdk.App()).synth()
