"""Parse the headers of writes into requests of the log."""

from __future__ import annotations

import re

from tailrace.errors import BadHeader, UnsupportedEncoding
from tailrace.limits import MAX_INTEGER, PRODUCER_ID_BYTES, STREAM_SEQ_BYTES
from tailrace.log import offsets
from tailrace.log.append import Append
from tailrace.log.content import check_type
from tailrace.log.create import Create, ForkFrom
from tailrace.log.expiry import parse_decimal, parse_instant
from tailrace.log.offsets import Position
from tailrace.log.state import Producer
from tailrace.web.messages import Request
from tailrace.web.urls import StreamUrls

_APPEND_HEADERS = frozenset(
    (
        b"if-match",
        b"stream-closed",
        b"stream-seq",
        b"producer-id",
        b"producer-epoch",
        b"producer-seq",
    )
)
_TAG = re.compile(r'"([^"]*)"')
_DIGITS = re.compile(r"[0-9]{1,16}")


def parse_create(request: Request, urls: StreamUrls) -> Create:
    ttl, expires_at = request.header(b"stream-ttl"), request.header(b"stream-expires-at")
    if ttl is not None and expires_at is not None:
        raise BadHeader("send Stream-TTL or Stream-Expires-At, not both")
    content_type = request.header(b"content-type")
    return Create(
        request.body,
        check_type(content_type) if content_type else None,
        None if ttl is None else parse_decimal("Stream-TTL", ttl),
        None if expires_at is None else parse_instant(expires_at),
        _closes(request),
        _fork_from(request, urls),
    )


def parse_append(request: Request) -> Append:
    if _APPEND_HEADERS.isdisjoint(request.headers):
        return Append(request.body, request.header(b"content-type") or None)
    seq = request.header(b"stream-seq")
    if seq is not None and len(seq) > STREAM_SEQ_BYTES:
        raise BadHeader(f"Stream-Seq has at most {STREAM_SEQ_BYTES} bytes")
    content_type = request.header(b"content-type")
    return Append(
        request.body, content_type or None, _closes(request), seq, _producer(request),
        expected=_expected(request),
    )  # fmt: skip


def refuse_encoding(request: Request) -> None:
    """Refuse compressed bodies.

    They would be stored and served as if they were the content, and decompressing them here would
    let a few bytes become any number of bytes."""
    encoding = request.headers.get(b"content-encoding")
    if encoding and encoding.lower() != b"identity":
        name = encoding[:40].decode("latin-1")
        raise UnsupportedEncoding(
            f"Content-Encoding is '{name}', but only identity is taken: send the body as it is"
        )


def _closes(request: Request) -> bool:
    value = request.headers.get(b"stream-closed")
    return value is not None and value.lower() == b"true"


def _producer(request: Request) -> Producer | None:
    headers = request.headers
    name, epoch, seq = (
        headers.get(b"producer-id"),
        headers.get(b"producer-epoch"),
        headers.get(b"producer-seq"),
    )
    if name is None and epoch is None and seq is None:
        return None
    if not name or epoch is None or seq is None:
        raise BadHeader("send Producer-Id, Producer-Epoch and Producer-Seq together, none empty")
    if len(name) > PRODUCER_ID_BYTES:
        raise BadHeader(f"Producer-Id has at most {PRODUCER_ID_BYTES} bytes")
    return Producer(
        name.decode("latin-1"),
        _counter("Producer-Epoch", epoch),
        _counter("Producer-Seq", seq),
    )


def _expected(request: Request) -> Position | None:
    text = request.header(b"if-match")
    if text is None:
        return None
    match = _TAG.fullmatch(text)
    if match is None:
        raise BadHeader(
            "If-Match must be one Stream-Next-Offset in quotes: no star, no list, no weak tag"
        )
    return offsets.parse(match[1])


def _counter(name: str, value: bytes) -> int:
    text = value.decode("latin-1")
    if not _DIGITS.fullmatch(text) or int(text) > MAX_INTEGER:
        raise BadHeader(f"{name} must be an integer from 0 to {MAX_INTEGER}")
    return int(text)


def _fork_from(request: Request, urls: StreamUrls) -> ForkFrom | None:
    source = request.header(b"stream-forked-from")
    sub_offset = request.header(b"stream-fork-sub-offset")
    if source is None:
        if sub_offset is not None:
            raise BadHeader("Stream-Fork-Sub-Offset needs Stream-Forked-From")
        return None
    offset = request.header(b"stream-fork-offset")
    fork = ForkFrom(
        urls.parse(source),
        sub_offset=0 if sub_offset is None else parse_decimal("Stream-Fork-Sub-Offset", sub_offset),
    )
    return fork if offset is None else fork._replace(**offsets.parse(offset)._asdict())
