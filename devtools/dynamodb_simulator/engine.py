"""The semantics of DynamoDB's calls on one table, each atomic: no time passes, nothing fails.

Every item keeps its old versions as long as an eventually consistent read may return them.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import Any, NamedTuple

from devtools.dynamodb_simulator.expressions import Projection
from devtools.dynamodb_simulator.requests import (
    INDEX_ENTRY,
    PARAMETERS,
    Expressed,
    Key,
    Query,
    Request,
    Write,
    batch,
    check_item,
    check_parameters,
    flag,
    key,
    query,
    transaction,
    write,
)
from devtools.dynamodb_simulator.values import Invalid, Item, number, validate_item
from tailrace.aws.client.failures import ConditionFailed, Reason, Refused, TransactionCanceled

PAGE_BYTES = 1024 * 1024
INDEX_OVERHEAD = 100
"""The size of an index entry in addition to its attributes."""
LONGEST_ANSWER = 10.0
"""The maximum duration of a call, in seconds."""
TOKEN_SECONDS = 600
"""How long a transaction is recognised by its token, in seconds."""


class Change(NamedTuple):
    """A record of the table's stream."""

    at: float
    key: Key
    before: Item | None
    after: Item | None


@dataclass(slots=True)
class Version:
    item: Item | None
    size: int
    at: float
    seen: float
    """The time from which queries see it: a query may see parts of a transaction."""


@dataclass(slots=True)
class Partition:
    order: list[str] = field(default_factory=list)
    # Python compares strings by code point, which is the order of their UTF-8 bytes.
    slots: dict[str, list[Version]] = field(default_factory=dict)


class Outcome(NamedTuple):
    item: Item | None
    size: int


class Piece(NamedTuple):
    """One write of a batch."""

    do: Callable[[], object]
    table: str
    sent: Request


NOTHING = Version(None, 0, float("-inf"), float("-inf"))
Visible = Callable[[list[Version]], Version]


