from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import StreamClosed, StreamConflict, StreamGone, StreamNotFound
from tailrace.log.append import Append
from tailrace.log.expiry import renewal_slack
from tailrace.log.offsets import NOW
from tailrace.log.state import Producer
from tailrace.streams import Streams
from tests.support.streams import START, Client, Clock, begun, ended, place, serving

# The idle window


async def test_a_stream_expires_to_the_millisecond(client: Client, clock: Clock) -> None:
    await client.create("a", b"x", ttl=2)
    clock.pass_ms(1_999)
    assert await client.status("a") == "there"
    clock.pass_ms(1)
    assert await client.status("a") == "missing"


async def _read(client: Client) -> None:
    await client.read("a")


async def _read_now(client: Client) -> None:
    await client.streams.view("a", NOW)


async def _read_live(client: Client) -> None:
    tail = await client.streams.access("a")
    await client.streams.follow(tail, tail.committed.tail, 0.01)


async def _append(client: Client) -> None:
    await client.append("a", b"x")


async def _produce(client: Client) -> None:
    await client.produce("a", "p", 0, 1)


async def _retry(client: Client) -> None:
    await client.produce("a", "p", 0, 0)


async def _close(client: Client) -> None:
    await client.close("a")


Act = Callable[[Client], Awaitable[None]]
RENEWING: dict[str, Act] = {
    "a read": _read,
    "a read of the tail": _read_now,
    "a live read": _read_live,
    "an append": _append,
    "a producer's append": _produce,
    "a producer's retry": _retry,
    "a close": _close,
}


@pytest.mark.parametrize("act", RENEWING.values(), ids=RENEWING.keys())
async def test_every_access_restarts_the_idle_window(
    client: Client, clock: Clock, act: Act
) -> None:
    await client.create("a", ttl=2)
    await client.produce("a", "p", 0, 0)
    clock.pass_ms(1_500)
    await act(client)
    clock.pass_ms(1_500)
    assert await client.status("a") == "there"
    clock.pass_ms(500)
    assert await client.status("a") == "missing"


async def test_a_closed_stream_is_renewed_by_reads_and_closes(client: Client, clock: Clock) -> None:
    await client.create("a", b"x", ttl=2, closed=True)
    for act in (_read, _close, _read_now):
        clock.pass_ms(1_500)
        await act(client)
    with pytest.raises(StreamClosed):
        await client.append("a", b"y")


async def _head(client: Client) -> None:
    await client.streams.find("a")


async def _list(client: Client) -> None:
    await client.streams.list("", "", 10)


async def _sweep(client: Client) -> None:
    await client.streams.sweep()


@pytest.mark.parametrize("act", [_head, _list, _sweep])
async def test_looking_at_a_stream_is_no_access(client: Client, clock: Clock, act: Act) -> None:
    await client.create("a", ttl=2)
    clock.pass_ms(1_500)
    await act(client)
    clock.pass_ms(500)
    assert await client.status("a") == "missing"


async def test_a_stream_in_use_lives_for_ever(client: Client, clock: Clock) -> None:
    await client.create("a", ttl=1)
    for _ in range(50):
        clock.pass_ms(999)
        await client.append("a", b"x")
    assert await client.read("a") == b"x" * 50


# A fixed instant


async def test_nothing_extends_a_fixed_instant(client: Client, clock: Clock) -> None:
    await client.create("a", expires_at=START + 2_000)
    for _ in range(3):
        clock.pass_ms(500)
        await client.append("a", b"x")
        await client.read("a")
    clock.pass_ms(499)
    assert await client.read("a") == b"xxx"
    clock.pass_ms(1)
    assert await client.status("a") == "missing"


# From the beginning


@pytest.mark.parametrize(
    "expiry", [{"ttl": 0}, {"expires_at": START}, {"expires_at": START - 5_000}]
)
async def test_a_stream_may_expire_at_once(client: Client, expiry: dict[str, Any]) -> None:
    created = await client.create("a", b"x", **expiry)
    assert created.new
    assert created.state.offset == 1
    assert await client.status("a") == "missing"
    assert (await client.create("a", b"y", **expiry)).new
    with pytest.raises(StreamNotFound):
        await client.append("a", b"z")


# Afterwards


async def test_an_expired_stream_is_as_if_it_had_never_been(client: Client, clock: Clock) -> None:
    await client.create("a", b"x", ttl=1)
    clock.pass_s(1)
    for act in (
        lambda: client.streams.find("a"),
        lambda: client.read("a"),
        lambda: client.append("a", b"y"),
        lambda: client.close("a"),
        lambda: client.streams.delete("a"),
    ):
        with pytest.raises(StreamNotFound):
            await act()


