"""What is turned away before CloudFront looks at it: too many requests, or strangers."""

from __future__ import annotations

import ipaddress
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_wafv2 as waf
from constructs import Construct

from infra.stage import Plan

WINDOW_SECONDS: Final = 60
"""The shortest that AWS offers: who was too fast may soon go on."""

SCOPE: Final = "CLOUDFRONT"

TOO_MANY: Final = 429
"""What clients of the protocol know to wait after; AWS would say 403."""


class Firewall(cdk.Stack):
    """In CloudFront's own region, wherever the service is."""

    def __init__(self, scope: Construct, *, plan: Plan) -> None:
        super().__init__(
            scope,
            f"{plan.name}-firewall",
            env=plan.edge_environment,
            cross_region_references=not plan.at_the_edge,
            description="Tailrace: the firewall of the distribution",
        )
        guests = self._guests(plan.addresses)
        self.acl = waf.CfnWebACL(
            self,
            "Firewall",
            scope=SCOPE,
            default_action=waf.CfnWebACL.DefaultActionProperty(
                **({"block": {}} if guests else {"allow": {}})
            ),
            rules=[_rate_rule(plan.rate_limit), *guests],
            visibility_config=_visible("firewall"),
        )

    def _guests(self, addresses: tuple[str, ...]) -> list[waf.CfnWebACL.RuleProperty]:
        """One rule for each kind of address that may come in."""
        rules = []
        for version in (4, 6):
            known = [each for each in addresses if ipaddress.ip_network(each).version == version]
            if not known:
                continue
            guests = waf.CfnIPSet(
                self,
                f"Guests{version}",
                scope=SCOPE,
                ip_address_version=f"IPV{version}",
                addresses=known,
            )
            rules.append(
                _rule(
                    f"guests-{version}",
                    waf.CfnWebACL.StatementProperty(
                        ip_set_reference_statement={"arn": guests.attr_arn}
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
        visibility_config=_visible(name),
    )


def _visible(name: str) -> waf.CfnWebACL.VisibilityConfigProperty:
    return waf.CfnWebACL.VisibilityConfigProperty(
        cloud_watch_metrics_enabled=True, metric_name=name, sampled_requests_enabled=True
    )
