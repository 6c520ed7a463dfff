"""Points and polygons in requests: degrees, latitude first.

| shape | text | array |
|---|---|---|
| polygon | `lat,lon,lat,lon,…`, optionally in parentheses | `[[lat,lon],…]` |
| point | `lat,lon`, optionally in parentheses | `[lat,lon]` |
| point cloud | | `[[lat,lon],…]` |

The array may also come as text. A polygon has at least four pairs, and the last equals the first.
It may have no area, and its edges may cross. Degrees are plain numbers: a shape that crosses the
antimeridian has to be sent as two.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

import orjson

from tailrace.limits import AVISO_POLYGON_POINTS

Pair: TypeAlias = tuple[float, float]
"""Latitude and longitude."""

Ring: TypeAlias = tuple[Pair, ...]

MIN_PAIRS: Final = 4
"""The smallest polygon: a triangle, with its first corner again at the end."""

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def parse_polygon(value: object) -> Ring:
    """Parse a polygon; a ValueError says why it is invalid."""
    pairs = _parse_pairs(value)
    if len(pairs) < MIN_PAIRS:
        raise ValueError(f"it needs at least {MIN_PAIRS} pairs, the last one equal to the first")
    if pairs[0] != pairs[-1]:
        raise ValueError("it is not closed: the last pair must equal the first")
    return pairs


def parse_point(value: object) -> Pair:
    parsed = _unwrap(value)
    numbers = _parse_numbers(parsed) if isinstance(parsed, str) else parsed
    if len(numbers) != 2:
        raise ValueError("expected exactly one latitude and one longitude")
    return _check_pair(numbers)


def parse_cloud(value: object) -> Ring:
    parsed = _unwrap(value)
    if not isinstance(parsed, list):
        raise ValueError("expected an array of [lat,lon] pairs")
    return tuple(map(_check_pair, parsed))


def _parse_pairs(value: object) -> Ring:
    parsed = _unwrap(value)
    number = len(parsed) if isinstance(parsed, list) else (parsed.count(",") + 1) // 2
    if number > AVISO_POLYGON_POINTS:
        raise ValueError(f"it has more than {AVISO_POLYGON_POINTS} pairs")
    if isinstance(parsed, list):
        return tuple(map(_check_pair, parsed))
    numbers = _parse_numbers(parsed)
    if len(numbers) % 2:
        raise ValueError("it has a latitude without a longitude")
    return tuple(map(_check_pair, zip(numbers[::2], numbers[1::2], strict=True)))


def _unwrap(value: object) -> str | list[Any]:
    """The array, also if it comes as text; other text without its parentheses."""
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        raise ValueError("expected text or an array")
    text = value.strip()
    if text.startswith("["):
        try:
            array = orjson.loads(text)
        except orjson.JSONDecodeError:
            raise ValueError("it starts like a JSON array but is not valid JSON") from None
        assert isinstance(array, list)
        return array
    opens, closes = text.startswith("("), text.endswith(")")
    if opens and not closes:
        raise ValueError("it is missing the closing parenthesis")
    if closes and not opens:
        raise ValueError("it is missing the opening parenthesis")
    text = text[1:-1] if opens else text
    if "(" in text or ")" in text:
        raise ValueError("it has nested or repeated parentheses")
    if not text.strip():
        raise ValueError("it is empty")
    return text


def _parse_numbers(text: str) -> list[float]:
    numbers = []
    for part in text.split(","):
        number = part.strip()
        if not _NUMBER.fullmatch(number):
            raise ValueError(f"'{number[:40]}' is not a number")
        numbers.append(float(number))
    return numbers


def _check_pair(pair: Any) -> Pair:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise ValueError("each pair must be [lat,lon]")
    for number in pair:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError("latitudes and longitudes must be numbers")
    latitude, longitude = float(pair[0]), float(pair[1])
    if not -90 <= latitude <= 90:
        raise ValueError(f"the latitude {latitude:g} is not between -90 and 90")
    if not -180 <= longitude <= 180:
        raise ValueError(f"the longitude {longitude:g} is not between -180 and 180")
    return latitude, longitude


class Box:
    """The bounding box of a shape: `south,west,north,east`."""

    __slots__ = ("east", "north", "south", "west")

    def __init__(self, south: float, west: float, north: float, east: float) -> None:
        self.south, self.west, self.north, self.east = south, west, north, east

    @classmethod
    def around(cls, pairs: Ring) -> Box:
        latitudes, longitudes = zip(*pairs, strict=True)
        return cls(min(latitudes), min(longitudes), max(latitudes), max(longitudes))

    @classmethod
    def parse(cls, text: bytes) -> Box:
        return cls(*map(float, text.split(b",")))

    def __str__(self) -> str:
        return f"{self.south!r},{self.west!r},{self.north!r},{self.east!r}"

    def intersects(self, other: Box) -> bool:
        """Whether they share at least one point, be it a corner."""
        return (
            self.south <= other.north
            and other.south <= self.north
            and self.west <= other.east
            and other.west <= self.east
        )
