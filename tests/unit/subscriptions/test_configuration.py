from __future__ import annotations

from typing import Any

import orjson
import pytest

from tailrace.errors import InvalidSubscription
from tailrace.limits import SUBSCRIPTION_STREAMS
from tailrace.protocols.subscriptions.core.configuration import (
    Configuration,
    follows,
    parse_configuration,
    parse_id,
)

WEBHOOK: dict[str, Any] = {
    "type": "webhook",
    "pattern": "events/*",
    "webhook": {"url": "https://hooks.example/in"},
}
PULL: dict[str, Any] = {"type": "pull-wake", "streams": ["a"], "wake_stream": "wakes"}


def parse(fields: object) -> Configuration:
    return parse_configuration(orjson.dumps(fields))


def test_a_configuration_has_a_normal_form() -> None:
    written = parse({**PULL, "streams": ["/b/", "a", "b", "%61", "é"], "wake_stream": "/wakes"})
    assert written.streams == ("%C3%A9", "a", "b")
    assert written.wake_stream == "wakes"
    assert written.lease_ttl_ms == 30_000
    again = parse({**PULL, "streams": ["é", "b", "a"], "lease_ttl_ms": 30_000})
    assert again == written
    assert again.digest() == written.digest()


@pytest.mark.parametrize(
    "change",
    [
        {"pattern": "events/**"},
        {"streams": ["a"]},
        {"webhook": {"url": "https://hooks.example/other"}},
        {"lease_ttl_ms": 1000},
        {"description": "other"},
    ],
)
def test_every_field_is_part_of_the_digest(change: dict[str, Any]) -> None:
    assert parse({**WEBHOOK, **change}).digest() != parse(WEBHOOK).digest()


@pytest.mark.parametrize(
    "fields",
    [
        [],
        "x",
        {},
        {**WEBHOOK, "type": "x"},
        {**WEBHOOK, "pattern": None},
        {**WEBHOOK, "pattern": ""},
        {**WEBHOOK, "pattern": 7},
        {**WEBHOOK, "pattern": "__ds/*"},
        {**WEBHOOK, "webhook": None},
        {**WEBHOOK, "webhook": {"url": 7}},
        {**WEBHOOK, "lease_ttl_ms": 999},
        {**WEBHOOK, "lease_ttl_ms": 600_001},
        {**WEBHOOK, "lease_ttl_ms": True},
        {**WEBHOOK, "lease_ttl_ms": "1000"},
        {**WEBHOOK, "description": 7},
        {**WEBHOOK, "description": "x" * 1025},
        {**WEBHOOK, "streams": "a"},
        {**WEBHOOK, "streams": [7]},
        {**WEBHOOK, "streams": []},
        {**WEBHOOK, "streams": ["a/../b"]},
        {**WEBHOOK, "streams": ["__ds/x"]},
        {**WEBHOOK, "streams": [str(each) for each in range(SUBSCRIPTION_STREAMS + 1)]},
        {**PULL, "wake_stream": None},
        {**PULL, "wake_stream": ""},
        {**PULL, "wake_stream": "a"},
        {**PULL, "streams": []},
    ],
)
def test_invalid_configurations_are_refused(fields: object) -> None:
    with pytest.raises(InvalidSubscription):
        parse(fields)


@pytest.mark.parametrize("text", ["", "x" * 257, "a\nb", "\0", ".", ".."])
def test_invalid_ids_are_refused(text: str) -> None:
    with pytest.raises(InvalidSubscription):
        parse_id(text)


def test_a_subscription_does_not_follow_its_own_wakes() -> None:
    assert follows("**", "wakes", "a")
    assert not follows("**", "wakes", "wakes")
    assert not follows(None, "wakes", "a")
