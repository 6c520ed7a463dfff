"""Validates requests as strictly as DynamoDB does before it reads any item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from devtools.dynamodb_simulator.expressions import (
    Condition,
    KeyCondition,
    KeyTest,
    Projection,
    Test,
    Update,
    Values,
    condition,
    key_condition,
    projection,
    update,
)
from devtools.dynamodb_simulator.values import (
    Invalid,
    Item,
    comparable,
    number,
    validate_item,
    validate_value,
)

Request = Mapping[str, Any]
Key = tuple[str, str]
Parsed = TypeVar("Parsed", Condition, KeyCondition, Update, Projection)

INDEX = "due"
INDEX_ENTRY = ("p", "s", "g", "d")
ITEM_BYTES = 400 * 1024
HASH_BYTES = 2048
RANGE_BYTES = 1024
TRANSACTION_ITEMS = 100
TRANSACTION_BYTES = 4 * 1024 * 1024
BATCH_WRITES = 25

EXPRESSED = {"TableName", "ExpressionAttributeNames", "ExpressionAttributeValues"}
GUARDED = EXPRESSED | {"ConditionExpression", "ReturnValuesOnConditionCheckFailure"}
ANSWERED = {"ReturnValues", "ReturnConsumedCapacity"}
ACTIONS: Mapping[str, set[str]] = {
    "Put": GUARDED | {"Item"},
    "Update": GUARDED | {"Key", "UpdateExpression"},
    "Delete": GUARDED | {"Key"},
    "ConditionCheck": GUARDED | {"Key"},
}
PARAMETERS: Mapping[str, set[str]] = {
    "GetItem": {
        "TableName", "Key", "ConsistentRead", "ProjectionExpression", "ExpressionAttributeNames",
        "ReturnConsumedCapacity",
    },
    "PutItem": ACTIONS["Put"] | ANSWERED,
    "UpdateItem": ACTIONS["Update"] | ANSWERED,
    "DeleteItem": ACTIONS["Delete"] | ANSWERED,
    "Query": EXPRESSED | {
        "IndexName", "KeyConditionExpression", "FilterExpression", "ProjectionExpression", "Limit",
        "ScanIndexForward", "ExclusiveStartKey", "ConsistentRead", "ReturnConsumedCapacity",
    },
    "BatchWriteItem": {"RequestItems", "ReturnConsumedCapacity"},
    "TransactWriteItems": {"TransactItems", "ClientRequestToken", "ReturnConsumedCapacity"},
}  # fmt: skip
RETURNED: Mapping[str, set[str]] = {
    "Put": {"NONE", "ALL_OLD"},
    "Delete": {"NONE", "ALL_OLD"},
    "Update": {"NONE", "ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"},
}


class Write(NamedTuple):
    """An action on one item, validated as far as possible without the item."""

    action: str
    key: Key
    item: Item | None
    size: int
    update: Update | None
    test: Test | None
    values: Values
    tells: bool
    """Whether a failed condition returns the item."""
    returned: str


class Query(NamedTuple):
    indexed: bool
    consistent: bool
    forward: bool
    limit: int | None
    partition: str
    comparison: str
    """Conditions on the range key; empty for the whole partition."""
    bounds: Sequence[Any]
    start: Any
    """The key right before the first item to return."""
    test: Test | None
    values: Values
    projected: Projection | None


def key(given: object) -> Key:
    if not isinstance(given, Mapping) or given.keys() != {"p", "s"}:
        raise Invalid("The provided key element does not match the schema")
    return _text(given["p"], HASH_BYTES), _text(given["s"], RANGE_BYTES)


def check_item(item: Item, size: int) -> None:
    if size > ITEM_BYTES:
        raise Invalid("Item size has exceeded the maximum allowed size")
    if "g" in item:
        _text(item["g"], HASH_BYTES)
    if "d" in item and "N" not in item["d"]:
        raise Invalid("Type mismatch for Index Key d")


def write(action: str, request: Request) -> Write:
    item, size = None, 0
    if action == "Put":
        item, size = validate_item(request.get("Item"))
        check_item(item, size)
        target = key({name: item[name] for name in ("p", "s") if name in item})
    else:
        target = key(request.get("Key"))
    expressed = Expressed(request)
    guard = expressed.condition("ConditionExpression")
    changes = expressed.update()
    expressed.check()
    if changes is not None and {"p", "s"} & changes.targets:
        raise Invalid("Cannot update attribute. This attribute is part of the key")
    if action == "ConditionCheck" and guard is None:
        raise Invalid("a ConditionCheck needs a ConditionExpression")
    told = request.get("ReturnValuesOnConditionCheckFailure", "NONE")
    if told not in ("NONE", "ALL_OLD"):
        raise Invalid(f"ReturnValuesOnConditionCheckFailure is invalid: {told}")
    returned = request.get("ReturnValues", "NONE")
    if returned != "NONE" and returned not in RETURNED[action]:
        raise Invalid(f"Return values set to invalid value: {returned}")
    test = guard.test if guard else None
    tells = told == "ALL_OLD"
    return Write(action, target, item, size, changes, test, expressed.values, tells, returned)


def transaction(actions: object) -> list[Write]:
    if not isinstance(actions, Sequence) or not 0 < len(actions) <= TRANSACTION_ITEMS:
        raise Invalid(f"a transaction has 1 to {TRANSACTION_ITEMS} items")
    writes = []
    for entry in actions:
        if len(entry) != 1 or not entry.keys() <= ACTIONS.keys():
            raise Invalid(f"TransactItems can only contain one of {', '.join(ACTIONS)}")
        ((action, request),) = entry.items()
        check_parameters(request, ACTIONS[action])
        writes.append(write(action, request))
    if len({each.key for each in writes}) < len(writes):
        raise Invalid("Transaction request cannot include multiple operations on one item")
    if sum(each.size for each in writes) > TRANSACTION_BYTES:
        raise Invalid("the items of the transaction are larger than 4 MB together")
    return writes


def batch(request: Request) -> Iterator[tuple[str, Write, Request]]:
    """The table, the parsed write and the original one, for each write."""
    tables = request.get("RequestItems")
    if not isinstance(tables, Mapping) or len(tables) != 1:
        raise Invalid("RequestItems has to name the table, and only it")
    ((name, entries),) = tables.items()
    if not 0 < len(entries) <= BATCH_WRITES:
        raise Invalid(f"a batch has 1 to {BATCH_WRITES} writes")
    seen: set[Key] = set()
    for entry in entries:
        if len(entry) != 1 or not entry.keys() <= {"PutRequest", "DeleteRequest"}:
            raise Invalid("a batch is made of PutRequest and DeleteRequest")
        ((kind, inner),) = entry.items()
        action, content = ("Put", "Item") if kind == "PutRequest" else ("Delete", "Key")
        check_parameters(inner, {content})
        each = write(action, inner)
        if each.key in seen:
            raise Invalid("Provided list of item keys contains duplicates")
        seen.add(each.key)
        yield name, each, entry


def query(request: Request) -> Query:
    index = request.get("IndexName")
    if index not in (None, INDEX):
        raise Invalid(f"The table does not have the specified index: {index}")
    expressed = Expressed(request)
    keys = expressed.key_condition()
    filtered = expressed.condition("FilterExpression")
    projected = expressed.projection()
    expressed.check()
    consistent = flag(request, "ConsistentRead", default=False)
    if index:
        _check_index(consistent, projected, filtered)
    names = ("g", "d") if index else ("p", "s")
    if filtered is not None and filtered.used.attributes & {*names}:
        raise Invalid("Filter Expression can only contain non-primary key attributes")
    limit = request.get("Limit")
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise Invalid("Limit must be greater than or equal to 1")
    hashed, ranged = _split(keys, names)
    partition = expressed.values[hashed.values[0]]
    bounds = [expressed.values[name] for name in ranged.values] if ranged else []
    kind = "N" if index else "S"
    if "S" not in partition or any(kind not in bound for bound in bounds):
        raise Invalid("Condition parameter type does not match schema type")
    if any(each == {"S": ""} for each in (partition, *bounds)):
        raise Invalid("a key value must not be empty")
    return Query(
        indexed=bool(index),
        consistent=consistent,
        forward=flag(request, "ScanIndexForward", default=True),
        limit=limit,
        partition=partition["S"],
        comparison=ranged.comparison if ranged else "",
        bounds=_bounds(ranged, bounds),
        start=_start(request.get("ExclusiveStartKey"), names, partition["S"]),
        test=filtered.test if filtered else None,
        values=expressed.values,
        projected=projected,
    )


def flag(request: Request, parameter: str, *, default: bool) -> bool:
    value = request.get(parameter, default)
    if not isinstance(value, bool):
        raise Invalid(f"{parameter} is true or false")
    return value


def check_parameters(request: Request, allowed: set[str]) -> None:
    unknown = request.keys() - allowed
    if unknown:
        raise Invalid(f"not modelled or not valid here: {', '.join(sorted(unknown))}")


class Expressed:
    """The expressions of a request, with the names and values that they refer to."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._names = request.get("ExpressionAttributeNames")
        values = request.get("ExpressionAttributeValues")
        if self._names == {} or values == {}:
            raise Invalid("ExpressionAttributeNames and -Values must not be empty")
        self.values: Values = (
            {name: validate_value(value)[0] for name, value in values.items()} if values else {}
        )
        self._key = tuple(self._names.items()) if self._names else ()
        self._used_names: set[str] = set()
        self._used_values: set[str] = set()

    def condition(self, parameter: str) -> Condition | None:
        text = self._request.get(parameter)
        return None if text is None else self._use(condition(text, self._key))

    def key_condition(self) -> KeyCondition:
        text = self._request.get("KeyConditionExpression")
        if text is None:
            raise Invalid("KeyConditionExpression must be specified in the request")
        return self._use(key_condition(text, self._key))

    def update(self) -> Update | None:
        text = self._request.get("UpdateExpression")
        return None if text is None else self._use(update(text, self._key))

    def projection(self) -> Projection | None:
        text = self._request.get("ProjectionExpression")
        return None if text is None else self._use(projection(text, self._key))

    def check(self) -> None:
        """Check that all names and values are defined, and that all of them are used."""
        if self.values.keys() != self._used_values:
            different = ", ".join(sorted(self.values.keys() ^ self._used_values))
            raise Invalid(f"attribute values not defined or unused in expressions: {different}")
        if self._names and self._names.keys() != self._used_names:
            different = ", ".join(sorted(self._names.keys() ^ self._used_names))
            raise Invalid(f"attribute names unused in expressions: {different}")

    def _use(self, parsed: Parsed) -> Parsed:
        self._used_names |= parsed.used.names
        self._used_values |= parsed.used.values
        return parsed


