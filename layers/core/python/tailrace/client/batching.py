"""The producer: batches, sequence numbers, and what their outcomes mean; no I/O and no clock.

Requests of a producer are numbered, and the server takes each number once, in order. So a request
whose outcome is unknown is sent again, several are under way at a time, and one that overtakes
another is refused and sent once more after that.
"""

from __future__ import annotations

import random
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from tailrace.client.content import ContentKind, encode_message, join_messages
from tailrace.client.errors import FencedError, ProducerGapError, ProtocolError, StreamError
from tailrace.client.exchange import Fetch, LostConnection, Operation, RetryPolicy
from tailrace.client.operations import AppendResult, ProducerPlace, append

MAX_NUMBER: Final = 2**53 - 1
"""The highest epoch and sequence number of the protocol."""

EPOCH_LEAP: Final = 1 << 20
"""A claimed epoch is up to this much above the last, so that two that claim get different ones."""

Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """When a batch is sent: nothing is under way, or it is full, or its first message has waited
    for `linger` seconds."""

    linger: float = 0.005
    bytes: int = 256 << 10
    messages: int = 10_000
    in_flight: int = 4
    buffered_bytes: int = 8 << 20


@dataclass(slots=True)
class ProducerBatch(Generic[Outcome]):
    """Messages of one request, which share its outcome."""

    outcome: Outcome
    since: float
    seq: int = -1
    messages: list[bytes] = field(default_factory=list)
    size: int = 0
    closes: bool = False
    follows: bool = False
    """Whether the server had acknowledged the request before when this one was sent."""

    def body(self, kind: ContentKind) -> bytes:
        return join_messages(kind, self.messages) if self.messages else b""


class EpochState(Enum):
    CLAIMING = "claiming"
    """A new epoch was chosen, and the server has not taken a request of it yet."""
    PROBING = "probing"
    """It is not known which request of the epoch the server takes next."""
    READY = "ready"


