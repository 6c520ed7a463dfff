"""The console: its bucket, its behaviors, its headers, and how its files get there."""

from __future__ import annotations

from typing import Any

from infra.console import BUILT
from infra.viewer_functions import console_code
from tailrace import console
from tests.integration.infra.stacks import Resource, Stacks
from tests.integration.infra.test_functions import variables

CACHING_OPTIMIZED = "658327ea-f89d-4fab-a63d-7e88639e58f6"
CACHING_DISABLED = "4135ea2d-6df8-44a3-9df3-4b5a84be39ad"
"""AWS's own policies of these names."""


def behaviors(stacks: Stacks) -> dict[str, Resource]:
    return {
        each["PathPattern"]: each
        for each in stacks.distribution["CacheBehaviors"]
        if each["TargetOriginId"] == "console"
    }


def files(stacks: Stacks, kind: str) -> Resource:
    (found,) = (
        each for name, each in stacks.resources(kind).items() if name.startswith("EdgeConsole")
    )
    return found


def test_the_console_has_paths_of_its_own(dev: Stacks) -> None:
    found = behaviors(dev)
    assert set(found) == {"/", "/console/*"}
    for each in found.values():
        assert each["AllowedMethods"] == ["GET", "HEAD"]
        assert each["ViewerProtocolPolicy"] == "redirect-to-https"
        assert each["Compress"] is True
        # The bucket gets no header of a viewer, and no secret of the functions.
        assert "OriginRequestPolicyId" not in each
    assert found["/"]["CachePolicyId"] == CACHING_DISABLED
    assert found["/console/*"]["CachePolicyId"] == CACHING_OPTIMIZED
    assert "FunctionAssociations" not in found["/console/*"]
    (association,) = found["/"]["FunctionAssociations"]
    assert association["EventType"] == "viewer-request"
    assert files(dev, "AWS::CloudFront::Function")["FunctionCode"] == console_code()


def test_the_origin_is_a_bucket_that_only_the_distribution_reads(dev: Stacks) -> None:
    (origin,) = (each for each in dev.distribution["Origins"] if each["Id"] == "console")
    assert "OriginCustomHeaders" not in origin
    access = origin["OriginAccessControlId"]["Fn::GetAtt"][0]
    config = dev.resources("AWS::CloudFront::OriginAccessControl")[access]
    assert config["OriginAccessControlConfig"] | {"Name": ""} == {
        "Name": "",
        "OriginAccessControlOriginType": "s3",
        "SigningBehavior": "always",
        "SigningProtocol": "sigv4",
    }
    bucket = files(dev, "AWS::S3::Bucket")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    statements: list[Any] = files(dev, "AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"]
    (reading,) = (each for each in statements if each["Action"] == "s3:GetObject")
    assert reading["Principal"] == {"Service": "cloudfront.amazonaws.com"}
    (condition,) = reading["Condition"].values()
    assert list(condition) == ["AWS:SourceArn"]
    assert {"Ref": "Distribution"} in condition["AWS:SourceArn"]["Fn::Join"][1]
    assert any(
        each["Effect"] == "Deny" and each["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        for each in statements
    )


def test_the_page_has_the_policy_of_the_server(dev: Stacks) -> None:
    policies = {each["ResponseHeadersPolicyId"]["Ref"] for each in behaviors(dev).values()}
    (name,) = policies
    config = dev.resources("AWS::CloudFront::ResponseHeadersPolicy")[name]
    headers = config["ResponseHeadersPolicyConfig"]["SecurityHeadersConfig"]
    policy = headers["ContentSecurityPolicy"]
    assert policy == {"ContentSecurityPolicy": console.POLICY.decode(), "Override": True}
    assert headers["ReferrerPolicy"]["ReferrerPolicy"] == "no-referrer"
    # Pages of other sites have no business with it.
    assert "CorsConfig" not in config["ResponseHeadersPolicyConfig"]


def test_the_page_is_copied_after_what_it_loads(dev: Stacks) -> None:
    copies = dev.resources("Custom::CDKBucketDeployment")
    assets, page = sorted(copies.values(), key=lambda each: "Include" in each)
    assert assets["Exclude"] == ["index.html"]
    assert assets["SystemMetadata"] == {"cache-control": console.IMMUTABLE}
    assert (page["Exclude"], page["Include"]) == (["*"], ["index.html"])
    assert page["SystemMetadata"] == {"cache-control": console.REVALIDATED}
    (name,) = (name for name, each in copies.items() if each is page)
    template = dev.templates["tailrace-dev"]["Resources"]
    assert any("Assets" in each for each in template[name]["DependsOn"])
    assert {path.relative_to(BUILT).as_posix() for path in BUILT.rglob("*.*")} == console.names()


def test_without_it_nothing_is_left(bare: Stacks) -> None:
    """An open deployment has no console unless it asks for one."""
    assert behaviors(bare) == {}
    assert not bare.resources("Custom::CDKBucketDeployment")
    assert not bare.resources("AWS::CloudFront::OriginAccessControl")
    assert variables(bare, "http")["TAILRACE_CONSOLE"] == "false"
