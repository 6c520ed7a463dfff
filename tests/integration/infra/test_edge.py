"""The distribution: what it keeps, passes on and adds."""

from __future__ import annotations

from typing import Any

import pytest

from infra.origin_shield import NEAREST
from infra.viewer_functions import MAX_BYTES, request_code, response_code
from tailrace.aws.edge.origin_guard import SECRET_HEADER
from tailrace.settings import Settings
from tailrace.web.messages import ALLOWED_HEADERS, METHODS, PREFLIGHT_HEADERS, RESPONSE_HEADERS
from tailrace.web.urls import StreamUrls
from tests.integration.infra.stacks import Resource, Stacks
from tests.integration.infra.test_functions import variables

CACHING_DISABLED = "4135ea2d-6df8-44a3-9df3-4b5a84be39ad"
"""AWS's own policy of that name."""


def behaviors(stacks: Stacks) -> list[Resource]:
    """All but those of the console."""
    config = stacks.distribution
    others = (each for each in config["CacheBehaviors"] if each["TargetOriginId"] != "console")
    return [config["DefaultCacheBehavior"], *others]


def stream_behavior(stacks: Stacks) -> Resource:
    found: Resource = stacks.distribution["CacheBehaviors"][0]
    return found


def policy(stacks: Stacks, kind: str, reference: Resource) -> Resource:
    properties = stacks.resources(f"AWS::CloudFront::{kind}")[reference["Ref"]]
    found: Resource = properties[f"{kind}Config"]
    return found


# Origins


def origins(stacks: Stacks) -> dict[str, Resource]:
    return {origin["Id"]: origin for origin in stacks.distribution["Origins"]}


def test_the_origins_have_the_ids_that_the_viewer_function_selects(
    dev: Stacks, bare: Stacks
) -> None:
    assert list(origins(dev)) == ["http", "wait", "live", "cable", "console"]
    assert list(origins(bare)) == ["http", "wait", "live"]
    for name in ("wait", "live"):
        assert f"selectRequestOriginById('{name}')" in request_code()


@pytest.mark.parametrize(
    ("name", "seconds"), [("http", 30), ("wait", 28), ("live", 60), ("cable", 30)]
)
def test_an_origin_gets_one_attempt_with_the_functions_timeout(
    dev: Stacks, name: str, seconds: int
) -> None:
    origin = origins(dev)[name]
    config = origin["CustomOriginConfig"]
    assert origin["ConnectionAttempts"] == 1
    assert dev.function(name)["Timeout"] == seconds
    # CloudFront waits for 120 s at most.
    assert seconds < config["OriginReadTimeout"] <= min(120, seconds + 5)
    assert config["OriginProtocolPolicy"] == "https-only"
    assert config["OriginSSLProtocols"] == ["TLSv1.2"]


@pytest.mark.parametrize("name", ["wait", "live"])
def test_the_longest_wait_and_shared_events_fit_into_cloudfronts_timeout(
    afar: Stacks, name: str
) -> None:
    assert afar.function(name)["Timeout"] == 119
    assert origins(afar)[name]["CustomOriginConfig"]["OriginReadTimeout"] == 120


def test_the_origin_shield_is_near_the_functions(dev: Stacks, afar: Stacks, bare: Stacks) -> None:
    def shield(stacks: Stacks, name: str) -> Any:
        return origins(stacks)[name]["OriginShield"].get("OriginShieldRegion")

    for name in ("http", "wait"):
        mapping, region, key = shield(dev, name)["Fn::FindInMap"]
        assert (region, key) == ({"Ref": "AWS::Region"}, "region")
        nearest = dev.templates["tailrace-dev"]["Mappings"][mapping]
        assert {name: each["region"] for name, each in nearest.items()} == NEAREST
        assert shield(afar, name) == "eu-west-2", "Paris has none"
        assert shield(bare, name) is None
    # Only afar shares server-sent events.
    assert shield(afar, "live") == "eu-west-2"
    assert not any(shield(stacks, "live") for stacks in (dev, bare))
    assert not any(shield(stacks, "cable") for stacks in (dev, afar))


