"""The parts that transactions are made of, each with its condition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailrace.aws.client.failures import Item
from tailrace.log.state import Entry, Fork, Stream
from tailrace.segments.reader import Manifest
from tailrace.store.dynamodb import layout
from tailrace.store.dynamodb.chain import Chain
from tailrace.store.dynamodb.table import ABSENT, Action


def put_new(item: Item) -> Action:
    return {
        "Put": {
            "Item": item,
            "ConditionExpression": ABSENT,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    }


def release_name(chain: Chain) -> Action:
    """Free a name, or mark it as kept for forks: as long as it is as the chain knows it.

    A stream with a TTL must not have been used since, for it may be dropped because it expired."""
    values: dict[str, Any] = {
        ":i": layout.text(layout.id_text(chain.stream.id)),
        ":v": layout.number(chain.forked),
    }
    condition = "i = :i AND attribute_not_exists(x) AND "
    condition += "v = :v" if chain.forked else "(attribute_not_exists(v) OR v = :v)"
    if chain.stream.config.ttl is not None:
        condition += " AND a <= :a"
        values[":a"] = layout.number(chain.stored)
    action: dict[str, Any] = {
        "Key": layout.name_key(chain.stream.path),
        "ConditionExpression": condition,
        "ExpressionAttributeValues": values,
    }
    if not chain.forked:
        return {"Delete": action}
    values[":x"] = layout.number(chain.state.slot)
    return {"Update": {**action, "UpdateExpression": "SET x = :x REMOVE g, d"}}


def spill(chain: int, entry: Entry) -> Sequence[Action]:
    """Producers that leave the state with an entry."""
    return [
        {
            "Put": {
                "Item": {
                    **layout.producer_key(chain, producer),
                    "e": layout.number(epoch),
                    "q": layout.number(seq),
                }
            }
        }
        for producer, (epoch, seq) in entry.spill.items()
    ]


def add_edge(fork: Fork, chain: int, earliest: int) -> Sequence[Action]:
    """A fork needs its source from the slot `earliest` on: an edge between them, and one more in
    the source's name.

    Forking a stream and deleting it exclude each other, for both change its name item. The number
    there is that of the edges, for both change together or not at all. Nor does retention move
    what a fork counts on."""
    condition = " AND attribute_not_exists(x) AND (attribute_not_exists(m) OR m <= :m)"
    return [
        {"Put": {"Item": layout.edge_key(fork.parent, chain), "ConditionExpression": ABSENT}},
        _count_forks(fork, 1, condition, {":m": layout.number(earliest)}),
    ]


def remove_edge(fork: Fork, chain: int) -> Sequence[Action]:
    key = layout.edge_key(fork.parent, chain)
    return [
        {"Delete": {"Key": key, "ConditionExpression": "attribute_exists(p)"}},
        _count_forks(fork, -1),
    ]


def _count_forks(
    fork: Fork, change: int, condition: str = "", values: Item | None = None
) -> Action:
    return {
        "Update": {
            "Key": layout.name_key(fork.source),
            "UpdateExpression": "ADD v :change",
            "ConditionExpression": f"i = :i{condition}",
            "ExpressionAttributeValues": {
                ":change": layout.number(change),
                ":i": layout.text(layout.id_text(fork.parent)),
                **(values or {}),
            },
        }
    }


def take_body(key: str) -> Action:
    """The entry takes a large body: its claim ends, if it was not revoked."""
    return {
        "Delete": {
            "Key": layout.claim_key(key),
            "ConditionExpression": "attribute_exists(p) AND attribute_not_exists(x)",
        }
    }


def free_soft_name(name: Item) -> Action:
    """Free a name that was kept for forks, when there are none any more."""
    return {
        "Delete": {
            "Key": layout.key_of(name),
            "ConditionExpression": "i = :i AND attribute_exists(x) AND v = :zero",
            "ExpressionAttributeValues": {":i": name["i"], ":zero": layout.number(0)},
        }
    }


def mark_due(chain: int, slot: int, at: int) -> Action:
    """From now on a tombstone says when its chain may go."""
    key = layout.slot_key(chain, slot)
    marks = layout.due(layout.CHAINS_DUE, key, at)
    return {
        "Update": {
            "Key": key,
            "UpdateExpression": "SET g = :g, d = :d",
            "ConditionExpression": "attribute_exists(p)",
            "ExpressionAttributeValues": {":g": marks["g"], ":d": marks["d"]},
        }
    }


def claim(key: str, due: int) -> Action:
    """An object that nothing names, or soon will: it is swept when due."""
    item: dict[str, Any] = {**layout.claim_key(key)}
    item |= layout.due(layout.CLAIMS_DUE, item, due)
    return {"Put": {"Item": item}}


def advance(stream: Stream, pointer: str, old: int, new: int, *, absent: int | None) -> Action:
    """Move a pointer of a name from one slot to the next; `absent`: what none at all means."""
    condition = f"i = :i AND ({pointer} = :old"
    if absent == old:
        condition += f" OR attribute_not_exists({pointer})"
    return {
        "Update": {
            "Key": layout.name_key(stream.path),
            "UpdateExpression": f"SET {pointer} = :new",
            "ConditionExpression": f"{condition})",
            "ExpressionAttributeValues": {
                ":i": layout.text(layout.id_text(stream.id)),
                ":old": layout.number(old),
                ":new": layout.number(new),
            },
        }
    }


def replace_segment(old: Manifest, item: Item) -> Action:
    return {
        "Put": {
            "Item": item,
            **_same_object(old),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    }


def remove_segment(old: Manifest) -> Action:
    return {"Delete": {"Key": layout.segment_key(old.chain, old.first), **_same_object(old)}}


def _same_object(old: Manifest) -> dict[str, Any]:
    return {
        "ConditionExpression": "k = :k",
        "ExpressionAttributeValues": {":k": layout.text(old.key)},
    }