class Engine:
    def __init__(
        self, chance: random.Random, lag: float, page_bytes: int, name: str | None
    ) -> None:
        self.changes: list[Change] = []
        self._chance = chance
        self._lag = lag
        self._page_bytes = page_bytes
        self._name = name
        self._kept = lag + LONGEST_ANSWER
        self._partitions: dict[str, Partition] = {}
        self._index: dict[str, dict[Key, list[Version]]] = {}
        """For each `g`, the items that have it or had it recently."""
        self._graves: deque[tuple[float, Key]] = deque()
        self._tokens: dict[str, tuple[float, Any]] = {}
        self._units = 0.0

    def execute(
        self, operation: str, request: Request, now: float, window: float = 0.0
    ) -> dict[str, Any]:
        """Execute a call; for `window` seconds, queries may see parts of a transaction."""
        try:
            self._check(operation, request)
            self._units = 0.0
            match operation:
                case "GetItem":
                    answer = self._get(request, now)
                case "Query":
                    answer = self._query(request, now)
                case "TransactWriteItems":
                    answer = self._transact(request, now, window)
                case _:
                    answer = self._write(operation, write(operation[: -len("Item")], request), now)
        except Invalid as invalid:
            raise Refused(operation, "ValidationException", str(invalid)) from None
        if request.get("ReturnConsumedCapacity") == "TOTAL":
            consumed = {"TableName": request.get("TableName", ""), "CapacityUnits": self._units}
            listed = operation == "TransactWriteItems"
            answer["ConsumedCapacity"] = [consumed] if listed else consumed
        return answer

    def pieces(self, request: Request, clock: Callable[[], float]) -> list[Piece]:
        """The writes of a batch, which is not atomic: each happens when it is called."""
        operation = "BatchWriteItem"
        try:
            self._check(operation, request)
            writes = list(batch(request))
        except Invalid as invalid:
            raise Refused(operation, "ValidationException", str(invalid)) from None
        self._check_name(operation, writes[0][0])
        return [
            Piece(partial(self._write_at, clock, each), name, sent) for name, each, sent in writes
        ]

    def _write_at(self, clock: Callable[[], float], each: Write) -> None:
        self._write("BatchWriteItem", each, clock())

    def items(self) -> Iterator[Item]:
        """All current items, by partition and in order."""
        for name in sorted(self._partitions):
            partition = self._partitions[name]
            for sort in partition.order:
                item = partition.slots[sort][-1].item
                if item is not None:
                    yield dict(item)

    # Reading

    def _get(self, request: Request, now: float) -> dict[str, Any]:
        target = key(request.get("Key"))
        expressed = Expressed(request)
        projected = expressed.projection()
        expressed.check()
        consistent = flag(request, "ConsistentRead", default=False)
        if consistent:
            version = self._latest(target, now)
        else:
            version = self._replica(now)(self._versions(target))
        answer: dict[str, Any] = {}
        if version.item is not None:
            answer["Item"] = _projected(version.item, projected)
        self._units += _read_units(version.size, consistent)
        return answer

    def _query(self, request: Request, now: float) -> dict[str, Any]:
        asked = query(request)
        found = self._indexed(asked, now) if asked.indexed else self._ranged(asked, now)
        names = INDEX_ENTRY if asked.indexed else ("p", "s")
        items: list[Item] = []
        scanned = size = 0
        last: Item | None = None
        more = False
        for item, bytes_ in found:
            more = scanned > 0 and size + bytes_ > self._page_bytes
            if more:
                break
            scanned += 1
            size += bytes_
            last = item
            if asked.test is None or asked.test(item, asked.values):
                items.append(_projected(item, asked.projected))
            # DynamoDB does not check whether more items follow.
            more = scanned == asked.limit
            if more:
                break
        answer: dict[str, Any] = {"Items": items, "Count": len(items), "ScannedCount": scanned}
        if more and last is not None:
            answer["LastEvaluatedKey"] = {name: last[name] for name in names}
        self._units += _read_units(size, asked.consistent)
        return answer

    def _ranged(self, asked: Query, now: float) -> Iterator[tuple[Item, int]]:
        visible = _seen_at(now) if asked.consistent else self._replica(now)
        partition = self._partitions.get(asked.partition)
        if partition is None:
            return
        order = partition.order
        low, high = _span(order, asked.comparison, asked.bounds)
        if asked.start is not None and asked.forward:
            low = max(low, bisect_right(order, asked.start))
        elif asked.start is not None:
            high = min(high, bisect_left(order, asked.start))
        for position in range(low, high) if asked.forward else range(high - 1, low - 1, -1):
            version = visible(partition.slots[order[position]])
            if version.item is not None:
                yield version.item, version.size

    def _indexed(self, asked: Query, now: float) -> Iterator[tuple[Item, int]]:
        """The items of the index, each visible after its own delay."""
        rows: list[tuple[tuple[Any, str, str], Item]] = []
        for (p, s), versions in self._index.get(asked.partition, {}).items():
            item = self._replica(now)(versions).item
            if item is not None and item.get("g") == {"S": asked.partition} and "d" in item:
                rows.append(((number(item["d"]["N"]), p, s), item))
        rows.sort(key=lambda row: row[0])
        low, high = _span([row[0][0] for row in rows], asked.comparison, asked.bounds)
        for row, item in rows[low:high] if asked.forward else rows[low:high][::-1]:
            start = asked.start
            if start is None or (row > start if asked.forward else row < start):
                entry = {name: item[name] for name in INDEX_ENTRY}
                yield entry, INDEX_OVERHEAD + validate_item(entry)[1]

    def _replica(self, now: float) -> Visible:
        """The item in a replica, which may lag behind."""
        behind = self._chance.random() * 2 - 1
        if behind <= 0 or not self._lag:
            return _newest
        at = now - behind * self._lag

        def visible(versions: list[Version]) -> Version:
            return next(version for version in reversed(versions) if version.at <= at)

        return visible

    # Writing

    def _write(self, operation: str, each: Write, now: float) -> dict[str, Any]:
        before = self._latest(each.key, now)
        if not _holds(each, before):
            raise ConditionFailed(operation, _told(each, before))
        after = _outcome(each, before)
        self._commit(each.key, after, now, now)
        attributes = _returned(each, before.item, after.item)
        return {"Attributes": attributes} if attributes else {}

    def _transact(self, request: Request, now: float, window: float) -> dict[str, Any]:
        actions = request.get("TransactItems")
        writes = transaction(actions)
        token = request.get("ClientRequestToken")
        if token is not None and self._repeated(token, actions, now):
            return {}
        judged = [_judged(each, self._latest(each.key, now)) for each in writes]
        reasons = [one if isinstance(one, Reason) else Reason("None", None) for one in judged]
        if any(reason.code != "None" for reason in reasons):
            # Only a failed condition is an expected error; the client treats all others as bugs.
            if any(reason.code == "ConditionalCheckFailed" for reason in reasons):
                raise TransactionCanceled("TransactWriteItems", tuple(reasons))
            code = "TransactionCanceledException"
            raise Refused("TransactWriteItems", code, ", ".join(each.code for each in reasons))
        for each, after in zip(writes, judged, strict=True):
            if isinstance(after, Outcome) and each.action != "ConditionCheck":
                delay = max(0.0, self._chance.random() * 2 - 1) * window
                self._commit(each.key, after, now, now + delay)
            elif isinstance(after, Outcome):
                self._units += max(1, ceil(after.size / 1024))
        self._units *= 2
        if token is not None:
            self._tokens[token] = (now, actions)
        return {}

    def _repeated(self, token: str, actions: object, now: float) -> bool:
        at, known = self._tokens.get(token, (0.0, None))
        if known is None or now - at > TOKEN_SECONDS:
            return False
        if known != actions:
            code = "IdempotentParameterMismatchException"
            raise Refused("TransactWriteItems", code, "the token stands for another transaction")
        return True

    # Storing

    def _versions(self, target: Key) -> list[Version]:
        partition = self._partitions.get(target[0])
        return (partition.slots.get(target[1]) if partition else None) or [NOTHING]

    def _latest(self, target: Key, now: float) -> Version:
        version = self._versions(target)[-1]
        # A query sees everything that an earlier call has returned.
        version.seen = min(version.seen, now)
        return version

    def _commit(self, target: Key, after: Outcome, now: float, seen: float) -> None:
        self._discard_old_versions(now)
        name, sort = target
        partition = self._partitions.get(name)
        versions = partition.slots.get(sort) if partition else None
        before = versions[-1] if versions else NOTHING
        self._units += _write_units(before, after)
        if before.item is None and after.item is None:
            return
        if partition is None:
            partition = self._partitions[name] = Partition()
        if versions is None:
            versions = partition.slots[sort] = [NOTHING]
            insort(partition.order, sort)
        versions.append(Version(after.item, after.size, now, seen))
        while versions[1].at <= now - self._kept:
            del versions[0]
        if after.item is None:
            self._graves.append((now, target))
        elif "g" in after.item and "d" in after.item:
            self._index.setdefault(after.item["g"]["S"], {})[target] = versions
        if after.item != before.item:
            self.changes.append(Change(now, target, before.item, after.item))

    def _discard_old_versions(self, now: float) -> None:
        """Discard versions that no read can return any more."""
        while self._graves and self._graves[0][0] < now - self._kept:
            at, (name, sort) = self._graves.popleft()
            partition = self._partitions[name]
            versions = partition.slots.get(sort)
            if versions is None or versions[-1].item is not None or versions[-1].at != at:
                continue
            for index in self._index.values():
                index.pop((name, sort), None)
            del partition.slots[sort]
            del partition.order[bisect_left(partition.order, sort)]

    # Requests

    def _check(self, operation: str, request: Request) -> None:
        parameters = PARAMETERS.get(operation)
        if parameters is None:
            raise Refused(operation, "UnknownOperationException", "not modelled")
        check_parameters(request, parameters)
        self._check_name(operation, request.get("TableName"))
        if request.get("ReturnConsumedCapacity", "NONE") not in ("NONE", "TOTAL"):
            raise Invalid("only NONE and TOTAL are modelled for ReturnConsumedCapacity")

    def _check_name(self, operation: str, name: str | None) -> None:
        if self._name is not None and name not in (None, self._name):
            raise Refused(operation, "ResourceNotFoundException", f"no such table: {name}")


