"""The policies of the distribution: cache keys, forwarded headers, response headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_cloudfront as cloudfront
from constructs import Construct

from infra.stage import Plan
from tailrace.auth.origins import Origins
from tailrace.web.messages import ALLOWED_HEADERS, METHODS, RESPONSE_HEADERS

QUERY: Final = ("offset", "last", "since", "live", "cursor")
"""The query parameters in the cache key. No others of a stream's query are forwarded."""

READER: Final = "x-tailrace-reader"
"""The viewer-request function sets it to the request's id if the response must not be shared: for
SSE, HEAD, and catch-up reads that are true only now, such as `offset=now`."""

CURSOR: Final = "x-tailrace-cursor"
"""The cursor that a reader holds, from the viewer-request to the viewer-response function. No
policy may name it: readers with different cursors share responses."""

RETRY_SECONDS: Final = "5"
"""After how long a throttled reader should try again."""

DAY: Final = cdk.Duration.days(1)
YEAR: Final = cdk.Duration.days(365)


class DistributionPolicies(Construct):
    def __init__(self, scope: Construct, name: str, *, plan: Plan) -> None:
        super().__init__(scope, name)
        stack = cdk.Stack.of(self)
        # Names must be unique in the account, and a stage may be deployed to several regions.
        self._prefix = f"{stack.stack_name}-{stack.region}"
        self.stream_cache = cloudfront.CachePolicy(
            self,
            "StreamCache",
            cache_policy_name=f"{self._prefix}-stream-cache",
            comment="Caches responses for as long as their Cache-Control says, others not at all.",
            # A minimum above 0 would cache even `no-store` responses.
            min_ttl=cdk.Duration.seconds(0),
            default_ttl=cdk.Duration.seconds(0),
            max_ttl=YEAR,
            query_string_behavior=cloudfront.CacheQueryStringBehavior.allow_list(*QUERY),
            header_behavior=cloudfront.CacheHeaderBehavior.allow_list(READER),
            # With cookies in the key, readers with different cookies would not share responses.
            cookie_behavior=cloudfront.CacheCookieBehavior.none(),
            enable_accept_encoding_gzip=True,
            enable_accept_encoding_brotli=True,
        ).cache_policy_id
        self.no_cache = cloudfront.CachePolicy.CACHING_DISABLED.cache_policy_id
        self.stream_request = self._request_policy(
            "stream-request", cloudfront.OriginRequestQueryStringBehavior.none()
        )
        self.other_request = self._request_policy(
            "other-request", cloudfront.OriginRequestQueryStringBehavior.all()
        )
        origins = Origins(plan.allowed_origins)
        self.response_headers = self._response_headers_policy("answer", origins)
        # Lambda says nothing of when to try again if it throttles a function. The viewer-response
        # function removes the header from responses that are not errors.
        self.stream_response_headers = self._response_headers_policy(
            "stream-answer", origins, {"Retry-After": RETRY_SECONDS}
        )

    def _request_policy(self, name: str, query: cloudfront.OriginRequestQueryStringBehavior) -> str:
        return cloudfront.OriginRequestPolicy(
            self,
            name.title().replace("-", ""),
            origin_request_policy_name=f"{self._prefix}-{name}",
            # A function URL is identified by its own Host.
            header_behavior=cloudfront.OriginRequestHeaderBehavior.deny_list("host", CURSOR),
            query_string_behavior=query,
            cookie_behavior=cloudfront.OriginRequestCookieBehavior.none(),
        ).origin_request_policy_id

    def _response_headers_policy(
        self, name: str, origins: Origins, more: Mapping[str, str] | None = None
    ) -> str:
        """`more`: headers for responses that do not have them."""
        custom = [
            cloudfront.ResponseCustomHeader(header=header, value=value, override=False)
            for header, value in (more or {}).items()
        ]
        return cloudfront.ResponseHeadersPolicy(
            self,
            name.title().replace("-", ""),
            response_headers_policy_name=f"{self._prefix}-{name}",
            custom_headers_behavior=cloudfront.ResponseCustomHeadersBehavior(custom_headers=custom)
            if custom
            else None,
            cors_behavior=cloudfront.ResponseHeadersCorsBehavior(
                access_control_allow_origins=origins.expand(),
                access_control_allow_credentials=not origins.allow_all,
                access_control_allow_methods=METHODS.split(", "),
                access_control_allow_headers=list(ALLOWED_HEADERS),
                access_control_expose_headers=list(RESPONSE_HEADERS),
                access_control_max_age=DAY,
                origin_override=True,
            ),
            security_headers_behavior=cloudfront.ResponseSecurityHeadersBehavior(
                content_type_options=cloudfront.ResponseHeadersContentTypeOptions(override=True),
                strict_transport_security=cloudfront.ResponseHeadersStrictTransportSecurity(
                    access_control_max_age=YEAR, override=True
                ),
                frame_options=cloudfront.ResponseHeadersFrameOptions(
                    frame_option=cloudfront.HeadersFrameOption.DENY, override=False
                ),
                referrer_policy=cloudfront.ResponseHeadersReferrerPolicy(
                    referrer_policy=cloudfront.HeadersReferrerPolicy.NO_REFERRER, override=False
                ),
            ),
        ).response_headers_policy_id
