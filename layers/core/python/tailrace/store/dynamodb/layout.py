"""The table: every kind of item, and how entries and names become items.

| kind     | p            | s               | holds                         | written by  | changes |
|----------|--------------|-----------------|-------------------------------|-------------|---------|
| name     | `N` + shard  | path            | i, c, a; v, x, g, d, w, u, e, m as needed | create | a: by access; v: with each edge; x: soft-deleted; d: by the sweep; w, u, e, m: by the jobs, only upwards; removed by delete |
| entry    | `C` + id     | slot, 16 digits | t, o, z, a, r; b or k and l; c | append      | never; removed by trimming, by retention, or after its stream |
| tombstone| `C` + id     | slot, 16 digits | an entry with f, g, d         | delete      | g, d: when the last fork goes; removed last of its chain |
| producer | `P` + id     | `=` + producer  | e, q                          | append that spills | by a later spill; removed with the chain |
| edge     | `E` + parent | fork's id       |                               | create of a fork | never; removed with the fork |
| claim    | `B`          | object's key    | g, d; x                       | append of a large body; merge and trimming, of what they replace | x: by the sweep; removed with the item that takes the object, or with the object |
| segment  | `S` + id     | first slot, 16 digits | w, k, l, j, h, y, a, v, o, z | compaction | replaced by the merged one; removed by a merge, by retention, or with the chain |

`id` is the incarnation in 16 hexadecimal digits. Where API Gateway carries cables, there are also
those who listen (`tailrace.protocols.action_cable.api_gateway`):

| kind     | p            | s               | holds                         | written by  | changes |
|----------|--------------|-----------------|-------------------------------|-------------|---------|
| connection | `K` + shard | connection      | i, a, q, f, v; e, j, x, g, d as needed | $connect | v: with each subscription; j: when another resumes it; x, g, d: when it ends; removed by the heartbeat |
| identity | `I` + digest | connection      |                               | $connect    | never; removed with the connection |
| subscription     | `U` + connection | digest of the identifier | i, c, a; k      | subscribe   | a: by a newer one; k: by joining; removed by unsubscribe, or with the connection |
| listener | `L` + path   | connection, digest | i, c, v; n, r              | subscribe   | n, r: once, when what is new is delivered to it; removed by unsubscribe, or when the connection ends |
| room     | `R` + id     | `.`             | c, k, n, v; t, u              | the first listener, or creation where somebody waits | n, t, u: by deliveries; v: with each listener; removed when nobody listens |
| member   | `M` + path   | digest of the member | c, i, t                  | join        | t: with each of its connections; removed with the last |
| lease    | `X`          | `heartbeat`         | t, u                          | the heartbeat   | by the heartbeat that has it |

Attribute names are short because every byte of every item is paid for. One name has one type in all
items, so that jobs can read them all:

| | on a name | on an entry | elsewhere | of cables |
|---|---|---|---|---|
| a | last access, ms; may lag as `log.expiry` allows | when, ms | segment: when it was committed, ms | connection: since when; subscription: when the client said so, ms |
| b | | the body | | |
| c | the configuration, as JSON | what a broadcast says of its messages, as JSON | | subscription, room: the path; listener: the stream's name; member: its id |
| d | when the stream may have expired, ms | tombstone: when the chain may go, ms | claim: when it is void, ms | connection: when something follows from its end, ms |
| e | the first slot that is not exported | | producer: epoch | connection: when its token ends, ms |
| f | | tombstone: the source, as JSON `[path, id]`, of a fork | | connection: the unit of the time in its pings |
| g | index partition of d | the same | the same | the same |
| h | | | segment: checksum of its index | |
| i | the incarnation | | | connection: the identity; subscription, listener: the identifier; member: its info, as JSON |
| j | | | segment: length of its index | connection: resumed by another |
| k | | the key of the body's object | segment: the key of its object | subscription: as whom the client is there; room: how bodies are taken apart |
| l | | the length of that body | segment: length of its data | |
| m | the first slot that retention has left | | | |
| n | | | | listener: the first slot that it is told of; room: the slot that is delivered next |
| o | | the offset after it | segment: the offset after its last slot | |
| q | | | producer: last sequence | connection: ms between two pings |
| r | | the rest of the state after it, as JSON | | listener: the incarnation that it was at |
| t | | the attempt that wrote it, at random | | room: the delivery that is under way; member: its connections; lease: who has it |
| u | the first slot that was not let go by trimming | | | room, lease: until when it is held, ms |
| v | how many forks it has: its edges, counted | | segment: the size before its first slot | connection: how many subscriptions; room: how many have joined; listener: what it may do besides |
| w | the first slot that is in no segment | | segment: the slot after its last | |
| x | the slot of its tombstone, if soft-deleted | | claim: revoked | connection: when it ended, ms |
| y | | | segment: its level | |
| z | | the size after it | segment: the size after its last slot | |

The index `due` (g, d) is sparse: it holds only items that will want attention at a time.
"""  # noqa: E501 - a table has the width it needs

