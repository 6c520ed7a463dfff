"""Random requests: made of documented values and of nasty ones, and then spoiled byte by byte."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from devtools.chaos.fuzz.corpus import Operation, Parameter
from devtools.load.wire import render

NAMES: Final = 200
"""Streams that requests are about, so that many meet a stream that is there."""

NASTY: Final = (
    "", " ", "0", "-1", "+1", "1_0", "00", "1e3", "1.5", "NaN", "9007199254740992", "9" * 40, "x",
    "true", "null", "[]", "{}", "now", f"{0:016d}_{0:016d}", f"{1:016d}_{9:016d}", "9" * 16 + "_0",
    "../x", "%2e%2e", "%00", "%ff", "a%2Fb", "__ds/x", "a" * 1025, "é", "\u202e", "\x7f", "\\", '"',
    "'; --", "<script>", "*", "**", ";,", "bytes=0-1", "gzip;q=", "br, zstd;q=0.5", "chunked",
    "100-continue", "2040-01-01T00:00:60Z", "0001-01-01T00:00:00+23:59", "Bearer x", "Basic x",
    "http://127.0.0.1", "https://evil.example", "localhost:1", "W/\"", '"x"', "/v1/stream/n1",
    "/ds/%", "mars@1", "mars@x", "46.5,8.5", "od", "\t",
)  # fmt: skip

NASTY_JSON: Final[tuple[Any, ...]] = (
    None, True, -1, 0, 2**63, 10**40, 0.1, -0.0, "", "x", "é\u202e", "\ud800", "x" * 5000, [], {},
    [[]], [None], {"": None}, [[[[[[[[[[]]]]]]]]]], {"gte": "x"}, {"between": [9, 1]}, [1, 2, 3],
    {"in": []}, "2026-02-30", "999,999", [[0, 0], [0, 0]],
)  # fmt: skip

NASTY_BODIES: Final = (
    b"", b"{", b"[", b"[]", b"[[]]", b"null", b"\xff\xfe", b"\x00" * 99, b"[" * 600, b"x" * 20_001,
    b'{"a":1,"a":2}', b"[1,]", b'"\\ud800"', b"1e999", b"[" + b"1," * 3000 + b"1]", b"0\r\n\r\n",
)  # fmt: skip

EXTRA: Final = (
    "Host", "Origin", "Accept-Encoding", "Range", "Expect", "Connection", "TE", "Transfer-Encoding",
    "Content-Length", "Content-Encoding", "Authorization", "If-None-Match", "X-Forwarded-For",
    "X-Signed", "X-JID", "Idempotency-Key", "Upgrade", "Cookie", "X-Tailrace-Edge-Token", "Trailer",
    "Access-Control-Request-Method", "Sec-WebSocket-Version", "X-Request-ID", "X" * 200,
)  # fmt: skip

FRAMING: Final = ("Transfer-Encoding", "Content-Length", "Connection", "Expect", "Upgrade", "Host")
"""Headers after which one cannot tell how the server understands the rest."""


@dataclass(frozen=True, slots=True)
class FuzzedRequest:
    raw: bytes
    sound: bool
    """Whether it is one complete request, so that it gets one answer."""
    cuts: tuple[int, ...] = ()
    """Where it is cut into pieces that are sent one after the other."""


class Requests:
    """A source of requests, the same for the same seed."""

    def __init__(self, operations: Sequence[Operation], chance: random.Random) -> None:
        self._operations = operations
        self._chance = chance

    def next(self) -> FuzzedRequest:
        chance = self._chance
        operation = chance.choice(self._operations)
        path, query, headers = operation.path, list[str](), dict[str, str]()
        for parameter in operation.parameters:
            if parameter.place == "path":
                path = path.replace(f"{{{parameter.name}}}", self._path_value(parameter))
            elif chance.random() < 0.35:
                if parameter.place == "query":
                    query.append(f"{parameter.name}={self._encode(self._value(parameter))}")
                else:
                    headers[parameter.name] = self._value(parameter)
        sound = True
        for _ in range(chance.choice((0, 0, 0, 1, 2))):
            name = chance.choice(EXTRA)
            headers[name] = chance.choice(NASTY)
            sound &= name not in FRAMING
        method = operation.method
        if chance.random() < 0.05:
            method = chance.choice(("GET", "POST", "PUT", "DELETE", "PATCH", "TRACE", "x", "QUERY"))
        kind, body = self._body(operation)
        if body is not None and chance.random() < 0.9:
            headers.setdefault("Content-Type", kind)
        target = path + ("?" + "&".join(query) if query else "")
        raw = render(method, _clean(target), {n: _clean(v) for n, v in headers.items()}, body)
        sound &= "Upgrade" not in headers and method != "HEAD"
        if chance.random() < 0.15:
            return FuzzedRequest(spoil(raw, chance), sound=False)
        cuts = tuple(sorted(chance.randrange(len(raw)) for _ in range(3)))
        return FuzzedRequest(raw, sound, cuts if chance.random() < 0.05 else ())

    def _path_value(self, parameter: Parameter) -> str:
        if self._chance.random() < 0.9 and parameter.name == "path":
            return f"n{self._chance.randrange(NAMES)}"
        return self._encode(self._value(parameter))

    def _value(self, parameter: Parameter) -> str:
        if parameter.values and self._chance.random() < 0.6:
            return self._chance.choice(parameter.values)
        return self._chance.choice(NASTY)

    def _encode(self, text: str) -> str:
        return quote(text, safe="") if self._chance.random() < 0.7 else text.replace(" ", "")

    def _body(self, operation: Operation) -> tuple[str, bytes | None]:
        chance = self._chance
        if not operation.bodies and chance.random() < 0.95:
            return "", None
        kind, body = chance.choice(operation.bodies or (("text/plain", b"x"),))
        match chance.randrange(10):
            case 0 | 1:
                body = chance.choice(NASTY_BODIES)
            case 2:
                body = chance.randbytes(chance.randrange(300))
            case 3:
                body = spoil(body, chance)
            case 4 | 5 | 6 if kind == "application/json":
                body = json.dumps(vary(json.loads(body), chance)).encode()
        return kind, body


def vary(value: Any, chance: random.Random) -> Any:
    """JSON with one of its parts replaced by something else."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {other: value[other] for other in value if other != key}
        return {**value, key: vary(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        return [*value[:at], vary(value[at], chance), *value[at + 1 :]]
    return chance.choice(NASTY_JSON)


def spoil(raw: bytes, chance: random.Random) -> bytes:
    """Bytes with a few changes anywhere: flipped, inserted, removed, repeated or cut off."""
    data = bytearray(raw)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(5):
            case 0 if at < len(data):
                data[at] = chance.randrange(256)
            case 1:
                data[at:at] = chance.choice((b"\r\n", b"\0", b" ", b"%", b":", chance.randbytes(4)))
            case 2:
                del data[at : at + chance.randint(1, 20)]
            case 3:
                data[at:at] = data[at : at + chance.randint(1, 200)]
            case _ if chance.random() < 0.3:
                del data[at:]
    return bytes(data)


def _clean(text: str) -> str:
    """Text that stays in its line, whatever is in it: other bytes come from `spoil`."""
    return text.replace("\r", "").replace("\n", "")
