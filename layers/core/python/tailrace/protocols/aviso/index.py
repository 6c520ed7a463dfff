"""Which of many filters a notification passes, without asking each of them.

A filter is found by the one of its constraints that lets the least pass: a value in the field for
which filters name the most different values, or else its shape, or else a range. The few that are
found so are then asked for the rest. Filters that ask for the same are one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from tailrace.protocols.aviso.constraints import Constraint, Number, OneOf, Span
from tailrace.protocols.aviso.envelope import Notification
from tailrace.protocols.aviso.filters import Filter, number_of
from tailrace.protocols.aviso.intervals import Intervals
from tailrace.protocols.aviso.schema import EventType

if TYPE_CHECKING:
    from tailrace.protocols.aviso.geometry import Shape
    from tailrace.protocols.aviso.spatial import SpatialIndex

W = TypeVar("W")

RECENT: Final = 32
"""Filters that may come before they are sorted in: until then each of them is asked."""


class Group(Generic[W]):
    """Those who ask for the same."""

    __slots__ = ("_shape", "checks", "filter", "waiting")

    def __init__(self, wanted: Filter) -> None:
        self.filter = wanted
        self.checks = list(wanted.asked.items())
        self.waiting: dict[W, None] = {}
        self._shape: Shape | None = None

    def meets(self, notification: Notification) -> bool:
        """Whether the notification has the shape, if there is one to have."""
        if not self.filter.spatial:
            return True
        if self._shape is None:
            from tailrace.protocols.aviso.geometry import asked_shape

            self._shape = asked_shape(self.filter.polygon, self.filter.point)
        return self._shape.meets(notification)


class Values:
    """The topic of a notification: texts, and numbers where fields are numbers."""

    __slots__ = ("numbers", "texts")

    def __init__(self, event: EventType, texts: list[str]) -> None:
        self.texts = texts
        self.numbers: dict[int, Number | None] = {
            place: number_of(handler)(texts[place])
            for place, handler in enumerate(event.keys)
            if handler.numeric
        }

    def pass_all(self, checks: Iterable[tuple[int, Constraint]]) -> bool:
        for place, asked in checks:
            if isinstance(asked, OneOf):
                value = self.numbers[place] if asked.numeric else self.texts[place]
                if value not in asked.values:
                    return False
                continue
            number = self.numbers[place]
            if number is None or not asked.holds(number):
                return False
        return True


class FilterIndex(Generic[W]):
    """`W`: who waits for what passes."""

    def __init__(self, event: EventType) -> None:
        self._event = event
        self._groups: dict[Any, Group[W]] = {}
        self._recent: dict[Any, Group[W]] = {}
        self._gone = 0
        self._sorted: _Sorted[W] = _Sorted(())

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, wanted: Filter, who: W) -> None:
        key = _key(wanted)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = self._recent[key] = Group(wanted)
        group.waiting[who] = None

    def remove(self, wanted: Filter, who: W) -> None:
        key = _key(wanted)
        group = self._groups.get(key)
        if group is None:
            return
        group.waiting.pop(who, None)
        if not group.waiting:
            del self._groups[key]
            if self._recent.pop(key, None) is None:
                self._gone += 1

    def passing(self, notification: Notification) -> Iterator[W]:
        """Who asks for what the notification is."""
        texts = notification.values(self._event)
        if texts is None:
            return
        if len(self._recent) > RECENT or self._gone > RECENT + len(self._groups):
            self._sorted = _Sorted(self._groups.values())
            self._recent.clear()
            self._gone = 0
        values = Values(self._event, texts)
        for group in self._sorted.likely(values, notification):
            if values.pass_all(group.checks):
                yield from group.waiting
        for group in self._recent.values():
            if values.pass_all(group.checks) and group.meets(notification):
                yield from group.waiting


class _Sorted(Generic[W]):
    """The groups there were at one time; those that have gone since have nobody waiting."""

    def __init__(self, groups: Iterable[Group[W]]) -> None:
        self._all: list[Group[W]] = []
        self._equal: dict[tuple[int, bool], dict[Any, list[Group[W]]]] = {}
        self._ranges: dict[int, Intervals[Group[W]]] = {}
        self._shapes: SpatialIndex[Group[W]] | None = None
        groups = list(groups)
        fields = _Fields(groups)
        spans: dict[int, list[tuple[Span, Group[W]]]] = defaultdict(list)
        shapes: list[tuple[Filter, Group[W]]] = []
        for group in groups:
            wanted = group.filter
            if wanted.spatial:
                # GEOS tells exactly who passes, and that is asked once for all of them.
                shapes.append((wanted, group))
                continue
            best = min(wanted.asked.items(), key=lambda each: fields.share(*each), default=None)
            if best is None:
                self._all.append(group)
                continue
            place, asked = best
            if isinstance(asked, Span):
                spans[place].append((asked, group))
                continue
            table = self._equal.setdefault((place, asked.numeric), {})
            for value in asked.values:
                table.setdefault(value, []).append(group)
        self._ranges = {place: Intervals(each) for place, each in spans.items()}
        if shapes:
            from tailrace.protocols.aviso.spatial import SpatialIndex

            self._shapes = SpatialIndex(shapes)

    def likely(self, values: Values, notification: Notification) -> list[Group[W]]:
        """All that may pass, each once; those with a shape have been asked for it."""
        found = list(self._all)
        for (place, numeric), table in self._equal.items():
            value = values.numbers[place] if numeric else values.texts[place]
            found += table.get(value, ())
        for place, ranges in self._ranges.items():
            number = values.numbers[place]
            if number is not None:
                ranges.holding(number, found)
        if self._shapes is not None:
            found += self._shapes.meeting(notification)
        return found


class _Fields:
    """How much constraints let pass, judged by what filters name: nothing else is known yet."""

    def __init__(self, groups: Iterable[Group[Any]]) -> None:
        self._named: dict[int, set[Any]] = defaultdict(set)
        self._bounds: dict[int, list[Number]] = defaultdict(list)
        for group in groups:
            for place, asked in group.checks:
                if isinstance(asked, OneOf):
                    self._named[place] |= asked.values
                else:
                    bounds = (asked.low, asked.high)
                    self._bounds[place] += [each for each in bounds if math.isfinite(each)]

    def share(self, place: int, asked: Constraint) -> float:
        """Of all notifications, from 0 to 1."""
        if isinstance(asked, OneOf):
            return len(asked.values) / len(self._named[place])
        least, most = min(self._bounds[place]), max(self._bounds[place])
        width = min(asked.high, most) - max(asked.low, least)
        return width / (most - least) if most > least else 1.0


def _key(wanted: Filter) -> object:
    return frozenset(wanted.asked.items()), wanted.polygon, wanted.point
