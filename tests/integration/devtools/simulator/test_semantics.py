"""The semantics of DynamoDB's calls. Nothing here knows the engine that answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pytest

from tailrace.aws.client.failures import ConditionFailed, Reason, Refused, TransactionCanceled

NAME = "tailrace"

Item = dict[str, Any]


class Table(Protocol):
    async def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]: ...


def key(s: str, p: str = "chain") -> Item:
    return {"p": {"S": p}, "s": {"S": s}}


def typed(value: object) -> Item:
    match value:
        case bool():
            return {"BOOL": value}
        case int() | float():
            return {"N": str(value)}
        case list():
            return {"L": [typed(element) for element in value]}
        case dict():
            return {"M": item(**value)}
        case _:
            return {"S": value}


def item(**attributes: object) -> Item:
    return {name: typed(value) for name, value in attributes.items()}


def values(**given: object) -> Item:
    return {f":{name}": typed(value) for name, value in given.items()}


async def put(table: Table, s: str, p: str = "chain", **attributes: object) -> None:
    await table.call("PutItem", {"TableName": NAME, "Item": {**key(s, p), **item(**attributes)}})


async def get(table: Table, s: str, p: str = "chain", **more: Any) -> Item | None:
    request = {"TableName": NAME, "Key": key(s, p), "ConsistentRead": True, **more}
    return (await table.call("GetItem", request)).get("Item")


async def update(table: Table, s: str, expression: str, given: Item, **more: Any) -> Item:
    request = {"TableName": NAME, "Key": key(s), "UpdateExpression": expression, **more}
    if given:
        request["ExpressionAttributeValues"] = given
    return await table.call("UpdateItem", request)


async def query(table: Table, expression: str, given: Item, **more: Any) -> dict[str, Any]:
    request = {
        "TableName": NAME,
        "KeyConditionExpression": expression,
        "ExpressionAttributeValues": given,
        **more,
    }
    return await table.call("Query", request)


def sorts(answer: dict[str, Any]) -> list[str]:
    return [found["s"]["S"] for found in answer["Items"]]


async def refused(table: Table, operation: str, request: Mapping[str, Any]) -> None:
    with pytest.raises(Refused) as caught:
        await table.call(operation, {"TableName": NAME, **request})
    assert caught.value.code == "ValidationException", caught.value


async def holds(table: Table, s: str, condition: str, given: Item, **more: Any) -> bool:
    """Whether a condition is true of an item."""
    check = {"TableName": NAME, "Key": key(s), "ConditionExpression": condition, **more}
    if given:
        check["ExpressionAttributeValues"] = given
    try:
        await table.call("TransactWriteItems", {"TransactItems": [{"ConditionCheck": check}]})
    except TransactionCanceled as canceled:
        return canceled.reasons != (Reason("ConditionalCheckFailed", None),)
    return True


# Items


async def test_a_put_item_can_be_read(table: Table) -> None:
    assert await get(table, "a") is None
    await put(table, "a", text="é", n=1, list=[1, "two", {"three": 3}], flag=True)
    assert await get(table, "a") == {
        **key("a"),
        "text": {"S": "é"},
        "n": {"N": "1"},
        "list": {"L": [{"N": "1"}, {"S": "two"}, {"M": {"three": {"N": "3"}}}]},
        "flag": {"BOOL": True},
    }


async def test_a_put_replaces_the_whole_item(table: Table) -> None:
    await put(table, "a", x=1, y=2)
    await put(table, "a", x=3)
    assert await get(table, "a") == {**key("a"), "x": {"N": "3"}}


async def test_a_put_returns_the_old_item(table: Table) -> None:
    request = {"TableName": NAME, "Item": key("a"), "ReturnValues": "ALL_OLD"}
    assert await table.call("PutItem", request) == {}
    answer = await table.call("PutItem", {**request, "Item": {**key("a"), "x": {"N": "1"}}})
    assert answer["Attributes"] == key("a")


async def test_numbers_are_written_one_way(table: Table) -> None:
    written = {"a": "1.50", "b": "-0", "c": "1E3", "d": "007", "e": "0.001"}
    numbers = {name: {"N": text} for name, text in written.items()}
    await table.call("PutItem", {"TableName": NAME, "Item": {**key("a"), **numbers}})
    found = await get(table, "a")
    assert found is not None
    assert [found[name]["N"] for name in "abcde"] == ["1.5", "0", "1000", "7", "0.001"]


async def test_binary_values_come_back_as_they_were(table: Table) -> None:
    body = {"b": {"B": "aGVsbG8="}, "e": {"B": ""}, "s": {"S": "a"}, "p": {"S": "chain"}}
    await table.call("PutItem", {"TableName": NAME, "Item": body})
    assert await get(table, "a") == body


async def test_a_delete_of_nothing_succeeds(table: Table) -> None:
    assert await table.call("DeleteItem", {"TableName": NAME, "Key": key("a")}) == {}


async def test_a_delete_returns_the_old_item(table: Table) -> None:
    await put(table, "a", x=1)
    request = {"TableName": NAME, "Key": key("a"), "ReturnValues": "ALL_OLD"}
    answer = await table.call("DeleteItem", request)
    assert answer["Attributes"] == {**key("a"), "x": {"N": "1"}}
    assert await get(table, "a") is None


async def test_a_projection_returns_only_the_named_attributes(table: Table) -> None:
    await put(table, "a", x=1, y=2, at=3)
    names = {"#at": "at"}
    found = await get(table, "a", ProjectionExpression="x, #at, z", ExpressionAttributeNames=names)
    assert found == item(x=1, at=3)


@pytest.mark.parametrize(
    "bad",
    [
        {"s": {"S": "a"}},
        {"p": {"S": "chain"}},
        {"p": {"S": ""}, "s": {"S": "a"}},
        {"p": {"S": "chain"}, "s": {"S": ""}},
        {"p": {"S": "chain"}, "s": {"N": "1"}},
        {"p": {"S": "c" * 2049}, "s": {"S": "a"}},
        {"p": {"S": "chain"}, "s": {"S": "é" * 513}},
        {**key("a"), "g": {"N": "1"}},
        {**key("a"), "g": {"S": ""}, "d": {"N": "1"}},
        {**key("a"), "d": {"S": "1"}},
        {**key("a"), "n": {"N": "one"}},
        {**key("a"), "n": {"N": "1" * 39}},
        {**key("a"), "x": {"S": "x" * 409_600}},
    ],
)
async def test_an_item_that_cannot_be_is_refused(table: Table, bad: Item) -> None:
    await refused(table, "PutItem", {"Item": bad})


async def test_an_item_of_just_400_kb_is_taken(table: Table) -> None:
    room = 400 * 1024 - len("pchainsax")
    await put(table, "a", x="x" * room)
    await refused(table, "PutItem", {"Item": {**key("a"), "x": {"S": "x" * (room + 1)}}})


@pytest.mark.parametrize("bad", [{}, {"s": {"S": "a"}}, {**key("a"), "x": {"S": "more"}}])
async def test_a_key_has_both_parts_and_nothing_else(table: Table, bad: Item) -> None:
    await refused(table, "GetItem", {"Key": bad})
    await refused(table, "DeleteItem", {"Key": bad})
    await refused(table, "UpdateItem", {"Key": bad})


# Conditions


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("attribute_exists(n)", True),
        ("attribute_exists(absent)", False),
        ("attribute_not_exists(n)", False),
        ("attribute_not_exists(absent)", True),
        ("n = :five", True),
        ("n = :six", False),
        ("n <> :six", True),
        ("n <> :five", False),
        ("n < :six", True),
        ("n < :five", False),
        ("n <= :five", True),
        ("n > :five", False),
        ("n >= :five", True),
        ("n < :ten", True),
        ("t < :ten", False),
        ("n BETWEEN :five AND :six", True),
        ("n BETWEEN :six AND :ten", False),
        ("t BETWEEN :five AND :six", False),
        ("begins_with(t, :he)", True),
        ("begins_with(t, :llo)", False),
        ("begins_with(absent, :he)", False),
        ("absent = :five", False),
        ("absent <> :five", True),
        ("absent < :five", False),
        ("absent >= :five", False),
        ("NOT absent >= :five", True),
        ("absent BETWEEN :five AND :six", False),
        ("n = :he", False),
        ("n <> :he", True),
        ("n < :he", False),
        ("n = m", True),
        ("n < k", True),
        ("NOT n = :five", False),
        ("n = :six OR n = :five AND t = :llo", False),
        ("(n = :five OR n = :six) AND begins_with(t, :he)", True),
        ("n = :five OR n = :six AND t = :llo", True),
        ("NOT (n = :six OR n = :ten)", True),
        ("NOT n = :six AND n = :five", True),
        ("not n = :six and n between :five and :six or n = :ten", True),
        ("#t = :hello", True),
    ],
)
async def test_a_condition(table: Table, condition: str, expected: bool) -> None:
    await put(table, "a", n=5, m=5, k=7, t="hello")
    known = values(five=5, six=6, ten=10, he="he", llo="llo", hello="hello")
    tokens = condition.replace("(", " ").replace(")", " ").replace(",", " ").split()
    given = {name: value for name, value in known.items() if name in tokens}
    more = {"ExpressionAttributeNames": {"#t": "t"}} if "#t" in condition else {}
    assert await holds(table, "a", condition, given, **more) is expected


async def test_a_number_equals_itself_however_it_is_written(table: Table) -> None:
    await put(table, "a", n=10)
    assert await holds(table, "a", "n = :n", {":n": {"N": "10.0"}})
    assert await holds(table, "a", "n < :n", {":n": {"N": "1e2"}})


async def test_binary_values_compare_by_their_bytes(table: Table) -> None:
    """Their base64 would sort the other way round."""
    low, high = {"B": "Ew=="}, {"B": "/w=="}
    await table.call("PutItem", {"TableName": NAME, "Item": {**key("a"), "b": low}})
    assert await holds(table, "a", "b < :high", {":high": high})
    assert not await holds(table, "a", "b > :high", {":high": high})


async def test_conditions_on_an_item_that_is_not_there(table: Table) -> None:
    assert await holds(table, "a", "attribute_not_exists(s)", {})
    assert not await holds(table, "a", "attribute_exists(s)", {})
    assert not await holds(table, "a", "n = :n", values(n=1))
    assert await holds(table, "a", "n <> :n", values(n=1))
    assert await holds(table, "a", "attribute_not_exists(s) OR n = :n", values(n=1))


async def test_a_conditional_put_returns_the_existing_item(table: Table) -> None:
    request = {
        "TableName": NAME,
        "Item": {**key("a"), **item(n=1)},
        "ConditionExpression": "attribute_not_exists(s)",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    await table.call("PutItem", request)
    with pytest.raises(ConditionFailed) as caught:
        await table.call("PutItem", {**request, "Item": {**key("a"), **item(n=2)}})
    assert caught.value.item == {**key("a"), **item(n=1)}
    assert await get(table, "a") == {**key("a"), **item(n=1)}


async def test_a_failed_condition_returns_the_item_only_on_request(table: Table) -> None:
    await put(table, "a", n=1)
    request = {"TableName": NAME, "Key": key("a"), "ConditionExpression": "attribute_exists(x)"}
    with pytest.raises(ConditionFailed) as caught:
        await table.call("DeleteItem", request)
    assert caught.value.item is None
    request = {**request, "Key": key("b"), "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    with pytest.raises(ConditionFailed) as caught:
        await table.call("DeleteItem", request)
    assert caught.value.item is None, "there is none"


@pytest.mark.parametrize(
    ("condition", "more"),
    [
        ("", {}),
        ("n =", {}),
        ("n = :n", {}),
        ("n = :n)", {"ExpressionAttributeValues": values(n=1)}),
        ("(n = :n", {"ExpressionAttributeValues": values(n=1)}),
        ("n = :n", {"ExpressionAttributeValues": values(n=1, unused=2)}),
        ("#n = :n", {"ExpressionAttributeValues": values(n=1)}),
        (
            "n = :n",
            {
                "ExpressionAttributeValues": values(n=1),
                "ExpressionAttributeNames": {"#unused": "x"},
            },
        ),
        ("attribute_exists(x)", {"ExpressionAttributeValues": {}}),
        ("attribute_exists(x)", {"ExpressionAttributeNames": {}}),
        ("attribute_exists(at)", {}),
        ("attribute_exists(status)", {}),
        ("no_such_function(x)", {}),
        ("n = :n n = :n", {"ExpressionAttributeValues": values(n=1)}),
        ("n BETWEEN :b AND :a", {"ExpressionAttributeValues": values(a=1, b=2)}),
        ("n < :n", {"ExpressionAttributeValues": {":n": {"BOOL": True}}}),
        ("begins_with(t, :n)", {"ExpressionAttributeValues": values(n=1)}),
    ],
)
async def test_a_condition_that_makes_no_sense_is_refused(
    table: Table, condition: str, more: dict[str, Any]
) -> None:
    await put(table, "a", n=5, t="text")
    request = {"Item": key("a"), "ConditionExpression": condition, **more}
    await refused(table, "PutItem", request)


async def test_values_without_an_expression_are_refused(table: Table) -> None:
    await refused(table, "PutItem", {"Item": key("a"), "ExpressionAttributeValues": values(n=1)})


async def test_unknown_parameters_are_refused(table: Table) -> None:
    with pytest.raises(Refused):
        await table.call("Dance", {"TableName": NAME})


# Updates


async def test_an_update_creates_the_item(table: Table) -> None:
    await update(table, "a", "SET x = :x", values(x=1))
    assert await get(table, "a") == {**key("a"), **item(x=1)}
    await table.call("UpdateItem", {"TableName": NAME, "Key": key("b")})
    assert await get(table, "b") == key("b")


async def test_an_update_sets_adds_and_removes(table: Table) -> None:
    await put(table, "a", x=1, y=2, z=3)
    given = values(x="new", one=1)
    await update(table, "a", "SET x = :x, w = y REMOVE z, absent ADD v :one, y :one", given)
    assert await get(table, "a") == {**key("a"), **item(x="new", w=2, y=3, v=1)}


async def test_an_update_reads_the_item_as_it_was(table: Table) -> None:
    await put(table, "a", x=1, y=2)
    await update(table, "a", "SET x = y, y = x + :ten", values(ten=10))
    assert await get(table, "a") == {**key("a"), **item(x=2, y=11)}


async def test_a_default_is_used_only_when_there_is_nothing(table: Table) -> None:
    await put(table, "a", x=1)
    expression = "SET x = if_not_exists(x, :d) + :one, y = if_not_exists(y, :d) - :one"
    await update(table, "a", expression, values(d=10, one=1))
    assert await get(table, "a") == {**key("a"), **item(x=2, y=9)}


async def test_a_set_gets_its_elements_once(table: Table) -> None:
    one, two = {"SS": ["1"]}, {"SS": ["2", "1"]}
    await update(table, "a", "ADD x :x", {":x": one})
    assert await get(table, "a") == {**key("a"), "x": one}
    await update(table, "a", "ADD x :x", {":x": two})
    found = await get(table, "a")
    assert found is not None
    assert sorted(found["x"]["SS"]) == ["1", "2"]
    assert await holds(table, "a", "contains(x, :v)", {":v": {"S": "2"}})
    assert not await holds(table, "a", "contains(x, :v)", {":v": {"S": "3"}})
    assert await holds(table, "a", "NOT contains(y, :v)", {":v": {"S": "1"}})
    with pytest.raises(Refused):
        await update(table, "a", "ADD x :x", values(x=1))


async def test_a_counter_counts_from_zero_and_back(table: Table) -> None:
    await update(table, "a", "ADD v :n", values(n=2))
    await update(table, "a", "ADD v :n", values(n=-5))
    assert await get(table, "a") == {**key("a"), **item(v=-3)}


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("NONE", None),
        ("ALL_OLD", {**key("a"), **item(x=1, y=2)}),
        ("ALL_NEW", {**key("a"), **item(x=5, y=2)}),
        ("UPDATED_OLD", item(x=1)),
        ("UPDATED_NEW", item(x=5)),
    ],
)
async def test_an_update_returns_the_requested_attributes(
    table: Table, returned: str, expected: Item | None
) -> None:
    await put(table, "a", x=1, y=2)
    answer = await update(table, "a", "SET x = :x", values(x=5), ReturnValues=returned)
    assert answer.get("Attributes") == expected


async def test_an_update_keeps_its_condition(table: Table) -> None:
    guard = {
        "ConditionExpression": "v = :v",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    await put(table, "a", v=1)
    await update(table, "a", "SET v = :w", values(v=1, w=2), **guard)
    with pytest.raises(ConditionFailed) as caught:
        await update(table, "a", "SET v = :w", values(v=1, w=2), **guard)
    assert caught.value.item == {**key("a"), **item(v=2)}
    with pytest.raises(ConditionFailed):
        await update(table, "new", "SET v = :w", values(v=1, w=2), **guard)
    assert await get(table, "new") is None


@pytest.mark.parametrize(
    ("expression", "given"),
    [
        ("SET s = :x", values(x="b")),
        ("REMOVE p", {}),
        ("SET x = :x, x = :x", values(x=1)),
        ("SET x = :x REMOVE x", values(x=1)),
        ("SET x = :x SET y = :x", values(x=1)),
        ("SET x = absent", {}),
        ("SET x = y + :x", values(x="text")),
        ("ADD t :x", values(x=1)),
        ("ADD y :x", values(x="text")),
        ("SET x", {}),
        ("x = :x", values(x=1)),
        ("SET d = :x", values(x="no number")),
        ("SET x = :x", values(x="x" * 409_600)),
    ],
)
async def test_an_update_that_makes_no_sense_is_refused(
    table: Table, expression: str, given: Item
) -> None:
    await put(table, "a", y=1, t="text")
    request = {"Key": key("a"), "UpdateExpression": expression}
    if given:
        request["ExpressionAttributeValues"] = given
    await refused(table, "UpdateItem", request)
    assert await get(table, "a") == {**key("a"), **item(y=1, t="text")}


# Queries


async def test_a_partition_is_in_the_order_of_its_bytes(table: Table) -> None:
    names = ["b", "a", "B", "~", "é", "\U0001f600", "\uffff", "10", "9", "a0"]
    for name in names:
        await put(table, name)
    await put(table, "c", p="other")
    answer = await query(table, "p = :p", values(p="chain"))
    assert sorts(answer) == sorted(names, key=str.encode)
    assert answer["Count"] == answer["ScannedCount"] == len(names)
    assert "LastEvaluatedKey" not in answer
    answer = await query(table, "p = :p", values(p="chain"), ScanIndexForward=False)
    assert sorts(answer) == sorted(names, key=str.encode, reverse=True)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("s = :b", "b"),
        ("s < :b", "a aa ab"),
        ("s <= :b", "a aa ab b"),
        ("s > :b", "ba c"),
        ("s >= :b", "b ba c"),
        ("s BETWEEN :aa AND :b", "aa ab b"),
        ("begins_with(s, :a)", "a aa ab"),
        ("begins_with(s, :aa)", "aa"),
        ("begins_with(s, :x)", ""),
    ],
)
async def test_a_range(table: Table, condition: str, expected: str) -> None:
    for name in ("c", "ba", "b", "ab", "aa", "a"):
        await put(table, name)
    known = values(a="a", aa="aa", b="b", x="x")
    tokens = condition.replace(")", " ").split()
    given = {":p": {"S": "chain"}} | {name: known[name] for name in tokens if name in known}
    for text in (f"p = :p AND {condition}", f"{condition} and (p = :p)"):
        assert sorts(await query(table, text, given)) == expected.split()
        backwards = await query(table, text, given, ScanIndexForward=False)
        assert sorts(backwards) == expected.split()[::-1]


@pytest.mark.parametrize("forward", [True, False])
async def test_pages_follow_each_other(table: Table, forward: bool) -> None:
    for number in range(7):
        await put(table, f"{number}")
    pages: list[list[str]] = []
    more: dict[str, Any] = {}
    while True:
        answer = await query(
            table, "p = :p AND s > :s", values(p="chain", s="0"),
            Limit=2, ScanIndexForward=forward, **more,
        )  # fmt: skip
        pages.append(sorts(answer))
        if "LastEvaluatedKey" not in answer:
            break
        assert answer["LastEvaluatedKey"] == key(pages[-1][-1])
        more = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
    expected = [["1", "2"], ["3", "4"], ["5", "6"], []]
    if not forward:
        expected = [["6", "5"], ["4", "3"], ["2", "1"], []]
    assert pages == expected, "a full page says that there may be more"


async def test_a_page_may_start_after_a_deleted_key(table: Table) -> None:
    for name in ("a", "c"):
        await put(table, name)
    answer = await query(table, "p = :p", values(p="chain"), ExclusiveStartKey=key("b"))
    assert sorts(answer) == ["c"]


async def test_a_page_ends_at_a_megabyte(table: Table) -> None:
    for number in range(4):
        await put(table, f"{number}", body="x" * 390_000)
    answer = await query(table, "p = :p", values(p="chain"))
    assert 1 < answer["Count"] < 4
    more = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
    rest = await query(table, "p = :p", values(p="chain"), **more)
    assert sorts(answer) + sorts(rest) == ["0", "1", "2", "3"]


async def test_the_limit_is_applied_before_the_filter(table: Table) -> None:
    for number in range(4):
        await put(table, f"{number}", even=number % 2)
    answer = await query(
        table, "p = :p", values(p="chain", n=1), FilterExpression="even = :n", Limit=1
    )
    assert (answer["Items"], answer["Count"], answer["ScannedCount"]) == ([], 0, 1)
    assert answer["LastEvaluatedKey"] == key("0")
    answer = await query(
        table, "p = :p", values(p="chain", n=1), FilterExpression="NOT even <> :n",
        ProjectionExpression="s",
    )  # fmt: skip
    assert answer["Items"] == [{"s": {"S": "1"}}, {"s": {"S": "3"}}]


@pytest.mark.parametrize(
    ("expression", "given", "more"),
    [
        ("s = :s", values(s="a"), {}),
        ("p > :p", values(p="a"), {}),
        ("p = :p AND s <> :s", values(p="a", s="a"), {}),
        ("p = :p OR s = :s", values(p="a", s="a"), {}),
        ("p = :p AND s > :a AND s < :b", values(p="a", a="a", b="b"), {}),
        ("p = :p AND x = :x", values(p="a", x="a"), {}),
        ("p = :p AND s = :s", values(p="a", s=1), {}),
        ("p = :p", values(p=1), {}),
        ("p = :p", values(p=""), {}),
        ("p = :p AND s BETWEEN :b AND :a", values(p="a", a="a", b="b"), {}),
        ("p = :p", values(p="a", unused=1), {}),
        ("p = :p", values(p="a"), {"Limit": 0}),
        ("p = :p", values(p="a"), {"IndexName": "nope"}),
        ("p = :p", values(p="a", s="a"), {"FilterExpression": "s = :s"}),
        ("p = :p", values(p="a"), {"ExclusiveStartKey": {"p": {"S": "a"}}}),
        ("p = :p", values(p="a"), {"ExclusiveStartKey": key("a", "other")}),
        ("g = :g", values(g="a"), {"IndexName": "due", "ConsistentRead": True}),
        ("g = :g", values(g="a"), {"IndexName": "due", "ProjectionExpression": "x"}),
        ("p = :p", values(p="a"), {"IndexName": "due"}),
    ],
)
async def test_invalid_queries_are_refused(
    table: Table, expression: str, given: Item, more: dict[str, Any]
) -> None:
    request = {"KeyConditionExpression": expression, "ExpressionAttributeValues": given, **more}
    await refused(table, "Query", request)


# The index


async def due(table: Table, expression: str = "g = :g", **more: Any) -> dict[str, Any]:
    given = {":g": {"S": "x"}} | more.pop("given", {})
    return await query(table, expression, given, IndexName="due", **more)


async def test_the_index_has_only_items_with_both_keys(table: Table) -> None:
    await put(table, "both", g="x", d=1, more="not projected")
    await put(table, "one", g="x")
    await put(table, "other", d=1)
    await put(table, "else", g="y", d=1)
    assert (await due(table))["Items"] == [{**key("both"), **item(g="x", d=1)}]


async def test_the_index_is_in_the_order_of_numbers(table: Table) -> None:
    for number in (10, 9, -1, 100, 2.5):
        await put(table, f"at {number}", p=f"p{number}", g="x", d=number)
    assert sorts(await due(table)) == ["at -1", "at 2.5", "at 9", "at 10", "at 100"]
    answer = await due(table, "g = :g AND d <= :d", given=values(d=10), ScanIndexForward=False)
    assert sorts(answer) == ["at 10", "at 9", "at 2.5", "at -1"]
    answer = await due(table, "g = :g AND d BETWEEN :a AND :b", given=values(a=0, b=9))
    assert sorts(answer) == ["at 2.5", "at 9"]


async def test_the_index_follows_the_items(table: Table) -> None:
    await put(table, "a", g="x", d=1)
    await put(table, "b", g="x", d=2)
    await put(table, "c", g="x", d=3)
    await update(table, "a", "SET d = :d", values(d=5))
    await update(table, "b", "REMOVE g", {})
    await put(table, "e", g="x", d=4)
    await table.call("DeleteItem", {"TableName": NAME, "Key": key("e")})
    await update(table, "b", "SET x = :x", values(x=1))
    assert sorts(await due(table)) == ["c", "a"]


@pytest.mark.parametrize("forward", [True, False])
async def test_the_index_has_pages(table: Table, forward: bool) -> None:
    for number in range(5):
        await put(table, f"{number}", g="x", d=number // 2)
    found: list[str] = []
    more: dict[str, Any] = {}
    for _ in range(4):
        answer = await due(table, Limit=2, ScanIndexForward=forward, **more)
        found += sorts(answer)
        if "LastEvaluatedKey" not in answer:
            break
        assert answer["LastEvaluatedKey"].keys() == {"p", "s", "g", "d"}
        more = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
    assert sorted(found) == ["0", "1", "2", "3", "4"]
    halves = [int(name) // 2 for name in found]
    assert halves == sorted(halves, reverse=not forward)


# Transactions


def action(name: str, s: str, **more: Any) -> dict[str, Any]:
    target = {"Item": key(s)} if name == "Put" else {"Key": key(s)}
    return {name: {"TableName": NAME, **target, **more}}


async def transact(table: Table, *actions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return await table.call("TransactWriteItems", {"TransactItems": list(actions), **more})


async def test_a_transaction_executes_all_of_its_actions(table: Table) -> None:
    await put(table, "b", n=1)
    await put(table, "c")
    await put(table, "d", n=4)
    given = {"ExpressionAttributeValues": values(n=4)}
    await transact(
        table,
        action("Put", "a"),
        action("Update", "b", UpdateExpression="ADD n :n", **given),
        action("Delete", "c"),
        action("ConditionCheck", "d", ConditionExpression="n = :n", **given),
    )
    assert sorts(await query(table, "p = :p", values(p="chain"))) == ["a", "b", "d"]
    assert await get(table, "b") == {**key("b"), **item(n=5)}


async def test_a_transaction_is_atomic_and_reports_its_reasons(table: Table) -> None:
    await put(table, "b", n=1)
    absent = {"ConditionExpression": "attribute_not_exists(s)"}
    told = {**absent, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    present = {**told, "ConditionExpression": "attribute_exists(s)"}
    with pytest.raises(TransactionCanceled) as caught:
        await transact(
            table,
            action("Put", "a", **told),
            action("Put", "b", **told),
            action("Delete", "c", **present),
            action("ConditionCheck", "d", **absent),
        )
    assert caught.value.reasons == (
        Reason("None", None),
        Reason("ConditionalCheckFailed", {**key("b"), **item(n=1)}),
        Reason("ConditionalCheckFailed", None),
        Reason("None", None),
    )
    with pytest.raises(TransactionCanceled) as caught:
        await transact(table, action("Put", "b", **absent), action("Put", "a"))
    assert caught.value.reasons == (Reason("ConditionalCheckFailed", None), Reason("None", None))
    assert sorts(await query(table, "p = :p", values(p="chain"))) == ["b"]


async def test_a_transaction_with_the_same_token_happens_once(table: Table) -> None:
    given = {"ExpressionAttributeValues": values(n=1)}
    count = action("Update", "a", UpdateExpression="ADD n :n", **given)
    for _ in range(3):
        await transact(table, count, ClientRequestToken="token-1")
    assert await get(table, "a") == {**key("a"), **item(n=1)}
    await transact(table, count, ClientRequestToken="token-2")
    assert await get(table, "a") == {**key("a"), **item(n=2)}
    with pytest.raises(Refused) as caught:
        await transact(table, action("Put", "b"), ClientRequestToken="token-1")
    assert caught.value.code == "IdempotentParameterMismatchException"


async def test_invalid_transactions_are_refused(table: Table) -> None:
    bad: list[list[dict[str, Any]]] = [
        [],
        [action("Put", "a"), action("Delete", "a")],
        [action("Put", f"{number}") for number in range(101)],
        [action("ConditionCheck", "a")],
        [action("Put", "")],
        [action("Put", "a") | action("Delete", "b")],
        [action("Put", "a", ConditionExpression="n = :n")],
    ]
    for actions in bad:
        with pytest.raises(Refused) as caught:
            await transact(table, *actions)
        assert caught.value.code == "ValidationException"
    await transact(table, *(action("Put", f"{number}") for number in range(100)))


# Batches


async def test_a_batch_puts_and_deletes(table: Table) -> None:
    await put(table, "old", n=1)
    entries = [
        {"PutRequest": {"Item": {**key("a"), **item(n=1)}}},
        {"DeleteRequest": {"Key": key("old")}},
        {"DeleteRequest": {"Key": key("never there")}},
    ]
    answer = await table.call("BatchWriteItem", {"RequestItems": {NAME: entries}})
    assert answer["UnprocessedItems"] == {}
    assert sorts(await query(table, "p = :p", values(p="chain"))) == ["a"]


async def test_invalid_batches_are_refused(table: Table) -> None:
    one = {"PutRequest": {"Item": key("a")}}
    bad: list[list[dict[str, Any]]] = [
        [],
        [one, {"DeleteRequest": {"Key": key("a")}}],
        [{"PutRequest": {"Item": key(f"{number}")}} for number in range(26)],
        [{"PutRequest": {"Item": key("")}}],
    ]
    for entries in bad:
        with pytest.raises(Refused) as caught:
            await table.call("BatchWriteItem", {"RequestItems": {NAME: entries}})
        assert caught.value.code == "ValidationException"


# Capacity


async def test_consumed_capacity_is_counted(table: Table) -> None:
    async def units(operation: str, request: dict[str, Any]) -> float:
        asked = {"TableName": NAME, **request, "ReturnConsumedCapacity": "TOTAL"}
        return float((await table.call(operation, asked))["ConsumedCapacity"]["CapacityUnits"])

    large = {**key("a"), **item(x="x" * 2_500)}
    assert await units("PutItem", {"Item": large}) == 3
    assert await units("PutItem", {"Item": key("a")}) == 3
    assert await units("PutItem", {"Item": {**key("b"), **item(g="x", d=1)}}) == 2
    assert await units("DeleteItem", {"Key": key("nothing")}) == 1
    await table.call("PutItem", {"TableName": NAME, "Item": large})
    assert await units("GetItem", {"Key": key("a")}) == 0.5
    assert await units("GetItem", {"Key": key("nothing"), "ConsistentRead": True}) == 1
    asked = {"KeyConditionExpression": "p = :p", "ExpressionAttributeValues": values(p="chain")}
    assert await units("Query", {**asked, "ConsistentRead": True}) == 1