async def test_the_path_of_an_expired_stream_is_free_for_another(
    client: Client, clock: Clock
) -> None:
    old = await client.create("a", b"old", ttl=1)
    await client.produce("a", "p", 0, 0)
    clock.pass_s(1)
    new = await client.create("a", b"[1]", "application/json", expires_at=clock.now + 60_000)
    assert new.new
    assert new.stream.id != old.stream.id
    assert await client.read("a") == b"[1]"
    assert place(new.next_offset) == (1, 1)


async def test_concurrent_requests_agree_that_a_stream_expired(
    client: Client, clock: Clock
) -> None:
    await client.create("a", b"old", ttl=1)
    clock.pass_s(1)
    created = await asyncio.gather(*(client.create("a", b"new", ttl=1) for _ in range(20)))
    assert [each.new for each in created].count(True) == 1
    assert await client.read("a") == b"new"


async def test_an_expired_stream_is_not_listed(client: Client, clock: Clock) -> None:
    await client.create("idle", ttl=1)
    await client.create("fixed", expires_at=START + 1_000)
    await client.create("ever")
    clock.pass_ms(1_000 + renewal_slack(1))
    assert [each.stream.path for each in await client.streams.list("", "", 10)] == ["ever"]


# Live readers


async def test_a_stream_does_not_expire_under_a_live_reader(client: Client, clock: Clock) -> None:
    await client.create("a", ttl=1)
    tail = await client.streams.access("a")
    reading = await begun(client.streams.follow(tail, 0, 10_000))
    clock.pass_s(10)
    assert await client.status("a") == "there"
    await client.streams.sweep()
    await client.append("a", b"x")
    assert (await ended(reading)).bodies == [b"x"]


async def test_a_live_read_that_ends_without_data_has_kept_the_stream(
    client: Client, clock: Clock
) -> None:
    """The reader was there all the time, longer than the window."""
    await client.create("a", ttl=1)
    tail = await client.streams.access("a")
    reading = await begun(client.streams.follow(tail, 0, 0.05))
    clock.pass_s(25)
    view = await ended(reading)
    assert view.up_to_date
    assert not view.bodies
    clock.pass_ms(999)
    assert await client.status("a") == "there", "the end of a live read is an access, too"
    clock.pass_ms(1)
    assert await client.status("a") == "missing"


async def test_a_stopping_server_does_not_take_the_streams_of_its_readers_with_it(
    client: Client, clock: Clock
) -> None:
    await client.create("a", b"x", ttl=1)
    tail = await client.streams.access("a")
    readers = [await begun(client.streams.follow(tail, 1, 10_000)) for _ in range(3)]
    clock.pass_s(10)
    client.streams.drain()
    views = await asyncio.gather(*map(ended, readers), return_exceptions=True)
    assert [view for view in views if isinstance(view, BaseException)] == []
    assert await client.status("a") == "there"


async def test_a_window_of_nothing_expires_under_a_live_reader(client: Client) -> None:
    await client.create("a", ttl=0)
    with pytest.raises(StreamNotFound):
        await client.streams.access("a")


async def test_a_fixed_instant_ends_a_stream_with_readers(client: Client, clock: Clock) -> None:
    await client.create("a", expires_at=START + 1_000)
    tail = await client.streams.access("a")
    reading = await begun(client.streams.follow(tail, 0, 10_000))
    clock.pass_s(1)
    assert await client.status("a") == "missing"
    with pytest.raises(StreamNotFound):
        await ended(reading)


# Sweeping


async def test_a_sweep_removes_what_nobody_asks_for(streams: Streams, clock: Clock) -> None:
    client = Client(streams)
    await client.create("idle", b"x", ttl=1)
    await client.create("fixed", b"x", expires_at=START + 1_000)
    await client.create("ever", b"x")
    clock.pass_ms(999)
    await streams.sweep()
    for path in ("idle", "fixed", "ever"):
        assert await streams.store.tail(path) is not None
    clock.pass_ms(1 + renewal_slack(1))
    await streams.sweep()
    assert await streams.store.tail("idle") is None
    assert await streams.store.tail("fixed") is None
    assert await streams.store.tail("ever") is not None


