"""A client's session, carried out: effects become rooms entered, frames pushed, and so on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from tailrace.limits import (
    BURST_SECONDS,
    CABLE_COMMAND_BURST,
    CABLE_COMMAND_RATE,
    CABLE_HOLD_SECONDS,
)
from tailrace.protocols.action_cable.core.commands import Command
from tailrace.protocols.action_cable.core.session import (
    Attach,
    Detach,
    Effect,
    Join,
    Leave,
    Release,
    Replay,
    Roll,
    Send,
    Session,
    Whisper,
)
from tailrace.protocols.action_cable.in_process.hub import Hub
from tailrace.protocols.action_cable.in_process.listener import Client, Listener
from tailrace.protocols.action_cable.in_process.rate import Rate

logger = logging.getLogger("tailrace")


class Conversation:
    def __init__(
        self, hub: Hub, client: Client, session: Session, lasting: float | None = None
    ) -> None:
        """`lasting`: seconds until the client's token ends, if it does."""
        self._hub = hub
        self._client = client
        self._session = session
        self._listeners: dict[str, Listener] = {}
        self._turn = asyncio.Lock()
        self._held: asyncio.Task[None] | None = None
        self._lasting = lasting
        self._expiry: asyncio.TimerHandle | None = None
        self._commands = Rate(CABLE_COMMAND_RATE, CABLE_COMMAND_BURST)
        self._whispers = Rate(hub.whisper_rate, hub.whisper_rate * BURST_SECONDS)

    async def begin(self) -> None:
        self._connect()
        await self._carry_out(self._session.begin())

    async def resume(self, identifiers: Sequence[str]) -> None:
        self._connect()
        await self._carry_out(self._session.resume(identifiers))
        for listener in self._listeners.values():
            listener.confirmed = True
        self._held = asyncio.create_task(self._release_held())

    async def receive(self, command: Command) -> None:
        if command.name == "whisper":
            # Dropped, for it would be stale when its turn comes, and keep other commands waiting.
            if self._whispers.take():
                return
        elif wait := self._commands.take():
            await asyncio.sleep(wait)
            self._commands.take()
        await self._carry_out(self._session.receive(command))

    def end(self) -> None:
        for each in (self._held, self._expiry):
            if each is not None:
                each.cancel()
        for listener in self._listeners.values():
            self._hub.detach(listener)
        self._listeners.clear()
        self._hub.disconnect(self._session)

    def _connect(self) -> None:
        self._hub.connect(self._client, self._session)
        if self._lasting is not None:
            self._expiry = asyncio.get_running_loop().call_later(self._lasting, self._expire)

    def _expire(self) -> None:
        self._client.end("token_expired", reconnect=False)

    async def _carry_out(self, effects: Sequence[Effect]) -> None:
        async with self._turn:
            for effect in effects:
                await self._do(effect)

    async def _do(self, effect: Effect) -> None:
        hub, session = self._hub, self._session
        match effect:
            case Send(frame):
                self._push(frame)
            case Attach(known):
                listener = Listener(self._client, known)
                self._listeners[known.identifier] = listener
                await hub.attach(listener)
            case Release(known):
                listener = self._listeners[known.identifier]
                listener.confirmed = True
                await hub.rooms[known.stream].release(listener)
            case Replay(known, history):
                listener = self._listeners[known.identifier]
                listener.confirmed = True
                await hub.rooms[known.stream].replay(listener, history)
            case Detach(known):
                hub.detach(self._listeners.pop(known.identifier))
                if all(each.stream != known.stream for each in session.subscriptions.values()):
                    hub.leave(session.sid, known.stream)
            case Whisper(known, message):
                hub.rooms[known.stream].tell(message, but=session.sid, whisper=True)
            case Join(known, member, info):
                hub.join(session.sid, known, member, info)
            case Leave(known):
                hub.leave(session.sid, known.stream)
            case Roll(known, records):
                self._push(hub.roll(known, records=records))

    def _push(self, frame: str) -> None:
        self._client.push(self._client.encoder.control(frame))

    async def _release_held(self) -> None:
        """A client that resumed says what it missed; one that does not gets what is new."""
        await asyncio.sleep(CABLE_HOLD_SECONDS)
        try:
            for listener in list(self._listeners.values()):
                if not listener.live:
                    await self._carry_out([Release(listener.subscription)])
        except Exception:
            # A client whose messages stay held back would get pings and nothing else.
            logger.exception("a cable client that resumed is told to come again")
            self._client.end("server_restart", reconnect=True)