from __future__ import annotations

import binascii
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from tailrace.aws.client.failures import Item
from tailrace.limits import NAME_SHARDS
from tailrace.log.expiry import stored_deadline
from tailrace.log.state import Entry, Fork, State, Stream
from tailrace.segments.reader import Manifest
from tailrace.store.codec import config_text, rest_of, state_of, stream_of

DUE_INDEX: Final = "due"
LAST_SLOT: Final = "9" * 16

NAMES_DUE: Final = "n"
CHAINS_DUE: Final = "c"
CLAIMS_DUE: Final = "b"

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
    let_go: int
    """The first slot that was not let go after it was archived."""
    exported: int
    """The first slot that is not among the exported ones."""
    earliest: int
    """The first slot that retention has left."""


class Stored(NamedTuple):
    """An entry item: its place, and what is decoded only when it is wanted."""

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
    def note(self) -> str | None:
        return self.item["c"]["S"] if "c" in self.item else None

    @property
    def attempt(self) -> str:
        attempt: str = self.item["t"]["S"]
        return attempt


# Keys


def id_text(chain: int) -> str:
    """An incarnation as the items show it."""
    return f"{chain:016x}"


def name_key(path: str) -> Key:
    return _key(f"N{shard_of(path):x}", path)


def chain_partition(chain: int) -> str:
    return f"C{id_text(chain)}"


def chain_of(partition: str) -> int | None:
    """The chain whose slots a partition holds, if that is what it holds."""
    return int(partition[1:], 16) if partition.startswith("C") else None


def is_name(partition: str) -> bool:
    return partition.startswith("N")


def slot_key(chain: int, slot: int) -> Key:
    return _key(chain_partition(chain), slot_text(slot))


def slot_text(slot: int) -> str:
    """A slot as the first half of an offset token shows it."""
    return f"{slot:016d}"


def producer_key(chain: int, producer: str) -> Key:
    return _key(f"P{id_text(chain)}", f"={producer}")


def edge_key(parent: int, fork: int) -> Key:
    return _key(f"E{id_text(parent)}", id_text(fork))


def segment_partition(chain: int) -> str:
    return f"S{id_text(chain)}"


def segment_key(chain: int, first: int) -> Key:
    return _key(segment_partition(chain), slot_text(first))


def claim_key(object_key: str) -> Key:
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
    """What puts an item into the index."""
    return {"g": text(f"{kind}{shard_of(item['s']['S']):x}"), "d": number(at)}


# Items


def name_item(stream: Stream) -> dict[str, Any]:
    created = stream.config.created
    item: dict[str, Any] = {
        **name_key(stream.path),
        "i": text(id_text(stream.id)),
        "c": text(config_text(stream.config).decode()),
        "a": number(created),
    }
    deadline = stored_deadline(stream.config, created)
    if deadline is not None:
        item |= due(NAMES_DUE, item, deadline)
    return item


def name_of(item: Item) -> Name:
    stream = stream_of(int(item["i"]["S"], 16), item["s"]["S"], item["c"]["S"].encode())
    return Name(
        stream,
        int(item["a"]["N"]),
        int(item["v"]["N"]) if "v" in item else 0,
        int(item["x"]["N"]) if "x" in item else None,
        *(int(item[name]["N"]) if name in item else stream.config.base[0] for name in "wuem"),
    )


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
    return item


def entry_of(item: Item) -> Stored:
    return Stored(int(item["s"]["S"]), int(item["o"]["N"]), int(item["z"]["N"]), item)


def manifest_item(manifest: Manifest) -> dict[str, Any]:
    return {
        **segment_key(manifest.chain, manifest.first),
        "w": number(manifest.stop),
        "k": text(manifest.key),
        "l": number(manifest.data_bytes),
        "j": number(manifest.index_bytes),
        "h": number(manifest.index_checksum),
        "a": number(manifest.committed_at),
        "y": number(manifest.level),
        "v": number(manifest.begin),
        "o": number(manifest.offset),
        "z": number(manifest.size),
    }


def manifest_of(item: Item) -> Manifest:
    stop, data_bytes, index_bytes, checksum, at, level, begin, offset, size = (
        int(item[name]["N"]) for name in "wljhayvoz"
    )
    return Manifest(
        chain=int(item["p"]["S"][1:], 16),
        first=int(item["s"]["S"]),
        stop=stop,
        key=item["k"]["S"],
        data_bytes=data_bytes,
        index_bytes=index_bytes,
        index_checksum=checksum,
        committed_at=at,
        level=level,
        begin=begin,
        offset=offset,
        size=size,
    )


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