async def test_a_sweep_goes_on_after_a_stream_that_was_deleted_meanwhile(
    streams: Streams, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(streams)
    for path in "abc":
        await client.create(path, ttl=1)
    clock.pass_s(5)
    expiring = streams.store.expiring

    async def late(now: int) -> list[str]:
        paths = list(await expiring(now))
        with pytest.raises(StreamNotFound):
            await streams.delete("b")
        return paths

    monkeypatch.setattr(streams.store, "expiring", late)
    await streams.sweep()
    for path in "abc":
        assert await streams.store.tail(path) is None


# Restarts


@pytest.mark.parametrize("idle_ms", [0, 3_000, 30_000, 59_999])
async def test_a_window_goes_on_through_a_restart(data: Path, clock: Clock, idle_ms: int) -> None:
    async with serving(data, clock) as streams:
        await Client(streams).create("a", b"x", ttl=60)
        clock.pass_s(7)
        await Client(streams).read("a")
    clock.pass_ms(idle_ms)
    async with serving(data, clock) as streams:
        clock.pass_ms(60_000 - idle_ms - 1)
        assert await Client(streams).status("a") == "there"
        clock.pass_ms(1 + renewal_slack(60))
        assert await Client(streams).status("a") == "missing"


async def test_a_fixed_instant_passes_during_a_restart(data: Path, clock: Clock) -> None:
    async with serving(data, clock) as streams:
        await Client(streams).create("a", b"x", expires_at=START + 1_000)
    clock.pass_s(1)
    async with serving(data, clock) as streams:
        assert await Client(streams).status("a") == "missing"


async def test_a_live_reader_counts_up_to_the_restart(data: Path, clock: Clock) -> None:
    """It was connected until the server stopped, and comes back at once."""
    async with serving(data, clock) as streams:
        client = Client(streams)
        await client.create("a", b"x", ttl=60)
        reading = await begun(streams.follow(await streams.access("a"), 1, 30))
        clock.pass_s(600)
        streams.drain()
        assert (await ended(reading)).up_to_date
    async with serving(data, clock) as streams:
        assert await Client(streams).status("a") == "there"


# Forks


async def test_reading_a_fork_renews_the_fork_only(client: Client, clock: Clock) -> None:
    await client.create("source", b"x", ttl=2)
    await client.fork("fork", "source")
    clock.pass_ms(1_500)
    assert await client.read("fork") == b"x"
    clock.pass_ms(1_000)
    assert await client.status("source") == "gone"
    assert await client.status("fork") == "there"
    clock.pass_ms(1_000)
    assert await client.status("fork") == "missing"


async def test_a_fork_has_a_window_of_its_own(client: Client, clock: Clock) -> None:
    await client.create("source", b"x", ttl=2)
    clock.pass_ms(1_500)
    await client.fork("fork", "source")
    clock.pass_ms(1_999)
    assert await client.status("fork") == "there"
    clock.pass_ms(1)
    assert await client.status("fork") == "missing"


async def test_a_fork_shares_its_sources_instant(client: Client, clock: Clock) -> None:
    await client.create("source", b"x", expires_at=START + 1_000)
    await client.fork("fork", "source")
    await client.fork("longer", "source", expires_at=START + 9_000)
    clock.pass_s(1)
    assert await client.status("fork") == "missing"
    assert await client.status("source") == "gone"
    assert await client.read("longer") == b"x"


async def test_an_expired_source_lives_on_in_its_forks(client: Client, clock: Clock) -> None:
    await client.create("source", b"x", ttl=1)
    await client.fork("fork", "source", ttl=60)
    clock.pass_s(2)
    for act in (
        lambda: client.streams.find("source"),
        lambda: client.append("source", b"y"),
        lambda: client.close("source"),
        lambda: client.streams.append("source", Append(b"", None, True, None, Producer("p", 0, 0))),
        lambda: client.streams.delete("source"),
    ):
        with pytest.raises(StreamGone):
            await act()
    with pytest.raises(StreamConflict):
        await client.create("source", b"over it")
    with pytest.raises(StreamConflict):
        await client.fork("second", "source")
    assert await client.read("fork") == b"x"
    clock.pass_s(60)
    assert await client.status("fork") == "missing"
    assert await client.status("source") == "missing"
    assert (await client.create("source", b"new")).new


async def test_a_source_that_expires_unnoticed_is_still_kept_for_its_forks(
    client: Client, clock: Clock
) -> None:
    await client.create("source", b"x", ttl=1)
    await client.fork("fork", "source", ttl=600)
    clock.pass_s(100)
    await client.streams.sweep()
    await client.streams.sweep()
    assert await client.status("source") == "gone"
    assert await client.read("fork") == b"x"


async def test_an_expired_source_cannot_be_forked(client: Client, clock: Clock) -> None:
    await client.create("source", b"x", ttl=1)
    clock.pass_s(1)
    with pytest.raises(StreamNotFound):
        await client.fork("fork", "source")
    assert await client.status("fork") == "missing"


async def test_a_waiting_reader_is_told_that_the_stream_has_expired(
    streams: Streams, client: Client, clock: Clock
) -> None:
    await client.create("s", expires_at=clock.now + 50)
    waiting = await begun(streams.follow(await streams.find("s"), 0, 600))
    clock.pass_ms(50)
    with pytest.raises(StreamNotFound):
        await ended(waiting)
