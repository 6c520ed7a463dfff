"""The second distribution of the smoke test, as the CDK synthesises it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from devtools.processes import ROOT
from devtools.templates import QUIET

HOST = "abc.lambda-url.eu-west-1.on.aws"
SECRET = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:origin-AbCdEf"
CONTEXT = {
    "stage": "smoke",
    "region": "eu-west-1",
    "live_host": HOST,
    "origin_secret": SECRET,
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("probe")
    done = subprocess.run(
        [sys.executable, "-m", "devtools.aws_smoke.probe_app"],
        cwd=ROOT,
        env={
            **os.environ,
            **QUIET,
            "CDK_OUTDIR": str(directory),
            "CDK_CONTEXT_JSON": json.dumps(CONTEXT),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(
        (directory / "tailrace-smoke-probe.template.json").read_bytes()
    )
    return found


def properties(template: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [
        each["Properties"]
        for each in template["Resources"].values()
        if each["Type"] == f"AWS::CloudFront::{kind}"
    ]


def test_every_response_is_shared_for_a_second(template: dict[str, Any]) -> None:
    (policy,) = (each["CachePolicyConfig"] for each in properties(template, "CachePolicy"))
    assert [policy[f"{each}TTL"] for each in ("Min", "Default", "Max")] == [1, 1, 1]
    key = policy["ParametersInCacheKeyAndForwardedToOrigin"]
    assert key["HeadersConfig"] == {"HeaderBehavior": "none"}
    assert key["CookiesConfig"] == {"CookieBehavior": "none"}


def test_the_header_is_for_the_viewer_alone(template: dict[str, Any]) -> None:
    (policy,) = properties(template, "OriginRequestPolicy")
    headers = policy["OriginRequestPolicyConfig"]["HeadersConfig"]
    assert headers == {"HeaderBehavior": "allExcept", "Headers": ["host", "x-smoke-sent"]}
    codes = [each["FunctionCode"] for each in properties(template, "Function")]
    assert sum("x-smoke-sent" in code for code in codes) == 2
    assert sum("x-smoke-seen" in code for code in codes) == 1


def test_the_origin_is_the_streaming_function(template: dict[str, Any]) -> None:
    (distribution,) = properties(template, "Distribution")
    (origin,) = distribution["DistributionConfig"]["Origins"]
    assert (origin["DomainName"], origin["ConnectionAttempts"]) == (HOST, 1)
    (header,) = origin["OriginCustomHeaders"]
    assert header["HeaderName"] == "x-tailrace-origin"
    # The template refers to the secret; it does not have its value.
    assert header["HeaderValue"].startswith("{{resolve:secretsmanager:" + SECRET)
    assert list(template["Outputs"]) == ["ProbeUrl"]
