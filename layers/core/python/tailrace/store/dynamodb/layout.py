"""The table: every kind of item, and how entries, names and segments become items.

`id` is an incarnation, in 16 hexadecimal digits. Slots have 16 digits, so that they sort.

**Name**, `p` = `N` + shard, `s` = path: one for each path in use. Written by create; removed by delete.

| attribute      | type   | holds                                            | changes                     |
|----------------|--------|--------------------------------------------------|-----------------------------|
| incarnation    | text   | the id of the chain that the path stands for     | never                       |
| config         | text   | the configuration, as JSON                       | never                       |
| accessed_at    | number | last access, ms; may lag as `log.expiry` allows  | by reads and writes         |
| fork_count     | number | how many forks it has: its edges, counted        | with each edge              |
| tombstone_slot | number | the slot of its tombstone                        | when it is soft-deleted     |
| archived_to    | number | the first slot that is in no segment             | by compaction, only upwards |
| trimmed_to     | number | the first slot that trimming has left            | by compaction, only upwards |
| exported_to    | number | the first slot that is not exported              | by the export, only upwards |
| retained_from  | number | the first slot that retention has left           | by retention, only upwards  |
| g, d           |        | when the stream may have expired                 | by the sweep                |

**Entry**, `p` = `C` + id, `s` = slot: written by append, and never changed; removed by trimming, by
retention, or after its stream. A stream has millions, so its attributes have one letter: every byte
of every item is paid for.

| attribute | type   | holds                                                                        |
|-----------|--------|------------------------------------------------------------------------------|
| t         | text   | the attempt that wrote it, at random                                         |
| o, z      | number | offset and size of the stream after it                                       |
| a         | number | when it was written, ms                                                      |
| r         | text   | the rest of the state after it, as JSON                                      |
| b         | binary | the body; or                                                                 |
| k, l      |        | the key of the object that holds the body, and the length of the body        |
| c         | text   | the options of a broadcast, as JSON                                          |
| m         | text   | its appends, if it has several, as `store.codec.parts_text` writes them      |
| f         | text   | on the tombstone of a fork: its source, as JSON `[path, id]`                 |
| g, d      |        | on a tombstone: when the chain may go; set when its last fork is gone        |
| h         | number | on a tombstone: 1, if caches are to be purged of the stream                  |

**Producer**, `p` = `P` + id, `s` = `=` + producer: a part of the state that was spilled. `e` and `q` are epoch and
last sequence. Written by an append that spills, changed by a later one; removed with the chain.

**Edge**, `p` = `E` + parent's id, `s` = fork's id: a fork needs its source. Written by the creation of the fork,
removed with the fork.

**Upload intent**, `p` = `B`, `s` = object's key: the sweep removes the object when it is due. Written before a large body
is uploaded, and removed by the entry that names the object; also written for objects that merging, trimming and
retention replace or remove.

| attribute | type   | holds                                                                        |
|-----------|--------|------------------------------------------------------------------------------|
| revoked   | number | 1: the sweep is removing the object, so no entry may name it any more        |
| g, d      |        | when it is due                                                               |

**Segment**, `p` = `S` + id, `s` = first slot: the manifest of a segment. Written by compaction, replaced by that of the
merged one; removed by a merge, by retention, or with the chain.

| attribute      | type   | holds                                                                   |
|----------------|--------|-------------------------------------------------------------------------|
| stop_slot      | number | the slot after its last                                                 |
| object_key     | text   | the key of its object                                                   |
| data_bytes     | number | length of its data                                                      |
| index_bytes    | number | length of its index                                                     |
| index_checksum | number | CRC-32 of its index                                                     |
| committed_at   | number | when it was committed, ms                                               |
| merge_level    | number | how often its entries were merged                                       |
| start_size     | number | the size of the stream before its first slot                            |
| end_offset     | number | the offset after its last slot                                          |
| end_size       | number | the size after its last slot                                            |

**Wait permit**, `p` = `W`, `s` = its number, in 4 digits: somebody waits for a stream that does not exist. Written when
the wait begins, removed when it ends; there is a fixed number of them.

| attribute     | type   | holds                                                                    |
|---------------|--------|--------------------------------------------------------------------------|
| permit_holder | text   | the wait that holds it, at random                                        |
| held_until    | number | when it may be taken over, ms: its holder has died                       |

The index `due` has the keys `g`, a partition of the index (text), and `d`, a time in ms (number). It is sparse: it holds
only items that will want attention at a time.

Behind API Gateway, Action Cable has items of its own in this table:
`tailrace.protocols.action_cable.api_gateway.items` describes them. So have subscriptions:
`tailrace.protocols.subscriptions.items`.
"""  # noqa: E501 - a table has the width it needs

from __future__ import annotations

