"""The values that each type of field accepts, and how it stores them."""

from __future__ import annotations

import pytest

from tailrace.protocols.aviso.error_codes import BadField
from tailrace.protocols.aviso.field_handlers import (
    DateHandler,
    EnumHandler,
    ExpverHandler,
    FloatHandler,
    Handler,
    IntHandler,
    PointCloudHandler,
    StringHandler,
    TimeHandler,
)

TEXT = StringHandler(name="f", required=True, max_length=5)
ANY = StringHandler(name="f", required=True)
COMPACT = DateHandler(name="f", required=True)
DASHED = DateHandler(name="f", required=True, canonical_format="%Y-%m-%d")
TIME = TimeHandler(name="f", required=True)
ENUM = EnumHandler(name="f", required=True, values=("storm", "Flood", "ÄRGER"))
EXPVER = ExpverHandler(name="f", required=True)
DEFAULT = ExpverHandler(name="f", required=True, default="1")
INT = IntHandler(name="f", required=True)
RANGED = IntHandler(name="f", required=True, range=(-5, 10))
FLOAT = FloatHandler(name="f", required=True)
LEVEL = FloatHandler(name="f", required=True, range=(-1.5, 2.0))


@pytest.mark.parametrize(
    ("handler", "text", "canonical"),
    [
        (TEXT, "a", "a"),
        (TEXT, "ABCDE", "ABCDE"),
        (TEXT, " a ", " a "),
        (TEXT, "éé", "éé"),
        (ANY, "x" * 5000, "x" * 5000),
        (ANY, "a.b*c>d%", "a.b*c>d%"),
        (COMPACT, "2026-01-31", "20260131"),
        (COMPACT, "20260131", "20260131"),
        (COMPACT, "2026-031", "20260131"),
        (COMPACT, "2024-366", "20241231"),
        (COMPACT, "2024-02-29", "20240229"),
        (DASHED, "20260131", "2026-01-31"),
        (DASHED, "2026-01-31", "2026-01-31"),
        (DASHED, "2026-001", "2026-01-01"),
        (TIME, "0", "0000"),
        (TIME, "6", "0600"),
        (TIME, "06", "0600"),
        (TIME, "23", "2300"),
        (TIME, "6:30", "0630"),
        (TIME, "06:30", "0630"),
        (TIME, "0630", "0630"),
        (TIME, "2359", "2359"),
        (ENUM, "storm", "storm"),
        (ENUM, "STORM", "storm"),
        (ENUM, "flood", "flood"),
        (ENUM, "Flood", "flood"),
        (ENUM, "ärger", "ärger"),
        (EXPVER, "9" * 5000, "9" * 5000),
        (EXPVER, "0" * 5000 + "7", "0007"),
        (EXPVER, "1", "0001"),
        (EXPVER, "0001", "0001"),
        (EXPVER, "00042", "0042"),
        (EXPVER, "12345", "12345"),
        (EXPVER, "4294967295", "4294967295"),
        (EXPVER, "4294967296", "4294967296"),
        (EXPVER, "0", "0000"),
        (EXPVER, "PROD", "prod"),
        (EXPVER, "a1B2", "a1b2"),
        (DEFAULT, "", "0001"),
        (DEFAULT, "2", "0002"),
        (INT, "0", "0"),
        (INT, "-0", "0"),
        (INT, "+5", "5"),
        (INT, "007", "7"),
        (INT, "-12", "-12"),
        (INT, "9223372036854775807", "9223372036854775807"),
        (INT, "-9223372036854775808", "-9223372036854775808"),
        (RANGED, "-5", "-5"),
        (RANGED, "10", "10"),
        (FLOAT, "42.50", "42.5"),
        (FLOAT, "1.0", "1"),
        (FLOAT, "1e5", "100000"),
        (FLOAT, "1E5", "100000"),
        (FLOAT, "1e21", "1000000000000000000000"),
        (FLOAT, "1e-7", "0.0000001"),
        (FLOAT, "-0", "-0"),
        (FLOAT, "0.0", "0"),
        (FLOAT, "100", "100"),
        (FLOAT, "123456789012345678901234567890", "123456789012345680000000000000"),
        (FLOAT, ".5", "0.5"),
        (FLOAT, "5.", "5"),
        (FLOAT, "+1.5", "1.5"),
        (FLOAT, "-1.5e3", "-1500"),
        (FLOAT, "0.1", "0.1"),
        (FLOAT, "1e-400", "0"),
        (LEVEL, "-1.5", "-1.5"),
        (LEVEL, "2", "2"),
        (LEVEL, "2.0", "2"),
    ],
)  # fmt: skip
def test_values_are_brought_to_canonical_form(handler: Handler, text: str, canonical: str) -> None:
    assert handler.canonical(text) == canonical
    assert handler.canonical(canonical) == canonical


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (TEXT, ""), (TEXT, "abcdef"), (TEXT, "ééé"),
        (COMPACT, ""), (COMPACT, "2026"), (COMPACT, "2026-13-01"), (COMPACT, "2026-02-29"),
        (COMPACT, "2026/01/31"), (COMPACT, "2026.01.31"), (COMPACT, "31-01-2026"),
        (COMPACT, "2026-01-31T00:00:00Z"), (COMPACT, "2026-"), (COMPACT, "2026-1-5"),
        (COMPACT, "2026-000"), (COMPACT, "2025-366"), (COMPACT, "2024-367"), (COMPACT, " 20260131"),
        (COMPACT, "20260131 "), (COMPACT, "202601-31"), (COMPACT, "00000101"),
        (COMPACT, "2026٠131"),
        (TIME, ""), (TIME, "24"), (TIME, "2400"), (TIME, "12:60"), (TIME, "1260"), (TIME, "6:5"),
        (TIME, "630"), (TIME, "12:5"), (TIME, "12345"), (TIME, "12:30:00"), (TIME, " 6"),
        (TIME, "6 "), (TIME, "-1"), (TIME, "٦"),
        (ENUM, ""), (ENUM, "gale"), (ENUM, "storm "),
        (EXPVER, ""),
        (INT, ""), (INT, "1.0"), (INT, "1.5"), (INT, " 1"), (INT, "1 "), (INT, "1e3"), (INT, "--1"),
        (INT, "0x10"), (INT, "1_000"), (INT, "9223372036854775808"),
        (INT, "-9223372036854775809"), (INT, "1" * 5000), (INT, "٣"),
        (RANGED, "-6"), (RANGED, "11"),
        (FLOAT, ""), (FLOAT, "nan"), (FLOAT, "NaN"), (FLOAT, "inf"), (FLOAT, "-inf"),
        (FLOAT, "infinity"), (FLOAT, "1e400"), (FLOAT, "-1e400"), (FLOAT, " 1"), (FLOAT, "1 "),
        (FLOAT, "1,5"), (FLOAT, "."), (FLOAT, "e5"), (FLOAT, "1_0.5"), (FLOAT, "0x1p3"),
        (LEVEL, "-1.5000001"), (LEVEL, "2.0000001"),
    ],
)  # fmt: skip
def test_invalid_values_are_refused(handler: Handler, text: str) -> None:
    with pytest.raises(BadField, match=r"^field 'f' must be a valid "):
        handler.canonical(text)


