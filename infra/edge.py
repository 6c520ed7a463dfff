"""The distribution: the only way in, and where readers share what one of them asked for."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import aws_cdk as cdk
from aws_cdk import aws_cloudfront as cloudfront
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.findings import acknowledge
from infra.functions import HTTP_SECONDS, LIVE_SECONDS, Functions
from infra.gateway import STAGE, Gateway
from infra.policies import Policies
from infra.stage import Plan
from infra.viewer_request import code

STREAMS: Final = ("/v1/stream/*", "/ds/*")

HTTP: Final = "http"
LIVE: Final = "live"
CABLE: Final = "cable"
"""The ids of the origins: the viewer function sends what streams to `live` by that name."""

CABLE_SECONDS: Final = 30
"""How long a WebSocket may take to open."""

SECRET: Final = "x-tailrace-origin"  # noqa: S105 - the header's name
TAG: Final = "cache-tag"
"""By this header of an answer the edge can be told to forget it."""

STICKY: Final = (404, 405, 414, 500, 501, 502, 503, 504)
"""What CloudFront keeps for ten seconds unless told otherwise; the stream may be there by then."""

CONNECT_SECONDS: Final = 5
LEEWAY_SECONDS: Final = 5
"""What CloudFront waits longer than a function may take, so that the function's own end is told."""

IDLE_SECONDS: Final = 60
"""How long a connection to a function is kept for the next request."""

Config: TypeAlias = cloudfront.CfnDistribution


class Edge(Construct):
    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        plan: Plan,
        functions: Functions,
        gateway: Gateway | None,
        secret: secretsmanager.ISecret,
        firewall: str | None,
        keys: cloudfront.KeyValueStore | None,
    ) -> None:
        super().__init__(scope, name)
        behavior = self._behavior(plan, keys)
        policies = Policies(self, "Policies", plan=plan)
        distribution = Config(
            self,
            "Distribution",
            distribution_config=Config.DistributionConfigProperty(
                enabled=True,
                comment=plan.name,
                origins=[
                    _origin(
                        HTTP, _host(functions.http_url), HTTP_SECONDS, secret, self._shield(plan)
                    ),
                    # No behaviour names it, and nobody shares its answers: no shield either.
                    _origin(LIVE, _host(functions.live_url), LIVE_SECONDS, secret, None),
                    *(
                        []
                        if gateway is None
                        else [_origin(CABLE, gateway.host, CABLE_SECONDS, secret, None)]
                    ),
                ],
                default_cache_behavior=Config.DefaultCacheBehaviorProperty(
                    **behavior,
                    viewer_protocol_policy="redirect-to-https",
                    cache_policy_id=policies.no_cache,
                    origin_request_policy_id=policies.other_request,
                    response_headers_policy_id=policies.answer,
                ),
                cache_behaviors=[
                    Config.CacheBehaviorProperty(
                        **behavior,
                        path_pattern=pattern,
                        viewer_protocol_policy="https-only",
                        cache_policy_id=policies.stream_cache,
                        origin_request_policy_id=policies.stream_request,
                        response_headers_policy_id=policies.answer,
                    )
                    for pattern in STREAMS
                ]
                + ([] if gateway is None else [_cable(behavior, policies)]),
                custom_error_responses=[
                    Config.CustomErrorResponseProperty(error_code=status, error_caching_min_ttl=0)
                    for status in STICKY
                ],
                cache_tag_config=Config.CacheTagConfigProperty(header_name=TAG),
                http_version="http2and3",
                ipv6_enabled=True,
                price_class=plan.price_class,
                aliases=None if plan.domain is None else [plan.domain],
                viewer_certificate=_certificate(plan),
                web_acl_id=firewall,
            ),
        )
        distribution.override_logical_id("Distribution")
        self.id = distribution.ref
        self.arn = (
            f"arn:{cdk.Aws.PARTITION}:cloudfront::{cdk.Aws.ACCOUNT_ID}:distribution/{self.id}"
        )
        self.domain = distribution.attr_domain_name
        self.host = plan.domain or self.domain
        self.url = f"https://{self.host}"
        if plan.edge_metrics:
            cloudfront.CfnMonitoringSubscription(
                self,
                "Metrics",
                distribution_id=self.id,
                monitoring_subscription={
                    "realtimeMetricsSubscriptionConfig": {
                        "realtimeMetricsSubscriptionStatus": "Enabled"
                    }
                },
            )
        self._acknowledge(distribution, plan)

    def _behavior(self, plan: Plan, keys: cloudfront.KeyValueStore | None) -> dict[str, Any]:
        """What all behaviours have in common."""
        viewer_request = cloudfront.Function(
            self,
            "ViewerRequest",
            code=cloudfront.FunctionCode.from_inline(code(plan.access)),
            runtime=cloudfront.FunctionRuntime.JS_2_0,
            comment="Verifies who reads, chooses the origin, settles what the cache goes by",
            key_value_store=keys,
        )
        return {
            "target_origin_id": HTTP,
            "allowed_methods": ["GET", "HEAD", "OPTIONS", "PUT", "PATCH", "POST", "DELETE"],
            "cached_methods": ["GET", "HEAD"],
            "compress": True,
            "function_associations": [
                Config.FunctionAssociationProperty(
                    event_type="viewer-request", function_arn=viewer_request.function_arn
                )
            ],
        }

    def _shield(self, plan: Plan) -> str | None:
        """The region in which the requests of all edge locations meet."""
        if plan.origin_shield == "off":
            return None
        here = plan.origin_shield == "here"
        return cdk.Stack.of(self).region if here else plan.origin_shield

    def _acknowledge(self, distribution: Config, plan: Plan) -> None:
        acknowledge(
            distribution, "AwsSolutions-CFR1", "Streams are for every country unless you say so."
        )
        acknowledge(
            distribution,
            "AwsSolutions-CFR3",
            "The functions log what reaches them; an access log would keep every reader's address.",
        )
        if not plan.firewall:
            acknowledge(
                distribution, "AwsSolutions-CFR2", "The firewall was turned off by firewall=false."
            )
        if plan.certificate_arn is None:
            acknowledge(
                distribution,
                "AwsSolutions-CFR4",
                "CloudFront's own name has CloudFront's own certificate, and with it no choice.",
            )


