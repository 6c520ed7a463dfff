"""Shapes that meet or do not, by GEOS: longitude is x, latitude is y, and the earth is flat.

| asked for | notification | it passes when |
|---|---|---|
| polygon | polygon | they share anything, be it a corner |
| polygon | point cloud | a point is inside or on the edge |
| point | polygon | it is inside, by the non-zero rule; on the edge it is not |
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final, Protocol

import shapely

from tailrace.protocols.aviso.envelope import Notification
from tailrace.protocols.aviso.shapes import Box, Pair, Ring, parse_cloud, parse_polygon

CLOUD: Final = "point_cloud"


class Shape(Protocol):
    def near(self, notification: Notification) -> bool:
        """Whether they may meet, as far as can be told without parsing."""

    def meets(self, notification: Notification) -> bool: ...


def asked_shape(polygon: Ring | None, point: Pair | None) -> Shape:
    if polygon is not None:
        return Area(polygon)
    assert point is not None
    return Spot(point)


class Area:
    """The polygon of a filter."""

    def __init__(self, ring: Ring) -> None:
        self._box = Box.around(ring)
        self._polygon = polygon_of(ring)
        # What is asked about again and again gets an index of its edges.
        shapely.prepare(self._polygon)

    def near(self, notification: Notification) -> bool:
        box = notification.box
        return box is not None and box.meets(self._box)

    def meets(self, notification: Notification) -> bool:
        shape = geometry_of(notification) if self.near(notification) else None
        return shape is not None and bool(shapely.intersects(self._polygon, shape))


class Spot:
    """The point of a filter."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._box = Box.around((pair,))

    def near(self, notification: Notification) -> bool:
        box = notification.box
        return box is None or box.meets(self._box)

    def meets(self, notification: Notification) -> bool:
        if not self.near(notification):
            return False
        ring = ring_of(notification)
        return ring is not None and inside(polygon_of(ring), ring, self._pair)


def inside(polygon: Any, ring: Ring, pair: Pair) -> bool:
    """Whether a point lies inside of a polygon, and not on its edge."""
    latitude, longitude = pair
    if shapely.is_valid(polygon):
        return bool(shapely.contains_xy(polygon, longitude, latitude))
    # GEOS counts crossings, and where edges cross that is another answer than turns around it.
    on_edge = shapely.intersects_xy(shapely.boundary(polygon), longitude, latitude)
    return not on_edge and _turns(ring, pair) != 0


def _turns(ring: Ring, pair: Pair) -> int:
    y, x = pair
    turns = 0
    for (y1, x1), (y2, x2) in pairwise(ring):
        side = (x2 - x1) * (y - y1) - (x - x1) * (y2 - y1)
        if y1 <= y < y2 and side > 0:
            turns += 1
        elif y2 <= y < y1 and side < 0:
            turns -= 1
    return turns


def polygon_of(ring: Ring) -> Any:
    # Half of the time that its class takes, which looks for what nobody sends here.
    return shapely.polygons([(longitude, latitude) for latitude, longitude in ring])


def geometry_of(notification: Notification) -> Any | None:
    """The shape of a notification; None: it has none, whatever it says."""
    identifier = notification.data["identifier"]
    try:
        if CLOUD in identifier:
            return shapely.multipoints([pair[::-1] for pair in parse_cloud(identifier[CLOUD])])
        return polygon_of(parse_polygon(identifier["polygon"]))
    except (ValueError, KeyError):
        return None


def ring_of(notification: Notification) -> Ring | None:
    """The polygon of a notification, or else that of its payload."""
    identifier, payload = notification.data["identifier"], notification.data.get("payload")
    try:
        if "polygon" in identifier:
            return parse_polygon(identifier["polygon"])
        if CLOUD not in identifier and isinstance(payload, dict):
            return _in_payload(payload.get("spatial_geometry"))
    except (ValueError, TypeError, KeyError, IndexError):
        # Nobody has checked what a payload holds.
        return None
    return None


def _in_payload(given: Any) -> Ring | None:
    if isinstance(given, dict) and given.get("type") == "Polygon":
        first = given["coordinates"][0]
        pairs = [list(pair) for pair in first]
        if len(pairs) < 3:
            return None
        closed = pairs if pairs[0] == pairs[-1] else [*pairs, pairs[0]]
        return parse_polygon([*closed, *closed[-1:]] if len(closed) == 3 else closed)
    return parse_polygon(given) if isinstance(given, str) else None
