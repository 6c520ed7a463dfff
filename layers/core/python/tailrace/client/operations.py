"""Operations on streams: what is sent, and what the response means; no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from tailrace.client.content import DEFAULT_TYPE
from tailrace.client.errors import NotFoundError, ProtocolError, UnsupportedError
from tailrace.client.exchange import (
    Emit,
    HttpAnswer,
    HttpRequest,
    Operation,
    RetryPolicy,
    exchange,
)
from tailrace.client.urls import LISTING, add_query, encode_path, url_path

TAILRACE: Final = "x-tailrace-version"
"""A header of every response of Tailrace, by which its additions to the protocol are known."""

PAGE_STREAMS: Final = 1000


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """The metadata of a stream; None is what the server does not tell."""

    content_type: str
    next_offset: str | None
    closed: bool
    ttl: int | None = None
    expires_at: str | None = None
    earliest_offset: str | None = None
    last_written_at: str | None = None
    created_at: str | None = None
    etag: str | None = None
    path: str | None = None
    """In a listing: the percent-encoded path."""

    @property
    def name(self) -> str | None:
        """In a listing: the path, as it names the stream in this client."""
        return None if self.path is None else unquote(self.path, errors="surrogateescape")


@dataclass(frozen=True, slots=True)
class CreateResult:
    created: bool
    """False if a stream with the same settings existed."""
    info: StreamInfo


@dataclass(frozen=True, slots=True)
class AppendResult:
    next_offset: str | None
    """The end of the stream after the append; None where the server does not tell."""
    closed: bool = False
    duplicate: bool = False
    """Whether the server had this request of the producer before."""
    etag: str | None = None


class ProducerPlace(NamedTuple):
    """The place of a request in the sequence of its producer."""

    id: str
    epoch: int
    seq: int


def head(url: str, retries: RetryPolicy) -> Operation[StreamInfo]:
    answer = yield from exchange(HttpRequest("HEAD", url), retries)
    return parse_info(answer)


def create(
    url: str,
    retries: RetryPolicy,
    *,
    content_type: str | None = None,
    ttl: int | None = None,
    expires_at: str | datetime | None = None,
    closed: bool = False,
    body: bytes = b"",
    fork_headers: Mapping[str, str] | None = None,
) -> Operation[CreateResult]:
    if isinstance(expires_at, datetime):
        if expires_at.tzinfo is None:
            raise ValueError("expires_at needs a time zone")
        expires_at = expires_at.isoformat()
    optional = {
        "Content-Type": content_type,
        "Stream-TTL": None if ttl is None else str(ttl),
        "Stream-Expires-At": expires_at,
        "Stream-Closed": "true" if closed else None,
        **(fork_headers or {}),
    }
    headers = {name: value for name, value in optional.items() if value is not None}
    answer = yield from exchange(HttpRequest("PUT", url, headers, body), retries)
    return CreateResult(answer.status == 201, parse_info(answer))


def fork_headers(source_url: str | None, at: str | None, sub_offset: int | None) -> dict[str, str]:
    if source_url is None:
        return {}
    headers = {"Stream-Forked-From": url_path(source_url)}
    if at is not None:
        headers["Stream-Fork-Offset"] = at
    if sub_offset is not None:
        headers["Stream-Fork-Sub-Offset"] = str(sub_offset)
    return headers


def append(
    url: str,
    retries: RetryPolicy,
    body: bytes,
    *,
    content_type: str | None,
    close: bool = False,
    seq: str | None = None,
    if_match: str | None = None,
    producer: ProducerPlace | None = None,
) -> Operation[AppendResult]:
    """Append a body, or close the stream, or both.

    With a producer, or without a body, repeating the request is harmless, and so it is repeated
    whenever its outcome is unknown.
    """
    if not body and not close:
        raise ValueError("there is nothing to append")
    headers: dict[str, str] = {}
    if content_type is not None:
        headers["Content-Type"] = content_type
    if close:
        headers["Stream-Closed"] = "true"
    if seq is not None:
        headers["Stream-Seq"] = seq
    if if_match is not None:
        headers["If-Match"] = if_match if if_match.startswith('"') else f'"{if_match}"'
    if producer is not None:
        headers["Producer-Id"] = producer.id
        headers["Producer-Epoch"] = str(producer.epoch)
        headers["Producer-Seq"] = str(producer.seq)
    request = HttpRequest("POST", url, headers, body)
    repeatable = producer is not None or (not body and seq is None and if_match is None)
    answer = yield from exchange(request, retries, repeatable=repeatable)
    return AppendResult(
        answer.headers.get("stream-next-offset"),
        closed=close or answer.says("stream-closed"),
        duplicate=producer is not None and bool(body) and answer.status == 204,
        etag=answer.headers.get("etag"),
    )


def append_if_match(
    url: str,
    retries: RetryPolicy,
    body: bytes,
    *,
    content_type: str | None,
    if_match: str,
    close: bool = False,
    seq: str | None = None,
    known: bool = False,
) -> Operation[AppendResult]:
    """Append only if the stream ends at an offset, or has an ETag.

    Another server than Tailrace would ignore the condition and append, so unless this one is
    known it is asked first.
    """
    if not known:
        answer = yield from exchange(HttpRequest("HEAD", url), retries)
        require_tailrace(answer, "if_match")
    return (
        yield from append(
            url,
            retries,
            body,
            content_type=content_type,
            close=close,
            seq=seq,
            if_match=if_match,
        )
    )


def delete(url: str, retries: RetryPolicy) -> Operation[None]:
    yield from exchange(HttpRequest("DELETE", url), retries)


def list_streams(server: str, retries: RetryPolicy, prefix: str) -> Operation[None]:
    """Emit the streams whose path begins with a prefix."""
    url = server.rstrip("/") + LISTING
    parameters = {"limit": str(PAGE_STREAMS), "prefix": encode_path(prefix.lstrip("/"))}
    while True:
        try:
            request = HttpRequest("GET", add_query(url, parameters))
            answer = yield from exchange(request, retries)
        except NotFoundError as error:
            raise UnsupportedError("this server does not list streams", status=404) from error
        try:
            page = json.loads(answer.body)
            infos = [_parse_listed(item) for item in page["streams"]]
            following = page["next"]
        except (ValueError, LookupError, TypeError, AttributeError):
            raise ProtocolError(f"{url} did not return a list of streams") from None
        for info in infos:
            yield Emit(info)
        if following is None or following == parameters.get("after"):
            return
        parameters["after"] = str(following)


def require_tailrace(answer: HttpAnswer, feature: str) -> None:
    if TAILRACE not in answer.headers:
        raise UnsupportedError(f"this server does not have '{feature}'")


def parse_info(answer: HttpAnswer) -> StreamInfo:
    headers = answer.headers
    ttl = headers.get("stream-ttl", "")
    return StreamInfo(
        content_type=headers.get("content-type", DEFAULT_TYPE),
        next_offset=headers.get("stream-next-offset"),
        closed=answer.says("stream-closed"),
        ttl=int(ttl) if ttl.isdigit() else None,
        expires_at=headers.get("stream-expires-at"),
        earliest_offset=headers.get("stream-earliest-offset"),
        last_written_at=headers.get("stream-last-written-at"),
        etag=headers.get("etag"),
    )


def _parse_listed(item: Mapping[str, Any]) -> StreamInfo:
    return StreamInfo(
        content_type=str(item.get("content_type") or DEFAULT_TYPE),
        next_offset=item.get("next_offset"),
        closed=bool(item.get("closed")),
        ttl=item.get("ttl"),
        expires_at=item.get("expires_at"),
        created_at=item.get("created_at"),
        path=str(item["path"]),
    )