@pytest.mark.parametrize("name", ["http", "wait", "live", "cable"])
def test_origins_get_the_secret_as_a_dynamic_reference(dev: Stacks, name: str) -> None:
    (header,) = origins(dev)[name]["OriginCustomHeaders"]
    before, secret, after = header["HeaderValue"]["Fn::Join"][1]
    assert header["HeaderName"] == SECRET_HEADER.decode()
    assert before + after == "{{resolve:secretsmanager::SecretString:::}}"
    assert secret["Ref"].startswith("OriginSecret")
    assert secret["Ref"] in dev.resources("AWS::SecretsManager::Secret")


# Behaviours


@pytest.mark.parametrize(
    ("variant", "access", "ds_path", "wait"),
    [("dev", "closed", "/ds", 25), ("afar", "closed", "/rooms", 116), ("bare", "open", "", 20)],
)
def test_edge_and_functions_have_the_same_mounts_and_wait(
    request: pytest.FixtureRequest, variant: str, access: str, ds_path: str, wait: int
) -> None:
    stacks: Stacks = request.getfixturevalue(variant)
    patterns = {behavior["PathPattern"] for behavior in behaviors(stacks)[1:]}
    streams = {f"{prefix}*" for prefix in StreamUrls(ds_path).prefixes}
    assert patterns - {Settings().cable_path} == streams
    sse = "shared" if variant == "afar" else "held"
    deployed = viewer_function(stacks, "Request")["FunctionCode"]
    assert deployed == request_code(access, ds_path, wait, sse)
    assert variables(stacks, "live")["TAILRACE_SSE_SHARED"] == str(sse == "shared").lower()
    for name in ("http", "wait", "live"):
        assert variables(stacks, name)["TAILRACE_DS_PATH"] == ds_path
    for name in ("wait", "live") if sse == "shared" else ("wait",):
        for setting in ("LONG_POLL_TIMEOUT", "CURSOR_INTERVAL"):
            assert variables(stacks, name)[f"TAILRACE_{setting}"] == str(wait)
    if sse == "held":
        assert "TAILRACE_CURSOR_INTERVAL" not in variables(stacks, "live")


def viewer_function(stacks: Stacks, event: str) -> Resource:
    """The CloudFront function of viewer requests or responses."""
    (found,) = (
        function
        for name, function in stacks.resources("AWS::CloudFront::Function").items()
        if f"Viewer{event}" in name
    )
    return found


def test_every_request_passes_a_viewer_function_and_responses_of_streams_another(
    dev: Stacks,
) -> None:
    for behavior in behaviors(dev):
        is_stream = behavior.get("PathPattern") in ("/v1/stream/*", "/ds/*")
        events = ["viewer-request", "viewer-response"] if is_stream else ["viewer-request"]
        associations = behavior["FunctionAssociations"]
        assert [each["EventType"] for each in associations] == events
        for each in associations:
            function = each["FunctionARN"]["Fn::GetAtt"][0]
            assert each["EventType"].title().replace("-", "") in function


def test_every_method_is_forwarded(dev: Stacks) -> None:
    for behavior in behaviors(dev)[:-1]:
        assert set(METHODS.split(", ")) <= set(behavior["AllowedMethods"])
        assert behavior["CachedMethods"] == ["GET", "HEAD"]
        assert behavior["TargetOriginId"] == "http"


def test_websocket_requests_reach_the_stage_unchanged(dev: Stacks) -> None:
    *others, behavior = behaviors(dev)
    stage = dev.only("AWS::ApiGatewayV2::Stage")["StageName"]
    assert behavior["PathPattern"] == f"/{stage}"
    assert behavior["TargetOriginId"] == "cable"
    assert behavior["CachePolicyId"] == CACHING_DISABLED
    assert behavior["OriginRequestPolicyId"] == others[0]["OriginRequestPolicyId"]
    assert behavior["AllowedMethods"] == ["GET", "HEAD"]
    # Nothing is added to an answer that is not one.
    assert "ResponseHeadersPolicyId" not in behavior
    assert behavior["Compress"] is False


