"""The measurements of one engine."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Self

from bench.dynamodb.ledger import S3_GET, S3_PUT, THEN, Sample, shape
from bench.dynamodb.races import Race
from bench.dynamodb.spread import Spread


class Measured(NamedTuple):
    """An operation; all but the latencies is per run, on average."""

    title: str
    times: int
    shape: str
    """The calls of most runs."""
    share: float
    """How many of the runs made exactly these."""
    round_trips: int
    write: float
    read: float
    puts: float
    gets: float
    """Requests to S3."""
    p50: float
    p99: float

    @classmethod
    def of(cls, title: str, samples: Sequence[Sample]) -> Self:
        times = len(samples)
        shapes = Counter(shape(sample.calls) for sample in samples)
        usual, found = shapes.most_common(1)[0]
        calls = [call for sample in samples for call in sample.calls]
        made = Counter(call.operation for call in calls)
        cuts = statistics.quantiles((each.seconds for each in samples), n=100, method="inclusive")
        return cls(
            title,
            times,
            usual,
            found / times,
            usual.count(THEN) + 1,
            sum(call.write for call in calls) / times,
            sum(call.read for call in calls) / times,
            made[S3_PUT] / times,
            made[S3_GET] / times,
            cuts[49] * 1000,
            cuts[98] * 1000,
        )


class Run(NamedTuple):
    engine: str
    operations: Sequence[Measured]
    slots: Sequence[Race]
    others: Sequence[Race]
    spreads: Sequence[Spread]

    def operation(self, title: str) -> Measured:
        return next(each for each in self.operations if each.title == title)
