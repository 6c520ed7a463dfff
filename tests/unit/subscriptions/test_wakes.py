"""The rules of wakes, one transition at a time; the simulation has their combinations."""

from __future__ import annotations

import pytest

from tailrace.errors import AlreadyClaimed, Fenced
from tailrace.limits import WEBHOOK_SECONDS
from tailrace.log.offsets import token
from tailrace.protocols.subscriptions.core import wakes
from tailrace.protocols.subscriptions.core.records import (
    DurableSubscription,
    Link,
    LinkChange,
    Phase,
    SnapshotAck,
    record_of,
    record_text,
)
from tailrace.protocols.subscriptions.core.wakes import Delivery

NOW = 1_000_000
TTL = 30_000

PULL = DurableSubscription(
    "s", "uid", "pull-wake", "a/*", None, "wakes", TTL, None, "digest", 1, "http://x", ("a/*",),
    phase=Phase.IDLE,
)  # fmt: skip
WEBHOOK = PULL._replace(type="webhook", url="https://hooks.example/", wake_stream=None)
QUIET = Link("a/1", 7, 3, glob=True, acked=token(1, 5, 3), tail=token(1, 5, 3))
NEWS = QUIET._replace(tail=token(2, 9, 3))
ACKS = (SnapshotAck("a/1", NEWS.stream, NEWS.tail),)


def waiting(record: DurableSubscription = PULL) -> DurableSubscription:
    return wakes.wake(record, NOW, "w1")


def held(record: DurableSubscription = PULL) -> DurableSubscription:
    if record.url is not None:
        return wakes.send(waiting(record), NOW)
    return wakes.claim(waiting(record), "worker", NOW, "unused")


def deliver(
    delivery: Delivery,
    record: DurableSubscription | None = None,
    sent: DurableSubscription | None = None,
) -> DurableSubscription | None:
    first = held(WEBHOOK)
    return wakes.delivered(record or first, sent or first, delivery, ACKS, NOW, 0)


def test_records_are_stored_and_read_back() -> None:
    done = deliver(Delivery.DONE)
    for record in (PULL, WEBHOOK, waiting(), held(), done):
        assert record is not None
        assert record_of(record_text(record)) == record


def test_a_link_has_news_if_its_tail_is_past_its_cursor() -> None:
    assert not QUIET.pending
    assert NEWS.pending
    assert not Link("a/1").pending
    assert not Link("a/1", 7, tail=token(0, 0, 3)).pending
    assert LinkChange(QUIET, NEWS).pending == LinkChange(None, NEWS).pending == 1
    assert LinkChange(NEWS, None).pending == LinkChange(NEWS, QUIET).pending == -1


def test_news_wake_an_idle_subscription() -> None:
    woken = wakes.notice(PULL, QUIET, NEWS, NOW, "w1")
    assert woken is not None
    assert (woken.phase, woken.generation, woken.wake_id) == (Phase.WAITING, 1, "w1")
    assert woken.due_at == NOW


def test_a_link_without_news_wakes_nobody() -> None:
    assert wakes.notice(PULL, QUIET, QUIET, NOW, "w1") is None
    assert wakes.notice(PULL, None, QUIET, NOW, "w1") == PULL


def test_more_news_of_a_wake_that_nobody_has_are_not_stored() -> None:
    more = NEWS._replace(tail=token(3, 12, 3))
    assert wakes.notice(waiting(), NEWS, more, NOW, "w2") is None
    assert wakes.notice(waiting(), QUIET, NEWS, NOW, "w2") == waiting()


@pytest.mark.parametrize("record", [held(), held(WEBHOOK)])
def test_news_while_a_wake_is_held_give_the_record_a_version(record: DurableSubscription) -> None:
    more = NEWS._replace(tail=token(3, 12, 3))
    assert wakes.notice(record, NEWS, more, NOW, "w2") == record


def test_news_while_a_webhook_may_call_back_give_the_record_a_version() -> None:
    failed = deliver(Delivery.FAILED)
    assert failed is not None
    assert wakes.notice(failed, NEWS, NEWS, NOW, "w2") == failed


def test_a_claim_takes_the_outstanding_wake() -> None:
    claimed = held()
    assert (claimed.phase, claimed.generation, claimed.wake_id) == (Phase.HELD, 1, "w1")
    assert (claimed.holder, claimed.due_at) == ("worker", NOW + TTL)


def test_a_claim_without_a_wake_begins_one() -> None:
    claimed = wakes.claim(PULL, "worker", NOW, "w1")
    assert (claimed.phase, claimed.generation, claimed.wake_id) == (Phase.HELD, 1, "w1")


def test_a_second_claim_is_refused() -> None:
    with pytest.raises(AlreadyClaimed) as refused:
        wakes.claim(held(), "other", NOW + TTL - 1, "w2")
    assert (refused.value.holder, refused.value.generation) == ("worker", 1)


def test_a_claim_after_the_lease_gets_the_next_generation() -> None:
    claimed = wakes.claim(held(), "other", NOW + TTL, "w2")
    assert (claimed.generation, claimed.wake_id, claimed.holder) == (2, "w2", "other")


