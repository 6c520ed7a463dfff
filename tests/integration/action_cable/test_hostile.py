"""Clients that violate the WebSocket protocol are disconnected, and nothing is logged."""

from __future__ import annotations

import contextlib
import json
import random
import re
import select
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import httpx
import pytest

from devtools.server import Server
from tests.support.cable import pubsub, token

SECONDS = 120.0
"""How long an answer may take: a safety net, not a measure."""

MASK = bytes(4)
"""Leaves everything as it is: what is masked need not be computed."""

HANDSHAKE = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
KEY = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, masked: bool = True
) -> bytes:
    head = bytes([(0x80 if fin else 0) | rsv << 4 | opcode])
    flag, length = (0x80 if masked else 0), len(payload)
    if length < 126:
        head += bytes([flag | length])
    elif length < 1 << 16:
        head += struct.pack("!BH", flag | 126, length)
    else:
        head += struct.pack("!BQ", flag | 127, length)
    return head + (MASK if masked else b"") + payload


class Raw:
    """A client that sends arbitrary bytes."""

    opened: ClassVar[list[socket.socket]] = []

    def __init__(self, port: int, *, buffer: int = 0) -> None:
        self.socket = socket.socket()
        self.opened.append(self.socket)
        if buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(SECONDS)
        self.socket.connect(("127.0.0.1", port))
        self._got = b""

    def shake(self, query: str = "pi=0", more: str = "") -> str:
        """The first line of the response to a handshake."""
        self.socket.sendall(
            f"GET /cable?{query} HTTP/1.1\r\nhost: localhost\r\n{HANDSHAKE}{KEY}{more}\r\n".encode()
        )
        return self.head().partition("\r\n")[0]

    def head(self) -> str:
        while b"\r\n\r\n" not in self._got:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError(self._got)
            self._got += data
        head, _, self._got = self._got.partition(b"\r\n\r\n")
        return head.decode()

    def say(self, **fields: object) -> None:
        self.socket.sendall(frame(TEXT, json.dumps(fields).encode()))

    def read(self) -> tuple[int, bytes]:
        """The next frame; EOFError: there is none, and the connection has ended."""
        first, second = self._take(2)
        length = second & 127
        if length > 125:
            length = int.from_bytes(self._take(2 if length == 126 else 8))
        return first & 15, self._take(length)

    def close_code(self) -> int | None:
        """The code with which the server closes the connection; None: without one."""
        code = None
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                opcode, payload = self.read()
                if opcode == CLOSE:
                    code = int.from_bytes(payload[:2]) if payload else 1005
        return code

    def flood(self, data: bytes, size: int) -> int:
        """Send without reading until `size` bytes are sent or the peer blocks; returns how many."""
        sent, block = 0, data * (65536 // len(data) + 1)
        while sent < size and select.select([], [self.socket], [], 0.5)[1]:
            sent += self.socket.send(block[: len(block) // len(data) * len(data)])
        return sent

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def _take(self, size: int) -> bytes:
        while len(self._got) < size:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError(self._got)
            self._got += data
        taken, self._got = self._got[:size], self._got[size:]
        return taken


@pytest.fixture(autouse=True)
def _sockets() -> Iterator[None]:
    yield
    while Raw.opened:
        Raw.opened.pop().close()


@pytest.fixture
def port(cable_server: Server) -> Iterator[int]:
    """The port of a server that must still answer after the test, with nothing new in its log."""
    logged = cable_server.log.stat().st_size
    yield cable_server.port
    assert httpx.get(f"{cable_server.url}/health", trust_env=False, timeout=SECONDS).is_success
    assert cable_server.log.read_bytes()[logged:] == b""


def connected(port: int, query: str = "pi=0", *, buffer: int = 0) -> Raw:
    raw = Raw(port, buffer=buffer)
    assert raw.shake(query) == "HTTP/1.1 101 Switching Protocols"
    assert raw.read()[0] == TEXT
    return raw


# The handshake


@pytest.mark.parametrize("way", ["query", "header"])
def test_a_head_may_have_long_lines(port: int, way: str) -> None:
    shown = token("x" * 5000)
    assert len(shown) < 8192 < len(f"/cable?jid={shown}") + 2000
    padding = "y" * 20_000
    raw = Raw(port)
    if way == "query":
        assert "101" in raw.shake(f"pi=0&jid={shown}&more={padding}")
    else:
        assert "101" in raw.shake(more=f"x-jid: {shown}\r\nx-more: {padding}\r\n")
    assert b"welcome" in raw.read()[1]


def test_a_token_that_is_too_long_is_answered(port: int) -> None:
    raw = Raw(port)
    assert "101" in raw.shake(f"jid={'x' * 8200}")
    assert raw.read()[1] == b'{"type":"disconnect","reason":"unauthorized","reconnect":false}'
    raw.socket.sendall(frame(CLOSE, b"\3\350"))
    assert raw.close_code() == 1000


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (HANDSHAKE, 400),
        (f"{HANDSHAKE}{KEY}content-length: 5\r\n", 400),
        (f"{HANDSHAKE}{KEY}transfer-encoding: chunked\r\n", 400),
        (f"{HANDSHAKE.replace('13', '7')}{KEY}", 400),
        (f"{HANDSHAKE}sec-websocket-key: short\r\n", 400),
        (f"{HANDSHAKE}{KEY}sec-websocket-protocol: ,,\x01\r\n", 400),
    ],
)
def test_a_bad_handshake_is_answered_and_ends_the_connection(
    port: int, fields: str, status: int
) -> None:
    raw = Raw(port)
    raw.socket.sendall(f"GET /cable HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n".encode())
    assert int(raw.head().split()[1]) == status
    with contextlib.suppress(ConnectionError):
        while raw.socket.recv(65536):
            pass


def test_only_get_upgrades(port: int) -> None:
    raw = Raw(port)
    raw.socket.sendall(f"POST /cable HTTP/1.1\r\nhost: localhost\r\n{HANDSHAKE}{KEY}\r\n".encode())
    assert int(raw.head().split()[1]) == 405


def test_a_connection_upgrades_after_a_request(port: int) -> None:
    raw = Raw(port)
    raw.socket.sendall(b"GET /v1/stream/none HTTP/1.1\r\nhost: localhost\r\n\r\n")
    length = re.search(r"content-length: (\d+)", raw.head())
    assert length is not None
    raw._take(int(length[1]))
    assert "101" in raw.shake()
    assert b"welcome" in raw.read()[1]


def test_a_reset_during_the_handshake_is_not_logged(port: int) -> None:
    for _ in range(20):
        raw = Raw(port)
        raw.socket.sendall(
            f"GET /cable HTTP/1.1\r\nhost: localhost\r\n{HANDSHAKE}{KEY}\r\n".encode()
        )
        raw.reset()


# Frames

BAD_UTF8 = frame(TEXT, b"\xff\xfe")
CASES = {
    "bad UTF-8": (BAD_UTF8, 1007),
    "bad UTF-8, then a close": (BAD_UTF8 + frame(CLOSE, b"\3\350"), 1007),
    "bad UTF-8 over two fragments": (
        frame(TEXT, b"\xe2\x82", fin=False) + frame(CONT, b"x"), 1007),
    "a close, then bad UTF-8": (frame(CLOSE, b"\3\350") + BAD_UTF8, 1000),
    "a fragment of nothing": (frame(CONT, b"x"), 1002),
    "a text inside a text": (frame(TEXT, b"x", fin=False) + frame(TEXT, b"x"), 1002),
    "a close inside a text": (frame(TEXT, b"x", fin=False) + frame(CLOSE, b"\3\350"), 1002),
    "reserved bits": (frame(TEXT, b"x", rsv=4), 1002),
    "a reserved opcode": (frame(3, b"x"), 1002),
    "no mask": (frame(TEXT, b"x", masked=False), 1002),
    "a close code out of range": (frame(CLOSE, struct.pack("!H", 999)), 1002),
    "a close code that is never sent": (frame(CLOSE, struct.pack("!H", 1005)), 1002),
    "half a close code": (frame(CLOSE, b"\3"), 1002),
    "bad UTF-8 as the reason": (frame(CLOSE, b"\3\350\xff"), 1007),
    "a close without a code": (frame(CLOSE), 1005),
    "a close twice": (frame(CLOSE, b"\3\350") * 2, 1000),
    "data after a close": (frame(CLOSE, b"\3\350") + frame(TEXT, b"x") * 100, 1000),
    "a ping that is too long": (frame(PING, b"x" * 126), 1002),
    "a ping in fragments": (frame(PING, b"x", fin=False), 1002),
    "a text that is too large": (b"\x81\xff" + struct.pack("!Q", 65_537) + MASK, 1009),
    "a text of 2^63 bytes": (b"\x81\xff" + struct.pack("!Q", 1 << 63) + MASK, 1009),
    "fragments that are too large": (
        frame(TEXT, b"x" * 40_000, fin=False) + frame(CONT, b"x" * 40_000), 1009),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_broken_rule_ends_the_connection_with_its_code(port: int, case: str) -> None:
    data, code = CASES[case]
    raw = connected(port)
    raw.socket.sendall(data)
    assert raw.close_code() == code


def test_good_frames_before_a_bad_one_do_no_harm(port: int) -> None:
    """In one packet, in pieces of any size, and with a reset in the middle."""
    chance = random.Random(7)
    whole = frame(PING, b"p") + frame(TEXT, b'{"command":"ping"}') + frame(PONG) + frame(BINARY)
    for data, _ in CASES.values():
        raw = connected(port)
        sent = whole + data
        with contextlib.suppress(ConnectionError):
            while sent:
                size = chance.randint(1, len(sent))
                raw.socket.sendall(sent[:size])
                sent = sent[size:]
            if chance.random() < 0.5:
                raw.close_code()
        raw.reset()


def test_noise_does_no_harm(port: int) -> None:
    chance = random.Random(11)
    for _ in range(60):
        raw = connected(port)
        with contextlib.suppress(ConnectionError):
            raw.socket.sendall(chance.randbytes(chance.randint(1, 300)))
        raw.reset()


def test_a_message_may_come_in_fragments_with_pings_between(port: int) -> None:
    raw = connected(port)
    text = json.dumps({"command": "ping", "identifier": "é€😀"}, ensure_ascii=False).encode()
    raw.socket.sendall(frame(TEXT, text[:1], fin=False))
    for i in range(1, len(text)):
        raw.socket.sendall(frame(PING, b"%d" % i) + frame(CONT, text[i : i + 1], fin=False))
        assert raw.read() == (PONG, b"%d" % i)
    raw.socket.sendall(frame(CONT))
    assert raw.read() == (TEXT, b'{"type":"pong"}')


def test_many_commands_at_once_are_all_answered(port: int) -> None:
    raw = connected(port)
    raw.socket.sendall(frame(TEXT, b'{"command":"ping"}') * 1500)
    for _ in range(1500):
        assert raw.read() == (TEXT, b'{"type":"pong"}')


# Memory


def resident(server: Server) -> float:
    """Resident memory of the server's process, in MiB."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def test_strangers_fill_no_memory(tmp_path: Path) -> None:
    """Pings whose pongs nobody takes, commands whose answers nobody takes, readers that stall, and
    sessions with many long identifiers, all at once."""
    filling = f'"x":"{"x" * 60_000}"'
    broadcast = json.dumps({"stream": "a", "data": f"{{{filling}}}"})
    with Server(tmp_path / "data", {"TAILRACE_PING_INTERVAL": "3600"}) as server:
        connected(server.port).reset()
        before = resident(server)
        raws = [connected(server.port, buffer=4096) for _ in range(8)]
        for raw in raws[:4]:
            raw.flood(frame(PING, b"x" * 125), 16 << 20)
        raws[4].flood(frame(TEXT, b'{"command":"ping"}'), 16 << 20)
        for raw in raws[5:]:
            raw.say(command="subscribe", identifier=pubsub("a"))
            assert b"confirm_subscription" in raw.read()[1]
        for _ in range(40):
            httpx.post(f"{server.url}/_broadcast", content=broadcast, trust_env=False)
        for _ in range(4):
            raw = connected(server.port)
            for i in range(150):
                fields = f'"channel":"$pubsub","stream_name":"a","i":{i},{filling}'
                raw.say(command="subscribe", identifier=f"{{{fields}}}")
                assert raw.read()[0] == TEXT
            raw.reset()
        httpx.get(f"{server.url}/health", trust_env=False, timeout=SECONDS).raise_for_status()
        grown = resident(server) - before
        assert "Traceback" not in server.log.read_text()
    assert grown < 40
