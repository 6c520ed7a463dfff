"""A relay that cuts connections at any byte, in either direction.

    async with CuttingProxy(server.url, cuts=iter([100, 3, 4000])) as proxy:
        client = AsyncClient(proxy.url)

Each connection is reset after as many bytes as the next of `cuts` says, counted in both directions
together; what came before is passed on. Connections after the last cut are left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

from devtools.fault_proxy.proxy import BROKEN, _reset

PIECE: Final = 1 << 16


class CuttingProxy:
    """The relay; `cut` counts the connections that it has reset."""

    def __init__(self, upstream: str, cuts: Iterator[int]) -> None:
        self.cut = 0
        self._place = urlsplit(upstream)
        self._cuts = cuts
        self._server: asyncio.Server | None = None
        self._tasks = set[asyncio.Task[None]]()
        self._writers = set[asyncio.StreamWriter]()

    @property
    def url(self) -> str:
        assert self._server is not None, "the proxy is not running"
        host, port = self._server.sockets[0].getsockname()
        return f"http://{host}:{port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()
        await asyncio.sleep(0)  # An aborted transport closes its socket in the next iteration.

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        task = asyncio.get_running_loop().create_task(self._relay(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        budget = _Budget(next(self._cuts, None))
        try:
            upstream = await asyncio.open_connection(self._place.hostname, self._place.port)
        except OSError:
            _reset(writer)
            return
        self._writers.add(upstream[1])
        directions = [
            asyncio.create_task(_copy(reader, upstream[1], budget)),
            asyncio.create_task(_copy(upstream[0], writer, budget)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            self.cut += budget.is_spent
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            for end in (writer, upstream[1]):
                if budget.is_spent:
                    _reset(end)
                else:
                    end.close()


class _Budget:
    """The bytes that a connection may still carry; None is any number."""

    def __init__(self, left: int | None) -> None:
        self.left = left

    @property
    def is_spent(self) -> bool:
        return self.left == 0

    def take(self, size: int) -> int:
        if self.left is None:
            return size
        taken = min(size, self.left)
        self.left -= taken
        return taken


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: _Budget
) -> None:
    try:
        while not budget.is_spent and (piece := await reader.read(PIECE)):
            writer.write(piece[: budget.take(len(piece))])
            await writer.drain()
    except BROKEN:
        pass
