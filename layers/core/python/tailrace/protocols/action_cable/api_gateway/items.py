"""The items of cables: every kind, its key and attributes, and how records become items.

| kind         | p            | s                        | created by                     | removed by |
|--------------|--------------|--------------------------|--------------------------------|------------|
| connection   | `K` + shard  | connection               | $connect                       | the heartbeat, when its session can no longer be resumed |
| identity     | `I` + digest of the identity | connection | $connect                       | with the connection |
| subscription | `U` + connection | digest of the identifier | subscribe                  | unsubscribe, or with the connection |
| subscriber   | `L` + path   | bucket, connection, digest of the identifier | subscribe  | unsubscribe, or when the connection ends |
| cursor       | `R` + id     | `.`                      | the first subscriber to join, or creation of a stream that a subscriber waits for | the delivery that finds no subscriber |
| member       | `M` + path   | digest of the member's id | join                          | when its last connection leaves |
| lease        | `X`          | `heartbeat` and the part | the heartbeat of a part of the connections | the same, when it is not needed any more |

`id` is the incarnation in 16 hexadecimal digits, a bucket the digest of the connection in two. Times are in milliseconds.

| attribute            | type | of             | meaning | changed by |
|----------------------|------|----------------|---------|------------|
| `client_identity`    | S    | connection     | the identity that its token names, or an anonymous one | |
| `connected_at`       | N    | connection     | when it began | |
| `ping_interval`      | N    | connection     | milliseconds between two pings | |
| `time_unit`          | S    | connection     | of the time in its pings: s, ms or ns | |
| `subscription_count` | N    | connection     | how many subscriptions it has | each subscribe and unsubscribe |
| `expires_at`         | N    | connection     | when its token expires; absent: never | |
| `extended`           | N    | connection     | 1: its client speaks the extended protocol | |
| `session_resumed`    | N    | connection     | 1 after another connection has resumed its session | resuming |
| `disconnected_at`    | N    | connection     | when it ended; absent while it is connected | its end |
| `g`, `d`             | S, N | connection     | partition and time in the index `due`: when it began; after its end, when its presence or its session expires | its end, the heartbeat |
| `identifier`         | S    | subscription, subscriber | the identifier, as the client wrote it | |
| `path`               | S    | subscription, cursor | the path of the stream | |
| `subscribed_at`      | N    | subscription   | when the client sent the newest subscribe | a newer subscribe |
| `asks_history`       | N    | subscription   | 1: its subscribe asked for history | |
| `member_id`          | S    | subscription, member | the id under which the client is present | joining and leaving |
| `stream_name`        | S    | subscriber     | the stream's name on cables | |
| `permissions`        | N    | subscriber     | 1: whispers, 2: presence, 3: both | |
| `next_slot`          | N    | subscriber     | the first slot that deliveries send to it; absent until it has joined | joining, once; the first delivery of another incarnation |
| `next_slot`          | N    | cursor         | the next slot to deliver | acquiring or rolling back the lease |
| `incarnation`        | S    | subscriber     | the incarnation that `next_slot` belongs to; absent: it waits for the stream to be created | joining, once; the first delivery of another incarnation |
| `content_mode`       | S    | cursor         | how bodies are split into messages | |
| `passed_` + id       | N    | subscriber     | the slot up to which deliveries of an incarnation have passed it, before it joined | they; removed by joining |
| `removing`           | N    | cursor         | 1: the delivery that holds the lease is about to remove it | its holder |
| `audience`           | N    | cursor         | how many subscribers the last delivery had; absent: few | its holder |
| `taken_parts`        | SS   | cursor         | the parts of the delivery that functions have begun | they |
| `lease_owner`        | S    | cursor, lease  | random id of the holder of the lease; absent: no lease | its holder |
| `leased_until`       | N    | cursor, lease  | when the lease expires | its holder |
| `pinged_until`       | N    | lease          | up to which time the part has sent its pings | its holder |
| `busy_percent`       | N    | lease          | how busy its holder is, in percent | its holder |
| `part_count`         | N    | lease of part 0 | how many parts the connections are divided into; absent: one | its holder |
| `divided_at`         | N    | lease of part 0 | when that changed | its holder |
| `member_info`        | S    | member         | the info that the member joined with, as JSON | |
| `connection_ids`     | SS   | member         | the connections that it is present with | each join and leave |

No attribute is a reserved word of DynamoDB, so that expressions need no placeholders for names.
"""  # noqa: E501 - a table has the width it needs

from __future__ import annotations

