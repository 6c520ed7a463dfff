"""The substrate of every simulation: it has to be deterministic, and still be asyncio."""

from __future__ import annotations

import asyncio
import itertools
import random
import secrets
import time
import uuid
from collections.abc import AsyncIterator

import pytest

from devtools.dynamodb_simulator.loop import EPOCH, Deadlock, Endless, run


async def jostle() -> list[str]:
    """Tasks that draw, sleep and take turns; the order of their steps is the trace."""
    trace: list[str] = []
    lock = asyncio.Lock()

    async def walk(name: str) -> None:
        for step in range(4):
            await asyncio.sleep(random.uniform(0, 0.01))
            async with lock:
                trace.append(f"{name}{step} {secrets.token_hex(2)} {time.monotonic()}")
                await asyncio.sleep(0)

    await asyncio.gather(*(walk(name) for name in "abcd"))
    return trace


def test_a_seed_reproduces_its_run() -> None:
    for seed in range(20):
        assert run(seed, jostle) == run(seed, jostle)


def test_different_seeds_give_different_runs() -> None:
    orders = {tuple(step.split()[0] for step in run(seed, jostle)) for seed in range(50)}
    assert len(orders) > 45


def test_simultaneous_timers_fire_in_any_order() -> None:
    async def main() -> str:
        order: list[str] = []
        for name in "abc":
            asyncio.get_running_loop().call_later(1, order.append, name)
        await asyncio.sleep(2)
        return "".join(order)

    assert len({run(seed, main) for seed in range(60)}) == 6


def test_callbacks_run_in_order() -> None:
    async def main() -> str:
        order: list[str] = []
        for name in "abcdef":
            asyncio.get_running_loop().call_soon(order.append, name)
        await asyncio.sleep(0)
        return "".join(order)

    assert {run(seed, main) for seed in range(50)} == {"abcdef"}


def test_a_timer_may_come_in_between_the_steps_of_a_task() -> None:
    async def main() -> int:
        seen: list[int] = []
        asyncio.get_running_loop().call_later(0.001, seen.append, 0)
        for step in range(1, 1000):
            await asyncio.sleep(0)
            if seen:
                return step
        return 0

    assert len({run(seed, main) for seed in range(50)}) > 10


def test_virtual_time_passes_without_waiting() -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert run(1, main, stalls=0) == 3600


def test_the_clocks_show_virtual_time() -> None:
    async def main() -> tuple[float, float, int, int]:
        await asyncio.sleep(90)
        return time.monotonic(), time.time(), time.monotonic_ns(), time.time_ns()

    expected: tuple[float, float, int, int] = (90, EPOCH + 90, 90 * 10**9, (EPOCH + 90) * 10**9)
    assert run(1, main, stalls=0) == expected
    assert time.time() > EPOCH + 10**6, "and the real time afterwards"


def test_secrets_are_the_seeds_and_real_again_afterwards() -> None:
    async def main() -> tuple[int, str, bytes, str, float]:
        unique = str(uuid.uuid4())
        return (
            secrets.randbits(62), secrets.token_hex(8), secrets.token_bytes(8), unique,
            random.random(),
        )  # fmt: skip

    dice = random.getstate()
    assert run(1, main) == run(1, main)
    assert not set(run(1, main)) & set(run(2, main))
    assert random.getstate() == dice
    assert secrets.token_hex(8) != secrets.token_hex(8)


def test_a_deadlock_names_the_waiting_tasks() -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(stuck(), name="the reader")
        await task

    with pytest.raises(Deadlock, match=r"the reader in .*stuck:\d+ > Event\.wait"):
        run(1, main)


def test_virtual_time_is_bounded() -> None:
    async def main() -> None:
        for _ in itertools.count():
            await asyncio.sleep(60)

    with pytest.raises(Endless, match=r"after 3600 s: .*main"):
        run(1, main, seconds=3600)


def test_steps_are_bounded() -> None:
    async def main() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(Endless, match="after 1000 steps"):
        run(1, main, steps=1000)


def test_timeouts_work() -> None:
    async def main() -> str:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(10), 5)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        return await asyncio.wait_for(asyncio.sleep(1, "in time"), 5)

    assert run(1, main) == "in time"


def test_a_lock_is_acquired_in_order() -> None:
    async def main() -> list[int]:
        lock = asyncio.Lock()
        inside: list[int] = []

        async def enter(number: int) -> None:
            async with lock:
                inside.append(number)
                await asyncio.sleep(random.random())
                assert inside[-1] == number

        await asyncio.gather(*(enter(number) for number in range(10)))
        return inside

    for seed in range(20):
        assert run(seed, main) == list(range(10))


def test_cancellation_reaches_a_task() -> None:
    async def main() -> list[str]:
        heard: list[str] = []

        async def work() -> None:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                await asyncio.sleep(1)
                heard.append("cleaned up")
                raise

        task = asyncio.create_task(work())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return heard

    assert run(1, main) == ["cleaned up"]


def test_an_error_in_a_group_ends_the_others() -> None:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise ValueError("on purpose")

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(asyncio.sleep(10**5))

    with pytest.raises(ExceptionGroup):
        run(1, main, seconds=10)


def test_remaining_tasks_are_cancelled_in_order() -> None:
    ended: list[int] = []

    async def linger(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            ended.append(number)
            await asyncio.Event().wait()

    async def main() -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(linger(number)) for number in range(3)]
        await asyncio.sleep(0)
        return tasks

    assert all(task.cancelled() for task in run(1, main))
    assert sorted(ended) == [0, 1, 2]


def test_a_gather_may_be_left_unawaited() -> None:
    async def main() -> None:
        asyncio.gather(asyncio.Event().wait(), asyncio.sleep(10))
        await asyncio.sleep(1)

    run(1, main)


def test_a_task_that_suppresses_its_cancellation_is_an_error() -> None:
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(10**9)
            except asyncio.CancelledError:
                if stubborn_no_more:
                    raise

    stubborn_no_more: list[bool] = []
    tasks: list[asyncio.Task[None]] = []

    async def main() -> None:
        tasks.append(asyncio.create_task(stubborn(), name="the stubborn"))
        await asyncio.sleep(0)

    with pytest.raises(Endless, match="the stubborn"):
        run(1, main)
    stubborn_no_more.append(True)
    tasks[0]._log_destroy_pending = False  # type: ignore[attr-defined]


def test_an_error_in_a_task_that_is_never_awaited_fails_the_run() -> None:
    async def fail() -> None:
        raise ValueError("on purpose")

    async def main() -> None:
        task = asyncio.create_task(fail())
        await asyncio.sleep(1)
        assert task.done()

    with pytest.raises(ExceptionGroup, match="nobody heard of"):
        run(1, main)


def test_an_error_in_a_callback_fails_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(1, int, "no number")
        await asyncio.sleep(2)

    with pytest.raises(ExceptionGroup, match="nobody heard of"):
        run(1, main)


def test_an_unfinished_generator_is_closed() -> None:
    closed: list[str] = []

    async def count() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(1)
            closed.append("closed")

    numbers = count()

    async def main() -> None:
        async for _ in numbers:
            break

    run(1, main)
    assert closed == ["closed"]


def test_threads_are_refused() -> None:
    async def main() -> None:
        await asyncio.to_thread(time.sleep, 1)

    with pytest.raises(RuntimeError, match="no threads"):
        run(1, main)
