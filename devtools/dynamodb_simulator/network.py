"""The way between a process and what it stores in: slow, out of order, and sometimes broken.

A call takes a while to arrive, has its effect in one moment, and its answer takes a while to come
back. A client tries four times, as the real one does. What it hears in the end, and what really
happened, may differ in every way that a network allows.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, NoReturn

from tailrace.aws.client.failures import Throttled, Unavailable

ATTEMPTS = 4
PATIENCE = 1.0
"""The longest that a client waits for an answer, in seconds."""
BACK_OFF = 0.05
TRACED = 20_000
READS = frozenset({"GetItem", "Query", "GetObject"})
UNCLEAR = frozenset({"lost_request", "lost_answer", "late"})
"""The faults after which a client cannot know whether it was carried out."""


@dataclass(frozen=True, slots=True)
class Faults:
    """How likely each fault is, for every attempt of every call."""

    lost_request: float = 0.0
    """It never arrives."""
    lost_answer: float = 0.0
    """It is carried out, but the client does not hear of it and tries again."""
    late: float = 0.0
    """The client gives it up for lost, and it is carried out later, up to `LATE` seconds."""
    unreachable: float = 0.0
    """No connection, and the client knows that nothing was done."""
    throttled: float = 0.0
    """Refused for its rate, or for a transaction under way on the same item."""
    unprocessed: float = 0.0
    """Each write of a batch is left for the client to send again."""

    @classmethod
    def some(cls, probability: float, **more: float) -> Faults:
        """Every fault with one probability."""
        return cls(**{fault.name: probability for fault in fields(cls)} | more)


CALM = Faults()
LATE = 10.0


class Event(NamedTuple):
    at: float
    client: int
    call: int
    operation: str
    subject: str
    what: str

    def __str__(self) -> str:
        return (
            f"{self.at:12.6f}  client {self.client}  call {self.call:<5}"
            f" {self.operation:18} {self.subject}  {self.what}"
        )


class Network:
    """All the lines to one service, and the dice for everything on them."""

    def __init__(
        self, chance: random.Random, latency: tuple[float, float], faults: Faults = CALM
    ) -> None:
        self.chance = chance
        self.faults = faults
        self.calls = 0
        self._clients = 0
        self._shortest, self._longest = latency
        self._traced: deque[tuple[float, int, int, str, Subject, str]] = deque(maxlen=TRACED)

    def line(self) -> Line:
        line = Line(self, self._clients)
        self._clients += 1
        return line

    def trace(self) -> list[Event]:
        """What happened to every call, in the order in which it happened."""
        return [
            Event(at, client, call, operation, subject(), what)
            for at, client, call, operation, subject, what in self._traced
        ]

    def delay(self) -> float:
        """Mostly short."""
        dice = self.chance.random()
        return self._shortest + (self._longest - self._shortest) * dice * dice * dice

    def fate(self) -> str:
        faults = self.faults
        if faults is CALM:
            return ""
        dice = self.chance.random()
        for fault in ("lost_request", "lost_answer", "late", "unreachable", "throttled"):
            dice -= getattr(faults, fault)
            if dice < 0:
                return fault
        return ""

    def note(self, flight: Flight, what: str) -> None:
        at = asyncio.get_running_loop().time()
        traced = (at, flight.line.client, flight.call, flight.operation, flight.subject, what)
        self._traced.append(traced)


Subject = Callable[[], str]
"""What a call is about, put into words only when somebody wants to read it."""
Effect = Callable[["Flight"], Any]


class Flight:
    """One attempt of one call, from being sent to being answered or given up."""

    __slots__ = (
        "after", "answered", "call", "dropped", "effect", "error", "fate", "landed", "line",
        "operation", "result", "subject",
    )  # fmt: skip

    def __init__(
        self, line: Line, call: int, operation: str, subject: Subject, effect: Effect
    ) -> None:
        self.line = line
        self.call = call
        self.operation = operation
        self.subject = subject
        self.effect = effect
        self.fate = line.network.fate()
        self.after = line.network.delay()
        """How long the answer takes to come back."""
        self.dropped = False
        self.landed = False
        self.result: Any = None
        self.error: Exception | None = None
        loop = asyncio.get_running_loop()
        self.answered: asyncio.Future[None] = loop.create_future()
        chance = line.network.chance
        match self.fate:
            case "lost_request" | "unreachable" | "throttled":
                line.network.note(self, self.fate)
            case "late":
                line.network.note(self, self.fate)
                loop.call_later(chance.random() * LATE, self._land)
            case _:
                loop.call_later(line.network.delay(), self._land)
        match self.fate:
            case fate if fate in UNCLEAR:
                loop.call_later(PATIENCE * (0.2 + 0.8 * chance.random()), self._answer)
            case "unreachable" | "throttled":
                loop.call_later(self.after, self._answer)

    def drop(self) -> None:
        """What is not done yet will not be done."""
        self.dropped = True

    def spread(self, pieces: Sequence[Callable[[], object]]) -> None:
        """Do the pieces in any order, all before the answer, with other calls in between."""
        chance = self.line.network.chance
        for piece in chance.sample(pieces, len(pieces)):
            delay = self.after * max(0.0, chance.random() * 2 - 1)
            if delay:
                asyncio.get_running_loop().call_later(delay, self._do, piece)
            else:
                piece()

    def _do(self, piece: Callable[[], object]) -> None:
        if not self.dropped:
            piece()

    def _land(self) -> None:
        if self.dropped:
            self.line.network.note(self, "dropped")
            return
        self.landed = True
        try:
            self.result = self.effect(self)
        except Exception as error:  # noqa: BLE001 - it is the caller's
            self.error = error
        what = "done" if self.error is None else f"{type(self.error).__name__}: {self.error}"
        self.line.network.note(self, f"{self.fate} {what}" if self.fate else what)
        if not self.fate:
            asyncio.get_running_loop().call_later(self.after, self._answer)

    def _answer(self) -> None:
        if not self.answered.done() and not self.line.is_cut:
            self.answered.set_result(None)


class Line:
    """What one process has of a service. It can be cut, as by `kill -9` of the process."""

    def __init__(self, network: Network, client: int) -> None:
        self.network = network
        self.client = client
        self.is_cut = False
        self._closed = False
        self._flights: dict[Flight, None] = {}
        self._never: list[asyncio.Future[None]] = []

    async def call(self, operation: str, subject: Subject, effect: Effect) -> Any:
        if self._closed:
            raise RuntimeError(f"{operation}: the client is closed")
        network = self.network
        network.calls += 1
        call = network.calls
        unclear = False
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(network.chance.random() * BACK_OFF * 2**attempt)
            if self.is_cut:
                await self._hang()
            flight = Flight(self, call, operation, subject, effect)
            await self._landing(flight)
            if not flight.fate:
                if flight.error is not None:
                    raise flight.error
                return flight.result
            unclear |= flight.fate in UNCLEAR
        network.note(flight, "given up")
        if flight.fate == "throttled" and (operation in READS or not unclear):
            hot_key = network.chance.random() < 0.5
            raise Throttled(operation, "ThrottlingException", hot_key=hot_key)
        raise Unavailable(operation, "no answer", unclear=unclear)

    def cut(self) -> None:
        """No call of this process returns any more; what is on its way may get lost or not."""
        self.is_cut = True
        for flight in self._flights:
            if self.network.chance.random() < 0.5:
                flight.drop()

    def close(self) -> None:
        self._closed = True

    async def _landing(self, flight: Flight) -> None:
        self._flights[flight] = None
        try:
            await flight.answered
        except asyncio.CancelledError:
            # Who is cancelled does not wait, but has sent the request all the same, perhaps.
            if self.network.chance.random() < 0.5:
                flight.drop()
            raise
        finally:
            if flight.fate != "late":
                del self._flights[flight]

    async def _hang(self) -> NoReturn:
        never = asyncio.get_running_loop().create_future()
        # Held on to, or the collector would take the task that waits for it.
        self._never.append(never)
        await never
        raise AssertionError("this never returns")
