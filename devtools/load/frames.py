"""WebSocket frames, as few lines of code as a load of thousands of clients can afford."""

from __future__ import annotations

import struct


def unframed(held: bytes) -> tuple[list[bytes], bytes]:
    """The frames that are whole, as a server sends them, and what is left."""
    frames = []
    while len(held) >= 2:
        length, start = held[1], 2
        if length == 126:
            length, start = int.from_bytes(held[2:4]), 4
        if len(held) < start + length:
            break
        frames.append(held[start : start + length])
        held = held[start + length :]
    return frames, held


def masked(payload: bytes) -> bytes:
    """A frame as a client sends it; a mask of zeros changes nothing."""
    head = b"\x81" + (
        struct.pack("!B", 0x80 | len(payload))
        if len(payload) < 126
        else struct.pack("!BH", 0x80 | 126, len(payload))
    )
    return head + bytes(4) + payload
