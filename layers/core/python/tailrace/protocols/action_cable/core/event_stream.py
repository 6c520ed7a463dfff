"""Cable messages as server-sent events.

    event: confirm_subscription          data: {"a":1}
    data: {"type":"confirm_…"}           id: 7/2f9c…/chat/42

A message has no event name, and its id is where the client has got to: offset, epoch and stream.
Without names, browsers hand it to `onmessage`; a message that is a string arrives as its text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from tailrace.errors import BadParameter, BadRequest
from tailrace.limits import MAX_INTEGER
from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.channels import PUBSUB, TURBO
from tailrace.protocols.action_cable.core.commands import Command, History, Position, parse
from tailrace.protocols.action_cable.core.contents import Message
from tailrace.protocols.action_cable.core.encoders import Encoder

NEVER: Final = 31_536_000_000
"""Milliseconds, a year: what a browser is told that is not to come back."""

_OFFSET: Final = re.compile(r"[0-9]{1,16}")
_SECONDS: Final = re.compile(r"[0-9]{1,16}(?:\.[0-9]{1,9})?")
_SWITCHED: Final = ("1", "true", "t", "y")


def identifier_of(query: Mapping[str, Sequence[str]]) -> str:
    """What a GET asks for: the first of the parameters that say so."""
    given = {name: values[-1] for name, values in query.items() if values[-1]}
    if "identifier" in given:
        return given["identifier"]
    if "channel" in given:
        fields = {"channel": given["channel"]}
    elif "stream" in given:
        fields = {"channel": PUBSUB, "stream_name": given["stream"]}
    elif "signed_stream" in given:
        fields = {"channel": PUBSUB, "signed_stream_name": given["signed_stream"]}
    elif "turbo_signed_stream_name" in given:
        fields = {"channel": TURBO, "signed_stream_name": given["turbo_signed_stream_name"]}
    else:
        raise BadParameter("name what to listen to: signed_stream, stream, channel or identifier")
    return orjson.dumps(fields).decode()


def history_of(query: Mapping[str, Sequence[str]], last_id: str | None) -> History | None:
    """What a client has missed: since its last event, or since a time."""
    if last_id:
        offset, _, place = last_id.partition("/")
        epoch, _, stream = place.partition("/")
        if _OFFSET.fullmatch(offset) and stream:
            return History(0, {stream: Position(epoch, min(int(offset), MAX_INTEGER))})
    given = query.get("history_since", ("",))[-1]
    if not given:
        return None
    if not _SECONDS.fullmatch(given):
        raise BadParameter("history_since is a time in seconds since 1970")
    return History(float(given), {})


def is_raw(query: Mapping[str, Sequence[str]]) -> bool:
    return query.get("raw", ("",))[-1].lower() in _SWITCHED


def commands_of(body: bytes) -> list[Command]:
    """What a POST says, a command in each line; the first is a subscription."""
    found = [parse(line) for line in body.splitlines() if line.strip()]
    if not found or found[0].name != "subscribe":
        raise BadRequest("the body has a command in each line, of which the first is subscribe")
    return found


def _control(frame: str) -> str:
    fields = orjson.loads(frame)
    ends = fields.get("reconnect") is False
    retry = f"retry: {NEVER}\n" if ends else ""
    return f"event: {fields['type']}\ndata: {frame}\n{retry}\n"


def _raw_control(frame: str) -> str:
    # Silence would be taken for a dead connection on the way, and an answer of which there is
    # nothing yet is not passed on; a comment is for nobody.
    for kind in ("ping", "welcome"):
        if frame.startswith(f'{{"type":"{kind}"'):
            return f": {kind}\n\n"
    return ""


def _message(text: str) -> str:
    value = orjson.loads(text) if text.startswith('"') else text
    lines = value.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\ndata: ")
    return f"data: {lines}\n"


def _data(_: str, message: Message, stream: str, epoch: str, __: str | None) -> str:
    return f"{_message(message.text)}id: {message.offset}/{epoch}/{stream}\n\n"


def _transient(_: str, text: str, kind: str | None) -> str:
    name = "event: presence\n" if kind == "presence" else ""
    return f"{name}{_message(text)}\n"


def _whole(identifier: str, message: Message, stream: str, epoch: str, kind: str | None) -> str:
    frame = frames.data(identifier, message.text, stream, epoch, message.offset, kind)
    return f"{_message(frame)}id: {message.offset}/{epoch}/{stream}\n\n"


def _whole_transient(identifier: str, text: str, kind: str | None) -> str:
    return f"{_message(frames.transient(identifier, text, kind))}\n"


UNWRAPPED: Final = Encoder(_data, _transient, _control)
"""For a GET, which listens to one thing: messages as they are."""

RAW: Final = Encoder(_data, _transient, _raw_control)
"""The same, without anything else."""

ENVELOPES: Final = Encoder(_whole, _whole_transient, _control)
"""For a POST, which may listen to many: messages as on a WebSocket."""
