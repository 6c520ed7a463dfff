"""Billed units by DynamoDB's documented rules, where a local engine does not report them.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html and
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tailrace.aws.client.failures import ConditionFailed, Item, TransactionCanceled

WRITE_BYTES: Final = 1024
READ_BYTES: Final = 4096


def item_bytes(item: Item) -> int:
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def read_units(request: Mapping[str, Any], answer: Mapping[str, Any]) -> float:
    """Of a GetItem or a Query: the bytes of all items together, in steps of 4 KB."""
    items = [answer["Item"]] if "Item" in answer else answer.get("Items", ())
    whole = max(1, _steps(sum(map(item_bytes, items)), READ_BYTES))
    return whole if request.get("ConsistentRead") else whole / 2


def written_units(request: Mapping[str, Any]) -> int:
    """Of a PutItem of a new item, or of a transaction of such."""
    if "TransactItems" not in request:
        return _write_units(request, None)
    actions = (action for each in request["TransactItems"] for action in each.values())
    return 2 * sum(_write_units(action, None) for action in actions)


def lost_units(request: Mapping[str, Any], failure: ConditionFailed | TransactionCanceled) -> float:
    """Of a write whose condition did not hold: as much as if it had, by the larger of the item
    that is there and the one that was to be."""
    if isinstance(failure, ConditionFailed):
        return _write_units(request, failure.item)
    actions = (action for each in request["TransactItems"] for action in each.values())
    found = (reason.item for reason in failure.reasons)
    return 2 * sum(_write_units(*pair) for pair in zip(actions, found, strict=True))


def _write_units(action: Mapping[str, Any], found: Item | None) -> int:
    larger = max(item_bytes(action.get("Item", {})), item_bytes(found or {}))
    return max(1, _steps(larger, WRITE_BYTES))


def _steps(size: int, step: int) -> int:
    return -(-size // step)


def _value_bytes(value: Mapping[str, Any]) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            # Two digits to a byte, and one byte more.
            return (len(content.strip("-0.")) + 1) // 2 + 1
        case "B":
            return len(binascii.a2b_base64(content))
        case "L" | "M":
            return 3 + sum(_nested(content))
    return 1


def _nested(content: Any) -> Iterator[int]:
    if isinstance(content, Mapping):
        yield item_bytes(content) + len(content)
    else:
        yield from (_value_bytes(each) + 1 for each in content)
