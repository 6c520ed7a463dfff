"""The behaviours of the client, each on every server: docs/client.md has them as a table."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Literal

import pytest

from tailrace.client import (
    BatchLimits,
    Client,
    ClosedError,
    ConflictError,
    ExistsError,
    FencedError,
    MismatchError,
    NotFoundError,
    Stream,
    StreamError,
    UnsupportedError,
)

Live = Literal["auto", "sse", "long-poll"]
each_live = pytest.mark.parametrize("live", ["auto", "sse", "long-poll"])
LIMITS = BatchLimits(linger=0.001, bytes=500, messages=7, in_flight=4)


@pytest.fixture
def is_tailrace(request: pytest.FixtureRequest) -> bool:
    return "[tailrace" in request.node.name


@contextmanager
def meanwhile(*steps: Any) -> Iterator[None]:
    """Do something beside the test, step by step."""

    def act() -> None:
        for step in steps:
            time.sleep(0.05)
            step()

    thread = threading.Thread(target=act)
    thread.start()
    yield
    thread.join()


def test_create_is_idempotent(numbers: Stream) -> None:
    assert not numbers.create(content_type="application/json").created
    with pytest.raises(ExistsError):
        numbers.create(content_type="text/plain")


def test_head_and_delete(numbers: Stream) -> None:
    info = numbers.head()
    assert (info.content_type, info.closed, info.ttl) == ("application/json", False, None)
    assert info.next_offset == numbers.read().next_offset
    numbers.delete()
    with pytest.raises(NotFoundError) as missing:
        numbers.head()
    assert (missing.value.status, missing.value.code) == (404, "STREAM_NOT_FOUND")
    assert missing.value.fix


def test_create_with_all_settings(client: Client, name: str) -> None:
    stream = client.stream(name, content_type="application/json")
    assert stream.create(ttl=3600, closed=True, body=[1, 2]).created
    info = stream.head()
    assert (info.ttl, info.closed) == (3600, True)
    assert stream.read().json() == [[1, 2]]


def test_json_values_are_read_as_appended(numbers: Stream) -> None:
    values: list[Any] = [
        {"a": 1.5},
        [1, [2]],
        "text",
        None,
        0,
        True,
        "grüße, 世界",
        "\u2028",
        {"": {}},
    ]
    for value in values[:3]:
        numbers.append(value)
    numbers.append_many(values[3:])
    numbers.append(b'[{"raw": 1}, 2]')
    assert list(numbers.items()) == [*values, {"raw": 1}, 2]
    assert numbers.read().json() == list(numbers.items())


def test_text_and_bytes_are_read_as_appended(client: Client, text: Stream, name: str) -> None:
    text.append("a\r\nb\r")
    text.append_many(["c\n", b"d"])
    assert text.read().text() == "a\r\nb\rc\nd"
    raw = client.stream(f"{name}-bytes")
    raw.create()
    raw.append(bytes(range(256)))
    assert raw.read().body == bytes(range(256))
    with pytest.raises(TypeError, match="application/json"):
        raw.append({"a": 1})


def test_a_read_goes_on_at_an_offset(numbers: Stream) -> None:
    numbers.append(1)
    offset = numbers.append(2).next_offset
    numbers.append(3)
    assert numbers.read(offset).json() == [3]
    end = numbers.read().next_offset
    assert numbers.read(end).json() == []
    chunks = numbers.chunks(offset)
    assert [chunk.json() for chunk in chunks] == [[3]]
    assert chunks.offset == end


def test_the_last_messages(numbers: Stream, text: Stream) -> None:
    numbers.append_many(range(10))
    assert numbers.read(last=3).json() == [7, 8, 9]
    assert numbers.read(last=30).json() == list(range(10))
    text.append("grüße")
    assert text.read(last=2).text() == "e"


def test_close_is_final_and_harmless_twice(numbers: Stream) -> None:
    end = numbers.append(1, close=True).next_offset
    assert numbers.close().closed
    with pytest.raises(ClosedError) as closed:
        numbers.append(2)
    assert (closed.value.status, closed.value.next_offset) == (409, end)
    assert numbers.read().closed


def test_a_sequence_may_not_decrease(text: Stream) -> None:
    text.append("a", seq="0002")
    with pytest.raises(ConflictError):
        text.append("b", seq="0001")


def test_a_fork_shares_the_past(client: Client, numbers: Stream, name: str) -> None:
    numbers.append(1)
    offset = numbers.append(2).next_offset
    numbers.append(3)
    fork = numbers.fork(f"{name}-fork", at=offset)
    fork.append(4)
    assert fork.read().json() == [1, 2, 4]
    assert numbers.read().json() == [1, 2, 3]
    with pytest.raises(NotFoundError):
        client.stream(f"{name}-none").fork(f"{name}-other")


@each_live
def test_a_tail_brings_the_past_and_the_news_and_ends(numbers: Stream, live: Live) -> None:
    numbers.append_many([1, 2])
    with meanwhile(lambda: numbers.append(3), lambda: numbers.append([4], close=True)):
        tail = numbers.tail("-1", live=live)
        assert list(tail.items()) == [1, 2, 3, [4]]
    assert tail.closed


@each_live
def test_a_tail_begins_at_the_end(numbers: Stream, live: Live) -> None:
    numbers.append("old")
    with numbers.tail(live=live) as tail:
        assert next(tail).is_empty
        with meanwhile(lambda: numbers.append("new")):
            assert next(tail).json() == ["new"]
        offset = tail.offset
    numbers.append("newer")
    with numbers.tail(offset, live=live) as tail:
        assert list(islice(tail.items(), 1)) == ["newer"]


@each_live
def test_a_tail_of_bytes_is_exact(client: Client, name: str, live: Live) -> None:
    raw = client.stream(name)
    raw.create()
    data = bytes(range(256)) * 3
    with meanwhile(lambda: raw.append(data), lambda: raw.append(b"\r\n", close=True)):
        body = b"".join(chunk.body for chunk in raw.tail("-1", live=live))
    assert body == data + b"\r\n"


def test_a_tail_of_text_keeps_line_breaks(text: Stream) -> None:
    with meanwhile(lambda: text.append("a\r\nb\r"), lambda: text.append("\n c", close=True)):
        assert "".join(chunk.text() for chunk in text.tail("-1")) == "a\r\nb\r\n c"


def test_a_tail_begins_with_the_last_messages(numbers: Stream) -> None:
    numbers.append_many(range(100))
    with meanwhile(lambda: numbers.append("end", close=True)):
        assert list(numbers.tail(last=2).items()) == [98, 99, "end"]


def test_a_tail_of_a_deleted_stream_raises(url: str, numbers: Stream) -> None:
    # Some servers tell at once, others only the next request.
    with Client(url, live_timeout=1) as client, client.stream(numbers.name).tail() as tail:
        next(tail)
        with meanwhile(numbers.delete), pytest.raises(StreamError) as deleted:
            next(tail)
    assert deleted.value.status in (404, 410)


def test_a_missing_stream_raises(client: Client, name: str) -> None:
    missing = client.stream(name)
    for attempt in (
        missing.read,
        lambda: next(missing.tail()),
        lambda: missing.append(1),
        missing.close,
        missing.delete,
    ):
        with pytest.raises(NotFoundError):
            attempt()


def test_a_producer_keeps_the_order(numbers: Stream) -> None:
    with numbers.producer(limits=LIMITS) as producer:
        outcomes = [producer.append(number) for number in range(500)]
    assert numbers.read().json() == list(range(500))
    assert producer.next_seq > 10
    assert all(outcome.result().next_offset or True for outcome in outcomes)


def test_a_producer_of_text(text: Stream) -> None:
    with text.producer(limits=LIMITS) as producer:
        for number in range(100):
            producer.append(f"{number}\n")
    assert text.read().text().split() == [str(number) for number in range(100)]


def test_a_producer_closes_its_stream(numbers: Stream) -> None:
    with numbers.producer(limits=LIMITS) as producer:
        for number in range(20):
            producer.append(number)
        assert producer.close_stream().closed
    read = numbers.read()
    assert (read.json(), read.closed) == (list(range(20)), True)


def test_a_later_producer_fences_an_earlier_one(numbers: Stream) -> None:
    with numbers.producer("p") as first:
        first.append(1).result()
        with numbers.producer("p") as second:
            assert second.epoch > first.epoch
            second.append(2).result()
        with pytest.raises(FencedError) as fenced:
            first.append(3).result()
        assert fenced.value.epoch == second.epoch
        assert fenced.value.fix
        with pytest.raises(FencedError):
            first.append(4)
        first.stop()
    assert numbers.read().json() == [1, 2]


def test_a_producer_goes_on_in_its_epoch(numbers: Stream) -> None:
    for first in (0, 3):
        with numbers.producer("p", epoch=7, limits=LIMITS) as producer:
            for number in range(first, first + 3):
                producer.append(number).result()
    assert producer.next_seq == 6
    with numbers.producer("p", epoch=7, next_seq=4, limits=LIMITS) as again:
        assert again.append(4).result().duplicate
        assert again.append(5).result().duplicate
        assert not again.append(6).result().duplicate
    assert numbers.read().json() == list(range(7))


def test_a_producer_reports_a_closed_stream(numbers: Stream) -> None:
    producer = numbers.producer(limits=LIMITS)
    producer.append(1).result()
    numbers.close()
    outcome = producer.append(2)
    with pytest.raises(ClosedError):
        producer.flush()
    with pytest.raises(ClosedError):
        outcome.result()
    producer.stop()


def test_additions_of_tailrace_are_refused_elsewhere(
    client: Client, numbers: Stream, name: str, is_tailrace: bool
) -> None:
    numbers.append(1)
    end = numbers.read().next_offset
    if is_tailrace:
        assert numbers.append(2, if_match=end).etag
        with pytest.raises(MismatchError) as mismatch:
            numbers.append(3, if_match=end)
        assert mismatch.value.next_offset == numbers.read().next_offset
        assert numbers.read(since=0).json() == [1, 2]
        assert [info.name for info in client.list(name)] == [name]
    else:
        for attempt in (
            lambda: numbers.append(2, if_match=end),
            lambda: numbers.read(since=0),
            lambda: list(client.list()),
        ):
            with pytest.raises(UnsupportedError, match="Tailrace"):
                attempt()
        assert numbers.read().json() == [1]
