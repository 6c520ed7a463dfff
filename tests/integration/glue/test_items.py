"""Jobs scan the whole table, the items of cables included."""

from __future__ import annotations

from typing import Any

import pytest

from glue_jobs.shared import items as job_items
from glue_jobs.shared import metadata
from tailrace.log.content import Mode
from tailrace.log.state import Entry, State
from tailrace.protocols.action_cable.api_gateway import items
from tailrace.protocols.action_cable.api_gateway.items import ConnectionRecord, SubscriberRecord
from tailrace.protocols.action_cable.core.channels import Subscription
from tailrace.store.dynamodb.layout import entry_item, number, text, wait_permit_key

SUBSCRIPTION = Subscription('{"channel":"$pubsub"}', "chat/1", "chat/1", whispers=True)
LEASED = {"lease_owner": text("me"), "leased_until": number(5)}

KINDS: dict[str, dict[str, Any]] = {
    "connection": {
        **items.connection_item(ConnectionRecord("c", "ada", 1, 3.5, "ms")),
        "session_resumed": number(1),
        "disconnected_at": number(2),
        "g": text("k"),
        "d": number(3),
    },
    "identity": {**items.identity_key("ada", "c")},
    "subscription": {**items.subscription_item("c", SUBSCRIPTION, 1), "member_id": text("ada")},
    "subscriber": {
        **items.subscriber_item(SubscriberRecord("c", SUBSCRIPTION)),
        "next_slot": number(1),
        "incarnation": text("00ff"),
    },
    "cursor": {**items.cursor_item(255, "chat/1", Mode.JSON, 7), **LEASED},
    "member": {
        **items.member_key("chat/1", "ada"),
        "member_id": text("ada"),
        "member_info": text("{}"),
        "connection_ids": {"SS": ["c"]},
    },
    "lease": {
        **items.heartbeat_key(0),
        **LEASED,
        "pinged_until": number(4),
        "busy_percent": number(120),
        "part_count": number(2),
        "divided_at": number(3),
    },
    "wait permit": {
        **wait_permit_key(7),
        "permit_holder": text("me"),
        "held_until": number(5),
    },
    "entry": entry_item(255, Entry(0, b"1", State(1, 1, 1, 1), note='[["c",null]]'), "a", None),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_item_can_be_read(kind: str) -> None:
    item = KINDS[kind]
    row = job_items._row(item)
    assert (row["p"], row["s"]) == (item["p"]["S"], item["s"]["S"])
    assert metadata._row(item, checksums=True)["kind"] == item["p"]["S"][0]
