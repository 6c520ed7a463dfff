"""Idempotent producers: the complete table of what a (producer, epoch, sequence) may do."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.errors import NewEpochNotAtZero, ProducerFenced, ProducerGap
from tailrace.limits import PRODUCER_STATE_BYTES
from tailrace.log.state import NO_PRODUCERS, Producer, Producers

_PER_PRODUCER = 40
"""Bytes that an epoch, a sequence and their punctuation take beside the id."""


class Duplicate(NamedTuple):
    """The request was accepted before; `seq` is the highest accepted one."""

    seq: int


def admit(known: tuple[int, int] | None, request: Producer) -> Duplicate | None:
    """None when the request is the next one, `Duplicate` when it is an old one, else an error."""
    if known is None:
        if request.seq != 0:
            raise ProducerGap(0, request.seq)
        return None
    epoch, last = known
    if request.epoch < epoch:
        raise ProducerFenced(epoch)
    if request.epoch > epoch:
        if request.seq != 0:
            raise NewEpochNotAtZero(f"a new epoch starts at Producer-Seq 0; received {request.seq}")
        return None
    if request.seq <= last:
        return Duplicate(last)
    if request.seq > last + 1:
        raise ProducerGap(last + 1, request.seq)
    return None


def advance(producers: Producers, request: Producer) -> tuple[Producers, Producers]:
    """The producers after an accepted request, and those too cold to stay among them.

    When the budget is exceeded the coldest half leaves at once, so that spilling stays rare.
    """
    after = dict(producers)
    new = after.pop(request.id, None) is None
    after[request.id] = (request.epoch, request.seq)
    if not new or _weight(after) <= PRODUCER_STATE_BYTES:
        return after, NO_PRODUCERS
    spill = {}
    while len(after) > 1 and _weight(after) > PRODUCER_STATE_BYTES // 2:
        coldest = next(iter(after))
        spill[coldest] = after.pop(coldest)
    return after, spill


def _weight(producers: Producers) -> int:
    return sum(len(name.encode()) + _PER_PRODUCER for name in producers)
