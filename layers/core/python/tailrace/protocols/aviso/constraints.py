"""Constraints of a filter on one field: one of several values, or a range of numbers."""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

from tailrace.protocols.aviso.error_codes import BadField
from tailrace.protocols.aviso.field_handlers import EnumHandler, FloatHandler, Handler, IntHandler

Number: TypeAlias = int | float


class OneOf(NamedTuple):
    values: frozenset[str] | frozenset[Number]
    numeric: bool
    """Whether the values are compared as numbers: 0 equals -0, but not as text."""


class NumberRange(NamedTuple):
    low: Number
    high: Number
    low_open: bool = False
    """Whether the range excludes the bound itself."""
    high_open: bool = False

    def contains(self, number: Number) -> bool:
        above = self.low < number if self.low_open else self.low <= number
        return above and (number < self.high if self.high_open else number <= self.high)


Constraint: TypeAlias = OneOf | NumberRange


def match_exactly(value: str) -> OneOf:
    return OneOf(frozenset((value,)), numeric=False)


def parse_constraint(handler: Handler, value: dict[str, object]) -> Constraint:
    """Parse a constraint object such as `{"gt": 4}`; raises `BadField`."""
    if not handler.operators:
        raise BadField(f"field '{handler.name}' is a {handler.type}, which takes no constraints")
    if len(value) != 1:
        operators = ", ".join(sorted(handler.operators))
        raise BadField(f"field '{handler.name}' must have exactly one of {operators}")
    ((operator, operand),) = value.items()
    if operator not in handler.operators:
        operators = ", ".join(sorted(handler.operators))
        raise BadField(f"field '{handler.name}' takes {operators}, not '{operator[:40]}'")
    if isinstance(handler, EnumHandler):
        return _parse_choice(handler, operator, operand)
    assert isinstance(handler, IntHandler | FloatHandler)
    return _parse_numbers(handler, operator, operand)


def _parse_choice(handler: EnumHandler, operator: str, operand: object) -> OneOf:
    operands = [operand] if operator == "eq" else _require_list(handler, operand)
    values = []
    for value in operands:
        if not isinstance(value, str):
            raise BadField(f"field '{handler.name}' must be a valid value: expected a string")
        values.append(handler.canonical(value))
    return OneOf(frozenset(values), numeric=False)


def _parse_numbers(
    handler: IntHandler | FloatHandler, operator: str, operand: object
) -> Constraint:
    match operator:
        case "in":
            values = _require_list(handler, operand)
            return OneOf(frozenset(map(handler.operand, values)), numeric=True)
        case "between":
            if not isinstance(operand, list) or len(operand) != 2:
                raise BadField(f"field '{handler.name}': between takes exactly two numbers")
            low, high = map(handler.operand, operand)
            if low > high:
                raise BadField(f"field '{handler.name}': between takes the smaller number first")
            return NumberRange(low, high)
    number = handler.operand(operand)
    match operator:
        case "eq":
            return OneOf(frozenset((number,)), numeric=True)
        case "gt":
            return NumberRange(number, math.inf, low_open=True)
        case "gte":
            return NumberRange(number, math.inf)
        case "lt":
            return NumberRange(-math.inf, number, high_open=True)
        case _:
            return NumberRange(-math.inf, number)


def _require_list(handler: Handler, operand: object) -> list[object]:
    if not isinstance(operand, list) or not operand:
        raise BadField(f"field '{handler.name}': in takes a list with at least one value")
    return operand
