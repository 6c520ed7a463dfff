"""The stacks of one stage."""

from __future__ import annotations

import aws_cdk as cdk

from infra.stage import Stage
from infra.storage import Storage


def build(app: cdk.App) -> cdk.App:
    stage = Stage.parse(app.node.try_get_context("stage") or "dev")
    Storage(app, f"tailrace-{stage.value}-storage", stage=stage)
    cdk.Tags.of(app).add("application", "tailrace")
    cdk.Tags.of(app).add("stage", stage.value)
    return app
