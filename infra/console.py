"""The console: its files in a bucket that only the distribution reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import aws_cdk as cdk
from aws_cdk import aws_cloudfront as cloudfront
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_deployment as deployment
from constructs import Construct

from infra.findings import acknowledge
from infra.stage import Plan
from infra.viewer_functions import console_code
from tailrace import console

ORIGIN: Final = "console"
"""The id of the origin."""

BUILT: Final = Path(console.__file__).parent / "built"
PROVIDER: Final = "Custom::CDKBucketDeployment8693BB64968944B69AAFB0CC9EB8756C"
"""The id of the function with which the CDK copies files into buckets."""

PROVIDER_ACTIONS: Final = ("GetBucket", "GetObject", "List", "Abort", "DeleteObject")
"""The wildcards in the permissions of that function."""

YEAR: Final = cdk.Duration.days(365)

Config = cloudfront.CfnDistribution


class Console(Construct):
    def __init__(self, scope: Construct, name: str, *, plan: Plan) -> None:
        super().__init__(scope, name)
        stack = cdk.Stack.of(self)
        self._bucket = s3.Bucket(
            self,
            "Files",
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            # The files are those of the release that is deployed.
            removal_policy=cdk.RemovalPolicy.DESTROY,
            auto_delete_objects=plan.platform == "lambda",
        )
        acknowledge(
            self._bucket, "AwsSolutions-S1", "The files are public, and CloudFront reads them."
        )
        prefix = f"{stack.stack_name}-{stack.region}"
        self._access = cloudfront.CfnOriginAccessControl(
            self,
            "Access",
            origin_access_control_config=cloudfront.CfnOriginAccessControl.OriginAccessControlConfigProperty(
                name=f"{prefix}-console",
                origin_access_control_origin_type="s3",
                signing_behavior="always",
                signing_protocol="sigv4",
            ),
        )
        self._headers = _response_headers(self, f"{prefix}-console")
        self._function = cloudfront.Function(
            self,
            "Landing",
            code=cloudfront.FunctionCode.from_inline(console_code()),
            runtime=cloudfront.FunctionRuntime.JS_2_0,
            comment="Gives browsers the console, and other clients plain text",
        )
        # Local engines cannot run the CDK's function; the local AWS copies the files itself.
        if plan.platform == "lambda":
            self._deploy()

    @property
    def origin(self) -> cloudfront.CfnDistribution.OriginProperty:
        return Config.OriginProperty(
            id=ORIGIN,
            domain_name=self._bucket.bucket_regional_domain_name,
            origin_access_control_id=self._access.attr_id,
            s3_origin_config=Config.S3OriginConfigProperty(origin_access_identity=""),
        )

    @property
    def behaviors(self) -> list[cloudfront.CfnDistribution.CacheBehaviorProperty]:
        shared: dict[str, Any] = {
            "target_origin_id": ORIGIN,
            "allowed_methods": ["GET", "HEAD"],
            "cached_methods": ["GET", "HEAD"],
            "compress": True,
            "viewer_protocol_policy": "redirect-to-https",
            "response_headers_policy_id": self._headers,
        }
        return [
            Config.CacheBehaviorProperty(
                **shared,
                path_pattern="/",
                cache_policy_id=cloudfront.CachePolicy.CACHING_DISABLED.cache_policy_id,
                function_associations=[
                    Config.FunctionAssociationProperty(
                        event_type="viewer-request", function_arn=self._function.function_arn
                    )
                ],
            ),
            Config.CacheBehaviorProperty(
                **shared,
                path_pattern=f"/{console.ASSETS}/*",
                cache_policy_id=cloudfront.CachePolicy.CACHING_OPTIMIZED.cache_policy_id,
            ),
        ]

    def allow_reads(self, distribution_arn: str) -> None:
        """Let the distribution read the files."""
        self._bucket.add_to_resource_policy(
            iam.PolicyStatement(
                actions=["s3:GetObject"],
                principals=[iam.ServicePrincipal("cloudfront.amazonaws.com")],
                resources=[self._bucket.arn_for_objects("*")],
                conditions={"StringEquals": {"AWS:SourceArn": distribution_arn}},
            )
        )

    def _deploy(self) -> None:
        """Copy the files into the bucket: the page last, when what it loads is there."""
        source = deployment.Source.asset(str(BUILT))
        assets = deployment.BucketDeployment(
            self,
            "Assets",
            sources=[source],
            destination_bucket=self._bucket,
            exclude=[console.INDEX],
            # A page that was opened before loads what it needs at once, but may be in a cache.
            prune=False,
            cache_control=[deployment.CacheControl.from_string(console.IMMUTABLE)],
        )
        page = deployment.BucketDeployment(
            self,
            "Page",
            sources=[source],
            destination_bucket=self._bucket,
            exclude=["*"],
            include=[console.INDEX],
            prune=False,
            cache_control=[deployment.CacheControl.from_string(console.REVALIDATED)],
        )
        page.node.add_dependency(assets)
        self._acknowledge_provider()

    def _acknowledge_provider(self) -> None:
        stack = cdk.Stack.of(self)
        provider = stack.node.find_child(PROVIDER)
        account, region = (
            f"<AWS::{name}>" if cdk.Token.is_unresolved(value) else value
            for name, value in (("AccountId", stack.account), ("Region", stack.region))
        )
        role = "arn:<AWS::Partition>:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
        assets = f"arn:<AWS::Partition>:s3:::cdk-hnb659fds-assets-{account}-{region}/*"
        own = stack.get_logical_id(self._bucket.node.default_child)
        reason = "The CDK's own function copies files during deployments, and only then."
        for finding in (
            f"IAM4[Policy::{role}]",
            "L1",
            *(f"IAM5[Action::s3:{action}*]" for action in PROVIDER_ACTIONS),
            f"IAM5[Resource::{assets}]",
            f"IAM5[Resource::<{own}.Arn>/*]",
        ):
            acknowledge(provider, f"AwsSolutions-{finding}", reason)


def _response_headers(scope: Construct, name: str) -> str:
    return cloudfront.ResponseHeadersPolicy(
        scope,
        "Headers",
        response_headers_policy_name=name,
        security_headers_behavior=cloudfront.ResponseSecurityHeadersBehavior(
            content_security_policy=cloudfront.ResponseHeadersContentSecurityPolicy(
                content_security_policy=console.POLICY.decode(), override=True
            ),
            content_type_options=cloudfront.ResponseHeadersContentTypeOptions(override=True),
            strict_transport_security=cloudfront.ResponseHeadersStrictTransportSecurity(
                access_control_max_age=YEAR, override=True
            ),
            frame_options=cloudfront.ResponseHeadersFrameOptions(
                frame_option=cloudfront.HeadersFrameOption.DENY, override=True
            ),
            referrer_policy=cloudfront.ResponseHeadersReferrerPolicy(
                referrer_policy=cloudfront.HeadersReferrerPolicy.NO_REFERRER, override=True
            ),
        ),
    ).response_headers_policy_id
