"""The rules of wakes: how a subscription goes from one phase to the next.

```
           news                claim, send             done, release, lease expired
  IDLE ───────────► WAITING ───────────────► HELD ────────────────────────────────► IDLE,
                       ▲                      │ │                                   or WAITING
                       └──── sending failed ──┘ └── webhook done ──► DONE           with a new
                                                                                    generation
```

Each wake has a generation, one more than the last. A change is valid for the version of the record
that it was decided on, so no two processes can hold one generation. Nothing here reads a clock or
a store; random numbers are arguments.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from tailrace.errors import AlreadyClaimed, Fenced
from tailrace.limits import WEBHOOK_SECONDS
from tailrace.protocols.subscriptions.core.records import (
    DurableSubscription,
    Link,
    Phase,
    SnapshotAck,
)

RETRY_LEAST_MS: Final = 1000
RETRY_MOST_MS: Final = 60_000
SENDING_MS: Final = (2 * WEBHOOK_SECONDS + 1) * 1000
"""Time in which a webhook is sent, or has failed."""

JITTER: Final = 0.2
"""Part of a pause by which it is longer or shorter at random: receivers that failed together are
not asked together again."""


class Delivery(Enum):
    """The outcome of sending a webhook."""

    FAILED = auto()
    ACCEPTED = auto()
    """The receiver calls back when it is done."""
    DONE = auto()


def wake(record: DurableSubscription, now: int, wake_id: str) -> DurableSubscription:
    """Begin a new wake."""
    return record._replace(
        phase=Phase.WAITING,
        due_at=now,
        generation=record.generation + 1,
        wake_id=wake_id,
        holder=None,
        attempts=0,
        confirmed=False,
        acks=(),
    )


def end(
    record: DurableSubscription, now: int, wake_id: str, *, pending: bool
) -> DurableSubscription:
    """End the wake; begin the next one at once if there is news."""
    if pending:
        return wake(record, now, wake_id)
    return record._replace(
        phase=Phase.IDLE,
        due_at=None,
        wake_id=None,
        holder=None,
        attempts=0,
        confirmed=False,
        acks=(),
    )


def notice(
    record: DurableSubscription, before: Link | None, after: Link, now: int, wake_id: str
) -> DurableSubscription | None:
    """Return the record when a stream has news; None if nothing has to be stored.

    While a wake is held, its end may be under way on an older tail, so the record gets another
    version even if it does not change: then that end is decided again."""
    if not after.pending:
        return None if before == after else record
    if record.phase is Phase.IDLE:
        return wake(record, now, wake_id)
    if record.phase is Phase.WAITING and not _may_call_back(record):
        # Nobody can end the wake before it is claimed or sent, and then reads the tail again.
        known = before is not None and before.pending and before.stream == after.stream
        return None if known else record
    return record


def has_expired(record: DurableSubscription, now: int) -> bool:
    """Whether the lease of the wake is over."""
    return record.phase is Phase.HELD and record.due_at is not None and record.due_at <= now


def claim(record: DurableSubscription, worker: str, now: int, wake_id: str) -> DurableSubscription:
    """Give the wake to a worker: the outstanding one, or a new one. There must be news."""
    if record.phase is Phase.HELD and not has_expired(record, now):
        raise AlreadyClaimed(record.holder or "", record.generation)
    if record.phase is not Phase.WAITING:
        record = wake(record, now, wake_id)
    return record._replace(phase=Phase.HELD, holder=worker, due_at=now + record.lease_ttl_ms)


def check_fence(
    record: DurableSubscription, token_generation: int, generation: int, wake_id: str, now: int
) -> None:
    """Raise Fenced unless a request is of the holder of the current wake."""
    current = record.generation == token_generation == generation and record.wake_id == wake_id
    held = record.phase is Phase.HELD or _may_call_back(record)
    if not current or not held or has_expired(record, now):
        raise Fenced


def _may_call_back(record: DurableSubscription) -> bool:
    """Whether a webhook waits for its next attempt: it may call back although its answer to the
    last one was lost."""
    return record.phase is Phase.WAITING and record.url is not None and record.attempts > 0


def extend(record: DurableSubscription, now: int) -> DurableSubscription:
    """Extend the lease: the holder is alive."""
    return record._replace(
        phase=Phase.HELD, due_at=now + record.lease_ttl_ms, confirmed=record.url is not None
    )


def announced(record: DurableSubscription) -> DurableSubscription:
    """Note that the wake event was appended: workers know of the wake."""
    return record._replace(due_at=None)


def announcement_failed(
    record: DurableSubscription, now: int, jitter: float
) -> DurableSubscription:
    attempts = record.attempts + 1
    return record._replace(attempts=attempts, due_at=now + retry_pause(attempts, jitter))


def send(record: DurableSubscription, now: int) -> DurableSubscription:
    """Begin to send the webhook. The lease begins now, and again with each attempt.

    It does not end before the receiver can have answered: a receiver that takes longer than a short
    lease would get the next generation meanwhile, again and again, and none would be done."""
    lease = max(record.lease_ttl_ms, SENDING_MS)
    return record._replace(phase=Phase.HELD, due_at=now + lease, attempts=record.attempts + 1)


def delivered(
    record: DurableSubscription,
    sent: DurableSubscription,
    delivery: Delivery,
    acks: tuple[SnapshotAck, ...],
    now: int,
    jitter: float,
) -> DurableSubscription | None:
    """Return the record after the webhook was sent as `sent`; None if that changes nothing, or is
    no longer of interest."""
    same = (record.wake_id, record.attempts) == (sent.wake_id, sent.attempts)
    if not same or record.phase is not Phase.HELD:
        return None
    if delivery is Delivery.DONE:
        return record._replace(phase=Phase.DONE, due_at=now, acks=acks)
    if delivery is Delivery.FAILED and not record.confirmed:
        pause = retry_pause(record.attempts, jitter)
        return record._replace(phase=Phase.WAITING, due_at=now + pause)
    if delivery is Delivery.ACCEPTED and not record.confirmed:
        return record._replace(due_at=now + record.lease_ttl_ms)
    return None


def retry_pause(attempts: int, jitter: float) -> int:
    """Return the pause in milliseconds after so many attempts; `jitter`: from -1 to 1."""
    pause = min(RETRY_LEAST_MS << min(attempts - 1, 16), RETRY_MOST_MS)
    return round(pause * (1 + JITTER * jitter))


def status(record: DurableSubscription) -> str:
    """Return the status that clients see."""
    failed = record.phase is Phase.WAITING and record.attempts > 0
    return "failed" if failed else "active"
