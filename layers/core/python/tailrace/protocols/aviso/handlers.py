"""Identifier fields: what each type takes, and the one form in which a value is kept.

| type | takes | kept as |
|---|---|---|
| `StringHandler` | any text but the empty one | it is |
| `DateHandler` | `YYYY-MM-DD`, `YYYYMMDD`, `YYYY-DDD` | `canonical_format` says |
| `TimeHandler` | `H`, `HH`, `H:MM`, `HH:MM`, `HHMM` | `HHMM` |
| `EnumHandler` | one of `values`, in any case | lower case |
| `ExpverHandler` | digits, or other text; empty where there is a `default` | `0001`, lower case |
| `IntHandler` | a decimal number of 64 bits | without sign `+` and leading zeros |
| `FloatHandler` | a decimal number, with an exponent or not | shortest digits, no exponent |
| `PolygonHandler` | see `tailrace.protocols.aviso.shapes` | it is |
| `PointHandler` | the same; only watch and replay have it | it is |
| `PointCloudHandler` | the same; only notifications have it | it is |
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any, ClassVar, Final

import orjson

from tailrace.limits import AVISO_CLOUD_BYTES, AVISO_CLOUD_POINTS
from tailrace.protocols.aviso import moments, shapes
from tailrace.protocols.aviso.errors import BadField

LEAST_INT, MOST_INT = -(2**63), 2**63 - 1

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DIGITS: Final = re.compile(r"[0-9]+")
_MOST_EXPVER: Final = 2**32 - 1

DATE_FORMATS: Final = ("%Y%m%d", "%Y-%m-%d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A field of an event type's identifier."""

    type: ClassVar[str] = ""
    spatial: ClassVar[bool] = False
    operators: ClassVar[frozenset[str]] = frozenset()
    """The constraints that watch and replay may put on it."""
    numeric: ClassVar[bool] = False

    name: str
    required: bool
    description: str | None = None

    def canonical(self, text: str) -> str:
        """The form in which a value is kept, or `BadField`."""
        raise NotImplementedError

    def described(self) -> dict[str, Any]:
        """As the schema API shows it."""
        shown: dict[str, Any] = {"type": self.type, "required": self.required}
        for option in fields(self):
            if option.name not in ("name", "required", "description"):
                shown[option.name] = getattr(self, option.name)
        if self.description is not None:
            shown["description"] = self.description
        return shown

    def bad(self, kind: str, why: str = "") -> BadField:
        return BadField(f"field '{self.name}' must be a valid {kind}{': ' if why else ''}{why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StringHandler(Handler):
    type: ClassVar[str] = "StringHandler"
    max_length: int | None = None
    """In bytes."""

    def canonical(self, text: str) -> str:
        if not text:
            raise self.bad("string", "it is empty")
        if self.max_length is not None and len(text.encode()) > self.max_length:
            raise self.bad("string", f"it has more than {self.max_length} bytes")
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class DateHandler(Handler):
    type: ClassVar[str] = "DateHandler"
    canonical_format: str = DATE_FORMATS[0]

    def canonical(self, text: str) -> str:
        day = moments.parse_day(text)
        if day is None:
            raise self.bad("date", f"expected YYYY-MM-DD, YYYYMMDD or YYYY-DDD, not '{text[:40]}'")
        separator = "-" if self.canonical_format == DATE_FORMATS[1] else ""
        return day.isoformat().replace("-", separator)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeHandler(Handler):
    type: ClassVar[str] = "TimeHandler"

    def canonical(self, text: str) -> str:
        clock = moments.parse_clock(text)
        if clock is None:
            raise self.bad("time", f"expected H, HH, H:MM, HH:MM or HHMM, not '{text[:40]}'")
        return clock


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumHandler(Handler):
    type: ClassVar[str] = "EnumHandler"
    operators: ClassVar[frozenset[str]] = frozenset(("eq", "in"))
    values: tuple[str, ...] = ()

    def canonical(self, text: str) -> str:
        lower = text.lower()
        if all(lower != value.lower() for value in self.values):
            raise self.bad("value", f"'{text[:40]}' is none of {', '.join(self.values)}")
        return lower


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpverHandler(Handler):
    type: ClassVar[str] = "ExpverHandler"
    default: str | None = None

    def canonical(self, text: str) -> str:
        if not text:
            if not self.default:
                raise self.bad("experiment version", "it is empty")
            text = self.default
        if _DIGITS.fullmatch(text):
            # Python reads no number of thousands of digits.
            digits = text.lstrip("0")
            if len(digits) <= len(str(_MOST_EXPVER)) and int(digits or "0") <= _MOST_EXPVER:
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
            raise self.bad("integer", f"'{text[:40]}' is none")
        return str(self.within(int(text)))

    def within(self, number: int) -> int:
        if not LEAST_INT <= number <= MOST_INT:
            raise self.bad("integer", "it does not fit 64 bits")
        if self.range and not self.range[0] <= number <= self.range[1]:
            raise self.bad("integer", f"{number} is not from {self.range[0]} to {self.range[1]}")
        return number

    def operand(self, value: object) -> int:
        """A number of a constraint."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.bad("integer", "a constraint on it takes whole JSON numbers")
        return self.within(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatHandler(Handler):
    type: ClassVar[str] = "FloatHandler"
    operators: ClassVar[frozenset[str]] = _NUMERIC
    numeric: ClassVar[bool] = True
    range: tuple[float, float] | None = None

    def canonical(self, text: str) -> str:
        if not _FLOAT.fullmatch(text):
            raise self.bad("number", f"'{text[:40]}' is none")
        return shortest(self.within(float(text)))

    def within(self, number: float) -> float:
        if not math.isfinite(number):
            raise self.bad("number", "it is not finite")
        if self.range and not self.range[0] <= number <= self.range[1]:
            raise self.bad("number", f"{number} is not from {self.range[0]} to {self.range[1]}")
        return number

    def operand(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.bad("number", "a constraint on it takes JSON numbers")
        return self.within(float(value))


def shortest(number: float) -> str:
    """The fewest digits that read as the same number, without an exponent."""
    text = f"{Decimal(repr(number)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True, slots=True, kw_only=True)
class PolygonHandler(Handler):
    type: ClassVar[str] = "PolygonHandler"
    spatial: ClassVar[bool] = True

    def ring(self, value: object) -> shapes.Ring:
        try:
            return shapes.parse_polygon(value)
        except ValueError as error:
            raise self.bad("polygon", str(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class PointHandler(Handler):
    type: ClassVar[str] = "PointHandler"
    spatial: ClassVar[bool] = True

    def pair(self, value: object) -> shapes.Pair:
        try:
            return shapes.parse_point(value)
        except ValueError as error:
            raise self.bad("point", str(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class PointCloudHandler(Handler):
    type: ClassVar[str] = "PointCloudHandler"
    spatial: ClassVar[bool] = True
    max_points: int = AVISO_CLOUD_POINTS

    def cloud(self, value: object) -> shapes.Ring:
        if not isinstance(value, list):
            raise self.bad("point cloud", "it must be an array of [lat,lon] pairs")
        if not 0 < len(value) <= self.max_points:
            raise self.bad("point cloud", f"it has from 1 to {self.max_points} points")
        try:
            pairs = shapes.parse_cloud(value)
        except ValueError as error:
            raise self.bad("point cloud", str(error)) from None
        if len(orjson.dumps(value)) > AVISO_CLOUD_BYTES:
            raise self.bad("point cloud", f"it has more than {AVISO_CLOUD_BYTES} bytes of JSON")
        return pairs


POLYGON: Final = PolygonHandler(name="polygon", required=False)
"""How a polygon is read where the event type has a point cloud."""

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
"""A spatial field has the name that filters ask for."""