CLOUD = PointCloudHandler(name="point_cloud", required=True, max_points=3)


@pytest.mark.parametrize("points", [[[0, 0]], [[1.5, 2], [90, 180], [-90, -180]]])
def test_a_point_cloud_is_an_array_of_pairs(points: list[list[float]]) -> None:
    assert CLOUD.parse_cloud(points) == tuple((float(a), float(b)) for a, b in points)


@pytest.mark.parametrize(
    "points",
    ["0,0", "[[0,0]]", [], [[0, 0]] * 4, [[0]], [[0, 0, 0]], [0, 0], [[0, "0"]], [[91, 0]],
     [[0, 181]], {"lat": 0}, None, [[True, 0]]],
)  # fmt: skip
def test_invalid_point_clouds_are_refused(points: object) -> None:
    with pytest.raises(BadField, match="field 'point_cloud' must be a valid point cloud"):
        CLOUD.parse_cloud(points)


def test_point_clouds_are_limited_in_size() -> None:
    wide = PointCloudHandler(name="point_cloud", required=True)
    assert len(wide.parse_cloud([[1, 1]] * 6_143)) == 6_143
    with pytest.raises(BadField, match="61440 bytes"):
        wide.parse_cloud([[1, 1]] * 6_144)
    with pytest.raises(BadField, match="from 1 to 10000 points"):
        wide.parse_cloud([[1, 1]] * 10_001)
