"""How messages and frames look to a kind of client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.contents import Message


class Encoder(NamedTuple):
    """Each makes the text to send, of which an empty one is not sent."""

    data: Callable[[str, Message, str, str, str | None], str]
    """From an identifier, a message, its stream, its epoch and its `type`, if it has one."""
    transient: Callable[[str, str, str | None], str]
    """From an identifier, a message that is in no stream, and its `type`."""
    control: Callable[[str], str]
    """From any other frame."""


def _data(identifier: str, message: Message, stream: str, epoch: str, kind: str | None) -> str:
    return frames.data(identifier, message.text, stream, epoch, message.offset, kind)


SOCKET: Final = Encoder(_data, frames.transient, lambda frame: frame)
"""A WebSocket: frames as they are."""
