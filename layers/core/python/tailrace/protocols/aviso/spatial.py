"""Which of many shapes a notification meets: an R-tree of each kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import shapely
from shapely import STRtree

from tailrace.protocols.aviso.envelope import Notification
from tailrace.protocols.aviso.filters import Filter
from tailrace.protocols.aviso.geometry import geometry_of, inside, polygon_of, ring_of

G = TypeVar("G")


class SpatialIndex(Generic[G]):
    def __init__(self, wanted: Sequence[tuple[Filter, G]]) -> None:
        areas = [(each.polygon, item) for each, item in wanted if each.polygon is not None]
        spots = [(each.point, item) for each, item in wanted if each.point is not None]
        self._areas = [item for _, item in areas]
        self._area_tree = STRtree([polygon_of(ring) for ring, _ in areas]) if areas else None
        self._spots = spots
        self._spot_tree = (
            STRtree([shapely.Point(pair[1], pair[0]) for pair, _ in spots]) if spots else None
        )

    def meeting(self, notification: Notification) -> list[G]:
        found: list[G] = []
        if self._area_tree is not None and notification.box is not None:
            shape = geometry_of(notification)
            # Nothing meets nothing: the tree takes None for an empty shape.
            places = self._area_tree.query(shape, predicate="intersects")
            found += [self._areas[place] for place in places.tolist()]
        if self._spot_tree is not None:
            found += self._inside(self._spot_tree, notification)
        return found

    def _inside(self, tree: Any, notification: Notification) -> list[G]:
        ring = ring_of(notification)
        if ring is None:
            return []
        shape = polygon_of(ring)
        if shapely.is_valid(shape):
            places = tree.query(shape, predicate="contains").tolist()
            return [self._spots[place][1] for place in places]
        near = [self._spots[place] for place in tree.query(shape).tolist()]
        return [item for pair, item in near if inside(shape, ring, pair)]