FENCED = {
    "another generation of the token": (held(), 2, 1, "w1", NOW),
    "another generation": (held(), 1, 2, "w1", NOW),
    "another wake": (held(), 1, 1, "w2", NOW),
    "a lease that is over": (held(), 1, 1, "w1", NOW + TTL),
    "a wake that nobody has": (waiting(), 1, 1, "w1", NOW),
    "a wake that is over": (wakes.end(held(), NOW, "", pending=False), 1, 1, "w1", NOW),
    "a webhook that was not sent": (waiting(WEBHOOK), 1, 1, "w1", NOW),
}


@pytest.mark.parametrize("case", FENCED)
def test_only_the_holder_acts_on_a_wake(case: str) -> None:
    with pytest.raises(Fenced):
        wakes.check_fence(*FENCED[case])
    wakes.check_fence(held(), 1, 1, "w1", NOW + TTL - 1)


def test_a_webhook_whose_answer_was_lost_may_call_back() -> None:
    failed = deliver(Delivery.FAILED)
    assert failed is not None
    wakes.check_fence(failed, 1, 1, "w1", NOW + TTL)
    extended = wakes.extend(failed, NOW + 5)
    assert (extended.phase, extended.due_at) == (Phase.HELD, NOW + 5 + TTL)


def test_an_acknowledgement_extends_the_lease() -> None:
    assert wakes.extend(held(), NOW + 10).due_at == NOW + 10 + TTL


@pytest.mark.parametrize("pending", [True, False])
def test_the_end_of_a_wake_begins_the_next_one_if_there_is_news(pending: bool) -> None:
    ended = wakes.end(held(), NOW, "w2", pending=pending)
    assert (ended.phase is Phase.WAITING) == (ended.generation == 2) == pending
    assert (ended.phase is Phase.IDLE) == (ended.wake_id is None) == (not pending)
    assert ended.holder is None


def test_sending_begins_a_lease() -> None:
    sent = held(WEBHOOK)
    assert (sent.phase, sent.attempts, sent.due_at) == (Phase.HELD, 1, NOW + TTL)


def test_a_webhook_that_is_done_has_its_streams_acknowledged() -> None:
    done = deliver(Delivery.DONE)
    assert done is not None
    assert (done.phase, done.acks, done.due_at) == (Phase.DONE, ACKS, NOW)


def test_a_webhook_that_accepts_has_a_lease_from_its_answer_on() -> None:
    first = held(WEBHOOK)
    accepted = wakes.delivered(first, first, Delivery.ACCEPTED, ACKS, NOW + 7, 0)
    assert accepted == first._replace(due_at=NOW + 7 + TTL)
    # A callback that was faster than the answer has extended it already.
    confirmed = wakes.extend(first, NOW + 5)
    assert wakes.delivered(confirmed, first, Delivery.ACCEPTED, ACKS, NOW + 7, 0) is None


def test_a_short_lease_does_not_end_while_the_webhook_is_sent() -> None:
    short = WEBHOOK._replace(lease_ttl_ms=1000)
    sent = wakes.send(waiting(short), NOW)
    assert not wakes.has_expired(sent, NOW + 2 * WEBHOOK_SECONDS * 1000)
    assert wakes.has_expired(sent, NOW + wakes.SENDING_MS)
    accepted = wakes.delivered(sent, sent, Delivery.ACCEPTED, ACKS, NOW + 9000, 0)
    assert accepted is not None
    assert accepted.due_at == NOW + 10_000


def test_a_failed_webhook_is_sent_again() -> None:
    failed = deliver(Delivery.FAILED)
    assert failed is not None
    assert (failed.phase, failed.generation, failed.wake_id) == (Phase.WAITING, 1, "w1")
    assert failed.due_at == NOW + 1000
    assert wakes.status(failed) == "failed"
    assert wakes.status(wakes.send(failed, NOW)) == "active"


def test_a_failure_after_a_callback_counts_for_nothing() -> None:
    assert deliver(Delivery.FAILED, wakes.extend(held(WEBHOOK), NOW)) is None


@pytest.mark.parametrize("delivery", Delivery)
def test_the_outcome_of_an_earlier_attempt_counts_for_nothing(delivery: Delivery) -> None:
    failed = deliver(Delivery.FAILED)
    assert failed is not None
    again = wakes.send(failed, NOW)
    assert deliver(delivery, again) is None
    assert deliver(delivery, wakes.send(waiting(WEBHOOK)._replace(wake_id="w2"), NOW)) is None


def test_pauses_double_up_to_a_minute_and_have_jitter() -> None:
    pauses = [wakes.retry_pause(attempts, 0) for attempts in range(1, 9)]
    assert pauses == [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]
    assert wakes.retry_pause(1000, 0) == 60_000
    assert (wakes.retry_pause(7, -1), wakes.retry_pause(7, 1)) == (48_000, 72_000)


def test_an_announcement_that_failed_is_repeated() -> None:
    assert wakes.announced(waiting()).due_at is None
    failed = wakes.announcement_failed(waiting(), NOW, 0)
    assert (failed.phase, failed.due_at) == (Phase.WAITING, NOW + 1000)
    assert wakes.announcement_failed(failed, NOW, 0).due_at == NOW + 2000