def _text(value: Any, longest: int) -> str:
    if not isinstance(value, Mapping) or value.keys() != {"S"} or not isinstance(value["S"], str):
        raise Invalid("Type mismatch for key: expected S")
    text = value["S"]
    if not text:
        raise Invalid("The AttributeValue for a key attribute cannot contain an empty string value")
    if len(text) > longest // 4 and len(text.encode()) > longest:
        raise Invalid(f"Size of a key has exceeded the maximum size limit of {longest} bytes")
    return text


def _check_index(
    consistent: bool, projected: Projection | None, filtered: Condition | None
) -> None:
    if consistent:
        raise Invalid("Consistent reads are not supported on global secondary indexes")
    asked = {*(projected.attributes if projected else ())}
    asked |= filtered.used.attributes if filtered else set()
    if asked - {*INDEX_ENTRY}:
        raise Invalid(f"Global secondary index {INDEX} does not project all of {sorted(asked)}")


def _split(keys: KeyCondition, names: tuple[str, str]) -> tuple[KeyTest, KeyTest | None]:
    hashed = [test for test in keys.tests if test.attribute == names[0]]
    ranged = [test for test in keys.tests if test.attribute == names[1]]
    if len(hashed) + len(ranged) < len(keys.tests):
        raise Invalid("Query condition missed key schema element")
    if len(hashed) != 1 or hashed[0].comparison != "=" or len(ranged) > 1:
        raise Invalid("Query key condition not supported")
    return hashed[0], ranged[0] if ranged else None


def _bounds(ranged: KeyTest | None, values: Sequence[Mapping[str, str]]) -> list[Any]:
    if ranged is None:
        return []
    bounds = [comparable({**value})[1] for value in values]
    if ranged.comparison == "BETWEEN" and bounds[0] > bounds[1]:
        raise Invalid("The BETWEEN operator requires upper bound >= lower bound")
    if ranged.comparison == "begins_with" and "N" in values[0]:
        raise Invalid("Incorrect operand type for operator or function: begins_with, N")
    return bounds


def _start(given: Any, names: tuple[str, str], partition: str) -> Any:
    if given is None:
        return None
    expected = {"p", "s", *names}
    if not isinstance(given, Mapping) or given.keys() != expected:
        raise Invalid("The provided starting key is invalid")
    if given[names[0]] != {"S": partition}:
        raise Invalid("The provided starting key is outside query boundaries")
    target = key({"p": given["p"], "s": given["s"]})
    if names[1] == "s":
        return target[1]
    if "N" not in given["d"]:
        raise Invalid("The provided starting key is invalid")
    return number(given["d"]["N"]), *target