import hashlib
import zlib
from typing import Any, Final, NamedTuple

from tailrace.aws.client.failures import Item
from tailrace.limits import GATEWAY_CONNECTION_SHARDS, GATEWAY_INDEX_SHARDS
from tailrace.log.content import Mode
from tailrace.protocols.action_cable.core.channels import Subscription
from tailrace.store.dynamodb.layout import Key, id_text, number, shard_of, text

LEASES: Final = "X"
"""Partition of the leases of heartbeats."""

_CONNECTED: Final = "o"
_ENDED: Final = "k"
"""Kinds of partitions of the index `due`."""

SUBSCRIBER_BUCKETS: Final = 256
"""Subscribers of a stream are ordered by buckets, of which each function serves some."""

_WHISPERS, _PRESENCE = 1, 2


class ConnectionRecord(NamedTuple):
    """A client that is connected, or was and may still resume its session."""

    id: str
    identity: str
    connected_at: int
    """In milliseconds."""
    ping_interval: float
    """Seconds between two pings."""
    time_unit: str
    """Unit of the time in a ping."""
    disconnected_at: int | None = None
    """When it ended, in milliseconds."""
    resumed: bool = False
    """Whether another connection has resumed its session."""
    expires_at: int | None = None
    """When its client's token expires, in milliseconds."""
    extended: bool = False
    """Whether its client speaks the extended protocol."""


class SubscriptionRecord(NamedTuple):
    """A subscription, as its connection keeps it."""

    identifier: str
    path: str
    member: str | None = None
    """The id under which the client is present."""
    asks_history: bool = False
    """Whether its subscribe asked for history."""


class SubscriberRecord(NamedTuple):
    """A subscription, as deliveries to its stream see it."""

    connection: str
    subscription: Subscription
    chain: int | None = None
    """The incarnation that `slot` belongs to; None: there was no stream when it joined."""
    slot: int | None = None
    """The first slot that deliveries send to it. None: it has not joined, reads the stream by
    itself, and gets transient messages only."""


class DeliveryCursor(NamedTuple):
    """Cursor of the next slot to deliver to the subscribers of an incarnation."""

    chain: int
    path: str
    mode: Mode
    slot: int
    """The next slot to deliver."""
    lease_owner: str | None
    """The delivery that is under way."""
    leased_until: int
    """When the lease of that delivery expires, in milliseconds."""
    audience: int = 0
    """How many subscribers the last delivery had, if they were many."""
    removing: bool = False
    """Whether the delivery that is under way is about to remove it."""


class HeartbeatPart(NamedTuple):
    """A part of the connections, and the heartbeat that serves it."""

    part: int
    owner: str | None
    leased_until: int
    """When the lease of its heartbeat expires, in milliseconds."""
    pinged_until: int
    """Up to which time its pings were sent, in milliseconds."""
    load: int
    """How busy its heartbeat is, in percent."""
    part_count: int
    """Of part 0: how many parts there are."""
    divided_at: int
    """Of part 0: when that changed, in milliseconds."""


# Keys


def digest(value: str) -> str:
    """Digest of an identifier or identity: both may be longer than a key may be."""
    return hashlib.sha256(value.encode()).hexdigest()[:32]


def connection_shard(connection: str) -> int:
    return shard_of(connection) % GATEWAY_CONNECTION_SHARDS


def connection_partition(shard: int) -> str:
    return f"K{shard:x}"


def connection_key(connection: str) -> Key:
    return _key(connection_partition(connection_shard(connection)), connection)


def connected_partition(shard: int) -> str:
    """The partition of the index for connected connections of a shard, and of others."""
    return f"{_CONNECTED}{shard % GATEWAY_INDEX_SHARDS:x}"


def ended_partition(shard: int) -> str:
    """The partition of the index for ended connections of a shard, and of others."""
    return f"{_ENDED}{shard % GATEWAY_INDEX_SHARDS:x}"


def heartbeat_key(part: int) -> Key:
    return _key(LEASES, f"heartbeat {part:02}")


def subscription_partition(connection: str) -> str:
    return f"U{connection}"


def subscription_key(connection: str, identifier: str) -> Key:
    return _key(subscription_partition(connection), digest(identifier))


def subscriber_partition(path: str) -> str:
    return f"L{path}"


def subscriber_key(path: str, connection: str, identifier: str) -> Key:
    bucket = zlib.crc32(connection.encode()) % SUBSCRIBER_BUCKETS
    return _key(subscriber_partition(path), f"{bucket:02x} {connection} {digest(identifier)}")


