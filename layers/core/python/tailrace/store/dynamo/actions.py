"""The parts that transactions are made of. Conditions are written here, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailrace.log.state import Entry, Fork
from tailrace.store.dynamo import layout
from tailrace.store.dynamo.chain import Chain
from tailrace.store.dynamo.failures import Item
from tailrace.store.dynamo.table import ABSENT, Action


def put_new(item: Item) -> Action:
    return {
        "Put": {
            "Item": item,
            "ConditionExpression": ABSENT,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    }


def note_fork(fork: Fork) -> Action:
    """Forking a stream and deleting it exclude each other: both change its name item."""
    return {
        "Update": {
            "Key": layout.name_key(fork.source),
            "UpdateExpression": "ADD v :one",
            "ConditionExpression": "i = :i AND attribute_not_exists(x)",
            "ExpressionAttributeValues": {
                ":one": layout.number(1),
                ":i": layout.text(f"{fork.parent:016x}"),
            },
        }
    }


def release_name(chain: Chain, *, soft: bool) -> Action:
    """Free a name, or mark it as kept for forks: as long as it is as the chain knows it.

    A stream with a TTL must not have been used since, for it may be dropped because it expired."""
    values: dict[str, Any] = {":i": layout.text(f"{chain.stream.id:016x}")}
    condition = "i = :i AND attribute_not_exists(x) AND "
    if chain.forked:
        condition += "v = :v"
        values[":v"] = layout.number(chain.forked)
    else:
        condition += "attribute_not_exists(v)"
    if chain.stream.config.ttl is not None:
        condition += " AND a <= :a"
        values[":a"] = layout.number(chain.stored)
    action: dict[str, Any] = {
        "Key": layout.name_key(chain.stream.path),
        "ConditionExpression": condition,
        "ExpressionAttributeValues": values,
    }
    if not soft:
        return {"Delete": action}
    values[":x"] = layout.number(chain.state.n)
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


def add_edge(fork: Fork, chain: int) -> Action:
    return {"Put": {"Item": layout.edge_key(fork.parent, chain)}}


def remove_edge(fork: Fork, chain: int) -> Action:
    return {"Delete": {"Key": layout.edge_key(fork.parent, chain)}}


def take_body(key: str) -> Action:
    """The entry takes a large body: its claim ends, if it was not revoked."""
    return {
        "Delete": {
            "Key": layout.claim_key(key),
            "ConditionExpression": "attribute_exists(p) AND attribute_not_exists(x)",
        }
    }


def free_soft_name(name: Item) -> Action:
    return {
        "Delete": {
            "Key": layout.key_of(name),
            "ConditionExpression": "i = :i AND attribute_exists(x)",
            "ExpressionAttributeValues": {":i": name["i"]},
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
