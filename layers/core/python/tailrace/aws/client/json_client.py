"""The calls to DynamoDB that requests are made of, with a tenth of what boto3 spends on one.

A call is tried until it has a definite answer or its attempts are used up. Once the outcome of an
attempt is unclear, the call never ends in an error that says nothing was done, with one exception:
`ConditionFailed` is what DynamoDB found at last, and that may be the very item an earlier attempt
of the same call has put there. Who writes on a condition has to recognise their own.
"""

from __future__ import annotations

import asyncio
import random
import re
import secrets
import ssl
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import orjson

from tailrace.aws.client.endpoint import Access, CredentialsUnavailable
from tailrace.aws.client.failures import (
    CallFailed,
    ConditionFailed,
    Reason,
    Refused,
    Throttled,
    TransactionCanceled,
    Unavailable,
)
from tailrace.aws.client.pool import Answer, Broken, Pool
from tailrace.aws.client.sigv4 import DYNAMODB, Service, Signer
from tailrace.errors import BadSetting

PAUSE: Final = 0.025
"""Seconds that the first pause lasts at most; each next one doubles that."""
THROTTLED_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0

WRITES: Final = frozenset(
    {"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"}
)
METERED: Final = WRITES | {"BatchGetItem", "GetItem", "Query", "Scan", "TransactGetItems"}
OUTCOMES: Final[Mapping[type[CallFailed], str]] = {
    ConditionFailed: "condition-failed",
    TransactionCanceled: "canceled",
    Throttled: "throttled",
    Unavailable: "unavailable",
    Refused: "refused",
}

_HOT_KEY: Final = frozenset(
    {"ProvisionedThroughputExceededException", "TransactionConflictException"}
)
_THROTTLES: Final = _HOT_KEY | {"ThrottlingException", "RequestLimitExceeded"}
_EXPIRED: Final = frozenset({"ExpiredTokenException", "UnrecognizedClientException"})
_HOT_KEY_REASONS: Final = frozenset({"TransactionConflict", "ProvisionedThroughputExceeded"})
_PASSING_REASONS: Final = _HOT_KEY_REASONS | {"ThrottlingError", "None"}
_WIDER_LIMIT: Final = re.compile(r"AccountLimit|(?:Table|Index)(?:Read|Write)\w+Exceeded")
"""How DynamoDB names a limit, such as `TableWriteProvisionedThroughputExceeded`."""


class Call(NamedTuple):
    """What one call came to; `outcome` is "ok" or one of `OUTCOMES`."""

    operation: str
    outcome: str
    attempts: int
    seconds: float
    read_units: float
    write_units: float


class Client:
    def __init__(
        self,
        access: Access,
        connections: int,
        meter: Callable[[Call], None] | None = None,
        service: Service = DYNAMODB,
    ) -> None:
        endpoint = urlsplit(access.endpoint)
        host = endpoint.hostname or ""
        secure = endpoint.scheme == "https"
        usual = 443 if secure else 80
        port = endpoint.port or usual
        shown = f"[{host}]" if ":" in host else host
        self._access = access
        self._meter = meter
        self._signer = Signer(shown if port == usual else f"{shown}:{port}", access.region, service)
        self._pool = Pool(host, port, tls(access.ca_bundle) if secure else None, connections)

    async def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """What DynamoDB answers to `request`, or one of `failures`."""
        if operation == "TransactWriteItems" and "ClientRequestToken" not in request:
            request = {**request, "ClientRequestToken": secrets.token_hex(16)}
        meter = self._meter
        if meter is None:
            return await self._run(_Run(operation, orjson.dumps(request)))
        if operation in METERED and "ReturnConsumedCapacity" not in request:
            request = {**request, "ReturnConsumedCapacity": "TOTAL"}
        run = _Run(operation, orjson.dumps(request))
        clock = asyncio.get_running_loop().time
        begun = clock()
        try:
            result = await self._run(run)
        except CallFailed as failure:
            outcome = OUTCOMES[type(failure)]
            meter(Call(operation, outcome, run.attempts, clock() - begun, 0, 0))
            raise
        units = _units(result)
        read, write = (0.0, units) if operation in WRITES else (units, 0.0)
        meter(Call(operation, "ok", run.attempts, clock() - begun, read, write))
        return result

    async def close(self) -> None:
        await self._pool.close()

    async def _run(self, run: _Run) -> dict[str, Any]:
        while True:
            run.attempts += 1
            try:
                return await self._attempt(run)
            except _Setback as setback:
                if run.attempts >= self._access.attempts or self._pool.closed:
                    raise run.given_up(setback.failure) from setback.__cause__
                longest = min(LONGEST_PAUSE, setback.pause * 2 ** (run.attempts - 1))
            await asyncio.sleep(random.uniform(0, longest))  # noqa: S311 - no secret

    async def _attempt(self, run: _Run) -> dict[str, Any]:
        try:
            credentials = await self._access.credentials()
            request = self._signer.request(run.operation, run.body, credentials, time.time())
            answer = await self._pool.exchange(request)
        except CredentialsUnavailable as error:
            raise run.setback(str(error), unclear=False) from error
        except Broken as broken:
            raise run.setback(str(broken), unclear=broken.sent) from broken
        run.unclear |= answer.resent
        content = _content(answer)
        if content is None:
            raise run.setback(f"an answer that is no answer, status {answer.status}", unclear=True)
        if answer.status == 200:
            return content
        code = str(content.get("__type", f"HTTP {answer.status}")).rpartition("#")[2]
        if answer.status >= 500 or code == "TransactionInProgressException":
            raise run.setback(f"{code}, status {answer.status}", unclear=True)
        if code in _EXPIRED and not run.renewed:
            run.renewed = True
            self._access.renew()
            return await self._attempt(run)
        raise run.refusal(code, content)


