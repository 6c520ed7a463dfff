"""Frames: the messages that the server sends, as text.

The order of fields is that of Rails and AnyCable. An identifier is echoed as the client sent it,
and a message is inserted as it is stored: neither is serialized again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

JSON: Final = "actioncable-v1-json"
EXTENDED: Final = "actioncable-v1-ext-json"
PROTOCOLS: Final = (JSON, EXTENDED)
"""The subprotocols, in order of preference."""

TOKEN_PROTOCOL: Final = "anycable-token."  # noqa: S105 - a prefix, not a secret
"""Prefix of an identification token in the list of subprotocols: browsers cannot send other
headers of their own with a WebSocket."""

PONG: Final = '{"type":"pong"}'


def choose_protocol(offered: Sequence[str]) -> str | None:
    """The subprotocol to speak. None: the client offers none of ours; it gets the first, without
    being told so."""
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


def deleted(identifier: str) -> str:
    """The stream of a subscription was deleted. Clients of the plain protocol must not get this:
    they pass messages of unknown types to their application. Browsers ignore an event of that
    name unless the page listens to it."""
    return _text({"type": "deleted", "identifier": identifier})


def disconnect(reason: str, *, reconnect: bool) -> str:
    # Always send the flag: clients differ in what they do without it.
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
    position = f'"stream_id":{_text(stream)},"epoch":"{epoch}","offset":{offset}'
    return f"{{{_type(kind)}{_envelope(identifier, message)},{position}}}"


def transient(identifier: str, message: str, kind: str | None = None) -> str:
    """A message that is not in the log."""
    return f"{{{_type(kind)}{_envelope(identifier, message)}}}"


def presence(identifier: str, message: str) -> str:
    return transient(identifier, message, "presence")


def _envelope(identifier: str, message: str) -> str:
    return f'"identifier":{_text(identifier)},"message":{message}'


def _type(kind: str | None) -> str:
    return "" if kind is None else f'"type":{_text(kind)},'


def _text(value: object) -> str:
    return orjson.dumps(value).decode()
