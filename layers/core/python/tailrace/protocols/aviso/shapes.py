"""Points and polygons as requests and schemas write them: latitude first, in degrees.

| what | text | array |
|---|---|---|
| polygon | `lat,lon,lat,lon,…`, perhaps in parentheses | `[[lat,lon],…]` |
| point | `lat,lon`, perhaps in parentheses | `[lat,lon]` |
| point cloud | | `[[lat,lon],…]` |

A text may hold the array. A polygon has at least four pairs and ends where it began. Nothing is
said about its area or about edges that cross. Degrees are plain numbers: a shape across the
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

LEAST_PAIRS: Final = 4
"""Of a polygon: a triangle and its first corner again."""

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def parse_polygon(value: object) -> Ring:
    """The pairs of a polygon; ValueError says what is wrong with it."""
    pairs = _pairs(value)
    if len(pairs) < LEAST_PAIRS:
        raise ValueError(f"it needs at least {LEAST_PAIRS} pairs, the last one like the first")
    if pairs[0] != pairs[-1]:
        raise ValueError("it is not closed: its last pair must be its first")
    return pairs


def parse_point(value: object) -> Pair:
    parsed = _unwrapped(value)
    numbers = _numbers(parsed) if isinstance(parsed, str) else parsed
    if len(numbers) != 2:
        raise ValueError("it takes exactly a latitude and a longitude")
    return _pair(numbers)


def parse_cloud(value: object) -> Ring:
    parsed = _unwrapped(value)
    if not isinstance(parsed, list):
        raise ValueError("it must be an array of [lat,lon] pairs")
    return tuple(map(_pair, parsed))


def _pairs(value: object) -> Ring:
    parsed = _unwrapped(value)
    number = len(parsed) if isinstance(parsed, list) else (parsed.count(",") + 1) // 2
    if number > AVISO_POLYGON_POINTS:
        raise ValueError(f"it has more than {AVISO_POLYGON_POINTS} pairs")
    if isinstance(parsed, list):
        return tuple(map(_pair, parsed))
    numbers = _numbers(parsed)
    if len(numbers) % 2:
        raise ValueError("it has a latitude without a longitude")
    return tuple(map(_pair, zip(numbers[::2], numbers[1::2], strict=True)))


def _unwrapped(value: object) -> str | list[Any]:
    """Arrays as they are, also from a text; other text without its parentheses."""
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        raise ValueError("it must be text or an array")
    text = value.strip()
    if text.startswith("["):
        try:
            array = orjson.loads(text)
        except orjson.JSONDecodeError:
            raise ValueError("it begins like a JSON array, but is none") from None
        assert isinstance(array, list)
        return array
    opens, closes = text.startswith("("), text.endswith(")")
    if opens and not closes:
        raise ValueError("it is missing the closing parenthesis")
    if closes and not opens:
        raise ValueError("it is missing the opening parenthesis")
    text = text[1:-1] if opens else text
    if "(" in text or ")" in text:
        raise ValueError("it has parentheses inside")
    if not text.strip():
        raise ValueError("it is empty")
    return text


def _numbers(text: str) -> list[float]:
    found = []
    for part in text.split(","):
        number = part.strip()
        if not _NUMBER.fullmatch(number):
            raise ValueError(f"'{number[:40]}' is no number")
        found.append(float(number))
    return found


def _pair(pair: Any) -> Pair:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise ValueError("each pair is [lat,lon]")
    for number in pair:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError("latitudes and longitudes are numbers")
    latitude, longitude = float(pair[0]), float(pair[1])
    if not -90 <= latitude <= 90:
        raise ValueError(f"the latitude {latitude:g} is not between -90 and 90")
    if not -180 <= longitude <= 180:
        raise ValueError(f"the longitude {longitude:g} is not between -180 and 180")
    return latitude, longitude


class Box:
    """The least box around pairs: `south,west,north,east`."""

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

    def meets(self, other: Box) -> bool:
        """Whether they share anything, be it a corner."""
        return (
            self.south <= other.north
            and other.south <= self.north
            and self.west <= other.east
            and other.west <= self.east
        )