def _newest(versions: list[Version]) -> Version:
    return versions[-1]


def _seen_at(now: float) -> Visible:
    def visible(versions: list[Version]) -> Version:
        newest = versions[-1]
        if newest.seen <= now:
            return newest
        return next(version for version in reversed(versions) if version.seen <= now)

    return visible


def _span(order: Sequence[Any], comparison: str, bounds: Sequence[Any]) -> tuple[int, int]:
    """The range of a sorted sequence that satisfies the comparison."""
    if not comparison:
        return 0, len(order)
    low = high = bounds[0]
    if comparison == "BETWEEN":
        high = bounds[1]
    if comparison == "begins_with":
        width = len(low)
        return bisect_left(order, low), bisect_right(order, low, key=lambda sort: sort[:width])
    begin = bisect_right(order, low) if comparison == ">" else bisect_left(order, low)
    end = bisect_left(order, high) if comparison == "<" else bisect_right(order, high)
    return 0 if comparison in ("<", "<=") else begin, (
        len(order) if comparison in (">", ">=") else end
    )


def _projected(item: Item, projected: Projection | None) -> Item:
    if projected is None:
        return dict(item)
    return {name: item[name] for name in projected.attributes if name in item}


def _holds(each: Write, before: Version) -> bool:
    return each.test is None or each.test(before.item or {}, each.values)


