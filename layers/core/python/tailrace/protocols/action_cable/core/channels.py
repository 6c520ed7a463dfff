"""Channels: which identifiers a client may subscribe to, without an application server.

| channel | its stream is named by | enabled | secret |
|---|---|---|---|
| `$pubsub` | `signed_stream_name` | always | that of signed names |
| `$pubsub` | `stream_name` | if the stream is public, or the server open | |
| `Turbo::StreamsChannel` | `signed_stream_name` | `turbo_streams` | Turbo's |
| `CableReady::Stream` | `identifier` | `cable_ready` | CableReady's |

A signed name takes precedence: a plain name beside it is ignored. Clients may use other fields as
they like. Without its secret, no signed name is valid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from tailrace.auth.signed_names import verify_name
from tailrace.errors import BadPath, PathTooLong
from tailrace.limits import CABLE_IDENTIFIER_BYTES
from tailrace.log.paths import RESERVED, canonical, encode_name


def path_of(name: str) -> str:
    """The path of the stream of a name; raises BadPath or PathTooLong if the name is invalid."""
    if not name:
        raise BadPath("the name of a stream must not be empty")
    try:
        path = canonical(encode_name(name))
    except UnicodeEncodeError:
        raise BadPath("the name of a stream must be valid Unicode") from None
    if path.partition("/")[0] == RESERVED:
        raise BadPath(f"names that begin with '{RESERVED}' are reserved")
    return path


def epoch_of(chain: int) -> str:
    """An incarnation as clients see it: offsets are relative to its start."""
    return f"{chain:x}"


if TYPE_CHECKING:
    from tailrace.auth.authorizer import Authorizer
    from tailrace.settings import Settings

PUBSUB: Final = "$pubsub"
TURBO: Final = "Turbo::StreamsChannel"
CABLE_READY: Final = "CableReady::Stream"


class Subscription(NamedTuple):
    """A stream that a client may follow, and what else it may do there."""

    identifier: str
    stream: str
    path: str
    whispers: bool = False
    presence: bool = False


class Channels:
    def __init__(self, authorizer: Authorizer, settings: Settings) -> None:
        self._authorizer = authorizer
        self._turbo = settings.turbo_streams
        self._cable_ready = settings.cable_ready
        self._whispers = settings.streams_whisper
        self._presence = settings.streams_presence

    def authorize(self, identifier: str) -> Subscription | None:
        """The subscription for an identifier; None: not allowed, or no such channel."""
        fields = _parse(identifier)
        if fields is None:
            return None
        keys = self._authorizer.keys
        match fields.get("channel"):
            case "$pubsub":
                return self._pubsub(identifier, fields)
            case "Turbo::StreamsChannel" if self._turbo:
                name = _signed(fields.get("signed_stream_name"), keys.turbo)
            case "CableReady::Stream" if self._cable_ready:
                name = _signed(fields.get("identifier"), keys.cable_ready)
            case _:
                return None
        path = _path(name)
        return None if name is None or path is None else Subscription(identifier, name, path)

    def leaves_to_application(self, identifier: str) -> bool:
        """Whether an identifier is that of a channel that is not served here."""
        fields = _parse(identifier)
        if fields is None:
            return False
        match fields.get("channel"):
            case "$pubsub":
                return False
            case "Turbo::StreamsChannel":
                return not self._turbo
            case "CableReady::Stream":
                return not self._cable_ready
        return True

    def _pubsub(self, identifier: str, fields: dict[str, Any]) -> Subscription | None:
        signed = fields.get("signed_stream_name")
        streams = self._authorizer.keys.streams
        name = _signed(signed, streams) if signed else fields.get("stream_name")
        path = _path(name)
        if name is None or path is None or not (signed or self._authorizer.is_public(path)):
            return None
        whispers = self._whispers or not signed
        return Subscription(identifier, name, path, whispers, self._presence)


def _parse(identifier: str) -> dict[str, Any] | None:
    if len(identifier.encode()) > CABLE_IDENTIFIER_BYTES:
        return None
    try:
        fields = orjson.loads(identifier)
    except orjson.JSONDecodeError:
        return None
    return fields if isinstance(fields, dict) else None


def _signed(token: object, keys: tuple[bytes, ...]) -> str | None:
    return verify_name(token, keys) if isinstance(token, str) else None


def _path(name: object) -> str | None:
    if not isinstance(name, str):
        return None
    try:
        return path_of(name)
    except (BadPath, PathTooLong):
        return None
