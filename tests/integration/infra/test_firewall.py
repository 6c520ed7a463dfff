"""The firewall: who is turned away before anything else happens."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest

from tests.integration.infra.stacks import Resource, Stacks

ACL = "AWS::WAFv2::WebACL"


def limits(stacks: Stacks) -> dict[str, Resource]:
    """The rate rules by name."""
    rules = stacks.only(ACL)["Rules"]
    return {rule["Name"]: rule for rule in rules if "RateBasedStatement" in rule["Statement"]}


def test_requests_over_a_limit_get_429(dev: Stacks) -> None:
    rules = limits(dev)
    for name, limit in (("rate", 6000), ("reads", 200_000)):
        answer = rules[name]["Action"]["Block"]["CustomResponse"]
        headers = {header["Name"]: header["Value"] for header in answer["ResponseHeaders"]}
        statement = {**rules[name]["Statement"]["RateBasedStatement"]}
        assert (statement.pop("ScopeDownStatement", None) is None) == (name == "reads")
        assert statement == {"AggregateKeyType": "IP", "EvaluationWindowSec": 60, "Limit": limit}
        assert answer["ResponseCode"] == 429
        assert headers == {"retry-after": "60", "access-control-allow-origin": "*"}


def holds(statement: Resource, method: str, uri: str, query: str) -> bool:
    """Whether a statement of the firewall matches a request."""
    ((kind, rule),) = statement.items()
    if kind == "NotStatement":
        return not holds(rule["Statement"], method, uri, query)
    if kind in ("AndStatement", "OrStatement"):
        parts = [holds(each, method, uri, query) for each in rule["Statements"]]
        return all(parts) if kind == "AndStatement" else any(parts)
    ((field, _),) = rule["FieldToMatch"].items()
    text = {"Method": method, "UriPath": uri, "QueryString": query}[field]
    if [each["Type"] for each in rule["TextTransformations"]] == ["URL_DECODE"]:
        text = unquote(text)
    if kind == "RegexMatchStatement":
        return re.search(rule["RegexString"], text) is not None
    if rule["PositionalConstraint"] == "STARTS_WITH":
        return text.startswith(rule["SearchString"])
    assert rule["PositionalConstraint"] == "EXACTLY"
    return bool(text == rule["SearchString"])


ROOM = "/v1/stream/chat/room"
POSITION = "offset=3141000000000001_0000000000000001"


def is_limited(stacks: Stacks, method: str, uri: str, query: str = "") -> bool:
    """Whether a request counts towards `rate_limit`."""
    rule = limits(stacks)["rate"]["Statement"]["RateBasedStatement"]
    return holds(rule["ScopeDownStatement"], method, uri, query)


@pytest.mark.parametrize("query", ["", POSITION, f"{POSITION}&live=long-poll&cursor=9", "signed=x"])
def test_reads_that_are_shared_are_not_limited(dev: Stacks, afar: Stacks, query: str) -> None:
    """A hundred readers in an office, at one write a second, are 6,000 requests a minute."""
    assert not is_limited(dev, "GET", ROOM, query)
    assert not is_limited(dev, "GET", "/ds/chat/room", query)
    assert not is_limited(afar, "GET", "/rooms/chat/room", query)
    assert is_limited(afar, "GET", "/ds/chat/room", query), "afar has another second mount"


@pytest.mark.parametrize(
    "query",
    ["live=sse", f"{POSITION}&live=sse", "live=%73se", "last=9", "x=1&since=2030", "offset=now"],
)
def test_reads_for_one_reader_are_limited(dev: Stacks, query: str) -> None:
    assert is_limited(dev, "GET", ROOM, query)


def test_events_that_readers_share_are_not_limited(dev: Stacks, afar: Stacks) -> None:
    assert is_limited(dev, "GET", ROOM, f"{POSITION}&live=sse")
    assert not is_limited(afar, "GET", ROOM, f"{POSITION}&live=sse"), "afar has sse=shared"


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "HEAD", "OPTIONS"])
def test_everything_but_reads_is_limited(dev: Stacks, method: str) -> None:
    assert is_limited(dev, method, ROOM)


@pytest.mark.parametrize("uri", ["/v1/stream", "/v1/read", "/cable", "/events", "/health"])
def test_other_paths_are_limited(dev: Stacks, uri: str) -> None:
    assert is_limited(dev, "GET", uri)


def test_the_limit_of_all_requests_can_be_left_out(afar: Stacks) -> None:
    assert limits(afar).keys() == {"rate"}


def test_requests_are_allowed_by_default(dev: Stacks) -> None:
    assert dev.only(ACL)["DefaultAction"] == {"Allow": {}}


def test_only_listed_addresses_are_allowed(afar: Stacks) -> None:
    acl = afar.only(ACL)
    sets = afar.resources("AWS::WAFv2::IPSet").values()
    assert acl["DefaultAction"] == {"Block": {}}
    assert [rule["Action"] for rule in acl["Rules"][1:]] == [{"Allow": {}}] * 2
    assert {found["IPAddressVersion"]: found["Addresses"] for found in sets} == {
        "IPV4": ["203.0.113.0/24"],
        "IPV6": ["2001:db8::/32"],
    }


def test_the_rate_limit_precedes_the_address_list(afar: Stacks) -> None:
    first = min(afar.only(ACL)["Rules"], key=lambda rule: int(rule["Priority"]))
    assert "RateBasedStatement" in first["Statement"]


def test_the_firewall_is_in_a_stack_of_its_own_for_cloudfront(dev: Stacks) -> None:
    (acl,) = (
        resource
        for resource in dev.templates["tailrace-dev-firewall"]["Resources"].values()
        if resource["Type"] == ACL
    )
    assert acl["Properties"]["Scope"] == "CLOUDFRONT"


def test_the_distribution_is_behind_the_firewall(dev: Stacks) -> None:
    imported = dev.distribution["WebACLId"]["Fn::ImportValue"]
    assert imported.startswith("tailrace-dev-firewall:")


def test_the_firewall_is_referenced_from_another_region(afar: Stacks) -> None:
    reader, name = afar.distribution["WebACLId"]["Fn::GetAtt"]
    assert reader in afar.resources("Custom::CrossRegionExportReader")
    assert "Firewall" in name


def test_it_can_be_left_out(bare: Stacks) -> None:
    assert bare.templates.keys() == {"tailrace-dev", "tailrace-dev-storage"}
    assert "WebACLId" not in bare.distribution
