"""The firewall: who is turned away before anything else happens."""

from __future__ import annotations

from tests.integration.infra.stacks import Stacks

ACL = "AWS::WAFv2::WebACL"


def test_requests_over_the_rate_limit_get_429(dev: Stacks) -> None:
    (rule,) = dev.only(ACL)["Rules"]
    answer = rule["Action"]["Block"]["CustomResponse"]
    headers = {header["Name"]: header["Value"] for header in answer["ResponseHeaders"]}
    assert rule["Statement"]["RateBasedStatement"] == {
        "AggregateKeyType": "IP",
        "EvaluationWindowSec": 60,
        "Limit": 6000,
    }
    assert answer["ResponseCode"] == 429
    assert headers == {"retry-after": "60", "access-control-allow-origin": "*"}


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
