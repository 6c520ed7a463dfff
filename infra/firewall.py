"""The stack of the firewall: a rate limit per address, and an optional list of addresses."""

from __future__ import annotations

import ipaddress
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_wafv2 as waf
from constructs import Construct

from infra.stage import Plan

WINDOW_SECONDS: Final = 60
"""The shortest window that AWS offers, so that clients can soon continue."""

SCOPE: Final = "CLOUDFRONT"

TOO_MANY: Final = 429
"""Clients of the protocol retry later after 429; AWS's default is 403."""


class FirewallStack(cdk.Stack):
    """Deployed to CloudFront's region, wherever the service is."""

    def __init__(self, scope: Construct, *, plan: Plan) -> None:
        super().__init__(
            scope,
            f"{plan.name}-firewall",
            env=plan.edge_environment,
            cross_region_references=not plan.at_the_edge,
            description="Tailrace: the firewall of the distribution",
        )
        allowed = self._address_rules(plan.addresses)
        self.acl = waf.CfnWebACL(
            self,
            "Firewall",
            scope=SCOPE,
            default_action=waf.CfnWebACL.DefaultActionProperty(
                **({"block": {}} if allowed else {"allow": {}})
            ),
            rules=[_rate_rule(plan.rate_limit), *allowed],
            visibility_config=_visibility("firewall"),
        )

    def _address_rules(self, addresses: tuple[str, ...]) -> list[waf.CfnWebACL.RuleProperty]:
        """One rule for the allowed addresses of each IP version."""
        rules = []
        for version in (4, 6):
            of_version = [
                each for each in addresses if ipaddress.ip_network(each).version == version
            ]
            if not of_version:
                continue
            ip_set = waf.CfnIPSet(
                self,
                f"Guests{version}",
                scope=SCOPE,
                ip_address_version=f"IPV{version}",
                addresses=of_version,
            )
            rules.append(
                _rule(
                    f"guests-{version}",
                    waf.CfnWebACL.StatementProperty(
                        ip_set_reference_statement={"arn": ip_set.attr_arn}
                    ),
                    waf.CfnWebACL.RuleActionProperty(allow={}),
                    priority=version,
                )
            )
        return rules


def _rate_rule(limit: int) -> waf.CfnWebACL.RuleProperty:
    headers = {"retry-after": str(WINDOW_SECONDS), "access-control-allow-origin": "*"}
    return _rule(
        "rate",
        waf.CfnWebACL.StatementProperty(
            rate_based_statement=waf.CfnWebACL.RateBasedStatementProperty(
                aggregate_key_type="IP", limit=limit, evaluation_window_sec=WINDOW_SECONDS
            )
        ),
        waf.CfnWebACL.RuleActionProperty(
            block=waf.CfnWebACL.BlockActionProperty(
                custom_response=waf.CfnWebACL.CustomResponseProperty(
                    response_code=TOO_MANY,
                    response_headers=[
                        waf.CfnWebACL.CustomHTTPHeaderProperty(name=name, value=value)
                        for name, value in headers.items()
                    ],
                )
            )
        ),
        priority=0,
    )


def _rule(
    name: str,
    statement: waf.CfnWebACL.StatementProperty,
    action: waf.CfnWebACL.RuleActionProperty,
    *,
    priority: int,
) -> waf.CfnWebACL.RuleProperty:
    return waf.CfnWebACL.RuleProperty(
        name=name,
        priority=priority,
        statement=statement,
        action=action,
        visibility_config=_visibility(name),
    )


def _visibility(name: str) -> waf.CfnWebACL.VisibilityConfigProperty:
    return waf.CfnWebACL.VisibilityConfigProperty(
        cloud_watch_metrics_enabled=True, metric_name=name, sampled_requests_enabled=True
    )
