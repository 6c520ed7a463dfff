"""Ranges of numbers, asked which of them hold a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from tailrace.protocols.aviso.constraints import Number, Span

T = TypeVar("T")


class Intervals(Generic[T]):
    """A centred tree: a range is at the first centre that it holds, sorted by either bound.

    A number looks at one path of it, and there only at ranges that begin, or end, far enough out:
    all but the last that it looks at hold it."""

    __slots__ = ("_above", "_begins", "_below", "_centre", "_ends")

    def __init__(self, spans: Sequence[tuple[Span, T]]) -> None:
        bounds = sorted(bound for span, _ in spans for bound in (span.low, span.high))
        self._centre = _finite_middle(bounds)
        here: list[tuple[Span, T]] = []
        below: list[tuple[Span, T]] = []
        above: list[tuple[Span, T]] = []
        for span, item in spans:
            side = below if span.high < self._centre else above if span.low > self._centre else here
            side.append((span, item))
        self._begins = sorted(here, key=lambda each: each[0].low)
        self._ends = sorted(here, key=lambda each: each[0].high, reverse=True)
        self._below = Intervals(below) if below else None
        self._above = Intervals(above) if above else None

    def holding(self, number: Number, found: list[T]) -> None:
        """Adds to `found` what has a range that holds the number."""
        if number <= self._centre:
            for span, item in self._begins:
                if span.low > number:
                    break
                if span.holds(number):
                    found.append(item)
            if self._below is not None:
                self._below.holding(number, found)
        else:
            for span, item in self._ends:
                if span.high < number:
                    break
                if span.holds(number):
                    found.append(item)
            if self._above is not None:
                self._above.holding(number, found)


def _finite_middle(bounds: list[Number]) -> Number:
    """Of ranges without an end, the other bound; infinity would leave all on one side."""
    finite = [bound for bound in bounds if abs(bound) != float("inf")]
    return finite[len(finite) // 2] if finite else 0
