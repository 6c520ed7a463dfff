"""The connection to one client, with the queue of texts to send to it.

The queue is bounded, so that no other client waits for a slow one. As long as the connection takes
what is sent, a text is written at once: no task runs for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable

from tailrace import metrics
from tailrace.limits import CABLE_CLOSE_SECONDS, CABLE_QUEUE_BYTES
from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.encoders import Encoder
from tailrace.protocols.action_cable.in_process.conversation import Conversation

_MESSAGES = ("server_msg_total",)
_BYTES = ("data_sent_total",)

logger = logging.getLogger("tailrace")


class Outbox(ABC):
    def __init__(self, sid: str, encoder: Encoder, *, extended: bool = False) -> None:
        self.sid = sid
        self.encoder = encoder
        self.extended = extended
        self._waiting: deque[str] | None = None
        """The texts that could not be written at once; None if there are none."""
        self._size = 0
        self._flushing: asyncio.Task[None] | None = None
        """Sends what waits."""
        self._finished = False
        """Whether the last text is queued, or nothing can be sent any more."""
        self._deadline = asyncio.timeout(None)
        """Ends the conversation: when the client has got its last text, or does not take it."""

    # How texts are sent

    @abstractmethod
    def _write_now(self, text: str) -> bool:
        """Send a text without waiting; False: there is no room for it now."""

    def _write_all_now(self, texts: tuple[str, ...]) -> bool:  # noqa: ARG002 - for those that can
        """Send several texts at once without waiting; False: they have to be sent one by one."""
        return False

    @abstractmethod
    async def _write(self, text: str) -> None:
        """Send a text as soon as there is room for it; OSError: the client is gone."""

    @abstractmethod
    async def _close(self) -> None:
        """Close the connection: the last text is sent."""

    # Sending

    def push(self, text: str) -> None:
        if self._finished or not text:
            return
        metrics.counts[_MESSAGES] += 1
        metrics.counts[_BYTES] += len(text)
        if self._flushing is None and self._write_now(text):
            return
        # A single message may have any size: a client could otherwise never get past it.
        overflows = self._size and self._size + len(text) > CABLE_QUEUE_BYTES
        self._queue(text)
        if overflows:
            metrics.count("disconnected_slow_clients_total")
            self.end("too_slow", reconnect=True, at_once=True)

    def push_all(self, texts: tuple[str, ...]) -> None:
        """Push several texts, by one write if there is room."""
        if not any(texts):
            return
        if self._finished or self._flushing is not None or not self._write_all_now(texts):
            for text in texts:
                self.push(text)

    async def drain(self) -> None:
        """Wait until everything is sent, or nothing more will be."""
        if self._flushing is not None and not self._finished:
            await asyncio.wait([self._flushing])

    def end(self, reason: str, *, reconnect: bool, at_once: bool = False) -> None:
        """Send a disconnect, and nothing after it, and close the connection. `at_once`: discard
        what is queued before it."""
        last = self.encoder.control(frames.disconnect(reason, reconnect=reconnect))
        self._finish(last, at_once=at_once)

    def _finish(self, text: str, *, at_once: bool = False) -> None:
        if self._finished:
            return
        self._finished = True
        self._end_in(CABLE_CLOSE_SECONDS)
        if at_once and self._waiting is not None:
            self._waiting.clear()
            self._size = 0
        self._queue(text)

    def _queue(self, text: str) -> None:
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(text)
        self._size += len(text)
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())

    async def _flush(self) -> None:
        try:
            while self._waiting:
                text = self._waiting.popleft()
                if text:
                    await self._write(text)
                self._size -= min(self._size, len(text))
            if self._finished:
                await self._close()
        except OSError:
            self._finished = True
            self._end_in(0)
        self._waiting = self._flushing = None

    # Serving

    async def _serve(self, conversation: Conversation, talking: Awaitable[None]) -> None:
        """Serve the client until `talking` ends, or the connection does."""
        try:
            async with self._deadline:
                await talking
        except Exception:
            if not self._deadline.expired():
                logger.exception("a command of a cable client failed")
        finally:
            self._finished = True
            conversation.end()
            if self._flushing is not None:
                self._flushing.cancel()

    def _end_in(self, seconds: float) -> None:
        # It is over already if the conversation has ended while the outbox was being flushed.
        with contextlib.suppress(RuntimeError):
            self._deadline.reschedule(asyncio.get_running_loop().time() + seconds)
