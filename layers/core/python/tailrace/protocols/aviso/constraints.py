"""What a filter may ask of one field: a value, one of several, or a range."""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

from tailrace.protocols.aviso.errors import BadField
from tailrace.protocols.aviso.handlers import EnumHandler, FloatHandler, Handler, IntHandler

Number: TypeAlias = int | float


class OneOf(NamedTuple):
    """One of these values."""

    values: frozenset[str] | frozenset[Number]
    numeric: bool
    """Whether the values are numbers: 0 is -0, which as text it is not."""


class Span(NamedTuple):
    """A range of numbers."""

    low: Number
    high: Number
    low_open: bool = False
    """Whether the bound itself is outside."""
    high_open: bool = False

    def holds(self, number: Number) -> bool:
        above = self.low < number if self.low_open else self.low <= number
        return above and (number < self.high if self.high_open else number <= self.high)


Constraint: TypeAlias = OneOf | Span


def exactly(value: str) -> OneOf:
    return OneOf(frozenset((value,)), numeric=False)


def parse(handler: Handler, given: dict[str, object]) -> Constraint:
    """A constraint object; `BadField` says what is wrong with it."""
    if not handler.operators:
        raise BadField(f"field '{handler.name}' is a {handler.type}, which takes no constraints")
    if len(given) != 1:
        known = ", ".join(sorted(handler.operators))
        raise BadField(f"field '{handler.name}' must have exactly one of {known}")
    ((operator, operand),) = given.items()
    if operator not in handler.operators:
        known = ", ".join(sorted(handler.operators))
        raise BadField(f"field '{handler.name}' takes {known}, not '{operator[:40]}'")
    if isinstance(handler, EnumHandler):
        return _choice(handler, operator, operand)
    assert isinstance(handler, IntHandler | FloatHandler)
    return _numbers(handler, operator, operand)


def _choice(handler: EnumHandler, operator: str, operand: object) -> OneOf:
    wanted = [operand] if operator == "eq" else _several(handler, operand)
    values = []
    for each in wanted:
        if not isinstance(each, str):
            raise BadField(f"field '{handler.name}' must be a valid value: it is a text")
        values.append(handler.canonical(each))
    return OneOf(frozenset(values), numeric=False)


def _numbers(handler: IntHandler | FloatHandler, operator: str, operand: object) -> Constraint:
    match operator:
        case "in":
            return OneOf(frozenset(map(handler.operand, _several(handler, operand))), numeric=True)
        case "between":
            if not isinstance(operand, list) or len(operand) != 2:
                raise BadField(f"field '{handler.name}': between takes exactly two numbers")
            low, high = map(handler.operand, operand)
            if low > high:
                raise BadField(f"field '{handler.name}': between begins with the smaller number")
            return Span(low, high)
    number = handler.operand(operand)
    match operator:
        case "eq":
            return OneOf(frozenset((number,)), numeric=True)
        case "gt":
            return Span(number, math.inf, low_open=True)
        case "gte":
            return Span(number, math.inf)
        case "lt":
            return Span(-math.inf, number, high_open=True)
        case _:
            return Span(-math.inf, number)


def _several(handler: Handler, operand: object) -> list[object]:
    if not isinstance(operand, list) or not operand:
        raise BadField(f"field '{handler.name}': in takes a list with at least one value")
    return operand