def _told(each: Write, before: Version) -> Item | None:
    return dict(before.item) if each.tells and before.item is not None else None


def _outcome(each: Write, before: Version) -> Outcome:
    match each.action:
        case "Put":
            return Outcome(each.item, each.size)
        case "Delete":
            return Outcome(None, 0)
        case "ConditionCheck":
            return Outcome(before.item, before.size)
    item = before.item
    if item is None:
        item = {"p": {"S": each.key[0]}, "s": {"S": each.key[1]}}
    if each.update is not None:
        item = each.update.apply(item, each.values)
    item, size = validate_item(item)
    check_item(item, size)
    return Outcome(item, size)


def _judged(each: Write, before: Version) -> Outcome | Reason:
    try:
        if _holds(each, before):
            return _outcome(each, before)
        return Reason("ConditionalCheckFailed", _told(each, before))
    except Invalid:
        return Reason("ValidationError", None)


def _returned(each: Write, before: Item | None, after: Item | None) -> Item:
    item = (after if each.returned.endswith("NEW") else before) or {}
    if each.returned == "NONE":
        return {}
    if each.returned.startswith("ALL"):
        return dict(item)
    targets = each.update.targets if each.update is not None else frozenset()
    return {name: value for name, value in item.items() if name in targets}


def _read_units(size: int, consistent: bool) -> float:
    return max(1, ceil(size / 4096)) * (1.0 if consistent else 0.5)


def _write_units(before: Version, after: Outcome) -> float:
    """The write units of the item, and of its index entry if that changes."""
    entries = [_index_key(before.item), _index_key(after.item)]
    changed = 0 if entries[0] == entries[1] else sum(entry is not None for entry in entries)
    return max(1, ceil(max(before.size, after.size) / 1024)) + changed


def _index_key(item: Mapping[str, Any] | None) -> tuple[str, str] | None:
    if item is None or "g" not in item or "d" not in item:
        return None
    return item["g"]["S"], item["d"]["N"]
