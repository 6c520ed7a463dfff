"""Jobs read the whole table, and in it those who listen on cables."""

from __future__ import annotations

from typing import Any

import pytest

from glue_jobs.shared import items as job_items
from glue_jobs.shared import metadata
from tailrace.log.content import Mode
from tailrace.log.state import Entry, State
from tailrace.protocols.action_cable.api_gateway import items
from tailrace.protocols.action_cable.api_gateway.items import Connection, Listener
from tailrace.protocols.action_cable.core.channels import Subscription
from tailrace.store.dynamodb.layout import entry_item, number, text

SUBSCRIPTION = Subscription('{"channel":"$pubsub"}', "chat/1", "chat/1", whispers=True)
HELD = {"t": text("me"), "u": number(5)}

KINDS: dict[str, dict[str, Any]] = {
    "connection": {
        **items.connection_item(Connection("c", "ada", 1, 3.5, "ms")),
        "j": number(1),
        "x": number(2),
        "g": text("k"),
        "d": number(3),
    },
    "identity": {**items.identity_key("ada", "c")},
    "subscription": {**items.wish_item("c", SUBSCRIPTION, 1), "k": text("ada")},
    "listener": {
        **items.listener_item(Listener("c", SUBSCRIPTION)),
        "n": number(1),
        "r": text("00ff"),
    },
    "room": {**items.room_item(255, "chat/1", Mode.JSON, 7), **HELD},
    "member": {
        **items.member_key("chat/1", "ada"),
        "c": text("ada"),
        "i": text("{}"),
        "t": {"SS": ["c"]},
    },
    "lease": {**items.HEARTBEAT, **HELD},
    "entry": entry_item(255, Entry(0, b"1", State(1, 1, 1, 1), note='[["c",null]]'), "a", None),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_item_can_be_read(kind: str) -> None:
    item = KINDS[kind]
    row = job_items._row(item)
    assert (row["p"], row["s"]) == (item["p"]["S"], item["s"]["S"])
    assert metadata._row(item, checksums=True)["kind"] == item["p"]["S"][0]