def test_the_origin_of_websockets_is_their_api(dev: Stacks, afar: Stacks) -> None:
    def host(stacks: Stacks) -> list[Any]:
        joined: list[Any] = origins(stacks)["cable"]["DomainName"]["Fn::Join"][1]
        return joined

    api, region, suffix = ({"Ref": name} for name in ("CableApi", "AWS::Region", "AWS::URLSuffix"))
    assert host(dev) == [api, ".execute-api.", region, ".", suffix]
    assert host(afar) == [api, ".execute-api.eu-west-3.", suffix]


@pytest.mark.parametrize("variant", ["dev", "afar", "bare"])
def test_the_viewer_functions_fit(request: pytest.FixtureRequest, variant: str) -> None:
    functions = request.getfixturevalue(variant).resources("AWS::CloudFront::Function")
    assert len(functions) == (2 if variant == "bare" else 3)
    for function in functions.values():
        assert len(function["FunctionCode"].encode()) <= MAX_BYTES
        assert function["FunctionConfig"]["Runtime"] == "cloudfront-js-2.0"
        assert function["AutoPublish"] is True


def test_the_viewer_response_function_is_deployed_as_it_is(dev: Stacks) -> None:
    assert viewer_function(dev, "Response")["FunctionCode"] == response_code()


def test_every_behavior_requires_https(dev: Stacks) -> None:
    default, *others = behaviors(dev)
    assert default["ViewerProtocolPolicy"] == "redirect-to-https"
    assert [behavior["ViewerProtocolPolicy"] for behavior in others] == ["https-only"] * 3


def test_the_cache_key_of_streams_has_the_query_and_the_reader_header(dev: Stacks) -> None:
    config = policy(dev, "CachePolicy", stream_behavior(dev)["CachePolicyId"])
    assert config["ParametersInCacheKeyAndForwardedToOrigin"] == {
        "CookiesConfig": {"CookieBehavior": "none"},
        "EnableAcceptEncodingBrotli": True,
        "EnableAcceptEncodingGzip": True,
        "HeadersConfig": {"HeaderBehavior": "whitelist", "Headers": ["x-tailrace-reader"]},
        "QueryStringsConfig": {
            "QueryStringBehavior": "whitelist",
            "QueryStrings": ["offset", "last", "since", "live", "cursor"],
        },
    }


def test_cache_lifetime_follows_cache_control(dev: Stacks) -> None:
    config = policy(dev, "CachePolicy", stream_behavior(dev)["CachePolicyId"])
    assert (config["MinTTL"], config["DefaultTTL"]) == (0, 0)
    assert config["MaxTTL"] == 365 * 86_400


def test_other_responses_are_not_cached(dev: Stacks) -> None:
    assert dev.distribution["DefaultCacheBehavior"]["CachePolicyId"] == CACHING_DISABLED


@pytest.mark.parametrize(("index", "query"), [(0, "all"), (1, "none")])
def test_functions_get_every_header_but_two_and_no_cookie(
    dev: Stacks, index: int, query: str
) -> None:
    reference = behaviors(dev)[index]["OriginRequestPolicyId"]
    config = policy(dev, "OriginRequestPolicy", reference)
    assert config["HeadersConfig"] == {
        "HeaderBehavior": "allExcept",
        "Headers": ["host", "x-tailrace-cursor"],
    }
    assert config["CookiesConfig"] == {"CookieBehavior": "none"}
    assert config["QueryStringsConfig"] == {"QueryStringBehavior": query}


def test_a_stage_can_be_in_two_regions(dev: Stacks) -> None:
    for kind in ("CachePolicy", "OriginRequestPolicy", "ResponseHeadersPolicy"):
        for properties in dev.resources(f"AWS::CloudFront::{kind}").values():
            assert {"Ref": "AWS::Region"} in properties[f"{kind}Config"]["Name"]["Fn::Join"][1]


# Answers