class _Setback(Exception):
    """An attempt that may be repeated; `failure` is what the call ends with if it may not."""

    def __init__(self, failure: CallFailed, pause: float) -> None:
        self.failure = failure
        self.pause = pause


class _Run:
    """One call on its way, and what became of its attempts so far."""

    __slots__ = ("attempts", "body", "operation", "renewed", "unclear")

    def __init__(self, operation: str, body: bytes) -> None:
        self.operation = operation
        self.body = body
        self.attempts = 0
        self.unclear = False
        """An attempt may have been carried out without our knowing."""
        self.renewed = False

    def setback(self, message: str, *, unclear: bool) -> _Setback:
        self.unclear |= unclear
        return _Setback(Unavailable(self.operation, message, unclear=self.unclear), PAUSE)

    def refusal(self, code: str, content: dict[str, Any]) -> CallFailed | _Setback:
        """What an error that DynamoDB answered with comes to."""
        operation = self.operation
        if code == "ConditionalCheckFailedException":
            return ConditionFailed(operation, content.get("Item"))
        if code == "TransactionCanceledException":
            given = content.get("CancellationReasons") or ()
            reasons = tuple(Reason(each.get("Code", "None"), each.get("Item")) for each in given)
            codes = {reason.code for reason in reasons}
            if "ConditionalCheckFailed" in codes:
                return TransactionCanceled(operation, reasons)
            if codes <= _PASSING_REASONS:
                texts = [each.get("Message") for each in given]
                hot_key = _is_hot_key(texts, by_default=bool(codes & _HOT_KEY_REASONS))
                shown = ", ".join(sorted(codes - {"None"})) or code
                return _Setback(Throttled(operation, shown, hot_key=hot_key), THROTTLED_PAUSE)
        message = content.get("message") or content.get("Message") or ""
        if code in _THROTTLES:
            texts = [message, content.get("ThrottlingReasons"), content.get("throttlingReasons")]
            hot_key = _is_hot_key(texts, by_default=code in _HOT_KEY)
            return _Setback(Throttled(operation, code, hot_key=hot_key), THROTTLED_PAUSE)
        return self.given_up(Refused(operation, code, _without_secrets(message)))

    def given_up(self, failure: CallFailed) -> CallFailed:
        """The failure, unless it would say that nothing was done when that is not known."""
        if self.unclear and self.operation in WRITES and not isinstance(failure, Unavailable):
            message = str(failure).removeprefix(f"{self.operation}: ")
            return Unavailable(self.operation, f"{message}, after no answer", unclear=True)
        return failure


def tls(ca_bundle: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_bundle)
    except OSError as error:
        raise BadSetting(f"the CA bundle {ca_bundle!r} cannot be used: {error}") from error


def _content(answer: Answer) -> dict[str, Any] | None:
    """The answer's JSON object; None when it was damaged on the way, or is none."""
    checksum = answer.checksum
    if checksum is not None and checksum != b"%d" % zlib.crc32(answer.body):
        return None
    try:
        content = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        return None
    return content if isinstance(content, dict) else None


def _is_hot_key(texts: list[Any], *, by_default: bool) -> bool:
    text = str(texts)
    if "KeyRangeThroughputExceeded" in text:
        return True
    return by_default and _WIDER_LIMIT.search(text) is None


def _without_secrets(message: str) -> str:
    """What is safe to log: complaints about a signature quote the headers that were signed."""
    return message.partition("\n")[0].partition("Authorization")[0].strip()


def _units(result: dict[str, Any]) -> float:
    consumed = result.get("ConsumedCapacity") or ()
    each = (consumed,) if isinstance(consumed, dict) else consumed
    return sum(float(one.get("CapacityUnits", 0)) for one in each)
