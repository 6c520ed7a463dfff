"""Writers on several machines race for the slots of one stream: whatever happens, the log is right.

A machine holds a tail that may be stale, lets the rules decide on it and puts the entry into a
table that knows only put-if-absent. Every step of every request is a step of its own here, so that
requests interleave in any order, while answers get lost, deliveries are doubled, clocks jump, and
machines restart in the middle of anything.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tailrace.errors import TailraceError
from tailrace.log import producers
from tailrace.log.append import Accepted, Append, decide
from tailrace.log.state import Config, Entry, Producer, State

TEXT = Config("text/plain", 0)
MACHINES = 3
SENDERS = 6
SMALL_BUDGET = 130
"""Three producers fill it, so that spilling is common."""


@contextmanager
def small_budget() -> Iterator[None]:
    with patch.object(producers, "PRODUCER_STATE_BYTES", SMALL_BUDGET):
        yield


@dataclass
class Sender:
    """A client with a producer id: it sends its batches in order, each until it is acknowledged."""

    id: str
    epoch: int = 0
    seq: int = 0
    batch: Append | None = None
    """The request under this epoch and sequence: the same again with every retry."""

    def next_batch(self, *, close: bool, body: bool) -> Append:
        if self.batch is None:
            content = f"{self.id}.{self.epoch}.{self.seq};".encode() if body else b""
            producer = Producer(self.id, self.epoch, self.seq)
            self.batch = Append(content, "text/plain", close, None, producer)
        return self.batch

    def acknowledge(self, append: Append) -> None:
        if append == self.batch:
            self.seq += 1
            self.batch = None

    def take_over(self) -> None:
        """A new process with the same id; the old one's requests may still arrive."""
        self.epoch += 1
        self.seq = 0
        self.batch = None


@dataclass(eq=False)
class Request:
    """A request on a machine, between two of its steps."""

    number: int
    machine: int
    append: Append
    accepted: Accepted | None = None
    unclear: bool = False
    """The put was done, but the machine does not know."""


