"""The stack of the firewall: limits per address, and an optional list of addresses.

An office is one address. A hundred of its readers that wait for one write a second make 6,000
requests a minute, which cost the service one request to a function each second. So reads that the
edge can share have a high limit of their own, `read_limit`.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final

import aws_cdk as cdk
from aws_cdk import aws_wafv2 as waf
from constructs import Construct

from infra.stage import Plan
from tailrace.web.urls import StreamUrls

WINDOW_SECONDS: Final = 60
"""The shortest window that AWS offers, so that clients can soon continue."""

SCOPE: Final = "CLOUDFRONT"

TOO_MANY: Final = 429
"""Clients of the protocol retry later after 429; AWS's default is 403."""


MOMENTARY: Final = ("last=", "since=", "offset=now")
"""In the query of reads that are true only now, as `infra/edge/viewer_request.js` has it."""

HELD: Final = "live=sse"
"""In the query of a response that lasts, unless readers share it."""


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
            rules=[*_rate_rules(plan), *allowed],
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


def _rate_rules(plan: Plan) -> list[waf.CfnWebACL.RuleProperty]:
    unshared = {"notStatement": {"statement": _shared_read(plan)}}
    rules = [_rate_rule("rate", plan.rate_limit, 0, scope_down_statement=unshared)]
    if plan.read_limit is not None:
        rules.append(_rate_rule("reads", plan.read_limit, 1))
    return rules


def _shared_read(plan: Plan) -> dict[str, Any]:
    """A statement that matches reads whose response the edge can share."""
    mounts = StreamUrls(plan.ds_path).prefixes
    below = [_matches("uriPath", "STARTS_WITH", mount) for mount in mounts]
    own = MOMENTARY if plan.sse == "shared" else (HELD, *MOMENTARY)
    unshared = {
        "regexMatchStatement": {
            "fieldToMatch": {"queryString": {}},
            "regexString": f"(^|&)({'|'.join(own)})",
            "textTransformations": [{"priority": 0, "type": "URL_DECODE"}],
        }
    }
    parts = [
        _matches("method", "EXACTLY", "GET"),
        below[0] if len(below) == 1 else {"orStatement": {"statements": below}},
        {"notStatement": {"statement": unshared}},
    ]
    return {"andStatement": {"statements": parts}}


def _matches(field: str, how: str, text: str) -> dict[str, Any]:
    return {
        "byteMatchStatement": {
            "fieldToMatch": {field: {}},
            "positionalConstraint": how,
            "searchString": text,
            "textTransformations": [{"priority": 0, "type": "NONE"}],
        }
    }


def _rate_rule(name: str, limit: int, priority: int, **scope: Any) -> waf.CfnWebACL.RuleProperty:
    headers = {"retry-after": str(WINDOW_SECONDS), "access-control-allow-origin": "*"}
    return _rule(
        name,
        waf.CfnWebACL.StatementProperty(
            rate_based_statement=waf.CfnWebACL.RateBasedStatementProperty(
                aggregate_key_type="IP",
                limit=limit,
                evaluation_window_sec=WINDOW_SECONDS,
                **scope,
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
        priority=priority,
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
