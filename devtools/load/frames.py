"""WebSocket frames, with minimal overhead for thousands of clients."""

from __future__ import annotations

import struct


def unframed(held: bytes) -> tuple[list[bytes], bytes]:
    """Parse the complete frames of a server; returns them and the remaining bytes."""
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
    """Build the frame of a client; a mask of zeros leaves the payload unchanged."""
    head = b"\x81" + (
        struct.pack("!B", 0x80 | len(payload))
        if len(payload) < 126
        else struct.pack("!BH", 0x80 | 126, len(payload))
    )
    return head + bytes(4) + payload
