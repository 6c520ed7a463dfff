"""Parses the HTTP/1.1 requests of a runtime strictly, and refuses malformed ones."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, NamedTuple

MAX_HEAD_BYTES: Final = 1 << 20
"""Trailers contain stack traces and are read like headers, so lines may be long."""

MAX_PRELUDE_BYTES: Final = 16 * 1024
"""The end of the prelude must lie within this many bytes, as for API Gateway."""

HTTP_RESPONSE: Final = "application/vnd.awslambda.http-integration-response"

_ERROR_TYPE: Final = "lambda-runtime-function-error-type"
_ERROR_BODY: Final = "lambda-runtime-function-error-body"
_CHUNK_SIZE: Final = re.compile(rb"[0-9A-Fa-f]{1,8}\r\n")
_REASONS: Final = {200: "OK", 202: "Accepted", 400: "Bad Request", 403: "Forbidden"}


class Failure(NamedTuple):
    """An error reported by a runtime: its type, from the header, and its description."""

    kind: str
    body: dict[str, Any]


class Refusal(Exception):
    """A refused request of the runtime.

    With `close`, its connection cannot be used again. `failure` is the error that the caller of the
    function gets, unless that is `kind`, too."""

    def __init__(
        self, status: int, kind: str, message: str, *, close: bool = True, failure: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.close = close
        self.body = {"errorMessage": message, "errorType": kind}
        self.failure = Failure(
            failure or f"Runtime.{kind}", {**self.body, "errorType": failure or kind}
        )


class Request:
    """A request of the runtime, whose body is streamed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.path = ""
        self.headers: dict[str, str] = {}
        self.trailers: dict[str, str] = {}

    async def read_head(self) -> None:
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        parts = first.split(" ")
        if len(parts) != 3 or parts[2] != "HTTP/1.1":
            raise Refusal(400, "InvalidRequest", f"not HTTP/1.1: {first!r}")
        self.method, self.path, _ = parts
        self.headers = _read_fields(lines[:-2])
        if "host" not in self.headers:
            raise Refusal(400, "InvalidRequest", "no Host")
        if {"content-length", "transfer-encoding"} <= self.headers.keys():
            raise Refusal(400, "InvalidRequest", "both a length and a transfer encoding")
        if self.headers.get("expect", "").lower() == "100-continue":
            self.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def expect(self, method: str) -> None:
        if self.method != method:
            raise Refusal(405, "MethodNotAllowed", f"{self.path} takes {method}")

    async def drop_body(self) -> None:
        async for _ in self.pieces():
            pass

    async def whole_body(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncIterator[bytes]:
        encoding = self.headers.get("transfer-encoding")
        if encoding is None:
            length = self.headers.get("content-length", "0")
            if not length.isdecimal():
                raise Refusal(400, "InvalidRequest", f"not a length: {length!r}")
            if body := await self.reader.readexactly(int(length)):
                yield body
            return
        if encoding.lower() != "chunked":
            raise Refusal(400, "InvalidRequest", f"unknown transfer encoding: {encoding!r}")
        while size := await self._chunk_size():
            piece = await self.reader.readexactly(size + 2)
            if piece[-2:] != b"\r\n":
                raise Refusal(400, "InvalidRequest", "a chunk is longer than its size")
            yield piece[:-2]
        await self._read_trailers()

    async def _chunk_size(self) -> int:
        line = await self.reader.readuntil(b"\n")
        if _CHUNK_SIZE.fullmatch(line) is None:
            raise Refusal(400, "InvalidRequest", f"not a chunk's size: {line!r}")
        return int(line, 16)

    async def _read_trailers(self) -> None:
        lines: list[str] = []
        while (line := await self.reader.readuntil(b"\r\n")) != b"\r\n":
            lines.append(line.decode("latin-1").removesuffix("\r\n"))
        declared = {name.strip().lower() for name in self.headers.get("trailer", "").split(",")}
        self.trailers = _read_fields(lines)
        if not self.trailers.keys() <= declared:
            raise Refusal(400, "InvalidRequest", f"undeclared trailers: {[*self.trailers]}")


class Prelude:
    """Checks the prelude of a streamed HTTP response."""

    def __init__(self) -> None:
        self._seen = b""
        self._whole = False

    def check(self, piece: bytes) -> None:
        if self._whole:
            return
        self._seen += piece
        text, end, _ = self._seen.partition(bytes(8))
        if end:
            self._whole = True
            _check_prelude(text)
        elif len(self._seen) > MAX_PRELUDE_BYTES:
            raise Refusal(400, "InvalidPrelude", "the prelude does not end")

    def check_end(self) -> None:
        if not self._whole:
            raise Refusal(400, "InvalidPrelude", "the response ends within its prelude")


def _check_prelude(text: bytes) -> None:
    try:
        prelude = json.loads(text)
        assert prelude.keys() <= {"statusCode", "headers", "cookies"}
        assert type(prelude["statusCode"]) is int
        assert 100 <= prelude["statusCode"] <= 599
        headers, cookies = prelude.get("headers", {}), prelude.get("cookies", [])
        assert all(isinstance(value, str) for value in headers.values())
        assert all(isinstance(cookie, str) for cookie in cookies)
        assert "set-cookie" not in {name.lower() for name in headers}
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise Refusal(400, "InvalidPrelude", f"not a prelude: {text!r}") from error


def _read_fields(lines: list[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or name.lower() in fields:
            raise Refusal(400, "InvalidRequest", f"not a header: {line!r}")
        fields[name.lower()] = value.strip()
    return fields


def read_failure(headers: Mapping[str, str], body: bytes) -> Failure:
    try:
        described = json.loads(body)
    except ValueError:
        described = None
    if not isinstance(described, dict):
        raise Refusal(400, "InvalidErrorBody", f"not a description of an error: {body!r}")
    return Failure(headers.get(_ERROR_TYPE, ""), described)


def read_trailing(trailers: Mapping[str, str]) -> Failure | None:
    if _ERROR_TYPE not in trailers:
        return None
    try:
        body = base64.b64decode(trailers.get(_ERROR_BODY, ""), validate=True)
    except binascii.Error as error:
        raise Refusal(400, "InvalidErrorBody", "the error's body is not base64") from error
    return read_failure(trailers, body)


def write_answer(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    fields = {"Content-Type": "application/json", **(headers or {}), "Content-Length": len(body)}
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Refused')}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
