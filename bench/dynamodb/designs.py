"""Two other ways to append to a log in DynamoDB, as lean as they can be, to compare with.

Both keep order without gaps, as the slot chain does. They do nothing else: no producers, no
closing, no rules.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tailrace.aws.client.failures import ConditionFailed, Item, TransactionCanceled
from tailrace.store.dynamodb.layout import binary, number, slot_key, text
from tailrace.store.dynamodb.table import ABSENT, Action, Table, TableClient
from tailrace.streams import _back_off

TIP_BYTES: Final = 32 << 10
"""At which a growing item is emptied: larger ones make each append dearer, smaller ones reads."""


class HeadAndEntry:
    """A head item counts the entries; a transaction moves it on and puts the entry."""

    def __init__(self, caller: TableClient, table: str, log: int) -> None:
        self._table = Table(caller, table)
        self._log = log
        self._key = _key("H", log)
        self._n = 0

    async def begin(self) -> None:
        """Makes the log; one writer does that for all."""
        await self._table.put_new({**self._key, "n": number(0)})

    async def append(self, body: bytes) -> None:
        for attempt in itertools.count():
            n = self._n
            entry = {**slot_key(self._log, n), "b": binary(body)}
            try:
                await self._table.transact(
                    [
                        {"Update": _if_still(n) | {"Key": self._key, "UpdateExpression": _MOVE_ON}},
                        {"Put": {"Item": entry, "ConditionExpression": ABSENT}},
                    ]
                )
            except TransactionCanceled as lost:
                found = lost.reasons[0].item
                assert found is not None
                self._n = int(found["n"]["N"])
                await _back_off(attempt)
            else:
                self._n = n + 1
                return


class Tip:
    """One item grows by each append; when it is large, its entries move to an item of their own."""

    def __init__(self, caller: TableClient, table: str, log: int) -> None:
        self._caller = caller
        self._name = table
        self._table = Table(caller, table)
        self._log = log
        self._key = _key("T", log)
        self._n = 0
        self._entries: Sequence[Mapping[str, str]] = []
        self._bytes = 0

    async def begin(self) -> None:
        """Makes the log; one writer does that for all."""
        await self._table.put_new({**self._key, "n": number(0), "e": {"L": []}})

    async def append(self, body: bytes) -> None:
        for attempt in itertools.count():
            calves = self._bytes + len(body) > TIP_BYTES
            try:
                await (self._calve(body) if calves else self._grow(body))
            except ConditionFailed as lost:
                self._learn(lost.item)
            except TransactionCanceled as lost:
                self._learn(lost.reasons[0].item)
            else:
                kept = [] if calves else self._entries
                self._keep(self._n + 1, [*kept, binary(body)])
                return
            await _back_off(attempt)

    async def _grow(self, body: bytes) -> None:
        update = self._update(body, "SET e = list_append(e, :e), n = :next")
        await self._caller.call("UpdateItem", {"TableName": self._name, **update})

    async def _calve(self, body: bytes) -> None:
        batch = {**slot_key(self._log, self._n), "e": {"L": self._entries}}
        actions: list[Action] = [
            {"Update": self._update(body, "SET e = :e, n = :next")},
            {"Put": {"Item": batch, "ConditionExpression": ABSENT}},
        ]
        await self._table.transact(actions)

    def _update(self, body: bytes, expression: str) -> dict[str, Any]:
        update = _if_still(self._n) | {"Key": self._key, "UpdateExpression": expression}
        update["ExpressionAttributeValues"][":e"] = {"L": [binary(body)]}
        return update

    def _learn(self, found: Item | None) -> None:
        assert found is not None
        self._keep(int(found["n"]["N"]), found["e"]["L"])

    def _keep(self, n: int, entries: Sequence[Mapping[str, str]]) -> None:
        self._n = n
        self._entries = entries
        # Base64 takes four bytes for three.
        self._bytes = sum(len(entry["B"]) for entry in entries) * 3 // 4


_MOVE_ON: Final = "SET n = :next"


def _if_still(n: int) -> dict[str, Any]:
    return {
        "ConditionExpression": "n = :n",
        "ExpressionAttributeValues": {":n": number(n), ":next": number(n + 1)},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def _key(kind: str, log: int) -> dict[str, dict[str, str]]:
    return {"p": text(f"{kind}{log:016x}"), "s": text("head")}
