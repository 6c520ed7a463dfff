"""The items of subscriptions in the table: every kind, its key and attributes.

| kind         | p                   | s           | created by               | removed by |
|--------------|---------------------|-------------|--------------------------|------------|
| subscription | `YS` + shard        | id          | PUT                      | DELETE, when its links are erased |
| link         | `YL` + uid          | `=` + path  | PUT, or the stream's own creation | DELETE, or the deletion of the stream |
| news         | `YL` + uid          | `!` + path  | the first append that the link has not acknowledged | acknowledging all |
| follower     | `YF` + incarnation  | uid         | linking a stream that exists | with the link, or with the stream |
| interest     | `YP` + path         | id          | linking a path explicitly | with that link |
| pattern      | `YG` + literal prefix | uid       | PUT                      | DELETE |
| timer        | `YT`                | `.`         | the function that waits for what is due soon | that function |

`uid` is random: a subscription that is created again under its id never meets the old links. What
an append finds by its incarnation is `follower`; what a new stream finds by its path, `interest` and
`pattern`. Links, news, followers and interests change in one transaction with their subscription,
on the condition of its version.

| attribute         | type | of                | meaning | changed by |
|-------------------|------|-------------------|---------|------------|
| `uid`             | S    | subscription, interest | its uid | |
| `record_version`  | N    | subscription      | how often it was written | every change |
| `record_json`     | S    | subscription      | the record, as `core.records` writes it | every change |
| `written_by`      | S    | subscription      | the attempt that wrote it, at random | every change |
| `todo`            | S    | subscription      | the phase, if something is to be done that is not a lease; absent otherwise | every change |
| `g`, `d`          | S, N | subscription      | partition and time in the index `due` | every change |
| `incarnation`     | S    | link              | the stream that is at the path; absent: none | creation and deletion of the stream |
| `stream_epoch`    | N    | link              | its epoch | creation of the stream |
| `link_types`      | N    | link              | 1: by the pattern, 2: explicit, 3: both | adding and removing |
| `acked_offset`    | S    | link              | the cursor | acknowledging |
| `tail_offset`     | S    | link              | the end of the stream, as far as it was noticed | news |
| `subscription_id` | S    | follower, pattern | the id of the subscription | |
| `path`            | S    | follower          | the path of the link | |
| `glob_pattern`    | S    | pattern           | the pattern | |
| `wake_stream`     | S    | pattern           | the stream of wake events, which the pattern does not match | |
| `timer_owner`     | S    | timer             | random id of the function that waits | taking over |
| `held_until`      | N    | timer             | when another may take over, ms | every few seconds |
"""  # noqa: E501 - a table has the width it needs

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tailrace.aws.client.failures import Item
from tailrace.limits import NAME_SHARDS
from tailrace.protocols.subscriptions.core.globs import literal_prefix
from tailrace.protocols.subscriptions.core.records import (
    DurableSubscription,
    Link,
    Phase,
    record_of,
    record_text,
)
from tailrace.protocols.subscriptions.store import IndexedLink
from tailrace.store.dynamodb.layout import Key, id_text, number, shard_of, text

LINKS: Final = "="
NEWS: Final = "!"
TIMER: Final[Key] = {"p": {"S": "YT"}, "s": {"S": "."}}
LAST_PATH: Final = "\U0010ffff"
"""Sorts after every path."""

DUE_SHARDS: Final = 4
"""Partitions of the index `due` for subscriptions: each costs a read every minute."""

_GLOB, _EXPLICIT = 1, 2


class Pattern(NamedTuple):
    id: str
    pattern: str
    wake_stream: str | None


# Keys


def subscription_key(id: str) -> Key:  # noqa: A002
    return _key(f"YS{shard_of(id):x}", id)


def subscription_partitions() -> list[str]:
    return [f"YS{shard:x}" for shard in range(NAME_SHARDS)]


def is_subscription(partition: str) -> bool:
    return partition.startswith("YS")


