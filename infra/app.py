"""The CDK app: the stacks of one stage."""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk

from infra.firewall import FirewallStack
from infra.service import ServiceStack
from infra.stage import Plan
from infra.storage import StorageStack

FLAGS: Final = {
    # Treat warnings of CDK's own template checks as errors.
    "@aws-cdk/core:validateAgainstDefaultRules": True,
    # Publish a new function version when a layer changes; merge the statements of a role.
    "@aws-cdk/aws-lambda:recognizeLayerVersion": True,
    "@aws-cdk/aws-iam:minimizePolicies": True,
    "@aws-cdk/core:checkSecretUsage": True,
    # A stack cannot remove a resource that another stack still uses.
    "@aws-cdk/core:defaultCrossStackReferences": "strong",
}
"""Feature flags that `cdk init` writes to cdk.json; set here so that tests have them, too."""


def build(app: cdk.App) -> cdk.App:
    for flag, value in FLAGS.items():
        app.node.set_context(flag, value)
    plan = Plan.read(app.node.get_all_context())
    storage = StorageStack(app, plan=plan)
    firewall = FirewallStack(app, plan=plan).acl.attr_arn if plan.firewall else None
    ServiceStack(app, plan=plan, storage=storage, firewall=firewall)
    cdk.Tags.of(app).add("application", "tailrace")
    cdk.Tags.of(app).add("stage", plan.stage.value)
    return app
