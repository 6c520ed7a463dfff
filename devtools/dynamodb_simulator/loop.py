"""An event loop whose time is virtual and whose every choice comes from a seed.

Callbacks run in the order that asyncio guarantees, first in, first out. Everything that a real loop
leaves open is chosen by the seed: which of two simultaneous timers fires first, and how much time
passes while callbacks run, so that a response may arrive between any two steps of a task.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import os
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

EPOCH = 1_700_000_000
"""The time of the wall clock at the start of a run, in seconds."""
SECONDS = 7 * 86_400.0
STEPS = 2_000_000
STALLS = 0.05
"""The probability that a step takes so long that other events happen meanwhile."""
STALL_SECONDS = 0.02
CANCELLATIONS = 20
"""How often a task may suppress its cancellation before that is an error."""


class Deadlock(Exception):
    """No callback is ready, and none ever will be."""


class Endless(Exception):
    """The run exceeded its limit of time or steps."""


class VirtualLoop(asyncio.BaseEventLoop):
    # Private to asyncio, but the same in all supported versions.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self, chance: random.Random, stalls: float, seconds: float, steps: int) -> None:
        super().__init__()
        self.steps = 0
        self.tasks: list[asyncio.Task[Any]] = []
        """All tasks: asyncio has weak references only, and collected tasks would be lost."""
        self.unheard: list[BaseException] = []
        self._now = 0.0
        self._chance = chance
        self._stalls = stalls
        self._last_second = seconds
        self._last_step = steps
        self.set_exception_handler(_note)

    def time(self) -> float:
        return self._now

    def create_task(self, *args: Any, **options: Any) -> asyncio.Task[Any]:
        task = super().create_task(*args, **options)
        self.tasks.append(task)
        return task

    def pending(self) -> list[asyncio.Task[Any]]:
        return [task for task in self.tasks if not task.done()]

    def allow(self, seconds: float, steps: int) -> None:
        """From now on."""
        self._last_second = self._now + seconds
        self._last_step = self.steps + steps

    def run_in_executor(self, *_: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("a simulation has no threads: their order is not ours to choose")

    def _run_once(self) -> None:
        ready = self._ready
        scheduled = self._scheduled
        while scheduled and scheduled[0].cancelled():
            self._pop_timer()
        if not ready and not self._stopping:
            if not scheduled:
                raise Deadlock("everybody waits: " + _named(self.pending()))
            self._now = max(self._now, scheduled[0].when())
            if self._now > self._last_second:
                raise Endless(f"after {self._last_second} s: " + _named(self.pending()))
        elif self._chance.random() < self._stalls:
            self._now += self._chance.random() * STALL_SECONDS
        if scheduled and scheduled[0].when() <= self._now:
            due = []
            while scheduled and scheduled[0].when() <= self._now:
                due.append(self._pop_timer())
            if len(due) > 1:
                due.sort(key=lambda timer: (timer.when(), self._chance.random()))
            ready.extend(due)
        self.steps += len(ready)
        if self.steps > self._last_step:
            raise Endless(f"after {self._last_step} steps: " + _named(self.pending()))
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _pop_timer(self) -> asyncio.TimerHandle:
        timer = heapq.heappop(self._scheduled)
        timer._scheduled = False  # type: ignore[attr-defined]
        if timer.cancelled():
            self._timer_cancelled_count -= 1
        return timer

    def _write_to_self(self) -> None:
        """Does nothing: there is no selector to wake up."""


def run(
    seed: int,
    main: Callable[[], Coroutine[Any, Any, T]],
    *,
    seconds: float = SECONDS,
    steps: int = STEPS,
    stalls: float = STALLS,
) -> T:
    """Run `main` with this seed, and return its result.

    The limits are `seconds` of virtual time and `steps` callbacks. An error in a task that is never
    awaited fails the run, too.
    """
    # Not the seed itself: numbers that `main` draws from `Random(seed)` must be independent.
    chance = random.Random(f"loop {seed}")
    loop = VirtualLoop(chance, stalls, seconds, steps)
    with _determined(chance, loop):
        try:
            result = loop.run_until_complete(main())
        finally:
            try:
                _end(loop)
            finally:
                loop.close()
    if loop.unheard:
        raise BaseExceptionGroup("errors that nobody heard of", loop.unheard)
    return result


def _end(loop: VirtualLoop) -> None:
    loop.allow(SECONDS, STEPS)
    loop.run_until_complete(asyncio.sleep(0))
    for _ in range(CANCELLATIONS):
        pending = loop.pending()
        if not pending:
            break
        for task in pending:
            task.cancel()
        # A cleanup may wait for an event that never occurs: then it is cancelled, too.
        with suppress(Deadlock):
            loop.run_until_complete(asyncio.wait(pending))
    else:
        raise Deadlock("will not be cancelled: " + _named(loop.pending()))
    loop.run_until_complete(loop.shutdown_asyncgens())
    for task in loop.tasks:
        if task._log_traceback:
            error = task.exception()
            assert error is not None
            loop.unheard.append(error)
    loop.tasks.clear()


@contextmanager
def _determined(chance: random.Random, loop: VirtualLoop) -> Iterator[None]:
    """Replace clocks, random numbers and secrets, and disable the garbage collector.

    The collector would call finalizers at unpredictable times."""
    secret = random.Random(chance.getrandbits(64)).randbytes
    replaced: list[tuple[Any, str, Any]] = [
        (random, "_urandom", secret),
        (os, "urandom", secret),
        (time, "monotonic", loop.time),
        (time, "monotonic_ns", lambda: int(loop.time() * 1e9)),
        (time, "time", lambda: EPOCH + loop.time()),
        (time, "time_ns", lambda: EPOCH * 10**9 + int(loop.time() * 1e9)),
    ]
    originals = [getattr(owner, name) for owner, name, _ in replaced]
    dice = random.getstate()
    collecting = gc.isenabled()
    gc.disable()
    random.seed(chance.getrandbits(64))
    for owner, name, value in replaced:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for (owner, name, _), value in zip(replaced, originals, strict=True):
            setattr(owner, name, value)
        random.setstate(dice)
        if collecting:
            gc.enable()


def _note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, VirtualLoop)
    error = context.get("exception") or RuntimeError(context["message"])
    # A gather that is never awaited reports its parts, which are cancelled when the run ends.
    if not isinstance(error, asyncio.CancelledError):
        loop.unheard.append(error)


def _named(tasks: list[asyncio.Task[Any]]) -> str:
    return "; ".join(f"{task.get_name()} in {_place(task)}" for task in tasks) or "no task is left"


def _place(task: asyncio.Task[Any]) -> str:
    """The stack of a waiting task, from the outside in."""
    awaited: Any = task.get_coro()
    places = []
    while getattr(awaited, "cr_frame", None) is not None:
        places.append(f"{awaited.__qualname__}:{awaited.cr_frame.f_lineno}")
        awaited = awaited.cr_await
    return " > ".join(places)