@dataclass
class World:
    slots: dict[int, tuple[Entry, int]] = field(default_factory=dict)
    """Each entry with the number of the request that put it there."""
    spilled: dict[str, tuple[int, int]] = field(default_factory=dict)
    cached: dict[int, State] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    senders: list[Sender] = field(
        default_factory=lambda: [Sender(f"p{number}") for number in range(SENDERS)]
    )
    acknowledged: list[Append] = field(default_factory=list)
    refused: list[Append] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    delivered: int = 0
    plain: int = 0

    # The table

    def tail(self) -> State:
        return self.slots[len(self.slots) - 1][0].state if self.slots else TEXT.initial_state()

    def put(self, entry: Entry, request: Request) -> tuple[Entry, int]:
        """The entry in the slot now: the entry, or the one that was there before."""
        if entry.slot not in self.slots:
            self.slots[entry.slot] = (entry, request.number)
            self.spilled.update(entry.spill)
            self.seen["spilled"] += bool(entry.spill)
        return self.slots[entry.slot]

    # What clients do

    def send(self, machine: int, sender: int, *, close: bool = False, body: bool = True) -> None:
        self.deliver(machine, self.senders[sender].next_batch(close=close, body=body))

    def send_plain(self, machine: int, seq: str | None = None, *, close: bool = False) -> None:
        self.plain += 1
        self.deliver(machine, Append(f"plain {self.plain};".encode(), "text/plain", close, seq))

    def deliver(self, machine: int, append: Append) -> None:
        self.delivered += 1
        self.requests.append(Request(self.delivered, machine, append))

    # What machines do, one step of one request at a time

    def step(self, index: int, now: int) -> None:
        request = self.requests[index % len(self.requests)]
        if request.accepted is None:
            self._decide(request, now)
        else:
            self._put(request)

    def cut_off(self, index: int) -> None:
        """The put is done, but its answer is lost on the way to the machine: it will ask again."""
        request = self.requests[index % len(self.requests)]
        if request.accepted is not None and request.accepted.entry is not None:
            _, owner = self.put(request.accepted.entry, request)
            if owner == request.number:
                request.unclear = True
                self.seen["unclear"] += 1

    def lose(self, index: int) -> None:
        """The request, or its answer, is lost between client and machine, at any step."""
        self.requests.pop(index % len(self.requests))
        self.seen["lost"] += 1

    def restart(self, machine: int) -> None:
        self.requests = [request for request in self.requests if request.machine != machine]
        self.cached.pop(machine, None)
        self.seen["restarts"] += 1

    def _decide(self, request: Request, now: int) -> None:
        state = self.cached.get(request.machine)
        fresh = state is None
        if state is None:
            state = self.cached[request.machine] = self.tail()
        producer = request.append.producer
        spilled = None
        if producer is not None and state.spilled and producer.id not in state.producers:
            spilled = self.spilled.get(producer.id)
            self.seen["looked up"] += spilled is not None
        try:
            accepted = decide(TEXT, state, request.append, now, spilled)
        except TailraceError:
            self._conclude(request, None, fresh)
            return
        if accepted.entry is None:
            self._conclude(request, accepted, fresh)
            return
        request.accepted = accepted

    def _conclude(self, request: Request, accepted: Accepted | None, fresh: bool) -> None:
        """Nothing to store. A stale tail is no ground for an answer: look again first."""
        if not fresh:
            del self.cached[request.machine]
        elif accepted is None:
            self._answer(request, "refused")
        else:
            self._answer(request, "duplicates")

    def _put(self, request: Request) -> None:
        accepted = request.accepted
        assert accepted is not None
        assert accepted.entry is not None
        entry, owner = self.put(accepted.entry, request)
        self.cached[request.machine] = entry.state
        if owner == request.number:
            self._answer(request, "accepted")
        else:
            assert not request.unclear, "a put that was done is found again"
            request.accepted = None
            self.seen["races lost"] += 1

    def _answer(self, request: Request, outcome: str) -> None:
        self.requests = [other for other in self.requests if other is not request]
        self.seen[outcome] += 1
        if outcome == "refused":
            self.refused.append(request.append)
            return
        self.acknowledged.append(request.append)
        for sender in self.senders:
            sender.acknowledge(request.append)

    # What must hold after every step

    def check(self) -> None:
        log = [self.slots[n][0] for n in range(len(self.slots))]
        self._check_chain(log)
        self._check_producers(log)
        bodies = Counter(entry.body for entry in log if entry.body is not None)
        assert not [body for body, count in bodies.items() if count > 1], "stored twice"
        for append in self.acknowledged:
            assert not append.body or append.body in bodies, "acknowledged, but lost"
        for append in self.refused:
            assert append.producer is not None or append.seq is not None or log[-1].state.closed, (
                "a plain append fails only on a closed stream"
            )

    def _check_chain(self, log: list[Entry]) -> None:
        before = TEXT.initial_state()
        for n, entry in enumerate(log):
            after, length = entry.state, len(entry.body or b"")
            assert (entry.slot, after.slot) == (n, n + 1), "a gap between slots"
            assert after.offset == before.offset + length, "a gap between offsets"
            assert after.size == before.size + length
            assert after.written_at >= before.written_at, "time ran backwards"
            assert not before.closed, "an entry after the end"
            if after.seq != before.seq:
                assert after.seq is not None
                assert before.seq is None or after.seq > before.seq
            before = after

    def _check_producers(self, log: list[Entry]) -> None:
        """Each producer's batches are there in order, from 0 in each epoch, without a gap."""
        latest: dict[str, tuple[int, int]] = {}
        for entry in log:
            changed = self._changed(entry, latest)
            if changed is None:
                continue
            name, (epoch, seq) = changed
            known = latest.get(name)
            if known is None or epoch > known[0]:
                assert seq == 0, "an epoch does not begin at 0"
            else:
                assert (epoch, seq) == (known[0], known[1] + 1), "out of order"
            latest[name] = (epoch, seq)
        assert {**self.spilled, **self.tail().producers} == latest, "a producer was forgotten"

    @staticmethod
    def _changed(
        entry: Entry, latest: Mapping[str, tuple[int, int]]
    ) -> tuple[str, tuple[int, int]] | None:
        changed = [
            (name, last)
            for name, last in {**entry.spill, **entry.state.producers}.items()
            if latest.get(name) != last
        ]
        assert len(changed) <= 1, "one request changes one producer"
        return changed[0] if changed else None


machines = st.integers(0, MACHINES - 1)
senders = st.integers(0, SENDERS - 1)
indices = st.integers(0, 30)
times = st.integers(0, 1_000)


