"""A relay that sends every request to another server than the one before."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

HEAD_BYTES = 128 << 10


class Relay:
    """Runs in a thread of its own, on loopback."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = itertools.cycle(ports)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._ready = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def cut(self) -> None:
        """Break all connections."""
        self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in self._tasks])

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=HEAD_BYTES)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._relay(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # One side left; the other is told by the end of its connection.
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        there, back = await asyncio.open_connection("127.0.0.1", next(self._ports))
        try:
            # So that the next request comes on a connection of its own.
            back.write(head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            up = asyncio.create_task(_pump(reader, back))
            await _pump(there, writer)
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)
        finally:
            back.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
