"""Points and polygons as text and as arrays."""

from __future__ import annotations

import pytest

from tailrace.limits import AVISO_POLYGON_POINTS
from tailrace.protocols.aviso import shapes
from tailrace.protocols.aviso.error_codes import BadField
from tailrace.protocols.aviso.field_handlers import POINT, POLYGON

TRIANGLE = ((0.0, 0.0), (0.0, 10.0), (10.0, 0.0), (0.0, 0.0))


@pytest.mark.parametrize(
    "value",
    ["0,0,0,10,10,0,0,0", "(0,0,0,10,10,0,0,0)", " ( 0 , 0, 0,10 ,10,0,0,0 ) ",
     "0,0,0,1e1,+10,.0,0.,-0",
     [[0, 0], [0, 10], [10, 0], [0, 0]], "[[0,0],[0,10],[10,0],[0,0]]",
     " [[0,0.0],[0,10],[10,0],[0,0]]"],
)  # fmt: skip
def test_a_polygon_is_text_or_an_array(value: object) -> None:
    assert shapes.parse_polygon(value) == TRIANGLE


@pytest.mark.parametrize(
    "value",
    ["90,180,90,-180,-90,-180,90,180", "1,1,1,1,1,1,1,1", "0,0,10,10,0,10,10,0,0,0"],
)
def test_a_polygon_may_cross_itself_or_have_no_area(value: str) -> None:
    assert len(shapes.parse_polygon(value)) >= 4


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "it is empty"),
        ("   ", "it is empty"),
        ("()", "it is empty"),
        ("(0,0,0,10,10,0,0,0", "missing the closing"),
        ("0,0,0,10,10,0,0,0)", "missing the opening"),
        ("((0,0,0,10,10,0,0,0))", "nested or repeated parentheses"),
        ("(0,0),(0,10),(10,0),(0,0)", "nested or repeated parentheses"),
        ("0,0,0,10,10,0,0", "latitude without a longitude"),
        ("0,0,0,10,10,0,0,x", "'x' is not a number"),
        ("0,0,,10,10,0,0,0", "'' is not a number"),
        ("0,0,0,1_0,10,0,0,0", "is not a number"),
        ("nan,0,0,10,10,0,nan,0", "is not a number"),
        ("0,0,0,inf,10,0,0,0", "is not a number"),
        ("0,0,0,10,0,0", "at least 4 pairs"),
        ("0,0,0,0", "at least 4 pairs"),
        ("0,0,0,10,10,0,1,1", "not closed"),
        ("0,0,0,10,10,0,0,0.0000001", "not closed"),
        ("90.1,0,0,10,10,0,90.1,0", "latitude 90.1"),
        ("-91,0,0,10,10,0,-91,0", "latitude -91"),
        ("0,180.5,0,10,10,0,0,180.5", "longitude 180.5"),
        ("0,-181,0,10,10,0,0,-181", "longitude -181"),
        ("0,1e400,0,10,10,0,0,1e400", "longitude inf"),
        ([[0, 0], [0, 10], [10, 0]], "at least 4 pairs"),
        ([[0, 0], [0, 10], [10, 0], [1, 1]], "not closed"),
        ([[0, 0], [0, 10], [10], [0, 0]], "each pair"),
        ([0, 0, 0, 10, 10, 0, 0, 0], "each pair"),
        ([["0", 0], [0, 10], [10, 0], ["0", 0]], "must be numbers"),
        ([[True, 0], [0, 10], [10, 0], [True, 0]], "must be numbers"),
        ("[[0,0],[0,10]", "not valid JSON"),
        (5, "text or an array"),
        (None, "text or an array"),
        ({"type": "Polygon"}, "text or an array"),
    ],
)
def test_invalid_polygons_are_refused(value: object, reason: str) -> None:
    with pytest.raises(BadField, match="field 'polygon' must be a valid polygon: ") as error:
        POLYGON.parse_ring(value)
    assert reason in str(error.value)


@pytest.mark.parametrize(
    "value", ["1.5,2", "(1.5,2)", " ( 1.5 , 2 ) ", [1.5, 2], "[1.5,2]", "1.50,+2."]
)
def test_a_point_is_text_or_an_array(value: object) -> None:
    assert shapes.parse_point(value) == (1.5, 2.0)


@pytest.mark.parametrize(
    "value",
    ["", "()", "1", "1,2,3", "(1,2", "1,2)", "((1,2))", "a,b", "nan,0", "91,0", "0,181", "-90.1,0",
     "1;2", [1], [1, 2, 3], [[1, 2]], ["1", 2], 5, None, {}, "[1,2"],
)  # fmt: skip
def test_invalid_points_are_refused(value: object) -> None:
    with pytest.raises(BadField, match="field 'point' must be a valid point"):
        POINT.parse_pair(value)


@pytest.mark.parametrize("value", ["90,180", "-90,-180", "0,0", "-0.0,0"])
def test_a_point_may_have_extreme_coordinates(value: str) -> None:
    shapes.parse_point(value)


def test_boxes_intersect_if_they_share_a_corner() -> None:
    one = shapes.Box.around(TRIANGLE)
    assert one.intersects(shapes.Box(10, 10, 20, 20))
    assert not one.intersects(shapes.Box(10.1, 10, 20, 20))
    assert not one.intersects(shapes.Box(10, 10.1, 20, 20))
    assert str(shapes.Box.parse(str(one).encode())) == str(one) == "0.0,0.0,10.0,10.0"


def test_polygons_are_limited_in_size() -> None:
    pairs = [[0.0, float(i % 90)] for i in range(AVISO_POLYGON_POINTS - 1)]
    assert len(shapes.parse_polygon([*pairs, pairs[0]])) == AVISO_POLYGON_POINTS
    for polygon in ([*pairs, [1, 1], pairs[0]], "0,0," * AVISO_POLYGON_POINTS + "0,0"):
        with pytest.raises(ValueError, match="pairs"):
            shapes.parse_polygon(polygon)