def _cable(
    behavior: dict[str, Any], policies: Policies
) -> cloudfront.CfnDistribution.CacheBehaviorProperty:
    return Config.CacheBehaviorProperty(
        **{
            **behavior,
            "target_origin_id": CABLE,
            # A WebSocket begins with a GET, and its answer has no body.
            "allowed_methods": ["GET", "HEAD"],
            "compress": False,
        },
        path_pattern=f"/{STAGE}",
        viewer_protocol_policy="https-only",
        cache_policy_id=policies.no_cache,
        origin_request_policy_id=policies.other_request,
    )


def _host(url: str) -> str:
    return cdk.Fn.select(2, cdk.Fn.split("/", url))


def _origin(
    name: str, host: str, seconds: int, secret: secretsmanager.ISecret, shield: str | None
) -> cloudfront.CfnDistribution.OriginProperty:
    return Config.OriginProperty(
        id=name,
        domain_name=host,
        # A second attempt would run a long-poll, and pay for it, once more.
        connection_attempts=1,
        connection_timeout=CONNECT_SECONDS,
        custom_origin_config=Config.CustomOriginConfigProperty(
            origin_protocol_policy="https-only",
            origin_ssl_protocols=["TLSv1.2"],
            http_port=80,
            https_port=443,
            origin_read_timeout=seconds + LEEWAY_SECONDS,
            origin_keepalive_timeout=IDLE_SECONDS,
        ),
        origin_custom_headers=[
            Config.OriginCustomHeaderProperty(
                # CloudFormation looks the value up; the template has only its name.
                header_name=SECRET,
                header_value=secret.secret_value.unsafe_unwrap(),
            )
        ],
        origin_shield=Config.OriginShieldProperty(
            enabled=shield is not None, origin_shield_region=shield
        ),
    )


def _certificate(plan: Plan) -> cloudfront.CfnDistribution.ViewerCertificateProperty:
    if plan.certificate_arn is None:
        return Config.ViewerCertificateProperty(cloud_front_default_certificate=True)
    return Config.ViewerCertificateProperty(
        acm_certificate_arn=plan.certificate_arn,
        minimum_protocol_version="TLSv1.2_2021",
        ssl_support_method="sni-only",
    )