def due_partitions() -> list[str]:
    return [f"y{shard:x}" for shard in range(DUE_SHARDS)]


def link_partition(uid: str) -> str:
    return f"YL{uid}"


def link_key(uid: str, path: str) -> Key:
    return _key(link_partition(uid), f"{LINKS}{path}")


def news_key(uid: str, path: str) -> Key:
    return _key(link_partition(uid), f"{NEWS}{path}")


def follower_partition(stream: int) -> str:
    return f"YF{id_text(stream)}"


def follower_key(stream: int, uid: str) -> Key:
    return _key(follower_partition(stream), uid)


def interest_partition(path: str) -> str:
    return f"YP{path}"


def interest_key(path: str, id: str) -> Key:  # noqa: A002
    return _key(interest_partition(path), id)


def pattern_partition(prefix: str) -> str:
    return f"YG{prefix}"


def pattern_key(pattern: str, uid: str) -> Key:
    return _key(pattern_partition(literal_prefix(pattern)), uid)


# Items


def subscription_item(record: DurableSubscription, attempt: str) -> dict[str, Any]:
    item: dict[str, Any] = {
        **subscription_key(record.id),
        "uid": text(record.uid),
        "record_version": number(record.version),
        "record_json": text(record_text(record).decode()),
        "written_by": text(attempt),
    }
    if record.due_at is not None:
        item["g"] = text(f"y{shard_of(record.id) % DUE_SHARDS:x}")
        item["d"] = number(record.due_at)
        if record.phase is not Phase.HELD:
            item["todo"] = text(record.phase.value)
    return item


def subscription_of(item: Item) -> DurableSubscription:
    return record_of(item["record_json"]["S"])


def link_item(uid: str, link: Link) -> dict[str, Any]:
    item: dict[str, Any] = {
        **link_key(uid, link.path),
        "stream_epoch": number(link.epoch),
        "link_types": number(_GLOB * link.glob + _EXPLICIT * link.explicit),
        "acked_offset": text(link.acked),
        "tail_offset": text(link.tail),
    }
    if link.stream is not None:
        item["incarnation"] = text(id_text(link.stream))
    return item


def link_of(item: Item) -> Link:
    types = int(item["link_types"]["N"])
    return Link(
        item["s"]["S"][1:],
        int(item["incarnation"]["S"], 16) if "incarnation" in item else None,
        int(item["stream_epoch"]["N"]),
        bool(types & _EXPLICIT),
        bool(types & _GLOB),
        item["acked_offset"]["S"],
        item["tail_offset"]["S"],
    )


def news_item(uid: str, path: str) -> dict[str, Any]:
    return {**news_key(uid, path)}


def follower_item(stream: int, follower: IndexedLink) -> dict[str, Any]:
    return {
        **follower_key(stream, follower.uid),
        "subscription_id": text(follower.id),
        "path": text(follower.path),
    }


def follower_of(item: Item) -> IndexedLink:
    return IndexedLink(item["subscription_id"]["S"], item["s"]["S"], item["path"]["S"])


def interest_item(path: str, record: DurableSubscription) -> dict[str, Any]:
    return {**interest_key(path, record.id), "uid": text(record.uid)}


def pattern_item(record: DurableSubscription) -> dict[str, Any]:
    assert record.pattern is not None
    item: dict[str, Any] = {
        **pattern_key(record.pattern, record.uid),
        "subscription_id": text(record.id),
        "glob_pattern": text(record.pattern),
    }
    if record.wake_stream is not None:
        item["wake_stream"] = text(record.wake_stream)
    return item


def pattern_of(item: Item) -> Pattern:
    wake_stream = item["wake_stream"]["S"] if "wake_stream" in item else None
    return Pattern(item["subscription_id"]["S"], item["glob_pattern"]["S"], wake_stream)


def _key(p: str, s: str) -> Key:
    return {"p": text(p), "s": text(s)}
