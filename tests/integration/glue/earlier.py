"""A stream as earlier versions stored it, byte by byte: entries that list no appends, and segments
of version 1."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Final

from tailrace.store.dynamodb.bodies import Bucket
from tailrace.store.dynamodb.layout import shard_of
from tailrace.store.dynamodb.table import Table

CHAIN: Final = "1f00000000000001"
BEGUN: Final = 1_700_000_000_000
"""2023-11-14, in the evening."""

ARCHIVED: Final = (0, (b'{"n":1}', b'{"n":2}')), (5, (b"3",)), (9, (b'"b"',)), (9, (b"[5]",))
"""Milliseconds since then, and the messages of each slot that is in a segment."""

FIRST: Final = f"segments/{CHAIN}/0000000000000000-00"
SECOND: Final = f"segments/{CHAIN}/0000000000000002-00"

_SEGMENTS: Final = {
    FIRST: bytes.fromhex(
        "7b226e223a317d2c207b226e223a327d2c33"
        "789c8b56324c334006864a3a4a59c5f9794a3a063a46406ca0131dad54929993a36baea4631c1b1bcb25c000018c"
        "509a098dcf90f1f47c3790c38a2e0e059a687c0081090f1e"
        "1200000000000000 46000000 3a80b879 8bdc6a84 01 7461696c726163652d310a"
    ),
    SECOND: bytes.fromhex(
        "2262222c5b355d"
        "789c8b56324c334006864a3a4a59c5f9794a3a464068ac63681ecbc5cc0001309a118de6cc787abe1bc601020044"
        "f50ad1"
        "0700000000000000 31000000 d61b9506 e304a147 01 7461696c726163652d310a"
    ),
}

_ITEMS: Final[Sequence[Mapping[str, str | int | bytes]]] = (
    {
        "p": f"S{CHAIN}", "s": "0000000000000000", "stop_slot": 2, "object_key": FIRST,
        "data_bytes": 18, "index_bytes": 70, "index_checksum": 0x846ADC8B, "merge_level": 0,
        "committed_at": BEGUN + 10, "start_size": 0, "end_offset": 3, "end_size": 17,
    },
    {
        "p": f"S{CHAIN}", "s": "0000000000000002", "stop_slot": 4, "object_key": SECOND,
        "data_bytes": 7, "index_bytes": 49, "index_checksum": 0x47A104E3, "merge_level": 0,
        "committed_at": BEGUN + 10, "start_size": 17, "end_offset": 5, "end_size": 23,
    },
    {
        "p": f"C{CHAIN}", "s": "0000000000000004", "t": "d6", "o": 6, "z": 24, "a": BEGUN + 20,
        "b": b"6",
    },
    {
        "p": f"C{CHAIN}", "s": "0000000000000005", "t": "d7", "o": 8, "z": 31, "a": BEGUN + 30,
        "b": b'"x","y"', "r": '{"p":[["till-7",3,42]],"w":1}',
    },
    {
        "p": f"C{CHAIN}", "s": "0000000000000006", "t": "d8", "o": 9, "z": 32, "a": BEGUN + 30,
        "b": b"7", "r": '{"p":[["till-7",3,42]]}',
    },
)  # fmt: skip

_NAME: Final[Mapping[str, str | int | bytes]] = {
    "incarnation": CHAIN,
    "config": '{"content_type":"application/json","created":1700000000000,"ttl":null,'
    '"expires_at":null,"fork":null,"own_expiry":true,"base":[0,0,0],"earliest":0}',
    "accessed_at": BEGUN,
    "archived_to": 4,
    "trimmed_to": 4,
}


async def store_earlier(table: Table, bucket: Bucket, path: str) -> None:
    """Store the stream at a path."""
    for key, segment in _SEGMENTS.items():
        await bucket.put(key, segment)
    name = {"p": f"N{shard_of(path):x}", "s": path, **_NAME}
    for item in (*_ITEMS, name):
        await table.put_new({attribute: _typed(value) for attribute, value in item.items()})


def _typed(value: str | int | bytes) -> dict[str, str]:
    match value:
        case str():
            return {"S": value}
        case int():
            return {"N": str(value)}
    return {"B": b64encode(value).decode()}
