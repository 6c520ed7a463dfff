"""The life of a follower and its readers, whatever the protocol, over a real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tailrace.errors import StoreUnavailable
from tailrace.live import follower
from tailrace.live.follower import ChainFollower, Follower, Followers, Reader
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.streams import Streams, View
from tests.support.streams import Clock, serving

TEXT = "text/plain"


class Recorder(Follower):
    """Follows for nobody, and keeps what it would hand out."""

    def __init__(self, streams: Streams) -> None:
        super().__init__(streams, "a")
        self.bodies: list[bytes] = []

    async def deliver(self, view: View) -> None:
        self.bodies += view.bodies
        self.slot, self.offset = view.end, view.offset


class ReaderRecorder(ChainFollower[Reader]):
    async def deliver(self, view: View) -> None:
        self.slot, self.offset = view.end, view.offset
        if view.closed:
            self.release(list(self.readers), closed=True)
            self.end()


class NoSink:
    async def drain(self) -> None:
        raise AssertionError("a follower never waits for one reader")

    def push(self, data: bytes) -> bool:
        raise AssertionError(f"nothing is pushed here, but was: {data!r}")


@pytest.fixture
async def streams(tmp_path: Path) -> AsyncIterator[Streams]:
    async with serving(tmp_path / "data", Clock()) as streams:
        yield streams


@pytest.fixture
async def recorder(streams: Streams) -> AsyncIterator[Recorder]:
    recorder = Recorder(streams)
    yield recorder
    recorder.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 - the follower goes on by itself
            await asyncio.sleep(0.001)


async def create(streams: Streams, *bodies: bytes) -> None:
    await streams.create("a", Create(b"", TEXT))
    for body in bodies:
        await streams.append("a", Append(body, TEXT))


async def test_a_stream_that_exists_is_followed_from_its_tail(streams: Streams) -> None:
    await create(streams, b"old")
    recorder = Recorder(streams)
    await until(lambda: recorder.slot == 1)
    await streams.append("a", Append(b"new", TEXT))
    await until(lambda: recorder.slot == 2)
    assert recorder.bodies == [b"new"]
    recorder.stop()


async def test_a_stream_that_is_created_later_is_followed_from_its_beginning(
    streams: Streams, recorder: Recorder
) -> None:
    await until(lambda: recorder.chain is None)
    await create(streams, b"1", b"2")
    await until(lambda: recorder.bodies == [b"1", b"2"])
    await streams.delete("a")
    await create(streams, b"3")
    await until(lambda: recorder.bodies == [b"1", b"2", b"3"])


async def test_a_closed_stream_is_followed_again_when_it_is_created_again(
    streams: Streams, recorder: Recorder
) -> None:
    await until(lambda: recorder.chain is None)
    await create(streams, b"1")
    await streams.append("a", Append(b"2", TEXT, close=True))
    await until(lambda: recorder.bodies == [b"1", b"2"])
    await streams.delete("a")
    await create(streams, b"3")
    await until(lambda: recorder.bodies == [b"1", b"2", b"3"])


async def test_a_follower_goes_on_when_the_store_has_recovered(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await create(streams)
    find, failures = streams.find, [StoreUnavailable("the disk is away"), OSError("too many files")]

    async def fail(path: str) -> object:
        if failures:
            raise failures.pop()
        return await find(path)

    monkeypatch.setattr(streams, "find", fail)
    monkeypatch.setattr(follower, "RETRY_SECONDS", 0.001)
    recorder = Recorder(streams)
    await until(lambda: recorder.chain not in (None, follower.UNKNOWN))
    await streams.append("a", Append(b"1", TEXT))
    await until(lambda: recorder.bodies == [b"1"])
    assert "the disk is away" in caplog.text
    assert "too many files" in caplog.text
    recorder.stop()


@pytest.mark.parametrize("error", [StoreUnavailable("the disk is away"), OSError("too many files")])
async def test_readers_are_released_when_the_store_fails(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    await create(streams)
    reader = await reader_at(streams)

    async def fail(_: str) -> object:
        raise error

    monkeypatch.setattr(streams, "find", fail)
    assert await asyncio.wait_for(attend(Followers(), streams, reader), 120) is False


async def test_readers_are_released_when_their_stream_is_created(streams: Streams) -> None:
    released = attend(Followers(), streams, Reader(NoSink(), None, 0, 0))
    await create(streams)
    assert await asyncio.wait_for(released, 120) is False


async def test_readers_are_released_when_their_stream_is_deleted(streams: Streams) -> None:
    await create(streams)
    released = attend(Followers(), streams, await reader_at(streams))
    await streams.delete("a")
    assert await asyncio.wait_for(released, 120) is False


async def test_readers_are_released_with_the_end_of_their_stream(streams: Streams) -> None:
    await create(streams)
    reader = await reader_at(streams)
    released = attend(Followers(), streams, reader)
    await streams.append("a", Append(b"1", TEXT, close=True))
    assert await asyncio.wait_for(released, 120) is True
    end = (await streams.find("a")).committed
    assert (reader.slot, reader.offset) == (end.tail, end.offset)


async def test_readers_are_released_when_the_server_stops(streams: Streams) -> None:
    await create(streams)
    released = attend(Followers(), streams, await reader_at(streams))
    await asyncio.sleep(0.01)
    streams.drain()
    assert await asyncio.wait_for(released, 120) is False


async def test_a_reader_that_is_behind_is_not_admitted(streams: Streams) -> None:
    await create(streams, b"1")
    followers: Followers[Reader] = Followers()
    at_tail, behind = await reader_at(streams, 1, 1), await reader_at(streams)
    attend(followers, streams, at_tail)
    assert followers.attend("a", behind, no_follower) is None


async def test_a_follower_lasts_as_long_as_it_has_readers(streams: Streams) -> None:
    await create(streams)
    followers: Followers[Reader] = Followers()
    first, second, third = [await reader_at(streams) for _ in range(3)]
    released = attend(followers, streams, first)
    other = followers.attend("a", second, no_follower)
    followers.leave("a", first)
    assert released.result() is False
    assert other is not None
    assert not other.done()
    followers.leave("a", second)
    with pytest.raises(AssertionError, match="needs no other follower"):
        followers.attend("a", third, no_follower)


def attend(followers: Followers[Reader], streams: Streams, reader: Reader) -> asyncio.Future[bool]:
    released = followers.attend(
        "a", reader, lambda: ReaderRecorder(streams, "a", reader.chain, reader.slot, reader.offset)
    )
    assert released is not None
    return released


def no_follower() -> ReaderRecorder:
    raise AssertionError("the stream needs no other follower")


async def reader_at(streams: Streams, slot: int = 0, offset: int = 0) -> Reader:
    return Reader(NoSink(), (await streams.find("a")).stream.id, slot, offset)
