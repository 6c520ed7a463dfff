"""What a server says on a cable, as the text of a frame.

The order of fields is the one that is seen on the wire elsewhere. An identifier is echoed as it
came, and a message is put in as it is stored: neither is ever made anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

JSON: Final = "actioncable-v1-json"
EXTENDED: Final = "actioncable-v1-ext-json"
PROTOCOLS: Final = (JSON, EXTENDED)
"""The first one that a client offers is spoken, in this order."""

TOKEN_PROTOCOL: Final = "anycable-token."  # noqa: S105 - only what stands before one
"""Browsers cannot send headers with a WebSocket: what follows this in the list of protocols is an
identification token."""

PONG: Final = '{"type":"pong"}'


def chosen(offered: Sequence[str]) -> str | None:
    """The protocol to speak; None: the client offers none of them, and gets the first unnamed."""
    return next((each for each in PROTOCOLS if each in offered), None)


def welcome(sid: str, restored: Sequence[str] | None = None) -> str:
    fields: dict[str, Any] = {"type": "welcome", "sid": sid}
    if restored is not None:
        fields["restored"] = True
        if restored:
            fields["restored_ids"] = restored
    return _text(fields)


def ping(instant: int) -> str:
    return f'{{"type":"ping","message":{instant}}}'


def confirm_subscription(identifier: str) -> str:
    return _text({"type": "confirm_subscription", "identifier": identifier})


def reject_subscription(identifier: str) -> str:
    return _text({"type": "reject_subscription", "identifier": identifier})


def confirm_history(identifier: str) -> str:
    return _text({"type": "confirm_history", "identifier": identifier})


def reject_history(identifier: str) -> str:
    return _text({"type": "reject_history", "identifier": identifier})


def disconnect(reason: str, *, reconnect: bool) -> str:
    # The flag is always there: clients do not agree on what its absence means.
    return _text({"type": "disconnect", "reason": reason, "reconnect": reconnect})


def data(
    identifier: str,
    message: str,
    stream: str,
    epoch: str,
    offset: int,
    kind: str | None = None,
) -> str:
    """A message of a stream; `kind` is the `type` that its publisher gave it."""
    place = f'"stream_id":{_text(stream)},"epoch":"{epoch}","offset":{offset}'
    return f"{{{_type(kind)}{_envelope(identifier, message)},{place}}}"


def transient(identifier: str, message: str, kind: str | None = None) -> str:
    """A message that is in no stream."""
    return f"{{{_type(kind)}{_envelope(identifier, message)}}}"


def presence(identifier: str, message: str) -> str:
    return transient(identifier, message, "presence")


def _envelope(identifier: str, message: str) -> str:
    return f'"identifier":{_text(identifier)},"message":{message}'


def _type(kind: str | None) -> str:
    return "" if kind is None else f'"type":{_text(kind)},'


def _text(value: object) -> str:
    return orjson.dumps(value).decode()
