"""Cable messages as server-sent events.

    event: confirm_subscription          data: {"a":1}
    data: {"type":"confirm_…"}           id: 7/2f9c…/chat/42

A message has no event name, so browsers pass it to `onmessage`; its id is its position: offset,
epoch, and the path of the stream, since a name may have line breaks. A message that is a JSON
string is sent as its text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote

import orjson

from tailrace.errors import BadParameter, BadRequest
from tailrace.limits import MAX_INTEGER
from tailrace.log.paths import encode_name
from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.channels import PUBSUB, TURBO
from tailrace.protocols.action_cable.core.commands import (
    Command,
    HistoryPosition,
    MissedMessages,
    parse,
)
from tailrace.protocols.action_cable.core.contents import Message
from tailrace.protocols.action_cable.core.encoders import Encoder

NEVER: Final = 31_536_000_000
"""A year, in milliseconds: the `retry` that keeps a browser from reconnecting."""

_OFFSET: Final = re.compile(r"[0-9]{1,16}")
_SECONDS: Final = re.compile(r"[0-9]{1,16}(?:\.[0-9]{1,9})?")
_TRUE: Final = ("1", "true", "t", "y")


def identifier_of(query: Mapping[str, Sequence[str]]) -> str:
    """The identifier that a GET subscribes to, by the first of the parameters that name one."""
    values = {name: each[-1] for name, each in query.items() if each[-1]}
    if "identifier" in values:
        return values["identifier"]
    if "channel" in values:
        fields = {"channel": values["channel"]}
    elif "stream" in values:
        fields = {"channel": PUBSUB, "stream_name": values["stream"]}
    elif "signed_stream" in values:
        fields = {"channel": PUBSUB, "signed_stream_name": values["signed_stream"]}
    elif "turbo_signed_stream_name" in values:
        fields = {"channel": TURBO, "signed_stream_name": values["turbo_signed_stream_name"]}
    else:
        raise BadParameter(
            "name a stream by one of the parameters signed_stream, stream, channel and identifier"
        )
    return orjson.dumps(fields).decode()


def missed_of(query: Mapping[str, Sequence[str]], last_id: str | None) -> MissedMessages | None:
    """The messages that a GET asks for: those after its last event, or since a time."""
    if last_id:
        offset, _, rest = last_id.partition("/")
        epoch, _, path = rest.partition("/")
        if _OFFSET.fullmatch(offset) and path:
            return MissedMessages(
                0, {unquote(path): HistoryPosition(epoch, min(int(offset), MAX_INTEGER))}
            )
    since = query.get("history_since", ("",))[-1]
    if not since:
        return None
    if not _SECONDS.fullmatch(since):
        raise BadParameter("history_since must be a time in seconds since 1970")
    return MissedMessages(float(since), {})


def is_raw(query: Mapping[str, Sequence[str]]) -> bool:
    return query.get("raw", ("",))[-1].lower() in _TRUE


def commands_of(body: bytes) -> list[Command]:
    """The commands of a POST, one in each line; the first must be a subscription."""
    commands = [parse(line) for line in body.splitlines() if line.strip()]
    if not commands or commands[0].name != "subscribe":
        raise BadRequest("the body must have a command in each line, the first one subscribe")
    return commands


def _control(frame: str) -> str:
    fields = orjson.loads(frame)
    is_final = fields.get("reconnect") is False
    retry = f"retry: {NEVER}\n" if is_final else ""
    return f"event: {fields['type']}\ndata: {frame}\n{retry}\n"


def _raw_control(frame: str) -> str:
    # Proxies cut silent connections, and pass a response on only when its body begins. So pings and
    # welcomes become comments, which clients ignore.
    for kind in ("ping", "welcome"):
        if frame.startswith(f'{{"type":"{kind}"'):
            return f": {kind}\n\n"
    return ""


def _message(text: str) -> str:
    value = orjson.loads(text) if text.startswith('"') else text
    lines = value.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\ndata: ")
    return f"data: {lines}\n"


def _data(_: str, message: Message, stream: str, epoch: str, __: str | None) -> str:
    return _message(message.text) + _id(message, stream, epoch)


def _id(message: Message, stream: str, epoch: str) -> str:
    return f"id: {message.offset}/{epoch}/{encode_name(stream)}\n\n"


def _transient(_: str, text: str, kind: str | None) -> str:
    name = "event: presence\n" if kind == "presence" else ""
    return f"{name}{_message(text)}\n"


def _whole(identifier: str, message: Message, stream: str, epoch: str, kind: str | None) -> str:
    frame = frames.data(identifier, message.text, stream, epoch, message.offset, kind)
    return _message(frame) + _id(message, stream, epoch)


def _whole_transient(identifier: str, text: str, kind: str | None) -> str:
    return f"{_message(frames.transient(identifier, text, kind))}\n"


UNWRAPPED: Final = Encoder(_data, _transient, _control)
"""For a GET, which has one subscription: messages without an envelope."""

RAW: Final = Encoder(_data, _transient, _raw_control)
"""For a GET with `raw`: messages without an envelope, and no other events."""

ENVELOPES: Final = Encoder(_whole, _whole_transient, _control)
"""For a POST, which may have many subscriptions: messages in envelopes, as on a WebSocket."""
