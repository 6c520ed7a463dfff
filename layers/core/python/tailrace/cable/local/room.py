"""One follower per stream for all who listen to it on a cable.

It waits for the next slot, takes it apart once, makes a text of each message once for all clients
with the same identifier, and pushes that to each. Where there is no stream it waits for one.

Who comes is not served at once: it reads for itself until it is where the follower is, and from
then on gets what the follower gets. Places are slots, so that nothing is missed or told twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator

from tailrace.cable.broadcasts import Publication
from tailrace.cable.commands import History
from tailrace.cable.contents import Message
from tailrace.cable.encoders import Encoder
from tailrace.cable.history import send_missed, taken_apart
from tailrace.cable.local.listener import Listener
from tailrace.cable.names import epoch_of
from tailrace.errors import OffsetTrimmed, StreamGone, StreamNotFound, TailraceError
from tailrace.log import offsets
from tailrace.store.base import Tail
from tailrace.streams import Streams, View

logger = logging.getLogger("tailrace")

FOLLOW_SECONDS = 30.0
"""How long the follower waits before it looks again by itself."""

RETRY_SECONDS = 1.0
"""When it looks again after the store has failed."""

NOTICE_SECONDS = 0.01
"""Pause of a listener who sees that the stream is another one, before the follower does."""


class Room:
    def __init__(self, streams: Streams, stream: str, path: str, poll: float | None) -> None:
        """`poll`: seconds between two looks for a stream that others may create; None: nobody."""
        self.stream = stream
        self.path = path
        self.listeners: dict[Listener, None] = {}
        self.chain: int | None = None
        """The incarnation that is followed, if there is one."""
        self.n = 0
        """The slot that is delivered next."""
        self.publishing = asyncio.Lock()
        """Held while something is published that has to be noted before it is delivered."""
        self.notes: dict[tuple[int, int], Publication] = {}
        """What publications said about messages, by incarnation and offset."""
        self._streams = streams
        self._poll = poll
        self._base = self._offset = 0
        self._placed = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def enter(self, listener: Listener) -> None:
        """Listen from now on; what comes is held back until `release`."""
        self.listeners[listener] = None
        await self._placed.wait()
        listener.chain, listener.n = self.chain, self.n

    def leave(self, listener: Listener) -> None:
        self.listeners.pop(listener, None)

    def close(self) -> None:
        self._task.cancel()

    async def replay(self, listener: Listener, history: History) -> None:
        """Send what a listener missed, say how that went, and go on with what comes."""
        listener.live = False
        listener.control(await send_missed(self._streams, listener, history))
        await self.release(listener)

    async def release(self, listener: Listener) -> None:
        """Bring a listener to where the follower is; from then on it gets what comes."""
        while not self._streams.draining and listener in self.listeners:
            if listener.chain != self.chain:
                listener.chain, listener.n = self.chain, self._base
            if self.chain is None or listener.n >= self.n:
                listener.live = True
                return
            await self._catch_up(listener)

    def tell(
        self,
        text: str,
        kind: str | None = None,
        *,
        but: str | None = None,
        presence: bool = False,
        whisper: bool = False,
    ) -> None:
        """A message that is in no stream, to all but one session; `presence` and `whisper`: only
        to those who take part in that."""
        for listener in list(self.listeners):
            known = listener.subscription
            if not listener.confirmed or listener.client.sid == but:
                continue
            if (presence and not known.presence) or (whisper and not known.whispers):
                continue
            encode = listener.client.encoder.transient
            listener.client.push(encode(known.identifier, text, kind))

    async def _catch_up(self, listener: Listener) -> None:
        try:
            view = await self._streams.view(self.path, listener.n)
        except OffsetTrimmed:
            listener.n = self.n
        except TailraceError:
            await asyncio.sleep(NOTICE_SECONDS)
        else:
            if view.tail.stream.id != listener.chain:
                await asyncio.sleep(NOTICE_SECONDS)
                return
            await listener.send(taken_apart(view), listener.chain)
            listener.n = view.end

    # The follower

    async def _run(self) -> None:
        lost = False
        with self._streams.watching(self.path) as created:
            while not self._streams.draining:
                created.clear()
                try:
                    tail = await self._streams.find(self.path)
                    if lost:
                        # What is gone cannot be told; what follows can.
                        self.n, self._offset = tail.settled.tail, tail.settled.offset
                        lost = False
                    self._begin(tail)
                    await self._follow(tail)
                except (StreamNotFound, StreamGone):
                    self.chain = None
                    self._placed.set()
                except OffsetTrimmed:
                    lost = True
                    continue
                except TailraceError as error:
                    logger.warning("following '%s' failed: %s", self.path, error)
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                except Exception:
                    logger.exception("following '%s' failed", self.path)
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(created.wait(), self._poll)

    def _begin(self, tail: Tail) -> None:
        """Go on where the follower was, at the tail if it is new, or at the beginning of a stream
        that was not there before."""
        if tail.stream.id == self.chain:
            return
        base = tail.stream.config.base
        state = tail.settled
        was = self._placed.is_set()
        self.chain, self._base = tail.stream.id, base[0]
        self.n, self._offset = base[:2] if was else (state.tail, state.offset)
        self.notes = {key: note for key, note in self.notes.items() if key[0] == self.chain}
        for listener in self.listeners:
            if listener.live:
                listener.chain, listener.n = self.chain, self.n
        self._placed.set()

    async def _follow(self, tail: Tail) -> None:
        """Until the stream is closed; nothing comes after that but another stream."""
        while not self._streams.draining:
            view = await self._streams.follow(tail, self.n, FOLLOW_SECONDS)
            if view.bodies:
                async with self.publishing:
                    self._deliver(view)
            if view.closed:
                return

    def _deliver(self, view: View) -> None:
        found = taken_apart(view, self._offset)
        chain = view.tail.stream.id
        self.n, self._offset = view.end, offsets.count(view.next_offset)
        noted = [(each, self.notes.pop((chain, each.offset), None)) for each in found]
        made: dict[tuple[Encoder, str], list[tuple[int, str | None, str]]] = {}
        for listener in list(self.listeners):
            if not listener.live:
                continue
            encoder, identifier = listener.client.encoder, listener.subscription.identifier
            texts = made.get((encoder, identifier))
            if texts is None:
                texts = made[encoder, identifier] = list(
                    self._texts(encoder, identifier, noted, chain)
                )
            push, sid, n = listener.client.push, listener.client.sid, listener.n
            # It may have read further by itself than the follower has.
            listener.n = max(n, view.end)
            for slot, excluded, text in texts:
                if slot >= n and sid != excluded:
                    push(text)

    def _texts(
        self,
        encoder: Encoder,
        identifier: str,
        noted: list[tuple[Message, Publication | None]],
        chain: int,
    ) -> Iterator[tuple[int, str | None, str]]:
        """For each message its slot, who does not get it, and what is sent."""
        epoch = epoch_of(chain)
        for message, note in noted:
            kind = None if note is None else note.kind
            text = encoder.data(identifier, message, self.stream, epoch, kind)
            yield message.slot, None if note is None else note.exclude, text
