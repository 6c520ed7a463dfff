"""Random WebSocket frames: commands that are varied, spoiled or cut, and frames that are none."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any, Final

from devtools.chaos.calls import ANSWER_SECONDS, HOST
from devtools.chaos.fuzz.corpus import UPGRADE
from devtools.chaos.fuzz.requests import NAMES, spoil, vary
from devtools.chaos.report import Report
from devtools.load.wire import HEAD_END, render

FRAMES: Final = "fuzzed frames"
FRAMES_PER_CONNECTION: Final = 12
PING: Final = 9
ALIVE: Final = b"is anybody there"
"""Comes back in the pong."""
SERVER_PING: Final = b'{"type":"ping"'
"""Comes every now and then, even if our ping has become a part of another frame: the second one
was sent after that."""
READ_BYTES: Final = 1 << 16


def commands(chance: random.Random) -> list[dict[str, Any]]:
    """Valid commands about a random stream."""
    stream = f"n{chance.randrange(NAMES)}"
    identifier = json.dumps({"channel": "$pubsub", "stream_name": stream})
    place = {"epoch": "1f", "offset": chance.randrange(9)}
    return [
        {"command": "subscribe", "identifier": identifier},
        {
            "command": "subscribe",
            "identifier": identifier,
            "history": {"since": chance.randrange(2), "streams": {stream: place}},
        },
        {"command": "unsubscribe", "identifier": identifier},
        {"command": "history", "identifier": identifier, "history": {"since": 1}},
        {"command": "whisper", "identifier": identifier, "data": {"typing": True}},
        {"command": "join", "identifier": identifier, "presence": {"id": "7", "info": {}}},
        {"command": "leave", "identifier": identifier},
        {"command": "presence", "identifier": identifier},
        {"command": "message", "identifier": identifier, "data": '{"action":"x"}'},
        {"command": "pong"},
    ]


def frame(chance: random.Random) -> bytes:
    """A frame, most often one with a command that is nearly right."""
    command = chance.choice(commands(chance))
    if chance.random() < 0.6:
        command = vary(command, chance)
    payload = json.dumps(command).encode()
    if chance.random() < 0.2:
        payload = spoil(payload, chance)
    opcode, final, masked = 1, True, True
    if chance.random() < 0.1:
        opcode = chance.randrange(16)
    if chance.random() < 0.05:
        final = False
    if chance.random() < 0.03:
        masked = False
    data = encode(opcode, payload, final=final, masked=masked)
    return spoil(data, chance) if chance.random() < 0.05 else data


def encode(opcode: int, payload: bytes, *, final: bool = True, masked: bool = True) -> bytes:
    """A frame of a client; a mask of zeros leaves the payload unchanged."""
    size = len(payload)
    mask = 0x80 if masked else 0
    if size < 126:
        head = bytes([mask | size])
    elif size < 1 << 16:
        head = bytes([mask | 126]) + size.to_bytes(2)
    else:
        head = bytes([mask | 127]) + size.to_bytes(8)
    return bytes([(0x80 if final else 0) | opcode]) + head + (bytes(4) if masked else b"") + payload


class FrameClient:
    """Connects, sends some frames and a ping, and must then hear something or be disconnected."""

    def __init__(self, port: int, chance: random.Random, report: Report) -> None:
        self._port = port
        self._chance = chance
        self._report = report

    async def run(self, more: Callable[[], bool]) -> None:
        while more():
            sent = b"".join(frame(self._chance) for _ in range(FRAMES_PER_CONNECTION))
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self._send(sent)
            except TimeoutError:
                self._report.violation(FRAMES, f"silence after {sent[:2000]!r}")
            except (OSError, EOFError):
                self._report.count("frames: connections that the server ended")
            self._report.count(FRAMES, FRAMES_PER_CONNECTION)

    async def _send(self, sent: bytes) -> None:
        reader, writer = await asyncio.open_connection(HOST, self._port)
        try:
            writer.write(render("GET", "/cable", UPGRADE))
            head = await reader.readuntil(HEAD_END)
            if not head.startswith(b"HTTP/1.1 101"):
                self._report.violation(FRAMES, f"the handshake got {head!r}")
                return
            writer.write(sent + encode(PING, ALIVE))
            received = b""
            while ALIVE not in received and received.count(SERVER_PING) < 2:
                more = await reader.read(READ_BYTES)
                if not more:
                    raise EOFError
                received += more
        finally:
            writer.transport.abort()
