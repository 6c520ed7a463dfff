"""The application as a whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from devtools.templates import CHECKED
from tests.integration.infra.conftest import stacks_of
from tests.integration.infra.stacks import Stacks

OUTPUTS = {
    "Url",
    "DistributionId",
    "DistributionDomain",
    "OriginSecretArn",
    "AccessSecretArn",
    "DashboardUrl",
    "CableUrl",
    "CableEndpoint",
    "HttpFunctionName",
    "LiveFunctionName",
    "WaitFunctionName",
    "DispatchFunctionName",
    "PurgeFunctionName",
    "SubscriptionKeysArn",
    "WebhooksFunctionName",
    "RotateSecretFunctionName",
    "EdgeKeysFunctionName",
    "CableFunctionName",
    "HeartbeatFunctionName",
    "HttpLogGroup",
    "LiveLogGroup",
    "WaitLogGroup",
    "DispatchLogGroup",
    "PurgeLogGroup",
    "WebhooksLogGroup",
    "RotateSecretLogGroup",
    "EdgeKeysLogGroup",
    "CableLogGroup",
    "HeartbeatLogGroup",
    "CompactHistoryJobName",
    "ExportHistoryJobName",
    "SweepJobName",
    "AuditJobName",
    "DatabaseName",
}


@pytest.mark.parametrize("variant", CHECKED)
def test_the_security_rules_find_nothing(variant: str) -> None:
    assert stacks_of(variant).findings == []


def test_cfn_lint_accepts_the_templates() -> None:
    """Of the variant with most switches turned; `tests/slow/infra` looks at the others."""
    lint("afar")


def lint(*variants: str) -> None:
    templates = [
        str(file)
        for variant in variants
        for file in sorted(stacks_of(variant).folder.glob("*.template.json"))
    ]
    # CDK itself names dependencies that a reference implies already.
    command = [str(Path(sys.executable).with_name("cfn-lint")), "--ignore-checks", "W3005", "--"]
    done = subprocess.run([*command, *templates], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stacks_are_named_after_the_stage(dev: Stacks, prod: Stacks) -> None:
    for stage, stacks in (("dev", dev), ("prod", prod)):
        name = f"tailrace-{stage}"
        assert stacks.templates.keys() == {name, f"{name}-firewall", f"{name}-storage"}


def test_functions_have_stable_logical_ids(dev: Stacks) -> None:
    resources = dev.templates["tailrace-dev"]["Resources"]
    for name in (
        "HttpFunction",
        "LiveFunction",
        "DispatchFunction",
        "PurgeFunction",
        "WebhooksFunction",
        "RotateSecretFunction",
        "EdgeKeysFunction",
        "CableFunction",
        "HeartbeatFunction",
    ):
        assert resources[name]["Type"] == "AWS::Lambda::Function"


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_everything_that_can_be_is_tagged(stage: str) -> None:
    stacks = stacks_of(stage)
    tagged = 0
    for template in stacks.templates.values():
        for resource in template["Resources"].values():
            tags = resource.get("Properties", {}).get("Tags")
            if isinstance(tags, list):
                tagged += 1
                named = {tag["Key"]: tag["Value"] for tag in tags}
                assert named.items() >= {"application": "tailrace", "stage": stage}.items()
    assert tagged > 30


def test_the_outputs_are_complete(dev: Stacks) -> None:
    assert dev.templates["tailrace-dev"]["Outputs"].keys() == OUTPUTS
    storage = dev.templates["tailrace-dev-storage"]["Outputs"]
    assert {"TableName", "BucketName"} <= storage.keys()


def test_the_url_uses_the_custom_domain(dev: Stacks, afar: Stacks) -> None:
    own = afar.templates["tailrace-prod"]["Outputs"]["Url"]["Value"]
    given = dev.templates["tailrace-dev"]["Outputs"]["Url"]["Value"]
    assert own == "https://streams.example.org"
    assert given["Fn::Join"][1] == ["https://", {"Fn::GetAtt": ["Distribution", "DomainName"]}]


def test_the_websocket_url_uses_the_same_domain(dev: Stacks, afar: Stacks) -> None:
    own = afar.templates["tailrace-prod"]["Outputs"]["CableUrl"]["Value"]
    given = dev.templates["tailrace-dev"]["Outputs"]["CableUrl"]["Value"]
    domain = {"Fn::GetAtt": ["Distribution", "DomainName"]}
    assert own == "wss://streams.example.org/cable"
    assert given["Fn::Join"][1] == ["wss://", domain, "/cable"]


def test_the_secret_is_in_no_template(dev: Stacks) -> None:
    for template in dev.templates.values():
        assert '"SecretString"' not in json.dumps(template)
