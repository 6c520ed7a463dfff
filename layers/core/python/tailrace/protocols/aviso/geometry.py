"""Compares shapes with GEOS: longitude is x, latitude is y, and the earth is flat.

| filter | notification | matches if |
|---|---|---|
| polygon | polygon | they share at least one point, be it a corner |
| polygon | point cloud | a point lies inside or on the edge |
| point | polygon | it lies inside by the non-zero winding rule; the edge does not count |
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, Generic, Protocol, TypeVar

import shapely
from shapely import STRtree

from tailrace.protocols.aviso.envelope import Notification
from tailrace.protocols.aviso.filters import Filter
from tailrace.protocols.aviso.shapes import Box, Pair, Ring, parse_cloud, parse_polygon

T = TypeVar("T")

CLOUD: Final = "point_cloud"


class ShapeMatcher(Protocol):
    def may_match(self, notification: Notification) -> bool:
        """Compare the bounding boxes, which needs no parsing; False is final."""

    def matches(self, notification: Notification) -> bool: ...


def compile_shape(polygon: Ring | None, point: Pair | None) -> ShapeMatcher:
    if polygon is not None:
        return PolygonMatcher(polygon)
    assert point is not None
    return PointMatcher(point)


class PolygonMatcher:
    """The polygon of a filter."""

    def __init__(self, ring: Ring) -> None:
        self._box = Box.around(ring)
        self._polygon = build_polygon(ring)
        # Compared with many notifications, so an index of its edges pays.
        shapely.prepare(self._polygon)

    def may_match(self, notification: Notification) -> bool:
        box = notification.box
        return box is not None and box.intersects(self._box)

    def matches(self, notification: Notification) -> bool:
        shape = parse_geometry(notification) if self.may_match(notification) else None
        return shape is not None and bool(shapely.intersects(self._polygon, shape))


class PointMatcher:
    """The point of a filter."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._box = Box.around((pair,))

    def may_match(self, notification: Notification) -> bool:
        box = notification.box
        return box is None or box.intersects(self._box)

    def matches(self, notification: Notification) -> bool:
        if not self.may_match(notification):
            return False
        ring = parse_ring(notification)
        return ring is not None and contains(build_polygon(ring), ring, self._pair)


class SpatialIndex(Generic[T]):
    """Finds the shapes of filters that match a notification: one R-tree for each kind."""

    def __init__(self, filters: Sequence[tuple[Filter, T]]) -> None:
        polygons = [(each.polygon, item) for each, item in filters if each.polygon is not None]
        points = [(each.point, item) for each, item in filters if each.point is not None]
        self._polygon_items = [item for _, item in polygons]
        self._polygon_tree = (
            STRtree([build_polygon(ring) for ring, _ in polygons]) if polygons else None
        )
        self._points = points
        self._point_tree = (
            STRtree([shapely.Point(pair[1], pair[0]) for pair, _ in points]) if points else None
        )

    def match(self, notification: Notification) -> list[T]:
        items: list[T] = []
        if self._polygon_tree is not None and notification.box is not None:
            # The geometry may be None: the tree takes that for an empty shape, which meets nothing.
            shape = parse_geometry(notification)
            indexes = self._polygon_tree.query(shape, predicate="intersects")
            items += [self._polygon_items[index] for index in indexes.tolist()]
        if self._point_tree is not None:
            items += self._match_points(self._point_tree, notification)
        return items

    def _match_points(self, tree: Any, notification: Notification) -> list[T]:
        ring = parse_ring(notification)
        if ring is None:
            return []
        shape = build_polygon(ring)
        if shapely.is_valid(shape):
            indexes = tree.query(shape, predicate="contains").tolist()
            return [self._points[index][1] for index in indexes]
        near = [self._points[index] for index in tree.query(shape).tolist()]
        return [item for pair, item in near if contains(shape, ring, pair)]


def contains(polygon: Any, ring: Ring, pair: Pair) -> bool:
    """Whether a point lies inside a polygon, and not on its edge."""
    latitude, longitude = pair
    if shapely.is_valid(polygon):
        return bool(shapely.contains_xy(polygon, longitude, latitude))
    # Where edges cross, GEOS applies the even-odd rule, and Aviso has the non-zero rule.
    on_edge = shapely.intersects_xy(shapely.boundary(polygon), longitude, latitude)
    return not on_edge and _winding_number(ring, pair) != 0


def _winding_number(ring: Ring, pair: Pair) -> int:
    y, x = pair
    windings = 0
    for (y1, x1), (y2, x2) in pairwise(ring):
        side = (x2 - x1) * (y - y1) - (x - x1) * (y2 - y1)
        if y1 <= y < y2 and side > 0:
            windings += 1
        elif y2 <= y < y1 and side < 0:
            windings -= 1
    return windings


def build_polygon(ring: Ring) -> Any:
    # Twice as fast as shapely.Polygon, which checks for types that cannot occur here.
    return shapely.polygons([(longitude, latitude) for latitude, longitude in ring])


def parse_geometry(notification: Notification) -> Any | None:
    """The shape of a notification; None if it has none, or an invalid one."""
    identifier = notification.data["identifier"]
    try:
        if CLOUD in identifier:
            return shapely.multipoints([pair[::-1] for pair in parse_cloud(identifier[CLOUD])])
        return build_polygon(parse_polygon(identifier["polygon"]))
    except (ValueError, KeyError):
        return None


def parse_ring(notification: Notification) -> Ring | None:
    """The polygon of a notification, or else the one in its payload."""
    identifier, payload = notification.data["identifier"], notification.data.get("payload")
    try:
        if "polygon" in identifier:
            return parse_polygon(identifier["polygon"])
        if CLOUD not in identifier and isinstance(payload, dict):
            return _parse_payload_geometry(payload.get("spatial_geometry"))
    except (ValueError, TypeError, KeyError, IndexError):
        # A payload is not validated when it is published.
        return None
    return None


def _parse_payload_geometry(geometry: Any) -> Ring | None:
    if isinstance(geometry, dict) and geometry.get("type") == "Polygon":
        pairs = [list(pair) for pair in geometry["coordinates"][0]]
        if len(pairs) < 3:
            return None
        closed = pairs if pairs[0] == pairs[-1] else [*pairs, pairs[0]]
        return parse_polygon([*closed, *closed[-1:]] if len(closed) == 3 else closed)
    return parse_polygon(geometry) if isinstance(geometry, str) else None
