"""Matching of shapes, by a single filter as in a replay and by the index as in a watch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tailrace.protocols.aviso import envelope
from tailrace.protocols.aviso.error_codes import RequestKind
from tailrace.protocols.aviso.filter_index import RECENT, FilterIndex
from tailrace.protocols.aviso.filters import Filter, Matcher
from tailrace.protocols.aviso.request_body import parse_notification, parse_query
from tests.support.aviso import SQUARE, parse

TENT = "0,0,10,5,0,10,0,0"
BOW = "0,0,10,10,0,10,10,0,0,0"
"""Its edges cross at 5,5."""
TWICE = "0,0,0,10,10,10,10,0,0,0,0,10,10,10,10,0,0,0"
"""A square whose edges wind around twice."""
STAR = "10,5,0,8,6.2,0,6.2,10,0,2,10,5"
"""A pentagram: the edges wind around its middle twice."""


def notification(event_type: str = "area", **fields: Any) -> bytes:
    identifier = {"name": "x", **fields.pop("identifier", {})}
    sent = parse(RequestKind.NOTIFICATION, event_type=event_type, identifier=identifier, **fields)
    return envelope.encode(parse_notification(sent), "id", "http://localhost", 0)


def make_filter(event_type: str = "area", **identifier: Any) -> Filter:
    sent = parse(RequestKind.REPLAY, event_type=event_type, identifier=identifier, from_id="0")
    return parse_query(sent).filter


def match_all_ways(filter_: Filter, stored: bytes) -> Iterator[bool]:
    """Match by the filter alone, and by the index, with few filters and with many."""
    yield Matcher(filter_).match(stored) is not None
    parsed = envelope.Notification.parse(stored)
    assert parsed is not None
    for others in (0, RECENT + 1):
        index: FilterIndex[str] = FilterIndex(filter_.event)
        for i in range(others):
            # Shapes far away, so that the tree has several entries.
            index.add(replace(filter_, **_elsewhere(filter_, i)), "other")
        index.add(filter_, "it")
        yield list(index.match(parsed)) == ["it"]


def _elsewhere(filter_: Filter, i: int) -> dict[str, Any]:
    south = -80 + i / 100
    if filter_.point is not None:
        return {"point": (south, -100.0)}
    return {"polygon": ((south, -100.0), (south, -99.0), (south + 1, -99.0), (south, -100.0))}


@pytest.mark.parametrize(
    ("polygon", "stored", "matches"),
    [
        (SQUARE, SQUARE, True),
        (SQUARE, "2,2,2,4,4,4,4,2,2,2", True),
        ("2,2,2,4,4,4,4,2,2,2", SQUARE, True),
        (SQUARE, "5,5,5,15,15,15,15,5,5,5", True),
        (SQUARE, "0,10,0,20,10,20,10,10,0,10", True),
        (SQUARE, "10,10,10,20,20,20,20,10,10,10", True),
        (SQUARE, "10,4,12,5,10,6,10,4", True),
        (SQUARE, "10,5,12,4,12,6,10,5", True),
        (SQUARE, "10.000001,10,10.000001,20,20,20,20,10,10.000001,10", False),
        (SQUARE, "11,11,11,12,12,12,12,11,11,11", False),
        (TENT, "9,0,9,1,10,1,10,0,9,0", False),
        (SQUARE, "5,5,5,5,5,5,5,5", True),
        (SQUARE, "10,10,10,10,10,10,10,10", True),
        (SQUARE, "11,11,11,11,11,11,11,11", False),
        (SQUARE, BOW, True),
        (BOW, "4,0,6,0,6,1,4,0", True),
        (BOW, "20,20,20,30,30,30,20,20", False),
        ("0,170,0,180,10,180,10,170,0,170", "0,-180,0,-170,10,-170,10,-180,0,-180", False),
        ("80,-180,80,180,90,180,90,-180,80,-180", "85,0,85,1,86,1,85,0", True),
    ],
)  # fmt: skip
def test_polygons_match_if_they_share_a_point(polygon: str, stored: str, matches: bool) -> None:
    raw = notification(identifier={"polygon": stored})
    assert list(match_all_ways(make_filter(polygon=polygon), raw)) == [matches] * 3


@pytest.mark.parametrize(
    ("point", "stored", "inside"),
    [
        ("5,5", SQUARE, True),
        ("0.000001,0.000001", SQUARE, True),
        ("0,5", SQUARE, False),
        ("5,0", SQUARE, False),
        ("10,5", SQUARE, False),
        ("0,0", SQUARE, False),
        ("10,10", SQUARE, False),
        ("-0.000001,5", SQUARE, False),
        ("5,10.000001", SQUARE, False),
        ("9,1", TENT, False),
        ("5,5", TENT, True),
        ("5,2.5", TENT, False),
        ("5,5", "5,5,5,5,5,5,5,5", False),
        ("5,5", TWICE, True),
        ("0,5", TWICE, False),
        ("5,5", STAR, True),
        ("9,5", STAR, True),
        ("1,5", STAR, False),
        ("5,5", BOW, False),
        ("5,1", BOW, True),
        ("2,5", BOW, False),
        ("5,9", BOW, True),
        ("2,2.5", "0,0,0,10,10,0,10,10,0,0", True),
        ("1,5", "0,0,0,10,10,0,10,10,0,0", True),
        ("9,5", "0,0,0,10,10,0,10,10,0,0", True),
        ("90,180", "80,170,80,180,90,180,90,170,80,170", False),
        ("0,180", "-1,-180,1,-180,1,-179,-1,-179,-1,-180", False),
    ],
)
def test_a_point_must_lie_inside_a_polygon(point: str, stored: str, inside: bool) -> None:
    raw = notification(identifier={"polygon": stored})
    assert list(match_all_ways(make_filter(point=point), raw)) == [inside] * 3


@pytest.mark.parametrize(
    ("polygon", "points", "matches"),
    [
        (SQUARE, [[5, 5]], True),
        (SQUARE, [[50, 50], [5, 5]], True),
        (SQUARE, [[0, 5]], True),
        (SQUARE, [[10, 10]], True),
        (SQUARE, [[10.000001, 10]], False),
        (SQUARE, [[-1, 5], [11, 5], [5, -1], [5, 11]], False),
        (TENT, [[9, 1], [9, 9]], False),
        (TENT, [[9, 1], [9, 5]], True),
    ],
)
def test_a_point_cloud_matches_if_one_point_is_inside_or_on_the_edge(
    polygon: str, points: list[list[float]], matches: bool
) -> None:
    raw = notification("cloud", identifier={"point_cloud": points})
    assert list(match_all_ways(make_filter("cloud", polygon=polygon), raw)) == [matches] * 3


def test_both_shape_and_fields_must_match() -> None:
    raw = notification(identifier={"polygon": SQUARE, "name": "y"})
    assert list(match_all_ways(make_filter(polygon=SQUARE, name="y"), raw)) == [True] * 3
    assert list(match_all_ways(make_filter(polygon=SQUARE, name="z"), raw)) == [False] * 3
    assert list(match_all_ways(make_filter(point="50,50", name="y"), raw)) == [False] * 3


POLYGON = b'"polygon":[[0.0,0.0],[0.0,10.0],[10.0,10.0],[10.0,0.0],[0.0,0.0]]'
"""The square as it is stored."""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"spatialbbox":"0.0,0.0,10.0,10.0"', b'"spatialbbox":"0.0,0.0"'),
        (b'"spatialbbox":"0.0,0.0,10.0,10.0"', b'"spatialbbox":"e,e,e,e"'),
        (b'"polygon":', b'"polygons":'),
        (POLYGON, b'"polygon":"x,0,0,10,10,10,10,0,x,0"'),
        (POLYGON, b'"polygon":{}'),
        (POLYGON, b'"point_cloud":"0,0"'),
        (POLYGON, b'"point_cloud":[[0]]'),
        (POLYGON, b'"point_cloud":[]'),
    ],
)
def test_an_invalid_shape_never_matches(old: bytes, new: bytes) -> None:
    raw = notification(identifier={"polygon": SQUARE})
    assert old in raw
    assert list(match_all_ways(make_filter(polygon=SQUARE), raw.replace(old, new))) == [False] * 3


def test_a_notification_without_a_payload_has_no_shape() -> None:
    raw = _product(SQUARE)
    bare = raw.partition(b',"payload":')[0] + b"}}"
    assert list(match_all_ways(make_filter("product", point="5,5"), raw)) == [True] * 3
    assert list(match_all_ways(make_filter("product", point="5,5"), bare)) == [False] * 3


PRODUCT = {
    "destination": "a", "date": "20260101", "time": "0", "hazard": "fire", "expver": "1",
    "step": "1", "level": "1",
}  # fmt: skip


@pytest.mark.parametrize(
    ("geometry", "inside"),
    [
        (SQUARE, True),
        ("20,20,20,30,30,30,20,20", False),
        ({"type": "Polygon", "coordinates": [[[0, 0], [0, 10], [10, 10], [10, 0]]]}, True),
        ({"type": "Polygon", "coordinates": [[[0, 0], [0, 20], [20, 0]]]}, True),
        ({"type": "Polygon", "coordinates": [[[0, 0], [0, 1]]]}, False),
        ({"type": "Polygon", "coordinates": []}, False),
        ({"type": "Polygon"}, False),
        ({"type": "Point", "coordinates": [5, 5]}, False),
        ("nonsense", False),
        ([[0, 0], [0, 10], [10, 10], [0, 0]], False),
        (None, False),
        (7, False),
    ],
)
def test_a_polygon_in_the_payload_is_used_if_there_is_no_other(
    geometry: object, inside: bool
) -> None:
    raw = _product(geometry)
    assert list(match_all_ways(make_filter("product", point="5,5"), raw)) == [inside] * 3


def _product(geometry: object) -> bytes:
    sent = parse(
        RequestKind.NOTIFICATION,
        event_type="product",
        identifier=PRODUCT,
        payload={"spatial_geometry": geometry},
    )
    return envelope.encode(parse_notification(sent), "id", "http://localhost", 0)