import binascii
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from tailrace.aws.client.failures import Item
from tailrace.limits import NAME_SHARDS
from tailrace.log.expiry import stored_deadline
from tailrace.log.slots import appends
from tailrace.log.state import Entry, Fork, Part, State, Stream
from tailrace.segments.reader import Manifest
from tailrace.store.codec import (
    config_text,
    parts_of,
    parts_text,
    rest_of,
    state_of,
    stream_of,
)

DUE_INDEX: Final = "due"
LAST_SLOT: Final = "9" * 16

NAMES_DUE: Final = "n"
CHAINS_DUE: Final = "c"
UPLOADS_DUE: Final = "b"

WAIT_PERMITS: Final = "W"
"""Partition of the permits to wait for streams that do not exist."""

ARCHIVED: Final = "archived_to"
TRIMMED: Final = "trimmed_to"
EXPORTED: Final = "exported_to"
RETAINED: Final = "retained_from"

Key = dict[str, dict[str, str]]


class Name(NamedTuple):
    """A name item."""

    stream: Stream
    accessed: int
    forked: int
    tombstone: int | None
    """The slot of the tombstone, when only forks still need the stream."""
    archived: int
    """The first slot that is in no segment."""
    trimmed: int
    """The first slot that trimming has left in the table."""
    exported: int
    """The first slot that is not among the exported ones."""
    earliest: int
    """The first slot that retention has left."""


class Stored(NamedTuple):
    """An entry item; its state and body are decoded on demand."""

    slot: int
    offset: int
    size: int
    item: Item

    @property
    def state(self) -> State:
        item = self.item
        rest = item["r"]["S"].encode() if "r" in item else None
        return state_of(self.slot, self.offset, self.size, int(item["a"]["N"]), rest)

    @property
    def has_data(self) -> bool:
        return "b" in self.item or "k" in self.item

    @property
    def length(self) -> int:
        if "l" in self.item:
            return int(self.item["l"]["N"])
        return len(self.body)

    @property
    def body(self) -> bytes:
        return _bytes(self.item["b"])

    @property
    def object_key(self) -> str | None:
        return self.item["k"]["S"] if "k" in self.item else None

    @property
    def parts(self) -> Sequence[Part]:
        return parts_of(self.item["m"]["S"].encode()) if "m" in self.item else ()

    def appends(self, body: bytes) -> Iterator[tuple[bytes, int, str | None]]:
        """Iterate over the appends of its body: body, offset after it, options of a broadcast."""
        parts = self.parts
        if not parts:
            yield body, self.offset, self.item["c"]["S"] if "c" in self.item else None
            return
        pairs = zip(appends(body, parts, self.state), parts, strict=True)
        for (one, offset, _, _), part in pairs:
            yield one, offset, part.note

    @property
    def attempt(self) -> str:
        attempt: str = self.item["t"]["S"]
        return attempt


# Keys


def id_text(chain: int) -> str:
    """An incarnation as the items show it."""
    return f"{chain:016x}"


def wait_permit_key(permit: int) -> Key:
    return {"p": text(WAIT_PERMITS), "s": text(f"{permit:04d}")}


def name_key(path: str) -> Key:
    return _key(f"N{shard_of(path):x}", path)


def chain_partition(chain: int) -> str:
    return f"C{id_text(chain)}"


def chain_of(partition: str) -> int | None:
    """Return the chain of a partition of slots; None for any other partition."""
    return int(partition[1:], 16) if partition.startswith("C") else None


def is_name(partition: str) -> bool:
    return partition.startswith("N")


def slot_key(chain: int, slot: int) -> Key:
    return _key(chain_partition(chain), slot_text(slot))


def slot_text(slot: int) -> str:
    """A slot as the first half of an offset token shows it."""
    return f"{slot:016d}"


def producer_partition(chain: int) -> str:
    return f"P{id_text(chain)}"


def producer_key(chain: int, producer: str) -> Key:
    return _key(producer_partition(chain), f"={producer}")


def edge_key(parent: int, fork: int) -> Key:
    return _key(f"E{id_text(parent)}", id_text(fork))


def segment_partition(chain: int) -> str:
    return f"S{id_text(chain)}"


def segment_key(chain: int, first: int) -> Key:
    return _key(segment_partition(chain), slot_text(first))


def upload_intent_key(object_key: str) -> Key:
    return _key("B", object_key)


def name_partitions() -> list[str]:
    return [f"N{shard:x}" for shard in range(NAME_SHARDS)]


def due_partitions(kind: str) -> list[str]:
    return [f"{kind}{shard:x}" for shard in range(NAME_SHARDS)]


def shard_of(text: str) -> int:
    return zlib.crc32(text.encode()) % NAME_SHARDS


def key_of(item: Item) -> Key:
    return {"p": item["p"], "s": item["s"]}


def due(kind: str, item: Item, at: int) -> dict[str, Any]:
    """Return the attributes that put an item into the index `due`."""
    return {"g": text(f"{kind}{shard_of(item['s']['S']):x}"), "d": number(at)}


# Items


