"""Errors of calls to AWS services, one class per kind."""

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
    """The condition did not hold; `item` is the existing item, if it was requested."""

    def __init__(self, operation: str, item: Item | None) -> None:
        super().__init__(operation, "the condition did not hold")
        self.item = item


class Reason(NamedTuple):
    """Why one action of a transaction failed; the code is `None` for actions that did not."""

    code: str
    item: Item | None


class TransactionCanceled(CallFailed):
    """A condition of the transaction did not hold; nothing was written."""

    def __init__(self, operation: str, reasons: tuple[Reason, ...]) -> None:
        codes = ", ".join(reason.code for reason in reasons)
        super().__init__(operation, f"the transaction was canceled ({codes})")
        self.reasons = reasons


class Throttled(CallFailed):
    """Still throttled after all retries; nothing was written.

    `hot_key`: the limit is that of one key, not of the table or the account."""

    def __init__(self, operation: str, code: str, *, hot_key: bool) -> None:
        super().__init__(operation, f"throttled ({code})")
        self.hot_key = hot_key


class Unavailable(CallFailed):
    """No response after all retries.

    `unclear`: an attempt may have been carried out nevertheless."""

    def __init__(self, operation: str, message: str, *, unclear: bool) -> None:
        super().__init__(operation, message)
        self.unclear = unclear


class Refused(CallFailed):
    """An error that a retry would not change: no such table, no permission, an invalid request."""

    def __init__(self, operation: str, code: str, message: str) -> None:
        super().__init__(operation, f"{code}: {message}")
        self.code = code
