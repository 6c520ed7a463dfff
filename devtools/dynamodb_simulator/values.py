"""Values in DynamoDB's JSON: validation, size and comparison."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache
from typing import Any

Value = dict[str, Any]
"""Exactly one pair of type and content: `{"S": "text"}`."""
Item = dict[str, Value]

EXACT = Context(prec=38, traps=[InvalidOperation, Inexact])
ORDERED = frozenset("SNB")
"""The types that can be compared by order."""


class Invalid(Exception):
    """An error that DynamoDB reports as a ValidationException."""


def validate_item(item: object) -> tuple[Item, int]:
    """Copy and validate an item; returns it with normalised numbers, and its size in bytes."""
    if not isinstance(item, Mapping):
        raise Invalid("an item is a map of attributes")
    copy: Item = {}
    size = 0
    for name, value in item.items():
        if not name:
            raise Invalid("Empty attribute name")
        copy[name], bytes_ = validate_value(value)
        size += bytes_ + (len(name) if name.isascii() else len(name.encode()))
    return copy, size


def validate_value(value: object) -> tuple[Value, int]:
    if not isinstance(value, Mapping) or len(value) != 1:
        raise Invalid("Supplied AttributeValue must contain exactly one of the supported datatypes")
    ((kind, content),) = value.items()
    if kind == "S" and isinstance(content, str):
        size = len(content) if content.isascii() else len(content.encode())
        return {kind: content}, size
    if kind == "N" and isinstance(content, str):
        number = _written(content)
        return {kind: number}, len(number.strip("-.0")) // 2 + 2
    if kind == "B" and isinstance(content, str):
        return {kind: content}, len(decoded(content))
    if (kind == "BOOL" and isinstance(content, bool)) or (kind == "NULL" and content is True):
        return {kind: content}, 1
    if kind in ("SS", "NS", "BS") and isinstance(content, list):
        return _validate_set(kind, content)
    if kind == "L" and isinstance(content, list):
        pairs = [validate_value(element) for element in content]
        return {kind: [element for element, _ in pairs]}, 3 + sum(size + 1 for _, size in pairs)
    if kind == "M" and isinstance(content, Mapping):
        copy, size = validate_item(content)
        return {kind: copy}, 3 + size + len(copy)
    raise Invalid(f"Unexpected content of type {kind}: {content!r:.60}")


def same(left: Value, right: Value) -> bool:
    return left == right


def comparable(value: Value) -> tuple[str, Any]:
    """The type and the content, in a form that compares like in DynamoDB."""
    ((kind, content),) = value.items()
    if kind == "N":
        return kind, number(content)
    if kind == "B":
        return kind, decoded(content)
    return kind, content


@lru_cache(maxsize=4096)
def number(text: str) -> Decimal:
    return Decimal(text)


def added(left: Value, right: Value, sign: int = 1) -> Value:
    if "N" not in left or "N" not in right:
        raise Invalid("An operand in the update expression has an incorrect data type")
    try:
        total = EXACT.add(number(left["N"]), sign * number(right["N"]))
    except Inexact:
        raise Invalid("Number has more than 38 significant digits") from None
    return {"N": _written(str(total))}


def summed(before: Value | None, value: Value) -> Value:
    """Return the attribute as ADD makes it."""
    if "N" in value:
        return added(before or {"N": "0"}, value)
    ((kind, elements),) = value.items()
    if kind not in ("SS", "NS", "BS") or (before is not None and kind not in before):
        raise Invalid("An operand in the update expression has an incorrect data type")
    return {kind: sorted({*(before or {}).get(kind, ()), *elements})}


def decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except Base64Error:
        raise Invalid(f"not base64: {text!r:.60}") from None


def _validate_set(kind: str, content: list[Any]) -> tuple[Value, int]:
    elements = [validate_value({kind[0]: element}) for element in content]
    texts = sorted(element[kind[0]] for element, _ in elements)
    if not texts or len(set(texts)) < len(texts):
        raise Invalid("a set has to have elements, each of them once")
    # Sorted, so that equal sets are equal lists.
    return {kind: texts}, sum(size for _, size in elements)


@lru_cache(maxsize=4096)
def _written(text: str) -> str:
    try:
        value = EXACT.create_decimal(text)
    except InvalidOperation:
        raise Invalid(f"not a number: {text!r:.60}") from None
    except Inexact:
        raise Invalid("Number has more than 38 significant digits") from None
    if not value.is_finite():
        raise Invalid(f"not a number: {text!r:.60}")
    plain = f"{value:f}"
    if "." in plain:
        plain = plain.rstrip("0").rstrip(".")
    return "0" if plain == "-0" else plain
