"""The stacks of one stage."""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk

from infra.firewall import Firewall
from infra.service import Service
from infra.stage import Plan
from infra.storage import Storage

FLAGS: Final = {
    # Warnings of CDK's own checks of the templates are errors.
    "@aws-cdk/core:validateAgainstDefaultRules": True,
    # A new layer is a new version of the function, and one role has few policies.
    "@aws-cdk/aws-lambda:recognizeLayerVersion": True,
    "@aws-cdk/aws-iam:minimizePolicies": True,
    "@aws-cdk/core:checkSecretUsage": True,
    # What another stack still needs cannot be removed.
    "@aws-cdk/core:defaultCrossStackReferences": "strong",
}
"""Behaviour of CDK that newer projects have by default; here, so that every way to run has it."""


def build(app: cdk.App) -> cdk.App:
    for flag, value in FLAGS.items():
        app.node.set_context(flag, value)
    plan = Plan.read(app.node.get_all_context())
    storage = Storage(app, plan=plan)
    firewall = Firewall(app, plan=plan).acl.attr_arn if plan.firewall else None
    Service(app, plan=plan, storage=storage, firewall=firewall)
    cdk.Tags.of(app).add("application", "tailrace")
    cdk.Tags.of(app).add("stage", plan.stage.value)
    return app
