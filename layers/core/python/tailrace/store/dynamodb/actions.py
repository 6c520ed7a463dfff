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
        ":id": layout.text(layout.id_text(chain.stream.id)),
        ":forks": layout.number(chain.forked),
    }
    condition = "incarnation = :id AND attribute_not_exists(tombstone_slot) AND "
    same_forks = "fork_count = :forks"
    condition += (
        same_forks if chain.forked else f"(attribute_not_exists(fork_count) OR {same_forks})"
    )
    if chain.stream.config.ttl is not None:
        condition += " AND accessed_at <= :accessed"
        values[":accessed"] = layout.number(chain.stored)
    action: dict[str, Any] = {
        "Key": layout.name_key(chain.stream.path),
        "ConditionExpression": condition,
        "ExpressionAttributeValues": values,
    }
    if not chain.forked:
        return {"Delete": action}
    values[":slot"] = layout.number(chain.committed.slot)
    return {"Update": {**action, "UpdateExpression": "SET tombstone_slot = :slot REMOVE g, d"}}


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

    Forking a stream and deleting it exclude each other, since both change its name item. Edges and
    their number there change together or not at all. Retention does not remove slots of a stream
    that has forks."""
    condition = (
        " AND attribute_not_exists(tombstone_slot)"
        " AND (attribute_not_exists(retained_from) OR retained_from <= :earliest)"
    )
    return [
        {"Put": {"Item": layout.edge_key(fork.parent, chain), "ConditionExpression": ABSENT}},
        _count_forks(fork, 1, condition, {":earliest": layout.number(earliest)}),
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
            "UpdateExpression": "ADD fork_count :change",
            "ConditionExpression": f"incarnation = :id{condition}",
            "ExpressionAttributeValues": {
                ":change": layout.number(change),
                ":id": layout.text(layout.id_text(fork.parent)),
                **(values or {}),
            },
        }
    }


def end_upload_intent(key: str) -> Action:
    """End the intent of an upload, in the transaction of the entry that names the object.

    It fails if the sweep has revoked the intent: then the object is being removed."""
    return {
        "Delete": {
            "Key": layout.upload_intent_key(key),
            "ConditionExpression": "attribute_exists(p) AND attribute_not_exists(revoked)",
        }
    }


def expired_name(name: Item) -> tuple[str, dict[str, Any]]:
    """The condition that a name is still as it was, and without forks; and its values."""
    condition = (
        "incarnation = :id AND accessed_at = :accessed AND attribute_not_exists(tombstone_slot)"
        " AND (attribute_not_exists(fork_count) OR fork_count = :zero)"
    )
    values = {
        ":id": name["incarnation"],
        ":accessed": name["accessed_at"],
        ":zero": layout.number(0),
    }
    return condition, values


def free_soft_name(name: Item) -> Action:
    """Free a name that was kept for forks, when there are none any more."""
    return {
        "Delete": {
            "Key": layout.key_of(name),
            "ConditionExpression": (
                "incarnation = :id AND attribute_exists(tombstone_slot) AND fork_count = :zero"
            ),
            "ExpressionAttributeValues": {":id": name["incarnation"], ":zero": layout.number(0)},
        }
    }


def mark_due(chain: int, slot: int, at: int) -> Action:
    """Note in a tombstone when its chain may be erased."""
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


def put_upload_intent(key: str, due: int) -> Action:
    """Have the sweep remove an object when it is due, unless an entry names it by then."""
    item: dict[str, Any] = {**layout.upload_intent_key(key)}
    item |= layout.due(layout.UPLOADS_DUE, item, due)
    return {"Put": {"Item": item}}


def advance(stream: Stream, pointer: str, old: int, new: int, *, absent: int | None) -> Action:
    """Move a pointer of a name from one slot to another; a missing one means `absent`."""
    condition = f"incarnation = :id AND ({pointer} = :old"
    if absent == old:
        condition += f" OR attribute_not_exists({pointer})"
    return {
        "Update": {
            "Key": layout.name_key(stream.path),
            "UpdateExpression": f"SET {pointer} = :new",
            "ConditionExpression": f"{condition})",
            "ExpressionAttributeValues": {
                ":id": layout.text(layout.id_text(stream.id)),
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
        "ConditionExpression": "object_key = :key",
        "ExpressionAttributeValues": {":key": layout.text(old.key)},
    }
