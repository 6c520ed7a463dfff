"""A client for AWS services with JSON protocols, such as DynamoDB, at a tenth of boto3's cost.

A call is retried until it has a definite result or no attempts are left. Once the outcome of an
attempt is unclear, the call never raises an error that says nothing was written. `ConditionFailed`
is the exception: it reports the item that DynamoDB found, which an earlier attempt of the same call
may have written. Callers of conditional writes have to recognize their own item.
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

from tailrace.aws.client.failures import (
    CallFailed,
    ConditionFailed,
    Reason,
    Refused,
    Throttled,
    TransactionCanceled,
    Unavailable,
)
from tailrace.aws.client.pool import ExchangeFailed, Pool, ServiceResponse
from tailrace.aws.client.service_access import CredentialsUnavailable, ServiceAccess
from tailrace.aws.client.sigv4 import DYNAMODB, RestSigner, Service, Signer
from tailrace.errors import BadSetting
from tailrace.limits import AWS_CONNECTIONS

IDLE_SECONDS: Final = 10.0
"""How long a connection may be idle: if the server closed it meanwhile, the request would be sent
twice."""


class RestClient:
    def __init__(
        self,
        access: ServiceAccess,
        service: str,
        url: str | None = None,
        call_seconds: float | None = None,
    ) -> None:
        """`url`: overrides the service's endpoint. A local engine has one address for everything,
        and finds the resource by the Host header. `call_seconds`: as for `Pool`."""
        target = urlsplit(url or access.endpoint)
        address = urlsplit(access.endpoint) if access.local else target
        secure = address.scheme == "https"
        assert address.hostname is not None
        port = address.port or (443 if secure else 80)
        self._access = access
        self._base = target.path.rstrip("/")
        self._signer = RestSigner(target.netloc, access.region, service)
        self._pool = Pool(
            address.hostname,
            port,
            tls_context(access.ca_bundle) if secure else None,
            AWS_CONNECTIONS,
            IDLE_SECONDS,
            call_seconds,
        )

    async def send(
        self, method: str, path: str, body: bytes = b"", more: str = ""
    ) -> ServiceResponse:
        """Raises `ExchangeFailed` and `CredentialsUnavailable`."""
        credentials = await self._access.credentials()
        full_path = f"{self._base}{path}"
        request = self._signer.request(method, full_path, body, credentials, time.time(), more)
        return await self._pool.exchange(request)

    async def close(self) -> None:
        await self._pool.close()


PAUSE: Final = 0.025
"""Upper bound of the first pause in seconds; it doubles with each attempt."""
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
    """The result of one call; `outcome` is "ok" or one of `OUTCOMES`."""

    operation: str
    outcome: str
    attempts: int
    seconds: float
    read_units: float
    write_units: float


class JsonClient:
    def __init__(
        self,
        access: ServiceAccess,
        connections: int = AWS_CONNECTIONS,
        meter: Callable[[Call], None] | None = None,
        service: Service = DYNAMODB,
    ) -> None:
        endpoint = urlsplit(access.endpoint)
        host = endpoint.hostname or ""
        secure = endpoint.scheme == "https"
        default_port = 443 if secure else 80
        port = endpoint.port or default_port
        authority = f"[{host}]" if ":" in host else host
        if port != default_port:
            authority = f"{authority}:{port}"
        self._access = access
        self._meter = meter
        self._signer = Signer(authority, access.region, service)
        self._pool = Pool(
            host, port, tls_context(access.ca_bundle) if secure else None, connections
        )

    async def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the service's response, or raise one of `failures`."""
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
            except _Retryable as error:
                if run.attempts >= self._access.attempts or self._pool.closed:
                    raise run.final_failure(error.failure) from error.__cause__
                longest = min(LONGEST_PAUSE, error.pause * 2 ** (run.attempts - 1))
            await asyncio.sleep(random.uniform(0, longest))  # noqa: S311 - no secret

    async def _attempt(self, run: _Run) -> dict[str, Any]:
        try:
            credentials = await self._access.credentials()
            request = self._signer.request(run.operation, run.body, credentials, time.time())
            response = await self._pool.exchange(request)
        except CredentialsUnavailable as error:
            raise run.retryable(str(error), unclear=False) from error
        except ExchangeFailed as error:
            raise run.retryable(str(error), unclear=error.sent) from error
        run.unclear |= response.resent
        content = _parse_content(response)
        if content is None:
            raise run.retryable(f"a damaged response, status {response.status}", unclear=True)
        if response.status == 200:
            return content
        code = str(content.get("__type", f"HTTP {response.status}")).rpartition("#")[2]
        if response.status >= 500 or code == "TransactionInProgressException":
            raise run.retryable(f"{code}, status {response.status}", unclear=True)
        if code in _EXPIRED and not run.renewed:
            run.renewed = True
            self._access.renew()
            return await self._attempt(run)
        raise run.refusal(code, content)


