"""Types of identifier fields: the values they accept, and the canonical form of each value.

| type | accepts | canonical form |
|---|---|---|
| `StringHandler` | any non-empty text | unchanged |
| `DateHandler` | `YYYY-MM-DD`, `YYYYMMDD`, `YYYY-DDD` | as in `canonical_format` |
| `TimeHandler` | `H`, `HH`, `H:MM`, `HH:MM`, `HHMM` | `HHMM` |
| `EnumHandler` | one of `values`, in any case | lower case |
| `ExpverHandler` | digits, or other text; empty if there is a `default` | `0001`; lower case |
| `IntHandler` | a decimal 64-bit integer | no `+`, no leading zeros |
| `FloatHandler` | a decimal number, with or without exponent | shortest digits, no exponent |
| `PolygonHandler` | see `tailrace.protocols.aviso.shapes` | pairs of floats |
| `PointHandler` | the same; in filters only | |
| `PointCloudHandler` | the same; in notifications only | pairs of floats |
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any, ClassVar, Final

import orjson

from tailrace.limits import AVISO_CLOUD_BYTES, AVISO_CLOUD_POINTS
from tailrace.protocols.aviso import shapes, timestamps
from tailrace.protocols.aviso.error_codes import BadField

MIN_INT, MAX_INT = -(2**63), 2**63 - 1

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DIGITS: Final = re.compile(r"[0-9]+")
_MAX_EXPVER: Final = 2**32 - 1

DATE_FORMATS: Final = ("%Y%m%d", "%Y-%m-%d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A field in the identifier of an event type."""

    type: ClassVar[str] = ""
    spatial: ClassVar[bool] = False
    operators: ClassVar[frozenset[str]] = frozenset()
    """The constraints that a filter may have on this field."""
    numeric: ClassVar[bool] = False

    name: str
    required: bool
    description: str | None = None

    def canonical(self, text: str) -> str:
        """The canonical form of a value; raises `BadField`."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """Describe the field for the schema API."""
        description: dict[str, Any] = {"type": self.type, "required": self.required}
        for option in fields(self):
            if option.name not in ("name", "required", "description"):
                description[option.name] = getattr(self, option.name)
        if self.description is not None:
            description["description"] = self.description
        return description

    def error(self, kind: str, reason: str) -> BadField:
        return BadField(f"field '{self.name}' must be a valid {kind}: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StringHandler(Handler):
    type: ClassVar[str] = "StringHandler"
    max_length: int | None = None
    """In bytes."""

    def canonical(self, text: str) -> str:
        if not text:
            raise self.error("string", "it is empty")
        if self.max_length is not None and len(text.encode()) > self.max_length:
            raise self.error("string", f"it has more than {self.max_length} bytes")
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class DateHandler(Handler):
    type: ClassVar[str] = "DateHandler"
    canonical_format: str = DATE_FORMATS[0]

    def canonical(self, text: str) -> str:
        day = timestamps.parse_day(text)
        if day is None:
            raise self.error(
                "date", f"expected YYYY-MM-DD, YYYYMMDD or YYYY-DDD, not '{text[:40]}'"
            )
        separator = "-" if self.canonical_format == DATE_FORMATS[1] else ""
        return day.isoformat().replace("-", separator)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeHandler(Handler):
    type: ClassVar[str] = "TimeHandler"

    def canonical(self, text: str) -> str:
        clock = timestamps.parse_clock(text)
        if clock is None:
            raise self.error("time", f"expected H, HH, H:MM, HH:MM or HHMM, not '{text[:40]}'")
        return clock


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumHandler(Handler):
    type: ClassVar[str] = "EnumHandler"
    operators: ClassVar[frozenset[str]] = frozenset(("eq", "in"))
    values: tuple[str, ...] = ()

    def canonical(self, text: str) -> str:
        lower = text.lower()
        if all(lower != value.lower() for value in self.values):
            raise self.error("value", f"'{text[:40]}' is not one of {', '.join(self.values)}")
        return lower


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpverHandler(Handler):
    type: ClassVar[str] = "ExpverHandler"
    default: str | None = None

    def canonical(self, text: str) -> str:
        if not text:
            if not self.default:
                raise self.error("experiment version", "it is empty")
            text = self.default
        if _DIGITS.fullmatch(text):
            # int() refuses thousands of digits.
            digits = text.lstrip("0")
            if len(digits) <= len(str(_MAX_EXPVER)) and int(digits or "0") <= _MAX_EXPVER:
                return digits.zfill(4)
        return text.lower()


_NUMERIC: Final = frozenset(("eq", "in", "gt", "gte", "lt", "lte", "between"))


@dataclass(frozen=True, slots=True, kw_only=True)
class IntHandler(Handler):
    type: ClassVar[str] = "IntHandler"
    operators: ClassVar[frozenset[str]] = _NUMERIC
    numeric: ClassVar[bool] = True
    range: tuple[int, int] | None = None

    def canonical(self, text: str) -> str:
        if not _INTEGER.fullmatch(text) or len(text) > 4096:
            raise self.error("integer", f"'{text[:40]}' is not one")
        return str(self.check_range(int(text)))

    def check_range(self, number: int) -> int:
        if not MIN_INT <= number <= MAX_INT:
            raise self.error("integer", "it does not fit in 64 bits")
        if self.range and not self.range[0] <= number <= self.range[1]:
            raise self.error(
                "integer", f"{number} is not in the range {self.range[0]} to {self.range[1]}"
            )
        return number

    def operand(self, value: object) -> int:
        """Check an operand of a constraint."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error("integer", "constraints on it take JSON integers")
        return self.check_range(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatHandler(Handler):
    type: ClassVar[str] = "FloatHandler"
    operators: ClassVar[frozenset[str]] = _NUMERIC
    numeric: ClassVar[bool] = True
    range: tuple[float, float] | None = None

    def canonical(self, text: str) -> str:
        if not _FLOAT.fullmatch(text):
            raise self.error("number", f"'{text[:40]}' is not one")
        return format_shortest(self.check_range(float(text)))

    def check_range(self, number: float) -> float:
        if not math.isfinite(number):
            raise self.error("number", "it is not finite")
        if self.range and not self.range[0] <= number <= self.range[1]:
            raise self.error(
                "number", f"{number} is not in the range {self.range[0]} to {self.range[1]}"
            )
        return number

    def operand(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error("number", "constraints on it take JSON numbers")
        return self.check_range(float(value))


def format_shortest(number: float) -> str:
    """Format a number with the fewest digits that parse to it again, without an exponent."""
    text = f"{Decimal(repr(number)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True, slots=True, kw_only=True)
class PolygonHandler(Handler):
    type: ClassVar[str] = "PolygonHandler"
    spatial: ClassVar[bool] = True

    def parse_ring(self, value: object) -> shapes.Ring:
        try:
            return shapes.parse_polygon(value)
        except ValueError as error:
            raise self.error("polygon", str(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class PointHandler(Handler):
    type: ClassVar[str] = "PointHandler"
    spatial: ClassVar[bool] = True

    def parse_pair(self, value: object) -> shapes.Pair:
        try:
            return shapes.parse_point(value)
        except ValueError as error:
            raise self.error("point", str(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class PointCloudHandler(Handler):
    type: ClassVar[str] = "PointCloudHandler"
    spatial: ClassVar[bool] = True
    max_points: int = AVISO_CLOUD_POINTS

    def parse_cloud(self, value: object) -> shapes.Ring:
        if not isinstance(value, list):
            raise self.error("point cloud", "expected an array of [lat,lon] pairs")
        if not 0 < len(value) <= self.max_points:
            raise self.error("point cloud", f"it must have from 1 to {self.max_points} points")
        try:
            pairs = shapes.parse_cloud(value)
        except ValueError as error:
            raise self.error("point cloud", str(error)) from None
        if len(orjson.dumps(pairs)) > AVISO_CLOUD_BYTES:
            raise self.error("point cloud", f"it has more than {AVISO_CLOUD_BYTES} bytes of JSON")
        return pairs


POLYGON: Final = PolygonHandler(name="polygon", required=False)
"""Parses a polygon filter on an event type with a point cloud."""

POINT: Final = PointHandler(name="point", required=False)

HANDLERS: Final[dict[str, type[Handler]]] = {
    kind.type: kind
    for kind in (
        StringHandler,
        DateHandler,
        TimeHandler,
        EnumHandler,
        ExpverHandler,
        IntHandler,
        FloatHandler,
        PolygonHandler,
        PointHandler,
        PointCloudHandler,
    )
}

SPATIAL_NAMES: Final = {
    "PolygonHandler": "polygon",
    "PointHandler": "point",
    "PointCloudHandler": "point_cloud",
}
"""The fixed names of spatial fields, by which filters refer to them."""
