"""The items of cables, in and out of the table; `store.dynamo.layout` says what each is."""

from __future__ import annotations

import hashlib
from typing import Any, Final, NamedTuple

from tailrace.aws.client.failures import Item
from tailrace.limits import CABLE_SHARDS
from tailrace.log.content import Mode
from tailrace.protocols.action_cable.core.channels import Subscription
from tailrace.store.dynamodb.layout import Key, id_text, number, shard_of, text

CONNECTIONS_DUE: Final = "k"
"""Partition of the index `due` for connections that are gone."""

HEARTBEAT: Final[Key] = {"p": text("X"), "s": text("heartbeat")}

_WHISPERS, _PRESENCE = 1, 2


class Connection(NamedTuple):
    """Somebody who is, or was, connected."""

    id: str
    identity: str
    at: int
    """When it began, in milliseconds."""
    interval: float
    """Seconds between two pings."""
    unit: str
    """Of the time in a ping."""
    left: int | None = None
    """When it was gone, in milliseconds."""
    resumed: bool = False
    """Whether another one has taken its place."""
    expires: int | None = None
    """When its client's token ends, in milliseconds."""


class Listener(NamedTuple):
    """A subscription, as those see it who have something to tell there."""

    connection: str
    subscription: Subscription
    chain: int | None = None
    """The incarnation that it was at; None: there was no stream."""
    slot: int | None = None
    """The first slot of that which it does not have; None: it still reads for itself, and only
    hears what is in no stream."""


class Room(NamedTuple):
    """How far an incarnation has been delivered to those who listen."""

    chain: int
    path: str
    mode: Mode
    slot: int
    """The slot that is delivered next."""
    joined: int
    """How often somebody began to listen: a room that nobody joins meanwhile can go."""
    by: str | None
    """The delivery that is under way."""
    until: int
    """When that one is over, or has failed, in milliseconds."""


# Keys


def digest(words: str) -> str:
    """Of an identifier, or of an identity: both may be longer than a key."""
    return hashlib.sha256(words.encode()).hexdigest()[:32]


def connection_key(connection: str) -> Key:
    return _key(f"K{shard_of(connection) % CABLE_SHARDS:x}", connection)


def connection_partitions() -> list[str]:
    return [f"K{shard:x}" for shard in range(CABLE_SHARDS)]


def wish_partition(connection: str) -> str:
    return f"U{connection}"


def wish_key(connection: str, identifier: str) -> Key:
    return _key(wish_partition(connection), digest(identifier))


def listener_partition(path: str) -> str:
    return f"L{path}"


def listener_key(path: str, connection: str, identifier: str) -> Key:
    return _key(listener_partition(path), f"{connection} {digest(identifier)}")


def room_key(chain: int) -> Key:
    return _key(f"R{id_text(chain)}", ".")


def identity_partition(identity: str) -> str:
    return f"I{digest(identity)}"


def identity_key(identity: str, connection: str) -> Key:
    return _key(identity_partition(identity), connection)


def member_partition(path: str) -> str:
    return f"M{path}"


def member_key(path: str, member: str) -> Key:
    return _key(member_partition(path), digest(member))


# Items


def connection_item(connection: Connection) -> dict[str, Any]:
    expires = {} if connection.expires is None else {"e": number(connection.expires)}
    return {
        **expires,
        **connection_key(connection.id),
        "i": text(connection.identity),
        "a": number(connection.at),
        "q": number(int(connection.interval * 1000)),
        "f": text(connection.unit),
        "v": number(0),
    }


def connection_of(item: Item) -> Connection:
    return Connection(
        item["s"]["S"],
        item["i"]["S"],
        int(item["a"]["N"]),
        int(item["q"]["N"]) / 1000,
        item["f"]["S"],
        int(item["x"]["N"]) if "x" in item else None,
        "j" in item,
        int(item["e"]["N"]) if "e" in item else None,
    )


def wish_item(connection: str, subscription: Subscription, at: int) -> dict[str, Any]:
    return {
        **wish_key(connection, subscription.identifier),
        "i": text(subscription.identifier),
        "c": text(subscription.path),
        "a": number(at),
    }


def listener_item(listener: Listener) -> dict[str, Any]:
    """Of one that reads for itself."""
    known = listener.subscription
    return {
        **listener_key(known.path, listener.connection, known.identifier),
        "i": text(known.identifier),
        "c": text(known.stream),
        "v": number(_WHISPERS * known.whispers + _PRESENCE * known.presence),
    }


def listener_of(item: Item) -> Listener:
    allowed = int(item["v"]["N"])
    return Listener(
        item["s"]["S"].partition(" ")[0],
        Subscription(
            item["i"]["S"],
            item["c"]["S"],
            item["p"]["S"][1:],
            bool(allowed & _WHISPERS),
            bool(allowed & _PRESENCE),
        ),
        int(item["r"]["S"], 16) if "r" in item else None,
        int(item["n"]["N"]) if "n" in item else None,
    )


def room_item(chain: int, path: str, mode: Mode, slot: int) -> dict[str, Any]:
    return {
        **room_key(chain),
        "c": text(path),
        "k": text(mode.name),
        "n": number(slot),
        "v": number(0),
    }


def room_of(item: Item) -> Room:
    return Room(
        int(item["p"]["S"][1:], 16),
        item["c"]["S"],
        Mode[item["k"]["S"]],
        int(item["n"]["N"]),
        int(item["v"]["N"]),
        item["t"]["S"] if "t" in item else None,
        int(item["u"]["N"]) if "u" in item else 0,
    )


def _key(p: str, s: str) -> Key:
    return {"p": text(p), "s": text(s)}