def name_item(stream: Stream) -> dict[str, Any]:
    created = stream.config.created
    item: dict[str, Any] = {
        **name_key(stream.path),
        "incarnation": text(id_text(stream.id)),
        "config": text(config_text(stream.config).decode()),
        "accessed_at": number(created),
    }
    deadline = stored_deadline(stream.config, created)
    if deadline is not None:
        item |= due(NAMES_DUE, item, deadline)
    return item


def name_of(item: Item) -> Name:
    chain, config = int(item["incarnation"]["S"], 16), item["config"]["S"].encode()
    stream = stream_of(chain, item["s"]["S"], config)
    base = stream.config.base[0]
    return Name(
        stream,
        accessed=int(item["accessed_at"]["N"]),
        forked=int(item["fork_count"]["N"]) if "fork_count" in item else 0,
        tombstone=int(item["tombstone_slot"]["N"]) if "tombstone_slot" in item else None,
        archived=int(item[ARCHIVED]["N"]) if ARCHIVED in item else base,
        trimmed=int(item[TRIMMED]["N"]) if TRIMMED in item else base,
        exported=int(item[EXPORTED]["N"]) if EXPORTED in item else base,
        earliest=int(item[RETAINED]["N"]) if RETAINED in item else base,
    )


def is_name_of(item: Item | None, chain: int) -> bool:
    """Whether a name item is there and stands for a chain."""
    return item is not None and bool(item["incarnation"]["S"] == id_text(chain))


def entry_item(chain: int, entry: Entry, attempt: str, object_key: str | None) -> dict[str, Any]:
    state = entry.state
    item: dict[str, Any] = {
        **slot_key(chain, entry.slot),
        "t": text(attempt),
        "o": number(state.offset),
        "z": number(state.size),
        "a": number(state.written_at),
    }
    rest = rest_of(state)
    if rest is not None:
        item["r"] = text(rest.decode())
    if object_key is not None:
        item["k"] = text(object_key)
        item["l"] = number(len(entry.body or b""))
    elif entry.body is not None:
        item["b"] = binary(entry.body)
    if entry.note is not None:
        item["c"] = text(entry.note)
    parts = parts_text(entry.parts)
    if parts is not None:
        item["m"] = text(parts.decode())
    return item


def entry_of(item: Item) -> Stored:
    return Stored(int(item["s"]["S"]), int(item["o"]["N"]), int(item["z"]["N"]), item)


def manifest_item(manifest: Manifest) -> dict[str, Any]:
    return {
        **segment_key(manifest.chain, manifest.first),
        "stop_slot": number(manifest.stop),
        "object_key": text(manifest.key),
        "data_bytes": number(manifest.data_bytes),
        "index_bytes": number(manifest.index_bytes),
        "index_checksum": number(manifest.index_checksum),
        "committed_at": number(manifest.committed_at),
        "merge_level": number(manifest.level),
        "start_size": number(manifest.begin),
        "end_offset": number(manifest.offset),
        "end_size": number(manifest.size),
    }


def manifest_of(item: Item) -> Manifest:
    return Manifest(
        chain=int(item["p"]["S"][1:], 16),
        first=int(item["s"]["S"]),
        stop=int(item["stop_slot"]["N"]),
        key=item["object_key"]["S"],
        data_bytes=int(item["data_bytes"]["N"]),
        index_bytes=int(item["index_bytes"]["N"]),
        index_checksum=int(item["index_checksum"]["N"]),
        committed_at=int(item["committed_at"]["N"]),
        level=int(item["merge_level"]["N"]),
        begin=int(item["start_size"]["N"]),
        offset=int(item["end_offset"]["N"]),
        size=int(item["end_size"]["N"]),
    )


def object_key_of(item: Item) -> str | None:
    """Return the key of the object that an entry or a segment names."""
    for attribute in ("k", "object_key"):
        if attribute in item:
            key: str = item[attribute]["S"]
            return key
    return None


def is_purge(item: Item) -> bool:
    """Whether an entry is a tombstone that has caches purged of the stream."""
    return "h" in item


def source_text(fork: Fork) -> dict[str, str]:
    return text(orjson.dumps([fork.source, fork.parent]).decode())


def source_of(item: Item) -> tuple[str, int] | None:
    """The path and the incarnation that the fork behind a tombstone came from."""
    if "f" not in item:
        return None
    path, parent = orjson.loads(item["f"]["S"])
    return path, parent


# Values


def text(value: str) -> dict[str, str]:
    return {"S": value}


def number(value: int) -> dict[str, str]:
    return {"N": str(value)}


def binary(value: bytes) -> dict[str, str]:
    return {"B": binascii.b2a_base64(value, newline=False).decode("ascii")}


def _bytes(value: Mapping[str, str]) -> bytes:
    return binascii.a2b_base64(value["B"])


def _key(p: str, s: str) -> Key:
    return {"p": text(p), "s": text(s)}
