"""Encoders: how messages and frames are written for one kind of client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.contents import Message


class Encoder(NamedTuple):
    """Functions that return the text to send; an empty text is not sent."""

    data: Callable[[str, Message, str, str, str | None], str]
    """Of an identifier, a message, its stream, its epoch and, if it has one, its `type`."""
    transient: Callable[[str, str, str | None], str]
    """Of an identifier, a message that is not in the log and, if it has one, its `type`."""
    control: Callable[[str], str]
    """Of any other frame."""


def _data(identifier: str, message: Message, stream: str, epoch: str, kind: str | None) -> str:
    return frames.data(identifier, message.text, stream, epoch, message.offset, kind)


SOCKET: Final = Encoder(_data, frames.transient, lambda frame: frame)
"""For WebSockets: frames as they are."""