class _Retryable(Exception):
    """A failed attempt that may be retried; `failure` is raised if no attempts are left."""

    def __init__(self, failure: CallFailed, pause: float) -> None:
        self.failure = failure
        self.pause = pause


class _Run:
    """A call in progress, and the state of its attempts."""

    __slots__ = ("attempts", "body", "operation", "renewed", "unclear")

    def __init__(self, operation: str, body: bytes) -> None:
        self.operation = operation
        self.body = body
        self.attempts = 0
        self.unclear = False
        """An attempt may have been carried out, but its result is unknown."""
        self.renewed = False

    def retryable(self, message: str, *, unclear: bool) -> _Retryable:
        self.unclear |= unclear
        return _Retryable(Unavailable(self.operation, message, unclear=self.unclear), PAUSE)

    def refusal(self, code: str, content: dict[str, Any]) -> CallFailed | _Retryable:
        """Convert an error response to an exception."""
        operation = self.operation
        if code == "ConditionalCheckFailedException":
            return ConditionFailed(operation, content.get("Item"))
        if code == "TransactionCanceledException":
            cancellations = content.get("CancellationReasons") or ()
            reasons = tuple(
                Reason(each.get("Code", "None"), each.get("Item")) for each in cancellations
            )
            codes = {reason.code for reason in reasons}
            if "ConditionalCheckFailed" in codes:
                return TransactionCanceled(operation, reasons)
            if codes <= _PASSING_REASONS:
                texts = [each.get("Message") for each in cancellations]
                hot_key = _is_hot_key(texts, by_default=bool(codes & _HOT_KEY_REASONS))
                names = ", ".join(sorted(codes - {"None"})) or code
                return _Retryable(Throttled(operation, names, hot_key=hot_key), THROTTLED_PAUSE)
        message = content.get("message") or content.get("Message") or ""
        if code in _THROTTLES:
            texts = [message, content.get("ThrottlingReasons"), content.get("throttlingReasons")]
            hot_key = _is_hot_key(texts, by_default=code in _HOT_KEY)
            return _Retryable(Throttled(operation, code, hot_key=hot_key), THROTTLED_PAUSE)
        return self.final_failure(Refused(operation, code, _without_secrets(message)))

    def final_failure(self, failure: CallFailed) -> CallFailed:
        """Return the failure, or `Unavailable` if an earlier attempt may have been carried out."""
        if self.unclear and self.operation in WRITES and not isinstance(failure, Unavailable):
            message = str(failure).removeprefix(f"{self.operation}: ")
            return Unavailable(
                self.operation, f"{message}, after an attempt without a response", unclear=True
            )
        return failure


def tls_context(ca_bundle: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_bundle)
    except OSError as error:
        raise BadSetting(f"the CA bundle {ca_bundle!r} cannot be used: {error}") from error


def _parse_content(response: ServiceResponse) -> dict[str, Any] | None:
    """Parse the response; None if it was damaged on the way or is not a JSON object."""
    checksum = response.checksum
    if checksum is not None and checksum != b"%d" % zlib.crc32(response.body):
        return None
    try:
        content = orjson.loads(response.body)
    except orjson.JSONDecodeError:
        return None
    return content if isinstance(content, dict) else None


def _is_hot_key(texts: list[Any], *, by_default: bool) -> bool:
    text = str(texts)
    if "KeyRangeThroughputExceeded" in text:
        return True
    return by_default and _WIDER_LIMIT.search(text) is None


def _without_secrets(message: str) -> str:
    """Make an error message safe to log: errors about signatures quote the signed headers."""
    return message.partition("\n")[0].partition("Authorization")[0].strip()


def _units(result: dict[str, Any]) -> float:
    consumed = result.get("ConsumedCapacity") or ()
    each = (consumed,) if isinstance(consumed, dict) else consumed
    return sum(float(one.get("CapacityUnits", 0)) for one in each)
