"""Converts the results of functions to responses of function URLs."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from devtools.local_aws.events import HOP_BY_HOP, MOST_BYTES
from devtools.local_aws.runtime_api import Failure

REMAPPED: Final = frozenset({"content-length", "date", "server", "www-authenticate"})
"""Headers that function URLs set themselves: those of the function become `x-amzn-remapped-…`."""


class Malformed(Exception):
    """A result that function URLs do not accept."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The response to the client."""

    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""


def from_result(payload: bytes) -> Reply:
    """Convert a buffered result; raises `Malformed`."""
    try:
        result = json.loads(payload)
    except ValueError as error:
        raise Malformed(f"not JSON: {error}") from None
    if not isinstance(result, dict) or "statusCode" not in result:
        # Function URLs turn a bare value into a JSON response.
        value = result.encode() if isinstance(result, str) else payload
        return Reply(200, [("content-type", "application/json")], value)
    body = result.get("body") or ""
    if not isinstance(body, str):
        raise Malformed("the body is not a string")
    if result.get("isBase64Encoded") is True:
        try:
            content = base64.b64decode(body, validate=True)
        except (ValueError, binascii.Error):
            raise Malformed("the body is not base64") from None
    else:
        content = body.encode()
    return Reply(*_head(result), content)


def from_prelude(prelude: bytes) -> Reply:
    """Convert the prelude of a streamed response: its status and its headers."""
    try:
        result = json.loads(prelude)
    except ValueError as error:
        raise Malformed(f"the prelude is not JSON: {error}") from None
    if not isinstance(result, dict):
        raise Malformed("the prelude is not an object")
    return Reply(*_head({"statusCode": 200, **result}))


def _head(result: Mapping[str, Any]) -> tuple[int, list[tuple[str, str]]]:
    status = result["statusCode"]
    if isinstance(status, str) and status.isdecimal():
        status = int(status)
    if type(status) is not int or not 200 <= status <= 599:
        raise Malformed(f"the status is {status!r}")
    given = result.get("headers") or {}
    if not isinstance(given, dict):
        raise Malformed("the headers are not an object")
    headers: list[tuple[str, str]] = []
    for name, value in given.items():
        if isinstance(value, dict | list) or value is None:
            raise Malformed(f"the header {name} is {value!r}")
        if name.lower() not in HOP_BY_HOP:
            headers.append((_remapped(name), _scalar(value)))
    if not any(name.lower() == "content-type" for name, _ in headers):
        headers.append(("content-type", "application/json"))
    return status, headers + [("set-cookie", cookie) for cookie in result.get("cookies") or []]


def _remapped(name: str) -> str:
    return f"x-amzn-remapped-{name.lower()}" if name.lower() in REMAPPED else name


def _scalar(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def internal_error(failure: Failure | None) -> Reply:
    kind = (failure.kind or failure.body.get("errorType")) if failure else "InternalServerError"
    return Reply(
        502,
        [("content-type", "application/json"), ("x-amzn-errortype", str(kind))],
        b'{"Message":"Internal Server Error"}',
    )


def too_large() -> Reply:
    message = f"Request must be smaller than {MOST_BYTES} bytes for the InvokeFunction operation"
    return Reply(
        413,
        [("content-type", "application/json"), ("x-amzn-errortype", "RequestTooLargeException")],
        json.dumps({"Type": "User", "message": message}).encode(),
    )


def throttled() -> Reply:
    reason = "ReservedFunctionConcurrentInvocationLimitExceeded"
    return Reply(
        429,
        [("content-type", "application/json"), ("x-amzn-errortype", "TooManyRequestsException")],
        json.dumps({"Reason": reason, "Type": "User", "message": "Rate Exceeded."}).encode(),
    )
