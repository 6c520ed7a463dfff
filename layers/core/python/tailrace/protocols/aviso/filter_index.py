"""Finds the filters that a notification matches, without trying each of them.

Each filter is indexed by its most selective constraint: a value in the field for which the filters
name the most different values, or else its shape, or else a range. The few candidates found that
way are then checked completely. Filters that are equal share one entry.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from tailrace.protocols.aviso.constraints import Constraint, Number, NumberRange, OneOf
from tailrace.protocols.aviso.envelope import Notification
from tailrace.protocols.aviso.event_types import EventType
from tailrace.protocols.aviso.filters import FieldValues, Filter

if TYPE_CHECKING:
    from tailrace.protocols.aviso.geometry import ShapeMatcher, SpatialIndex

S = TypeVar("S")
T = TypeVar("T")

RECENT: Final = 32
"""New filters that are tried one by one, before the index is rebuilt to include them."""


class FilterGroup(Generic[S]):
    """Subscribers with the same filter."""

    __slots__ = ("_shape", "constraints", "filter", "subscribers")

    def __init__(self, filter_: Filter) -> None:
        self.filter = filter_
        self.constraints = list(filter_.constraints.items())
        self.subscribers: dict[S, None] = {}
        self._shape: ShapeMatcher | None = None

    def matches_shape(self, notification: Notification) -> bool:
        if not self.filter.spatial:
            return True
        if self._shape is None:
            from tailrace.protocols.aviso.geometry import compile_shape

            self._shape = compile_shape(self.filter.polygon, self.filter.point)
        return self._shape.matches(notification)


class FilterIndex(Generic[S]):
    """The filters of many subscribers to one event type."""

    def __init__(self, event: EventType) -> None:
        self._event = event
        self._groups: dict[Any, FilterGroup[S]] = {}
        self._recent: dict[Any, FilterGroup[S]] = {}
        self._removed = 0
        self._snapshot: _Snapshot[S] = _Snapshot(())

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, filter_: Filter, subscriber: S) -> None:
        key = _group_key(filter_)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = self._recent[key] = FilterGroup(filter_)
        group.subscribers[subscriber] = None

    def remove(self, filter_: Filter, subscriber: S) -> None:
        key = _group_key(filter_)
        group = self._groups.get(key)
        if group is None:
            return
        group.subscribers.pop(subscriber, None)
        if not group.subscribers:
            del self._groups[key]
            if self._recent.pop(key, None) is None:
                self._removed += 1

    def match(self, notification: Notification) -> Iterator[S]:
        """The subscribers whose filter the notification matches."""
        fields = notification.fields(self._event)
        if fields is None:
            return
        if len(self._recent) > RECENT or self._removed > RECENT + len(self._groups):
            self._snapshot = _Snapshot(self._groups.values())
            self._recent.clear()
            self._removed = 0
        values = FieldValues(self._event, fields)
        for group in self._snapshot.find_candidates(values, notification):
            if values.match_all(group.constraints):
                yield from group.subscribers
        for group in self._recent.values():
            if values.match_all(group.constraints) and group.matches_shape(notification):
                yield from group.subscribers


class _Snapshot(Generic[S]):
    """An index of the groups at one time; groups removed since then have no subscribers."""

    def __init__(self, groups: Iterable[FilterGroup[S]]) -> None:
        self._unconstrained: list[FilterGroup[S]] = []
        self._by_value: dict[tuple[str, bool], dict[Any, list[FilterGroup[S]]]] = {}
        self._by_range: dict[str, IntervalTree[FilterGroup[S]]] = {}
        self._by_shape: SpatialIndex[FilterGroup[S]] | None = None
        groups = list(groups)
        selectivity = _Selectivity(groups)
        ranges: dict[str, list[tuple[NumberRange, FilterGroup[S]]]] = defaultdict(list)
        shapes: list[tuple[Filter, FilterGroup[S]]] = []
        for group in groups:
            filter_ = group.filter
            if filter_.spatial:
                # One query of the R-tree finds exactly the filters that match, for all of them.
                shapes.append((filter_, group))
                continue
            best = min(
                filter_.constraints.items(),
                key=lambda each: selectivity.estimate(*each),
                default=None,
            )
            if best is None:
                self._unconstrained.append(group)
                continue
            name, constraint = best
            if isinstance(constraint, NumberRange):
                ranges[name].append((constraint, group))
                continue
            table = self._by_value.setdefault((name, constraint.numeric), {})
            for value in constraint.values:
                table.setdefault(value, []).append(group)
        self._by_range = {name: IntervalTree(each) for name, each in ranges.items()}
        if shapes:
            from tailrace.protocols.aviso.geometry import SpatialIndex

            self._by_shape = SpatialIndex(shapes)

    def find_candidates(
        self, values: FieldValues, notification: Notification
    ) -> list[FilterGroup[S]]:
        """The groups that may match, each once; shapes have already been compared."""
        groups = list(self._unconstrained)
        for (name, numeric), table in self._by_value.items():
            value = values.numbers[name] if numeric else values.texts.get(name)
            groups += table.get(value, ())
        for name, tree in self._by_range.items():
            number = values.numbers[name]
            if number is not None:
                tree.find(number, groups)
        if self._by_shape is not None:
            groups += self._by_shape.match(notification)
        return groups


class _Selectivity:
    """Estimates how many notifications a constraint matches, from the filters alone."""

    def __init__(self, groups: Iterable[FilterGroup[Any]]) -> None:
        self._values: dict[str, set[Any]] = defaultdict(set)
        self._bounds: dict[str, list[Number]] = defaultdict(list)
        for group in groups:
            for name, constraint in group.constraints:
                if isinstance(constraint, OneOf):
                    self._values[name] |= constraint.values
                else:
                    bounds = (constraint.low, constraint.high)
                    self._bounds[name] += [each for each in bounds if math.isfinite(each)]

    def estimate(self, name: str, constraint: Constraint) -> float:
        """The share of all notifications that match, from 0 to 1."""
        if isinstance(constraint, OneOf):
            return len(constraint.values) / len(self._values[name])
        lowest, highest = min(self._bounds[name]), max(self._bounds[name])
        width = min(constraint.high, highest) - max(constraint.low, lowest)
        return width / (highest - lowest) if highest > lowest else 1.0


def _group_key(filter_: Filter) -> object:
    return frozenset(filter_.constraints.items()), filter_.polygon, filter_.point


class IntervalTree(Generic[T]):
    """Finds the ranges that contain a number.

    A centred interval tree: a range is stored at the first centre that it contains, once in the
    order of the lower bounds and once in that of the upper bounds. A search follows one path from
    the root, and at each node stops at the first range that does not contain the number."""

    __slots__ = ("_above", "_below", "_by_high", "_by_low", "_centre")

    def __init__(self, ranges: Sequence[tuple[NumberRange, T]]) -> None:
        bounds = sorted(bound for each, _ in ranges for bound in (each.low, each.high))
        self._centre = _finite_middle(bounds)
        here: list[tuple[NumberRange, T]] = []
        below: list[tuple[NumberRange, T]] = []
        above: list[tuple[NumberRange, T]] = []
        for each, item in ranges:
            side = below if each.high < self._centre else above if each.low > self._centre else here
            side.append((each, item))
        self._by_low = sorted(here, key=lambda entry: entry[0].low)
        self._by_high = sorted(here, key=lambda entry: entry[0].high, reverse=True)
        self._below = IntervalTree(below) if below else None
        self._above = IntervalTree(above) if above else None

    def find(self, number: Number, items: list[T]) -> None:
        """Append the items whose range contains the number to `items`."""
        if number <= self._centre:
            for span, item in self._by_low:
                if span.low > number:
                    break
                if span.contains(number):
                    items.append(item)
            if self._below is not None:
                self._below.find(number, items)
        else:
            for span, item in self._by_high:
                if span.high < number:
                    break
                if span.contains(number):
                    items.append(item)
            if self._above is not None:
                self._above.find(number, items)


def _finite_middle(bounds: list[Number]) -> Number:
    """The median of the finite bounds; an infinite centre would leave all ranges on one side."""
    finite = [bound for bound in bounds if abs(bound) != float("inf")]
    return finite[len(finite) // 2] if finite else 0
