"""Flow control of a connection."""

from __future__ import annotations

import asyncio

from tailrace.limits import BODY_BYTES_PER_SECOND, RESPONSE_STALL_SECONDS


class Flow:
    """uvicorn's flow control, but with nothing to wait for until somebody waits: a connection that
    listens takes half a kilobyte less. It disconnects a client that does not read what is written
    to it, or too slowly."""

    __slots__ = ("_timer", "_transport", "_writable", "read_paused", "write_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._writable: asyncio.Event | None = None
        self._timer: asyncio.TimerHandle | None = None
        """Checks that the client reads; None while the write buffer has room."""
        self.read_paused = self.write_paused = False

    async def drain(self) -> None:
        if self.write_paused:
            self._writable = self._writable or asyncio.Event()
            await self._writable.wait()

    def pause_reading(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self.write_paused = True
        size = self._transport.get_write_buffer_size()
        now = asyncio.get_running_loop().time()
        self._schedule_check(size, now + RESPONSE_STALL_SECONDS + size / BODY_BYTES_PER_SECOND)

    def resume_writing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.write_paused = False
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    def _schedule_check(self, size: int, end: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(RESPONSE_STALL_SECONDS, self._check, size, end)

    def _check(self, before: int, end: float) -> None:
        size = self._transport.get_write_buffer_size()
        if size >= before or asyncio.get_running_loop().time() >= end:
            self._transport.abort()
        else:
            self._schedule_check(size, end)
