"""What applications post to `/_broadcast`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from tailrace.errors import BadBroadcast, BadPath, BodyTooLarge, InvalidJson, PathTooLong
from tailrace.limits import BROADCAST_BATCH, BROADCAST_BYTES
from tailrace.log import json_mode
from tailrace.protocols.action_cable.core.stream_names import path_of


class Publication(NamedTuple):
    stream: str
    path: str
    text: bytes
    """One JSON value, whatever it is."""
    exclude: str | None = None
    """The session that does not get it."""
    transient: bool = False
    """Told to those who are there, and not kept."""
    kind: str | None = None
    """What is delivered as the message's `type`."""

    @property
    def noted(self) -> bool:
        """Whether there is something about it that the log does not hold."""
        return self.exclude is not None or self.kind is not None


class Disconnect(NamedTuple):
    """All sessions of somebody are to end."""

    identity: str
    reconnect: bool


def parse(body: bytes) -> Sequence[Publication] | Disconnect:
    """One publication, several in order, or a command; BadBroadcast for anything else."""
    if len(body) > BROADCAST_BYTES:
        raise BodyTooLarge(f"a broadcast has at most {BROADCAST_BYTES} bytes")
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise BadBroadcast("the body is not JSON") from None
    if isinstance(given, dict) and "command" in given:
        return _command(given)
    several = given if isinstance(given, list) else [given]
    if not several:
        raise BadBroadcast("the batch is empty")
    if len(several) > BROADCAST_BATCH:
        raise BadBroadcast(f"a batch has at most {BROADCAST_BATCH} broadcasts")
    return [_publication(each) for each in several]


def _command(given: dict[str, Any]) -> Disconnect:
    if given["command"] != "disconnect":
        raise BadBroadcast("the one command that there is is disconnect")
    payload = given.get("payload")
    identity = payload.get("identifier") if isinstance(payload, dict) else None
    if not isinstance(payload, dict) or not isinstance(identity, str) or not identity:
        raise BadBroadcast("disconnect takes a payload with the identifier of whom it is about")
    return Disconnect(identity, payload.get("reconnect") is True)


def _publication(given: object) -> Publication:
    if not isinstance(given, dict):
        raise BadBroadcast("a broadcast is an object with stream and data")
    stream, data, meta = given.get("stream"), given.get("data"), given.get("meta")
    if not isinstance(stream, str) or not isinstance(data, str):
        raise BadBroadcast("a broadcast has the texts stream and data")
    if meta is not None and not isinstance(meta, dict):
        raise BadBroadcast("meta is an object")
    try:
        path = path_of(stream)
    except (BadPath, PathTooLong) as error:
        raise BadBroadcast(f"stream is no name of a stream: {error}") from None
    meta = meta or {}
    return Publication(
        stream,
        path,
        _text(data),
        _optional(meta, "exclude_socket"),
        meta.get("transient") is True,
        _optional(meta, "broadcast_type"),
    )


def _text(data: str) -> bytes:
    """JSON as it is; anything else as a JSON string."""
    text = data.removeprefix("\ufeff").strip(" \t\r\n").encode()
    try:
        json_mode.flatten(text)
    except InvalidJson:
        return orjson.dumps(data)
    return text


def _optional(meta: dict[str, Any], name: str) -> str | None:
    value = meta.get(name)
    if value is not None and not isinstance(value, str):
        raise BadBroadcast(f"meta.{name} is a text")
    return value or None
