"""The CloudFront distribution: all requests come through it, and readers share its cache."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import aws_cdk as cdk
from aws_cdk import aws_cloudfront as cloudfront
from constructs import Construct

from infra.console import Console
from infra.containers import Containers
from infra.deployment import Deployment
from infra.distribution_policies import DistributionPolicies
from infra.findings import acknowledge
from infra.http_functions import HTTP_SECONDS, HttpFunctions
from infra.names import CONTAINERS
from infra.origin_shield import NEAREST
from infra.secrets import OriginSecret
from infra.stage import Plan
from infra.viewer_functions import request_code, response_code
from infra.websocket_api import STAGE
from tailrace.web.urls import StreamUrls

HTTP: Final = "http"
WAIT: Final = "wait"
LIVE: Final = "live"
CABLE: Final = "cable"
"""The ids of the origins, with `containers`: the viewer-request function selects all but `http` and
`cable` by their ids."""

CABLE_SECONDS: Final = 30
"""How long API Gateway may take to answer a handshake."""

SECRET: Final = "x-tailrace-origin"  # noqa: S105 - the header's name
TAG: Final = "cache-tag"
"""The response header whose values can be invalidated."""

CACHED_ERRORS: Final = (404, 405, 414, 500, 501, 502, 503, 504)
"""Errors that CloudFront caches for ten seconds by default; the stream may exist by then."""

CONTAINER_SECONDS: Final = 30
"""How long a container may be silent: it sends something in every event stream each 10 s."""

AWS_CONNECT_SECONDS: Final = 5
LEEWAY_SECONDS: Final = 5
"""How much longer CloudFront waits than a function may take, so that a client gets the function's
own error."""

MOST_SECONDS: Final = 120
"""The longest that CloudFront waits for an origin."""

IDLE_SECONDS: Final = 60
"""How long CloudFront keeps an idle connection to a function URL."""

Config: TypeAlias = cloudfront.CfnDistribution


class Distribution(Construct):
    def __init__(
        self,
        scope: Construct,
        name: str,
        deployment: Deployment,
        *,
        http_functions: HttpFunctions,
        containers: Containers | None,
    ) -> None:
        super().__init__(scope, name)
        plan = deployment.plan
        behavior = self._behavior(deployment)
        streams = self._stream_behavior(behavior)
        policies = DistributionPolicies(self, "Policies", plan=plan)
        console = Console(self, "Console", plan=plan) if plan.console else None
        distribution = Config(
            self,
            "Distribution",
            distribution_config=Config.DistributionConfigProperty(
                enabled=True,
                comment=plan.name,
                origins=[
                    *self._origins(deployment, http_functions, containers),
                    *([] if console is None else [console.origin]),
                ],
                default_cache_behavior=Config.DefaultCacheBehaviorProperty(
                    **behavior,
                    viewer_protocol_policy="redirect-to-https",
                    cache_policy_id=policies.no_cache,
                    origin_request_policy_id=policies.other_request,
                    response_headers_policy_id=policies.response_headers,
                ),
                cache_behaviors=[
                    Config.CacheBehaviorProperty(
                        **streams,
                        path_pattern=f"{mount}*",
                        viewer_protocol_policy="https-only",
                        cache_policy_id=policies.stream_cache,
                        origin_request_policy_id=policies.stream_request,
                        response_headers_policy_id=policies.stream_response_headers,
                    )
                    for mount in StreamUrls(plan.ds_path).prefixes
                ]
                + _cable_behaviors(plan, behavior, policies)
                + ([] if console is None else console.behaviors),
                custom_error_responses=[
                    Config.CustomErrorResponseProperty(error_code=status, error_caching_min_ttl=0)
                    for status in CACHED_ERRORS
                ],
                cache_tag_config=Config.CacheTagConfigProperty(header_name=TAG),
                http_version="http2and3",
                ipv6_enabled=True,
                price_class=plan.price_class,
                aliases=None if plan.domain is None else [plan.domain],
                viewer_certificate=_certificate(plan),
                web_acl_id=deployment.firewall,
            ),
        )
        distribution.override_logical_id("Distribution")
        self.id = distribution.ref
        self.arn = (
            f"arn:{cdk.Aws.PARTITION}:cloudfront::{cdk.Aws.ACCOUNT_ID}:distribution/{self.id}"
        )
        if console is not None:
            console.allow_reads(self.arn)
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

    def _origins(
        self,
        deployment: Deployment,
        http_functions: HttpFunctions,
        containers: Containers | None,
    ) -> list[cloudfront.CfnDistribution.OriginProperty]:
        plan, secret = deployment.plan, deployment.origin_secret
        websocket_api = deployment.websocket_api
        shield = self._shield_region(plan)
        origins = [_origin(HTTP, _host(http_functions.http_url), HTTP_SECONDS, secret, shield)]
        if http_functions.wait is not None:
            seconds = http_functions.wait.seconds
            origins.append(_origin(WAIT, _host(http_functions.wait_url), seconds, secret, shield))
        if http_functions.live is not None:
            # The shield would only add a hop to responses that are not shared.
            near = shield if plan.sse == "shared" else None
            seconds = http_functions.live.seconds
            origins.append(_origin(LIVE, _host(http_functions.live_url), seconds, secret, near))
        if containers is not None:
            origins.append(_container_origin(plan, containers, secret))
        if websocket_api is not None:
            origins.append(_origin(CABLE, websocket_api.host, CABLE_SECONDS, secret, None))
        return origins

    def _behavior(self, deployment: Deployment) -> dict[str, Any]:
        """The properties that all cache behaviors share."""
        access, plan = deployment.access, deployment.plan
        viewer_request = cloudfront.Function(
            self,
            "ViewerRequest",
            code=cloudfront.FunctionCode.from_inline(
                request_code(
                    plan.access,
                    plan.ds_path,
                    plan.long_poll_timeout,
                    plan.sse,
                    plan.live,
                    plan.writes,
                )
            ),
            runtime=cloudfront.FunctionRuntime.JS_2_0,
            comment="Verifies credentials, selects the origin, normalizes the cache key",
            key_value_store=None if access is None else access.keys,
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

    def _stream_behavior(self, behavior: dict[str, Any]) -> dict[str, Any]:
        viewer_response = cloudfront.Function(
            self,
            "ViewerResponse",
            code=cloudfront.FunctionCode.from_inline(response_code()),
            runtime=cloudfront.FunctionRuntime.JS_2_0,
            comment="Gives each reader of a shared response a cursor of its own",
        )
        return {
            **behavior,
            "function_associations": [
                *behavior["function_associations"],
                Config.FunctionAssociationProperty(
                    event_type="viewer-response", function_arn=viewer_response.function_arn
                ),
            ],
        }

    def _shield_region(self, plan: Plan) -> str | None:
        """The region of the origin shield, or None if it is off."""
        if plan.origin_shield == "off":
            return None
        if plan.origin_shield != "here":
            return plan.origin_shield
        if plan.region is not None:
            return NEAREST[plan.region]
        # The region is known to CloudFormation only.
        regions = cdk.CfnMapping(
            self, "Shields", mapping={name: {"region": near} for name, near in NEAREST.items()}
        )
        return regions.find_in_map(cdk.Aws.REGION, "region")

    def _acknowledge(self, distribution: Config, plan: Plan) -> None:
        acknowledge(distribution, "AwsSolutions-CFR1", "Streams are available in every country.")
        acknowledge(
            distribution,
            "AwsSolutions-CFR3",
            "The functions log their requests; an access log would keep every reader's address.",
        )
        if not plan.firewall:
            acknowledge(
                distribution, "AwsSolutions-CFR2", "The firewall was turned off by firewall=false."
            )
        if plan.certificate_arn is None:
            acknowledge(
                distribution,
                "AwsSolutions-CFR4",
                "With CloudFront's default certificate the TLS version cannot be chosen.",
            )


def _cable_behaviors(
    plan: Plan, behavior: dict[str, Any], policies: DistributionPolicies
) -> list[cloudfront.CfnDistribution.CacheBehaviorProperty]:
    """That of WebSockets, if there are any."""
    if plan.cable == "false":
        return []
    return [
        Config.CacheBehaviorProperty(
            **{
                **behavior,
                "target_origin_id": CONTAINERS if plan.cable == CONTAINERS else CABLE,
                # A WebSocket handshake is a GET, and its response has no body.
                "allowed_methods": ["GET", "HEAD"],
                "compress": False,
            },
            path_pattern=f"/{STAGE}",
            viewer_protocol_policy="https-only",
            cache_policy_id=policies.no_cache,
            origin_request_policy_id=policies.other_request,
        )
    ]


def _host(url: str) -> str:
    return cdk.Fn.select(2, cdk.Fn.split("/", url))


def _origin(
    name: str, host: str, seconds: int, secret: OriginSecret, shield_region: str | None
) -> cloudfront.CfnDistribution.OriginProperty:
    return Config.OriginProperty(
        id=name,
        domain_name=host,
        # A second attempt would run, and bill, a long-poll again.
        connection_attempts=1,
        connection_timeout=AWS_CONNECT_SECONDS,
        custom_origin_config=Config.CustomOriginConfigProperty(
            origin_protocol_policy="https-only",
            origin_ssl_protocols=["TLSv1.2"],
            http_port=80,
            https_port=443,
            origin_read_timeout=min(seconds + LEEWAY_SECONDS, MOST_SECONDS),
            origin_keepalive_timeout=IDLE_SECONDS,
        ),
        origin_custom_headers=[_secret_header(secret)],
        origin_shield=Config.OriginShieldProperty(
            enabled=shield_region is not None, origin_shield_region=shield_region
        ),
    )


def _container_origin(
    plan: Plan, containers: Containers, secret: OriginSecret
) -> cloudfront.CfnDistribution.OriginProperty:
    seconds = max(CONTAINER_SECONDS, plan.long_poll_timeout)
    return Config.OriginProperty(
        id=CONTAINERS,
        domain_name=containers.balancer.load_balancer_dns_name,
        connection_attempts=1,
        connection_timeout=AWS_CONNECT_SECONDS,
        vpc_origin_config=Config.VpcOriginConfigProperty(
            vpc_origin_id=containers.origin.attr_id,
            origin_read_timeout=min(seconds + LEEWAY_SECONDS, MOST_SECONDS),
            origin_keepalive_timeout=IDLE_SECONDS,
        ),
        origin_custom_headers=[_secret_header(secret)],
        # It would add a hop to responses that are not shared, and one process serves the others
        # to every location for next to nothing.
        origin_shield=Config.OriginShieldProperty(enabled=False),
    )


def _secret_header(secret: OriginSecret) -> cloudfront.CfnDistribution.OriginCustomHeaderProperty:
    return Config.OriginCustomHeaderProperty(
        # A dynamic reference: the template has the secret's name, not its value.
        header_name=SECRET,
        header_value=secret.secret_value.unsafe_unwrap(),
    )


def _certificate(plan: Plan) -> cloudfront.CfnDistribution.ViewerCertificateProperty:
    if plan.certificate_arn is None:
        return Config.ViewerCertificateProperty(cloud_front_default_certificate=True)
    return Config.ViewerCertificateProperty(
        acm_certificate_arn=plan.certificate_arn,
        minimum_protocol_version="TLSv1.2_2021",
        ssl_support_method="sni-only",
    )
