"""Broadcasts: the bodies that applications post to `/_broadcast`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from tailrace.errors import BadBroadcast, BadPath, BodyTooLarge, InvalidJson, PathTooLong
from tailrace.limits import BROADCAST_BATCH_MESSAGES, BROADCAST_BYTES
from tailrace.log import json_mode
from tailrace.protocols.action_cable.core.channels import path_of


class Publication(NamedTuple):
    stream: str
    path: str
    text: bytes
    """One JSON value of any type."""
    exclude: str | None = None
    """The id of the session that does not get it."""
    transient: bool = False
    """Whether it is sent to current subscribers only, and not stored."""
    kind: str | None = None
    """The `type` that the message is delivered with."""

    @property
    def has_options(self) -> bool:
        """Whether its delivery depends on options that are not a part of the message."""
        return self.exclude is not None or self.kind is not None


class Disconnect(NamedTuple):
    """A command to end all sessions of an identity."""

    identity: str
    reconnect: bool


def parse(body: bytes) -> Sequence[Publication] | Disconnect:
    """Parse a publication, a batch of them, or a command; raises BadBroadcast for anything else."""
    if len(body) > BROADCAST_BYTES:
        raise BodyTooLarge(f"a broadcast has at most {BROADCAST_BYTES} bytes")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise BadBroadcast("the body is not JSON") from None
    if isinstance(value, dict) and "command" in value:
        return _command(value)
    batch = value if isinstance(value, list) else [value]
    if not batch:
        raise BadBroadcast("the batch is empty")
    if len(batch) > BROADCAST_BATCH_MESSAGES:
        raise BadBroadcast(f"a batch has at most {BROADCAST_BATCH_MESSAGES} broadcasts")
    return [_publication(each) for each in batch]


def _command(fields: dict[str, Any]) -> Disconnect:
    if fields["command"] != "disconnect":
        raise BadBroadcast("the only command is disconnect")
    payload = fields.get("payload")
    identity = payload.get("identifier") if isinstance(payload, dict) else None
    if not isinstance(payload, dict) or not isinstance(identity, str) or not identity:
        raise BadBroadcast("disconnect needs a payload with the identifier to disconnect")
    return Disconnect(identity, payload.get("reconnect") is True)


def _publication(fields: object) -> Publication:
    if not isinstance(fields, dict):
        raise BadBroadcast("a broadcast must be an object with stream and data")
    stream, data, meta = fields.get("stream"), fields.get("data"), fields.get("meta")
    if not isinstance(stream, str) or not isinstance(data, str):
        raise BadBroadcast("stream and data must be strings")
    if meta is not None and not isinstance(meta, dict):
        raise BadBroadcast("meta must be an object")
    try:
        path = path_of(stream)
    except (BadPath, PathTooLong) as error:
        raise BadBroadcast(f"stream is not a valid name: {error}") from None
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
    """Return JSON unchanged, and anything else as a JSON string."""
    text = data.removeprefix("\ufeff").strip(" \t\r\n").encode()
    try:
        json_mode.flatten(text)
    except InvalidJson:
        # A copy, because what orjson returns takes 4 KiB, and newest entries stay in memory.
        return b"%b" % orjson.dumps(data)
    return text


def _optional(meta: dict[str, Any], name: str) -> str | None:
    value = meta.get(name)
    if value is not None and not isinstance(value, str):
        raise BadBroadcast(f"meta.{name} must be a string")
    return value or None