def subscriber_span(part: int, parts: int) -> tuple[str, str]:
    """The first and last sort key of one of several parts of the subscribers of a stream."""
    first, end = (SUBSCRIBER_BUCKETS * each // parts for each in (part, part + 1))
    return f"{first:02x}", f"{end - 1:02x}~"


def cursor_key(chain: int) -> Key:
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


def connection_item(connection: ConnectionRecord) -> dict[str, Any]:
    """The item of a connection that begins."""
    expires_at = connection.expires_at
    return {
        **connection_key(connection.id),
        "client_identity": text(connection.identity),
        "connected_at": number(connection.connected_at),
        "ping_interval": number(int(connection.ping_interval * 1000)),
        "time_unit": text(connection.time_unit),
        "subscription_count": number(0),
        "g": text(connected_partition(connection_shard(connection.id))),
        "d": number(connection.connected_at),
        **({} if expires_at is None else {"expires_at": number(expires_at)}),
        **({"extended": number(1)} if connection.extended else {}),
    }


def connection_of(item: Item) -> ConnectionRecord:
    return ConnectionRecord(
        item["s"]["S"],
        item["client_identity"]["S"],
        int(item["connected_at"]["N"]),
        int(item["ping_interval"]["N"]) / 1000,
        item["time_unit"]["S"],
        int(item["disconnected_at"]["N"]) if "disconnected_at" in item else None,
        "session_resumed" in item,
        int(item["expires_at"]["N"]) if "expires_at" in item else None,
        "extended" in item,
    )


def subscription_item(
    connection: str, subscription: Subscription, sent_at: int, *, asks_history: bool = False
) -> dict[str, Any]:
    return {
        **subscription_key(connection, subscription.identifier),
        "identifier": text(subscription.identifier),
        "path": text(subscription.path),
        "subscribed_at": number(sent_at),
        **({"asks_history": number(1)} if asks_history else {}),
    }


def subscription_of(item: Item) -> SubscriptionRecord:
    return SubscriptionRecord(
        item["identifier"]["S"],
        item["path"]["S"],
        item["member_id"]["S"] if "member_id" in item else None,
        "asks_history" in item,
    )


def subscriber_item(subscriber: SubscriberRecord) -> dict[str, Any]:
    """The item of a subscriber that has not joined."""
    subscription = subscriber.subscription
    permissions = _WHISPERS * subscription.whispers + _PRESENCE * subscription.presence
    return {
        **subscriber_key(subscription.path, subscriber.connection, subscription.identifier),
        "identifier": text(subscription.identifier),
        "stream_name": text(subscription.stream),
        "permissions": number(permissions),
    }


def subscriber_of(item: Item) -> SubscriberRecord:
    permissions = int(item["permissions"]["N"])
    return SubscriberRecord(
        item["s"]["S"].split(" ")[1],
        Subscription(
            item["identifier"]["S"],
            item["stream_name"]["S"],
            item["p"]["S"][1:],
            bool(permissions & _WHISPERS),
            bool(permissions & _PRESENCE),
        ),
        int(item["incarnation"]["S"], 16) if "incarnation" in item else None,
        int(item["next_slot"]["N"]) if "next_slot" in item else None,
    )


def cursor_item(chain: int, path: str, mode: Mode, slot: int) -> dict[str, Any]:
    return {
        **cursor_key(chain),
        "path": text(path),
        "content_mode": text(mode.name),
        "next_slot": number(slot),
    }


def cursor_of(item: Item) -> DeliveryCursor:
    return DeliveryCursor(
        int(item["p"]["S"][1:], 16),
        item["path"]["S"],
        Mode[item["content_mode"]["S"]],
        int(item["next_slot"]["N"]),
        item["lease_owner"]["S"] if "lease_owner" in item else None,
        int(item["leased_until"]["N"]) if "leased_until" in item else 0,
        int(item["audience"]["N"]) if "audience" in item else 0,
        "removing" in item,
    )


def heartbeat_part_of(item: Item) -> HeartbeatPart:
    def value(name: str, default: int = 0) -> int:
        return int(item[name]["N"]) if name in item else default

    return HeartbeatPart(
        int(item["s"]["S"].rpartition(" ")[2]),
        item["lease_owner"]["S"] if "lease_owner" in item else None,
        value("leased_until"),
        value("pinged_until"),
        value("busy_percent"),
        value("part_count", 1),
        value("divided_at"),
    )


def _key(p: str, s: str) -> Key:
    return {"p": text(p), "s": text(s)}
