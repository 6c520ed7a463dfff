"""Subscriptions in the templates: what `webhooks` may reach, and the settings of all functions."""

from __future__ import annotations

import json

import pytest

from devtools.templates import CHECKED, VARIANTS
from scripts.package import LAYERS as FUNCTIONS
from tailrace.protocols.subscriptions import items
from tailrace.protocols.subscriptions.store import IndexedLink
from tests.integration.infra.conftest import stacks_of
from tests.integration.infra.stacks import Stacks
from tests.integration.infra.test_dispatch import wakes
from tests.integration.infra.test_functions import actions, variables
from tests.unit.subscriptions.test_wakes import PULL, held, waiting

LEADING = "ForAllValues:StringLike"


def test_webhooks_reaches_subscriptions_and_no_other_item(dev: Stacks) -> None:
    conditions = [
        each["Condition"][LEADING]["dynamodb:LeadingKeys"]
        for each in dev.statements("webhooks")
        if any(action.startswith("dynamodb:") for action in actions(each))
    ]
    assert conditions == [["YS*", "YL*", "YT"], ["y*"]]
    used = [
        items.subscription_key("s"),
        items.link_key("uid", "a"),
        items.news_key("uid", "a"),
        items.TIMER,
    ]
    assert {each["p"]["S"][:2] for each in used} == {"YS", "YL", "YT"}
    other = [
        items.follower_key(1, "uid"),
        items.interest_key("a", "s"),
        items.pattern_key("a", "u"),
    ]
    assert {each["p"]["S"][:2] for each in other} == {"YF", "YP", "YG"}
    assert {each[0] for each in items.due_partitions()} == {"y"}


def test_only_what_signs_or_verifies_may_read_the_keys(dev: Stacks) -> None:
    reading = {name for name in FUNCTIONS if "SubscriptionKeys" in json.dumps(dev.statements(name))}
    assert reading == {"http", "webhooks"}
    for name in reading:
        assert variables(dev, name)["TAILRACE_SUBSCRIPTION_KEYS"] == {
            "Fn::GetAtt": ["SubscriptionKeys", "Id"]
        }
    assert variables(dev, "dispatch")["TAILRACE_WEBHOOKS"] == {"Ref": "WebhooksFunction"}


@pytest.mark.parametrize("variant", CHECKED)
def test_no_deployment_sends_webhooks_to_its_own_machine(variant: str) -> None:
    stacks = stacks_of(variant)
    for function in stacks.resources("AWS::Lambda::Function").values():
        known = function.get("Environment", {}).get("Variables", {})
        assert known.get("TAILRACE_WEBHOOK_LOOPBACK", "false") == "false"
    assert not any("webhook_loopback" in switches for switches in VARIANTS.values())


def test_subscriptions_that_have_something_due_invoke_dispatch(dev: Stacks) -> None:
    for kind in ("INSERT", "MODIFY"):
        for record in (waiting(), held()):
            assert wakes(dev, "dispatch", items.subscription_item(record, "attempt"), kind)
        assert not wakes(dev, "dispatch", items.subscription_item(PULL, "attempt"), kind)
    assert not wakes(dev, "dispatch", items.subscription_item(waiting(), "attempt"), "REMOVE")
    follower = items.follower_item(7, IndexedLink("s", "uid", "a"))
    assert not wakes(dev, "dispatch", follower)
    assert not wakes(dev, "purge", items.subscription_item(waiting(), "attempt"))


def test_they_can_be_left_out(bare: Stacks) -> None:
    whole = json.dumps(bare.templates)
    for name in ("WebhooksFunction", "SubscriptionKeys", "SUBSCRIPTION_KEYS", "TAILRACE_WEBHOOKS"):
        assert name not in whole