class ProducerCore(Generic[Outcome]):
    """The batches of a producer, and the order in which they are sent."""

    def __init__(
        self,
        new_outcome: Callable[[], Outcome],
        limits: BatchLimits,
        *,
        id: str | None = None,  # noqa: A002
        epoch: int | None = None,
        next_seq: int | None = None,
        now: float = 0.0,
    ) -> None:
        """Create it; `now` is the time in seconds since 1970, of which the first epoch is made."""
        if epoch is None and next_seq:
            raise ValueError("next_seq is a number in an epoch: name the epoch as well")
        self.id = id or f"producer-{secrets.token_hex(8)}"
        # A later start has a higher epoch, also on another machine; a server that knows a higher
        # one says so.
        self.epoch = int(now * 1e6) if epoch is None else epoch
        self.next_seq = next_seq or 0
        if epoch is None:
            self.state = EpochState.CLAIMING
        else:
            self.state = EpochState.PROBING if next_seq is None else EpochState.READY
        self.acknowledged: AppendResult | None = None
        self.buffered = 0
        self.sealed = 0
        """How many batches were completed so far."""
        self.error: StreamError | None = None
        self._limits = limits
        self._new_outcome = new_outcome
        self._open: ProducerBatch[Outcome] | None = None
        self._sealed = deque[ProducerBatch[Outcome]]()
        self._flying: dict[int, ProducerBatch[Outcome]] = {}
        self._overtaken: dict[int, ProducerBatch[Outcome]] = {}
        self._flushing = False
        self._closing = False

    @property
    def is_full(self) -> bool:
        return self.buffered >= self._limits.buffered_bytes

    @property
    def is_idle(self) -> bool:
        return not (self._open or self._sealed or self._flying or self._overtaken)

    def add(self, kind: ContentKind, value: Any, now: float) -> ProducerBatch[Outcome]:
        """Add a message; returns the batch with which it is sent."""
        self._check_open()
        message = encode_message(kind, value)
        if not message:
            raise ValueError("a message without any bytes cannot be appended")
        size = len(message) + 1
        batch = self._open
        if batch is not None and batch.size + size > self._limits.bytes:
            self._seal()
            batch = None
        if batch is None:
            batch = self._open = ProducerBatch(self._new_outcome(), now)
        batch.messages.append(message)
        batch.size += size
        self.buffered += size
        if batch.size >= self._limits.bytes or len(batch.messages) >= self._limits.messages:
            self._seal()
        return batch

    def close_stream(self, now: float) -> ProducerBatch[Outcome]:
        """Close the stream with the last batch."""
        self._check_open()
        self._closing = True
        batch = self._open or ProducerBatch(self._new_outcome(), now)
        batch.closes = True
        self._open = batch
        self._seal()
        return batch

    def flush(self) -> None:
        """Send what there is without waiting for more."""
        self._seal()

    def due(self) -> float | None:
        """When the batch that is being filled is to be sent; None without one."""
        if self._open is None:
            return None
        return self._open.since + (self._limits.linger if self._flying else 0.0)

    def wait_until(self) -> float | None:
        """When `take` may return a batch though nothing happens; None is never."""
        return self.due() if self.error is None and self._has_room() else None

    def take(self, now: float) -> ProducerBatch[Outcome] | None:
        """The batch to send now, if there is one.

        In a new epoch the first request goes alone: it tells whether the epoch is taken.
        """
        if self.error is not None:
            return None
        for seq, batch in self._overtaken.items():
            if not self._is_under_way(seq - 1):
                del self._overtaken[seq]
                return self._send(batch)
        if not self._has_room():
            return None
        due = self.due()
        if not self._sealed and due is not None and now >= due:
            self._seal()
        if not self._sealed:
            return None
        if self._sealed[0].closes and (self._flying or self._overtaken):
            # A repeated request would find the stream closed, though the server has had it.
            return None
        batch = self._sealed.popleft()
        batch.seq = self.next_seq
        self.next_seq += 1
        return self._send(batch)

    def operation(
        self, batch: ProducerBatch[Outcome], url: str, content_type: str, retries: RetryPolicy
    ) -> Operation[AppendResult]:
        """Send a batch; stops when the producer does."""
        return self._stoppable(self._append(batch, url, content_type, retries))

    def _append(
        self, batch: ProducerBatch[Outcome], url: str, content_type: str, retries: RetryPolicy
    ) -> Operation[AppendResult]:
        body = batch.body(ContentKind.of(content_type))
        if self.state is EpochState.PROBING:
            # No server takes this number: the refusal says which one it takes.
            place = ProducerPlace(self.id, self.epoch, MAX_NUMBER)
            try:
                yield from append(
                    url, retries, body, content_type=content_type, close=not body, producer=place
                )
            except ProducerGapError as error:
                self._resume(batch, error.expected)
            else:
                raise ProtocolError("the server took a request out of sequence")
        place = ProducerPlace(self.id, self.epoch, batch.seq)
        return (
            yield from append(
                url,
                retries,
                body,
                content_type=content_type,
                close=batch.closes,
                producer=place,
            )
        )

    def _stoppable(self, operation: Operation[AppendResult]) -> Operation[AppendResult]:
        try:
            effect = next(operation)
            while True:
                if isinstance(effect, Fetch) and self.error is not None:
                    raise self.error.copy()
                try:
                    outcome = yield effect
                except LostConnection as lost:
                    effect = operation.throw(lost)
                else:
                    effect = operation.send(outcome)
        except StopIteration as stop:
            result: AppendResult = stop.value
            return result

    def _resume(self, batch: ProducerBatch[Outcome], seq: int) -> None:
        del self._flying[batch.seq]
        batch.seq = seq
        self._flying[seq] = batch
        self.next_seq = seq + 1
        self.state = EpochState.READY

    def succeeded(self, batch: ProducerBatch[Outcome], result: AppendResult) -> None:
        """Note that the server has a batch."""
        del self._flying[batch.seq]
        self.state = EpochState.READY
        self.buffered -= batch.size
        self.acknowledged = result

    def failed(
        self, batch: ProducerBatch[Outcome], error: StreamError
    ) -> list[ProducerBatch[Outcome]]:
        """Note that a batch was refused; returns those that will never be sent.

        None are returned if the batch is sent again. A batch that the server does not take stops
        the producer: those after it may not overtake it.
        """
        del self._flying[batch.seq]
        if (
            isinstance(error, FencedError)
            and self.state is EpochState.CLAIMING
            and error.epoch < MAX_NUMBER
        ):
            self._claim(error.epoch)
            self._renumber(batch)
            return []
        if isinstance(error, ProducerGapError) and not batch.follows and self.error is None:
            self._overtaken[batch.seq] = batch
            return []
        return self.abandon(error, batch)

    def abandon(
        self, error: StreamError, *batches: ProducerBatch[Outcome]
    ) -> list[ProducerBatch[Outcome]]:
        """Stop; returns the batches without outcome, but for those that are under way."""
        self.error = error
        lost = [*batches, *self._overtaken.values(), *self._sealed]
        if self._open is not None:
            lost.append(self._open)
        self._open = None
        self._sealed.clear()
        self._overtaken.clear()
        self.buffered = 0
        return lost

    def _claim(self, epoch: int) -> None:
        self.epoch = min(MAX_NUMBER, epoch + 1 + random.randrange(EPOCH_LEAP))  # noqa: S311

    def _has_room(self) -> bool:
        most = self._limits.in_flight if self.state is EpochState.READY else 1
        return len(self._flying) + len(self._overtaken) < most

    def _is_under_way(self, seq: int) -> bool:
        return seq in self._flying or seq in self._overtaken

    def _send(self, batch: ProducerBatch[Outcome]) -> ProducerBatch[Outcome]:
        batch.follows = not self._is_under_way(batch.seq - 1)
        self._flying[batch.seq] = batch
        return batch

    def _renumber(self, batch: ProducerBatch[Outcome]) -> None:
        self.next_seq = 0
        self._sealed.appendleft(batch)

    def _seal(self) -> None:
        if self._open is not None:
            self._sealed.append(self._open)
            self._open = None
            self.sealed += 1

    def _check_open(self) -> None:
        if self.error is not None:
            raise self.error.copy()
        if self._closing:
            raise ValueError("the producer has closed the stream")
