"""The producer against a model of a server that gets requests late, twice, or not at all."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.client.batching import MAX_NUMBER, BatchLimits, EpochState, ProducerCore
from tailrace.client.content import ContentKind
from tailrace.client.errors import FencedError, ProducerGapError, StreamError
from tailrace.client.operations import AppendResult

TEXT = ContentKind.TEXT
LIMITS = BatchLimits(linger=1.0, bytes=8, messages=3, in_flight=3)
OK = AppendResult("1")


def core(limits: BatchLimits = LIMITS, **options: int) -> ProducerCore[object]:
    producer = ProducerCore[object](object, limits, id="p", **options)
    if not options:
        producer.state = EpochState.READY
    return producer


def gap(expected: int) -> ProducerGapError:
    return ProducerGapError("gap", headers={"producer-expected-seq": str(expected)})


def test_a_message_is_sent_at_once_when_nothing_is_under_way() -> None:
    producer = core()
    producer.add(TEXT, "a", now=5)
    batch = producer.take(5)
    assert batch is not None
    assert (batch.seq, batch.messages) == (0, [b"a"])


def test_messages_wait_for_others_while_something_is_under_way() -> None:
    producer = core()
    producer.add(TEXT, "a", now=0)
    assert producer.take(0)
    producer.add(TEXT, "b", now=5)
    assert (producer.take(5.9), producer.wait_until()) == (None, 6.0)
    late = producer.take(6)
    assert late is not None
    assert late.messages == [b"b"]


def test_a_batch_is_full_by_bytes_and_by_messages() -> None:
    producer = core()
    for text in ("aaaa", "bbb", "c", "d", "e", "f"):
        producer.add(TEXT, text, now=0)
    producer.flush()
    batches = [producer.take(0), producer.take(0), producer.take(0)]
    assert [batch and batch.messages for batch in batches] == [
        [b"aaaa"],
        [b"bbb", b"c", b"d"],
        [b"e", b"f"],
    ]
    assert producer.take(0) is None  # As many are under way as may be.


def test_the_first_request_of_a_new_epoch_goes_alone() -> None:
    producer = ProducerCore[object](object, LIMITS, id="p", now=100.0)
    assert producer.epoch == 100_000_000
    for text in ("aaaaaaaa", "bbbbbbbb"):
        producer.add(TEXT, text, now=0)
    first = producer.take(0)
    assert first is not None
    assert producer.take(0) is None
    assert producer.failed(first, FencedError("", headers={"producer-epoch": "100000007"})) == []
    assert producer.epoch > 100_000_007
    again = producer.take(0)
    assert again is first
    # What a network has doubled is a duplicate at the first attempt.
    producer.succeeded(again, AppendResult("1", duplicate=True))
    following = producer.take(0)
    assert following is not None
    assert following.seq == 1


def test_the_highest_epoch_cannot_be_claimed() -> None:
    producer = ProducerCore[object](object, LIMITS, id="p")
    producer.add(TEXT, "a", now=0)
    batch = producer.take(0)
    assert batch is not None
    error = FencedError("", headers={"producer-epoch": str(MAX_NUMBER)})
    assert producer.failed(batch, error) == [batch]
    with pytest.raises(FencedError):
        producer.add(TEXT, "b", now=0)


def test_a_request_that_overtook_another_is_sent_after_it() -> None:
    producer = core()
    for text in ("aaaaaaaa", "bbbbbbbb", "cccccccc"):
        producer.add(TEXT, text, now=0)
    first, second, third = (producer.take(0) for _ in range(3))
    assert first
    assert second
    assert third
    assert producer.failed(third, gap(0)) == []
    assert producer.failed(second, gap(0)) == []
    assert producer.take(0) is None
    producer.succeeded(first, OK)
    assert producer.take(0) is second
    producer.succeeded(second, OK)
    assert producer.take(0) is third


def test_a_gap_that_cannot_close_stops_the_producer() -> None:
    producer = core()
    for text in ("aaaaaaaa", "bbbbbbbb", "c"):
        producer.add(TEXT, text, now=0)
    first = producer.take(0)
    assert first
    producer.succeeded(first, OK)
    second = producer.take(0)
    assert second
    lost = producer.failed(second, gap(0))
    assert [batch.messages for batch in lost] == [[b"bbbbbbbb"], [b"c"]]
    assert producer.is_idle
    with pytest.raises(ProducerGapError):
        producer.add(TEXT, "d", now=0)


def test_closing_is_part_of_the_last_batch() -> None:
    producer = core()
    producer.add(TEXT, "a", now=0)
    batch = producer.close_stream(now=0)
    assert (batch.messages, batch.closes) == ([b"a"], True)
    with pytest.raises(ValueError, match="closed the stream"):
        producer.add(TEXT, "b", now=0)


def test_closing_waits_for_what_is_under_way() -> None:
    producer = core()
    producer.add(TEXT, "aaaaaaaa", now=0)
    first = producer.take(0)
    assert first
    last = producer.close_stream(now=0)
    assert producer.take(9) is None
    producer.succeeded(first, OK)
    assert producer.take(9) is last


def test_wrong_usage_is_refused() -> None:
    with pytest.raises(ValueError, match="name the epoch"):
        ProducerCore[object](object, LIMITS, next_seq=3)
    with pytest.raises(ValueError, match="without any bytes"):
        core().add(TEXT, "", now=0)


@dataclass
class ModelServer:
    """The rules of the protocol for one producer."""

    epoch: int = -1
    last: int = -1
    stored: list[bytes] = field(default_factory=list)

    def post(self, epoch: int, seq: int, body: bytes) -> AppendResult | StreamError:
        if epoch < self.epoch:
            return FencedError("", headers={"producer-epoch": str(self.epoch)})
        if epoch > self.epoch:
            if seq:
                return gap(0)
            self.epoch, self.last = epoch, -1
        if seq <= self.last:
            return AppendResult(None, duplicate=True)
        if seq > self.last + 1:
            return gap(self.last + 1)
        self.last = seq
        self.stored.append(body)
        return OK


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 60),
    in_flight=st.integers(1, 5),
    known=st.integers(-1, 5),
)
def test_each_message_is_stored_once_in_order(
    seed: int, count: int, in_flight: int, known: int
) -> None:
    chance = random.Random(seed)
    server = ModelServer(epoch=known)
    limits = BatchLimits(linger=0.0, bytes=12, messages=4, in_flight=in_flight)
    producer = ProducerCore[object](object, limits, id="p", now=3e-6)
    flying = []
    waiting = [f"{number:03}" for number in range(count)]
    late: list[tuple[int, int, bytes]] = []
    now = 0.0
    while waiting or not producer.is_idle:
        now += 1
        assert now < 100_000
        if waiting and chance.random() < 0.6:
            producer.add(TEXT, waiting.pop(0), now)
        while (batch := producer.take(now)) is not None:
            flying.append(batch)
        if late and chance.random() < 0.3:
            server.post(*late.pop(chance.randrange(len(late))))
        if not flying or chance.random() < 0.3:
            continue
        batch = flying.pop(chance.randrange(len(flying)))
        request = (producer.epoch, batch.seq, batch.body(TEXT))
        fate = chance.random()
        if fate < 0.15:  # The request is lost, or comes late.
            if chance.random() < 0.5:
                late.append(request)
            flying.append(batch)
            continue
        if fate < 0.2:  # The network doubles the request.
            server.post(*request)
        answer = server.post(*request)
        if fate < 0.3:  # The answer is lost.
            flying.append(batch)
        elif isinstance(answer, StreamError):
            assert producer.failed(batch, answer) == []
        else:
            producer.succeeded(batch, answer)
    assert b"".join(server.stored).decode() == "".join(f"{number:03}" for number in range(count))
    assert producer.buffered == 0
