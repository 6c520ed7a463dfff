"""A CloudFormation template of a distribution like ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from infra import viewer_functions

METHODS: Final = ["GET", "HEAD", "OPTIONS", "PUT", "PATCH", "POST", "DELETE"]
CACHING_DISABLED: Final = "4135ea2d-6df8-44a3-9df3-4b5a84be39ad"
ALL_VIEWER_EXCEPT_HOST: Final = "b689b0a8-53d0-40ab-baf2-68738e2966ac"
ALWAYS_CACHED_ERRORS: Final = (404, 414, 500, 501, 502, 503, 504)
WAIT_SECONDS: Final = 36_000
"""So long that no interval ends while a test asks twice for the same."""

_CACHE_POLICY: Final = {
    "MinTTL": 0,
    "DefaultTTL": 0,
    "MaxTTL": 31_536_000,
    "ParametersInCacheKeyAndForwardedToOrigin": {
        "QueryStringsConfig": {
            "QueryStringBehavior": "whitelist",
            "QueryStrings": ["offset", "last", "since", "live", "cursor"],
        },
        "HeadersConfig": {"HeaderBehavior": "whitelist", "Headers": ["x-tailrace-reader"]},
        "CookiesConfig": {"CookieBehavior": "none"},
        "EnableAcceptEncodingBrotli": True,
        "EnableAcceptEncodingGzip": True,
    },
}


def distribution(
    *,
    code: str | None = None,
    cookies: str = "none",
    error_seconds: int | None = 0,
    read_seconds: int = 30,
) -> Mapping[str, Any]:
    """The template; `cookies` is what the origin request policy of streams does with them."""
    function = {"EventType": "viewer-request", "FunctionARN": {"Fn::GetAtt": ["Edge", "Arn"]}}
    common = {
        "TargetOriginId": "http",
        "AllowedMethods": METHODS,
        "Compress": True,
        "FunctionAssociations": [function],
        "ResponseHeadersPolicyId": {"Ref": "Cors"},
    }
    response = {"EventType": "viewer-response", "FunctionARN": {"Fn::GetAtt": ["Back", "Arn"]}}
    stream = {
        **common,
        "FunctionAssociations": [function, response],
        "CachePolicyId": {"Ref": "Streams"},
        "OriginRequestPolicyId": {"Ref": "Forward"},
    }
    origins = [
        {
            "Id": name,
            "OriginCustomHeaders": [
                {"HeaderName": "X-Tailrace-Origin", "HeaderValue": "{{resolve:secretsmanager:x}}"}
            ],
            "CustomOriginConfig": {"OriginReadTimeout": read_seconds},
        }
        for name in ("http", "wait", "live")
    ]
    errors = [
        {"ErrorCode": status, "ErrorCachingMinTTL": error_seconds}
        for status in ALWAYS_CACHED_ERRORS
        if error_seconds is not None
    ]
    resources = {
        "Distribution": {
            "DistributionConfig": {
                "Origins": origins,
                "DefaultCacheBehavior": {
                    **common,
                    "CachePolicyId": CACHING_DISABLED,
                    "OriginRequestPolicyId": ALL_VIEWER_EXCEPT_HOST,
                },
                "CacheBehaviors": [
                    {**stream, "PathPattern": "/v1/stream/*"},
                    {**stream, "PathPattern": "/ds/*"},
                ],
                "CustomErrorResponses": errors,
            }
        },
        "CachePolicy": {"CachePolicyConfig": _CACHE_POLICY},
        "OriginRequestPolicy": {
            "OriginRequestPolicyConfig": {
                "HeadersConfig": {
                    "HeaderBehavior": "allExcept",
                    "Headers": ["host", "x-tailrace-cursor"],
                },
                "CookiesConfig": {"CookieBehavior": cookies},
                "QueryStringsConfig": {"QueryStringBehavior": "none"},
            }
        },
        "ResponseHeadersPolicy": {
            "ResponseHeadersPolicyConfig": {
                "CorsConfig": {
                    "AccessControlAllowCredentials": False,
                    "AccessControlAllowHeaders": {"Items": ["*"]},
                    "AccessControlAllowMethods": {"Items": ["ALL"]},
                    "AccessControlAllowOrigins": {"Items": ["*"]},
                    "AccessControlExposeHeaders": {"Items": ["Stream-Next-Offset"]},
                    "OriginOverride": True,
                }
            }
        },
        "Function": {
            "FunctionCode": viewer_functions.request_code("open", wait=WAIT_SECONDS)
            if code is None
            else code
        },
    }
    names = {
        "CachePolicy": "Streams",
        "OriginRequestPolicy": "Forward",
        "ResponseHeadersPolicy": "Cors",
        "Function": "Edge",
    }
    back = {"FunctionCode": viewer_functions.response_code()}
    return {
        "Resources": {
            names.get(kind, kind): {"Type": f"AWS::CloudFront::{kind}", "Properties": properties}
            for kind, properties in resources.items()
        }
        | {"Back": {"Type": "AWS::CloudFront::Function", "Properties": back}}
    }
