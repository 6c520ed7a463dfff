"""`python -m bench.dynamodb.stub`: a DynamoDB that says yes to everything, as fast as it can."""

from __future__ import annotations

import asyncio
import re
import zlib
from typing import cast

import uvloop

BODY = b"{}"
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\n"
    b"x-amz-crc32: %d\r\nContent-Length: %d\r\n\r\n%b" % (zlib.crc32(BODY), len(BODY), BODY)
)
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
HEAD_END = b"\r\n\r\n"


class _Peer(asyncio.Protocol):
    def __init__(self) -> None:
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._held += data
        while (end := self._held.find(HEAD_END)) >= 0:
            length = LENGTH.search(self._held, 0, end)
            whole = end + len(HEAD_END) + (int(length[1]) if length else 0)
            if len(self._held) < whole:
                return
            self._held = self._held[whole:]
            self._transport.write(ANSWER)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Peer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve())
