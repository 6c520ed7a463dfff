"""The network between a process and its storage: slow, out of order, and unreliable.

A call takes time to arrive, has its effect at one instant, and its response takes time, too. A
client makes four attempts, like the real one. The result that it gets and the real effect may
differ in every way that a network permits.
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
"""The timeout of a client, in seconds."""
BACK_OFF = 0.05
TRACED = 20_000
READS = frozenset({"GetItem", "Query", "GetObject"})
UNCLEAR = frozenset({"lost_request", "lost_answer", "late"})
"""The faults after which a client cannot know whether its call took effect."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The probability of each fault, for every attempt of every call."""

    lost_request: float = 0.0
    """The request is lost."""
    lost_answer: float = 0.0
    """The response is lost, and the client retries."""
    late: float = 0.0
    """The client times out, and the call takes effect up to `LATE` seconds later."""
    unreachable: float = 0.0
    """There is no connection, so the client knows that the call had no effect."""
    throttled: float = 0.0
    """Throttled, or refused because of a concurrent transaction on the same item."""
    unprocessed: float = 0.0
    """A write of a batch is returned as unprocessed."""

    @classmethod
    def some(cls, probability: float, **more: float) -> Faults:
        """The same probability for every fault."""
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
    """All connections to one service, and the random numbers for their faults."""

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
        """A log of all calls, in order."""
        return [
            Event(at, client, call, operation, subject(), what)
            for at, client, call, operation, subject, what in self._traced
        ]

    def delay(self) -> float:
        """A random delay, mostly short."""
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
"""The subject of a call, formatted only when the trace is printed."""
Effect = Callable[["Flight"], Any]


class Flight:
    """One attempt of a call, from sending to the response or the timeout."""

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
        """The delay of the response."""
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
        """Discard the parts of the call that have not taken effect."""
        self.dropped = True

    def spread(self, pieces: Sequence[Callable[[], object]]) -> None:
        """Execute the pieces in random order before the response, interleaved with other calls."""
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
        except Exception as error:  # noqa: BLE001 - raised in the caller
            self.error = error
        what = "done" if self.error is None else f"{type(self.error).__name__}: {self.error}"
        self.line.network.note(self, f"{self.fate} {what}" if self.fate else what)
        if not self.fate:
            asyncio.get_running_loop().call_later(self.after, self._answer)

    def _answer(self) -> None:
        if not self.answered.done() and not self.line.is_cut:
            self.answered.set_result(None)


class Line:
    """The connection of one process to a service. It can be cut, as by `kill -9` of the process."""

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
        """Let no call of this process return any more; those in transit may take effect or not."""
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
            # A cancelled call does not wait, but its request may have been sent.
            if self.network.chance.random() < 0.5:
                flight.drop()
            raise
        finally:
            if flight.fate != "late":
                del self._flights[flight]

    async def _hang(self) -> NoReturn:
        never = asyncio.get_running_loop().create_future()
        # Keep a reference, or the garbage collector would remove the task that waits for it.
        self._never.append(never)
        await never
        raise AssertionError("this never returns")
