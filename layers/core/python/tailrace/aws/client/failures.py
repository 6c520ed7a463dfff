"""How a call to DynamoDB can end other than well; one small error each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Item = Mapping[str, Any]
"""An item in DynamoDB's own JSON: `{"s": {"S": "text"}, "o": {"N": "1"}}`."""


class CallFailed(Exception):
    def __init__(self, operation: str, message: str) -> None:
        super().__init__(f"{operation}: {message}")
        self.operation = operation


class ConditionFailed(CallFailed):
    """The condition did not hold; `item` is what is there, if it was asked for and exists."""

    def __init__(self, operation: str, item: Item | None) -> None:
        super().__init__(operation, "the condition did not hold")
        self.item = item


class Reason(NamedTuple):
    """Why one action of a transaction did not go through; code `None` for those that would have."""

    code: str
    item: Item | None


class TransactionCanceled(CallFailed):
    """A condition of the transaction did not hold; nothing of it was done."""

    def __init__(self, operation: str, reasons: tuple[Reason, ...]) -> None:
        codes = ", ".join(reason.code for reason in reasons)
        super().__init__(operation, f"the transaction was canceled ({codes})")
        self.reasons = reasons


class Throttled(CallFailed):
    """Still refused for its rate after all retries; nothing was done.

    `hot_key`: one key is asked for too often, rather than the table or the account."""

    def __init__(self, operation: str, code: str, *, hot_key: bool) -> None:
        super().__init__(operation, f"throttled ({code})")
        self.hot_key = hot_key


class Unavailable(CallFailed):
    """No answer after all retries.

    `unclear`: an attempt may have been carried out all the same."""

    def __init__(self, operation: str, message: str, *, unclear: bool) -> None:
        super().__init__(operation, message)
        self.unclear = unclear


class Refused(CallFailed):
    """DynamoDB said no, and would say so again: no such table, no permission, a bad request."""

    def __init__(self, operation: str, code: str, message: str) -> None:
        super().__init__(operation, f"{code}: {message}")
        self.code = code
