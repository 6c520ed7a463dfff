"""One follower per stream for all who listen to it on a cable.

It waits for the next slot, takes it apart once, makes a text of each message once for all clients
with the same identifier, and pushes that to each. Where there is no stream it waits for one.

A listener that comes is not served at once: it reads for itself until it is where the follower is,
and from then on gets what the follower gets. A place is an incarnation of the stream and a slot of
it, so that nothing is missed or told twice: a listener that has read history may know of an
incarnation before the follower does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence

from tailrace.errors import OffsetTrimmed, StreamGone, StreamNotFound, TailraceError
from tailrace.live.pace import Pace
from tailrace.log import offsets
from tailrace.protocols.action_cable.core.broadcasts import Publication
from tailrace.protocols.action_cable.core.commands import History
from tailrace.protocols.action_cable.core.contents import Message
from tailrace.protocols.action_cable.core.encoders import Encoder
from tailrace.protocols.action_cable.core.missed_messages import batches, send_missed
from tailrace.protocols.action_cable.core.stream_names import epoch_of
from tailrace.protocols.action_cable.in_process.listener import Listener
from tailrace.store.base import Tail
from tailrace.streams import Streams, View

logger = logging.getLogger("tailrace")

FOLLOW_SECONDS = 30.0
"""How long the follower waits before it looks again by itself."""

RETRY_SECONDS = 1.0
"""When it looks again after the store has failed."""

NOTICE_SECONDS = 0.01
"""Pause of a listener that sees that the stream is another one, before the follower does."""


class Room:
    def __init__(self, streams: Streams, stream: str, path: str, poll: float | None) -> None:
        """`poll`: seconds between two looks for a stream that others may create; None: nobody."""
        self.stream = stream
        self.path = path
        self.listeners: dict[Listener, None] = {}
        self.chain: int | None = None
        """The incarnation that is followed, if there is one."""
        self.slot = 0
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
        listener.chain, listener.slot = self.chain, self.slot

    def leave(self, listener: Listener) -> None:
        self.listeners.pop(listener, None)

    def close(self) -> None:
        self._task.cancel()

    async def replay(self, listener: Listener, history: History) -> None:
        """Send what a listener missed, say how that went, and go on with what comes."""
        if listener.live:
            # What is being delivered to it is delivered to the end: it would miss the rest.
            async with self.publishing:
                listener.live = False
        listener.control(await send_missed(self._streams, listener, history))
        await self.release(listener)

    async def release(self, listener: Listener) -> None:
        """Bring a listener to where the follower is; from then on it gets what comes."""
        while not self._streams.draining and listener in self.listeners:
            if self.chain is None or (listener.chain == self.chain and listener.slot >= self.slot):
                listener.live = True
                return
            try:
                await self._bring(listener)
            except (StreamNotFound, StreamGone):
                await asyncio.sleep(NOTICE_SECONDS)
            except TailraceError as error:
                logger.warning("reading '%s' failed: %s", self.path, error)
                await asyncio.sleep(RETRY_SECONDS)

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
        made: dict[tuple[Encoder, str], str] = {}
        for listener in list(self.listeners):
            known = listener.subscription
            if not listener.confirmed or listener.client.sid == but:
                continue
            if (presence and not known.presence) or (whisper and not known.whispers):
                continue
            encoder = listener.client.encoder
            message = made.get((encoder, known.identifier))
            if message is None:
                message = encoder.transient(known.identifier, text, kind)
                made[encoder, known.identifier] = message
            listener.client.push(message)

    async def _bring(self, listener: Listener) -> None:
        """One step of a listener towards the follower."""
        if listener.chain is None:
            listener.chain, listener.slot = self.chain, self._base
        elif listener.chain == self.chain:
            await self._catch_up(listener)
        elif (await self._streams.find(self.path)).stream.id == self.chain:
            listener.chain, listener.slot = self.chain, self._base
        else:
            # The follower will notice; until then the listener stays where it is.
            await asyncio.sleep(NOTICE_SECONDS)

    async def _catch_up(self, listener: Listener) -> None:
        chain = listener.chain
        try:
            view = await self._streams.view(self.path, listener.slot)
        except OffsetTrimmed:
            view = await self._streams.view(self.path, offsets.BEGINNING)
        if view.tail.stream.id != chain:
            await asyncio.sleep(NOTICE_SECONDS)
            return
        async for found in batches(view):
            await listener.send([each for each in found if each.text], chain)
        listener.slot = view.end

    # The follower

    async def _run(self) -> None:
        with self._streams.watching(self.path) as created:
            while not self._streams.draining:
                created.clear()
                try:
                    tail = await self._streams.find(self.path)
                    self._begin(tail)
                    await self._follow(tail)
                except (StreamNotFound, StreamGone):
                    self.chain = None
                    self._placed.set()
                except OffsetTrimmed as error:
                    # What is gone cannot be told; what is kept can.
                    self._skip(error.earliest)
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
        state = tail.committed
        was = self._placed.is_set()
        self.chain, self._base = tail.stream.id, base[0]
        self.slot, self._offset = base[:2] if was else (state.tail, state.offset)
        self.notes = {key: note for key, note in self.notes.items() if key[0] == self.chain}
        for listener in self.listeners:
            # One that has read this incarnation already stays where it is.
            if listener.live and listener.chain != self.chain:
                listener.chain, listener.slot = self.chain, self.slot
        self._placed.set()

    def _skip(self, earliest: str) -> None:
        """Go on with the first slot that is kept."""
        self.slot, self._offset = offsets.parse(earliest), offsets.count(earliest)
        for listener in self.listeners:
            if listener.live:
                listener.slot = max(listener.slot, self.slot)

    async def _follow(self, tail: Tail) -> None:
        """Until the stream is closed; nothing comes after that but another stream."""
        while not self._streams.draining:
            view = await self._streams.follow(tail, self.slot, FOLLOW_SECONDS)
            tail = view.tail
            if view.bodies:
                async with self.publishing:
                    await self._deliver(view)
            if view.closed:
                return

    async def _deliver(self, view: View) -> None:
        """Push a view to those who listen now: who comes meanwhile gets what follows it."""
        chain, start = view.tail.stream.id, self._offset
        self.slot, self._offset = view.end, offsets.count(view.next_offset)
        places: dict[Listener, int] = {}
        for listener in self.listeners:
            if listener.live:
                places[listener] = listener.slot
                # It may have read further by itself than the follower has.
                listener.slot = max(listener.slot, view.end)
        if places:
            async for found in batches(view, start):
                await self._push(found, chain, places)
                if not any(listener in self.listeners for listener in places):
                    break
        if self.notes:
            # Of those that nobody was there for.
            self.notes = {key: note for key, note in self.notes.items() if key[1] > self._offset}

    async def _push(
        self, found: Sequence[Message], chain: int, places: Mapping[Listener, int]
    ) -> None:
        """Messages to those who are still there, from the slot on where each of them is."""
        noted = [(each, self.notes.pop((chain, each.offset), None)) for each in found if each.text]
        if len(noted) < len(found):
            logger.warning("a message of '%s' is too large for a cable", self.path)
        made: dict[tuple[Encoder, str], list[tuple[int, str | None, str]]] = {}
        pace = Pace()
        for listener, begin in places.items():
            if listener not in self.listeners:
                continue
            encoder, identifier = listener.client.encoder, listener.subscription.identifier
            texts = made.get((encoder, identifier))
            if texts is None:
                texts = made[encoder, identifier] = list(
                    self._texts(encoder, identifier, noted, chain)
                )
            push, sid = listener.client.push, listener.client.sid
            for slot, excluded, text in texts:
                if slot >= begin and sid != excluded:
                    push(text)
            await pace.rest()

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