def test_all_origins_are_allowed_by_default(dev: Stacks) -> None:
    default, streams, second, _ = (
        each.get("ResponseHeadersPolicyId", {}) for each in behaviors(dev)
    )
    assert streams == second
    cors = policy(dev, "ResponseHeadersPolicy", streams)["CorsConfig"]
    assert cors == policy(dev, "ResponseHeadersPolicy", default)["CorsConfig"]
    assert cors["AccessControlAllowOrigins"]["Items"] == ["*"]
    assert cors["AccessControlAllowMethods"]["Items"] == METHODS.split(", ")
    assert cors["AccessControlAllowHeaders"]["Items"] == list(ALLOWED_HEADERS)
    assert cors["AccessControlExposeHeaders"]["Items"] == list(RESPONSE_HEADERS)
    assert cors["AccessControlAllowCredentials"] is False
    assert (b"access-control-max-age", b"%d" % cors["AccessControlMaxAgeSec"]) in PREFLIGHT_HEADERS


def test_pages_of_some_sites_only_may_use_streams_and_send_credentials(
    afar: Stacks,
) -> None:
    reference = stream_behavior(afar)["ResponseHeadersPolicyId"]
    cors = policy(afar, "ResponseHeadersPolicy", reference)["CorsConfig"]
    assert cors["AccessControlAllowOrigins"]["Items"] == [
        "https://app.example.org",
        "http://*.staff.example.org",
        "https://*.staff.example.org",
    ]
    assert cors["AccessControlAllowCredentials"] is True


def test_answers_have_the_headers_that_browsers_are_careful_by(dev: Stacks) -> None:
    reference = stream_behavior(dev)["ResponseHeadersPolicyId"]
    security = policy(dev, "ResponseHeadersPolicy", reference)["SecurityHeadersConfig"]
    assert security["ContentTypeOptions"] == {"Override": True}
    assert security["StrictTransportSecurity"]["AccessControlMaxAgeSec"] == 365 * 86_400
    assert security["FrameOptions"]["FrameOption"] == "DENY"
    assert security["ReferrerPolicy"]["ReferrerPolicy"] == "no-referrer"


def test_only_responses_of_streams_say_when_to_try_again(dev: Stacks) -> None:
    default, streams, *_ = (each.get("ResponseHeadersPolicyId", {}) for each in behaviors(dev))
    config = policy(dev, "ResponseHeadersPolicy", streams)
    (header,) = config["CustomHeadersConfig"]["Items"]
    assert header == {"Header": "Retry-After", "Value": "5", "Override": False}
    assert "CustomHeadersConfig" not in policy(dev, "ResponseHeadersPolicy", default)
    assert "delete headers['retry-after']" in response_code()


def test_errors_are_not_cached(dev: Stacks) -> None:
    kept = {
        response["ErrorCode"]: response["ErrorCachingMinTTL"]
        for response in dev.distribution["CustomErrorResponses"]
    }
    assert kept == dict.fromkeys([404, 405, 414, 500, 501, 502, 503, 504], 0)


def test_responses_have_cache_tags(dev: Stacks) -> None:
    assert dev.distribution["CacheTagConfig"] == {"HeaderName": "cache-tag"}


# The rest


def test_the_distribution_supports_http3_and_ipv6(dev: Stacks) -> None:
    assert dev.distribution["HttpVersion"] == "http2and3"
    assert dev.distribution["IPV6Enabled"] is True


def test_the_price_class_depends_on_the_stage(dev: Stacks, prod: Stacks) -> None:
    assert dev.distribution["PriceClass"] == "PriceClass_100"
    assert prod.distribution["PriceClass"] == "PriceClass_All"


def test_a_custom_domain_uses_its_certificate(dev: Stacks, afar: Stacks) -> None:
    assert "Aliases" not in dev.distribution
    assert afar.distribution["Aliases"] == ["streams.example.org"]
    assert afar.distribution["ViewerCertificate"] == {
        "AcmCertificateArn": "arn:aws:acm:us-east-1:123456789012:certificate/0a1b",
        "MinimumProtocolVersion": "TLSv1.2_2021",
        "SslSupportMethod": "sni-only",
    }


def test_only_prod_pays_for_more_metrics(dev: Stacks, prod: Stacks) -> None:
    assert not dev.resources("AWS::CloudFront::MonitoringSubscription")
    assert prod.resources("AWS::CloudFront::MonitoringSubscription")
