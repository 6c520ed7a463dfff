"""The configuration of a subscription, as a client sends it, in its normal form."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from tailrace.errors import BadPath, InvalidSubscription, PathTooLong
from tailrace.limits import (
    LEASE_LEAST_MS,
    LEASE_MOST_MS,
    PATH_BYTES,
    SUBSCRIPTION_ID_BYTES,
    SUBSCRIPTION_STREAMS,
    SUBSCRIPTION_TEXT_BYTES,
)
from tailrace.log.paths import RESERVED, canonical, encode
from tailrace.protocols.subscriptions.core.globs import matches

WEBHOOK: Final = "webhook"
PULL_WAKE: Final = "pull-wake"

LEASE_DEFAULT_MS: Final = 30_000


class Configuration(NamedTuple):
    """A configuration in its normal form: two are the same if they are equal."""

    type: str
    """`webhook` or `pull-wake`."""
    pattern: str | None
    streams: tuple[str, ...]
    """Paths that are linked explicitly, sorted."""
    url: str | None
    """Of the webhook."""
    wake_stream: str | None
    """The path of the stream that gets the wake events of `pull-wake`."""
    lease_ttl_ms: int
    description: str | None

    def digest(self) -> str:
        return hashlib.sha256(orjson.dumps(list(self))).hexdigest()


def parse_configuration(body: bytes) -> Configuration:
    """Parse the body of a PUT; raises InvalidSubscription."""
    fields = parse_object(body)
    kind = fields.get("type")
    if kind not in (WEBHOOK, PULL_WAKE):
        raise InvalidSubscription("type must be webhook or pull-wake")
    pattern = fields.get("pattern")
    streams = parse_streams(fields["streams"]) if fields.get("streams") is not None else ()
    if pattern is None and not streams:
        raise InvalidSubscription("name the streams: give a pattern, a list of streams, or both")
    configuration = Configuration(
        kind,
        None if pattern is None else parse_pattern(pattern),
        streams,
        _url(fields) if kind == WEBHOOK else None,
        parse_path(fields.get("wake_stream"), "wake_stream") if kind == PULL_WAKE else None,
        _lease(fields.get("lease_ttl_ms", LEASE_DEFAULT_MS)),
        None if fields.get("description") is None else text_of(fields, "description"),
    )
    if configuration.wake_stream in streams:
        raise InvalidSubscription("a subscription cannot follow its own wake_stream")
    return configuration


def parse_id(text: str) -> str:
    """Check the id of a subscription, after its percent-encoding is undone."""
    if not text or len(text.encode(errors="surrogateescape")) > SUBSCRIPTION_ID_BYTES:
        raise InvalidSubscription(f"an id has 1 to {SUBSCRIPTION_ID_BYTES} bytes")
    if not text.isprintable():
        raise InvalidSubscription("an id has printable characters only")
    if text in (".", ".."):
        raise InvalidSubscription("an id is not '.' or '..', which clients take out of URLs")
    return text


def parse_object(body: bytes) -> Mapping[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidSubscription(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidSubscription("the body must be a JSON object")
    return value


def parse_streams(value: object) -> tuple[str, ...]:
    """Parse a list of paths into its normal form: sorted, each once."""
    if not isinstance(value, list) or not value:
        raise InvalidSubscription("streams must be a list of paths")
    if len(value) > SUBSCRIPTION_STREAMS:
        raise InvalidSubscription(f"at most {SUBSCRIPTION_STREAMS} streams in one request")
    return tuple(sorted({parse_path(each, "streams") for each in value}))


def parse_path(value: object, field: str) -> str:
    """Parse a path below the root of streams; slashes around it do not count."""
    if not isinstance(value, str):
        raise InvalidSubscription(f"{field} must be the path of a stream, as text")
    try:
        path = canonical(encode(value.strip("/")))
    except (BadPath, PathTooLong) as error:
        raise InvalidSubscription(f"{field}: {error}") from None
    if path.partition("/")[0] == RESERVED:
        raise InvalidSubscription(f"{field}: '{RESERVED}' is reserved for the protocol")
    return path


def parse_pattern(value: object) -> str:
    if not isinstance(value, str) or not value.strip("/"):
        raise InvalidSubscription("pattern must be text such as events/* or agents/**")
    # A star is one of the characters that a path holds unencoded.
    pattern = parse_path(value, "pattern")
    if len(pattern) > PATH_BYTES:
        raise InvalidSubscription(f"a pattern has at most {PATH_BYTES} bytes")
    return pattern


def follows(pattern: str | None, wake_stream: str | None, path: str) -> bool:
    """Whether a subscription follows a stream by its pattern: never its own wake stream, since
    every wake would cause the next."""
    return pattern is not None and path != wake_stream and matches(pattern, path)


def text_of(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or len(value.encode()) > SUBSCRIPTION_TEXT_BYTES:
        raise InvalidSubscription(f"{name} must be text of at most {SUBSCRIPTION_TEXT_BYTES} bytes")
    return value


def number_of(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidSubscription(f"{name} must be a whole number")
    return value


def list_of(fields: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = fields.get(name, [])
    if not isinstance(value, list):
        raise InvalidSubscription(f"{name} must be a list")
    return value


def _url(fields: Mapping[str, Any]) -> str:
    webhook = fields.get("webhook")
    if not isinstance(webhook, dict) or not isinstance(webhook.get("url"), str):
        raise InvalidSubscription("webhook.url must be the URL of the webhook, as text")
    url: str = webhook["url"]
    return url


def _lease(value: object) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not LEASE_LEAST_MS <= value <= LEASE_MOST_MS
    ):
        raise InvalidSubscription(
            f"lease_ttl_ms must be a whole number from {LEASE_LEAST_MS} to {LEASE_MOST_MS}"
        )
    return value