class AnyInterleaving(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self._budget = small_budget()
        self._budget.__enter__()

    def teardown(self) -> None:
        try:
            self._finish()
        finally:
            self._budget.__exit__(None, None, None)

    @rule(machine=machines, sender=senders)
    def send(self, machine: int, sender: int) -> None:
        self.world.send(machine, sender)

    @rule(machine=machines, sender=senders, twin=machines)
    def send_twice(self, machine: int, sender: int, twin: int) -> None:
        self.world.send(machine, sender)
        self.world.send(twin, sender)

    @rule(machine=machines)
    def send_plain(self, machine: int) -> None:
        self.world.send_plain(machine)

    @rule(machine=machines, seq=st.sampled_from(["", "1", "10", "2", "a", "b"]))
    def send_with_stream_seq(self, machine: int, seq: str) -> None:
        self.world.send_plain(machine, seq)

    @precondition(lambda self: len(self.world.slots) > 4)
    @rule(machine=machines, sender=st.none() | senders, body=st.booleans())
    def close(self, machine: int, sender: int | None, body: bool) -> None:
        if sender is None:
            self.world.send_plain(machine, close=True)
        else:
            self.world.send(machine, sender, close=True, body=body)

    @rule(sender=senders)
    def take_over(self, sender: int) -> None:
        self.world.senders[sender].take_over()

    @precondition(lambda self: self.world.requests)
    @rule(index=indices, now=times)
    def step(self, index: int, now: int) -> None:
        self.world.step(index, now)

    @precondition(lambda self: self.world.requests)
    @rule(steps=st.lists(st.tuples(indices, times), min_size=2, max_size=12))
    def steps(self, steps: list[tuple[int, int]]) -> None:
        for index, now in steps:
            if self.world.requests:
                self.world.step(index, now)
                self.world.check()

    @precondition(lambda self: self.world.requests)
    @rule(index=indices)
    def cut_off(self, index: int) -> None:
        self.world.cut_off(index)

    @precondition(lambda self: self.world.requests)
    @rule(index=indices)
    def lose(self, index: int) -> None:
        self.world.lose(index)

    @rule(machine=machines)
    def restart(self, machine: int) -> None:
        self.world.restart(machine)

    @invariant()
    def the_log_is_right(self) -> None:
        self.world.check()

    def _finish(self) -> None:
        """Left alone, every request comes to an answer."""
        for _ in range(2_000):
            if not self.world.requests:
                break
            self.world.step(0, 0)
        assert not self.world.requests, "a request never ends"
        self.world.check()


TestAnyInterleaving = AnyInterleaving.TestCase
TestAnyInterleaving.settings = settings(
    max_examples=20, stateful_step_count=60, deadline=None, derandomize=True
)


def wander(seed: int, steps: int) -> World:
    """A long random walk: far more entries than an example that has to be shrunk can hold."""
    chance = random.Random(seed)
    world = World()
    for number in range(steps):
        machine, sender = chance.randrange(MACHINES), chance.randrange(SENDERS)
        match chance.randrange(20):
            case 0 | 1 | 2:
                world.send(machine, sender)
            case 3:
                world.send(machine, sender)
                world.send(chance.randrange(MACHINES), sender)
            case 4:
                world.send_plain(machine, f"{number:06d}" if chance.random() < 0.3 else None)
            case 5 if chance.random() < 0.2:
                world.restart(machine)
            case 6 if chance.random() < 0.1:
                world.senders[sender].take_over()
            case 7 if world.requests:
                world.lose(chance.randrange(99))
            case 8 if world.requests:
                world.cut_off(chance.randrange(99))
            case 9 if number > steps * 0.95 and chance.random() < 0.1:
                world.send(machine, sender, close=True, body=chance.random() < 0.5)
            case _ if world.requests:
                world.step(chance.randrange(99), chance.randrange(steps))
            case _:
                pass
        if number % 50 == 0:
            world.check()
    while world.requests:
        world.step(0, 0)
    world.check()
    return world


@pytest.mark.parametrize("seed", range(2))
def test_a_long_walk_meets_everything_and_the_log_is_right(seed: int) -> None:
    with small_budget():
        world = wander(seed, steps=6_000)
    for what in (
        "accepted", "duplicates", "refused", "races lost", "unclear", "lost", "restarts", "spilled",
        "looked up",
    ):  # fmt: skip
        assert world.seen[what] > 0, f"the walk never met: {what}"
    assert len(world.slots) > 150


def test_senders_that_never_give_up_get_every_batch_in_once() -> None:
    """Half of all answers are lost; each sender repeats its batch until it has one."""
    chance = random.Random(7)
    world = World()
    with small_budget():
        while min(sender.seq for sender in world.senders) < 30:
            for number in range(SENDERS):
                world.send(chance.randrange(MACHINES), number)
            while world.requests:
                if chance.random() < 0.15:
                    world.cut_off(chance.randrange(99))
                if chance.random() < 0.15:
                    world.lose(chance.randrange(99))
                else:
                    world.step(chance.randrange(99), chance.randrange(9999))
        world.check()
    for sender in world.senders:
        prefix = f"{sender.id}.".encode()
        bodies = [entry.body for entry, _ in world.slots.values() if entry.body is not None]
        mine = [body for body in bodies if body.startswith(prefix)]
        expected = [f"{sender.id}.0.{seq};".encode() for seq in range(len(mine))]
        assert mine == expected
        assert len(mine) >= 30
