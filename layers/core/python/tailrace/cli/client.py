"""The HTTP client of the commands: retries, and failures that say what to do."""

from __future__ import annotations

import random
import shlex
import ssl
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self

import httpx

from tailrace import __version__
from tailrace.cli.address import StreamAddress, locate, parse_origin
from tailrace.cli.exit_codes import BY_STATUS, Exit, Failure

RETRIED_STATUSES: Final = frozenset({429, 500, 502, 503, 504})
INITIAL_WAIT: Final = 0.1
MAX_WAIT: Final = 15.0
MAX_RETRY_AFTER: Final = 60.0
UNREPORTED_WAIT: Final = 1.0
"""Waits up to this many seconds are not reported."""

TIMEOUT: Final = httpx.Timeout(30.0, connect=10.0)
LIVE_TIMEOUT: Final = httpx.Timeout(150.0, connect=10.0)
"""Longer than a server on AWS may wait for data."""


class CommandClient:
    """Sends requests to one server, each of which can be repeated safely."""

    def __init__(
        self, server: str, token: str | None = None, *, on_wait: Callable[[str], None] = print
    ) -> None:
        self.server = server
        self.retries: int | None = 2
        self._on_wait = on_wait
        self._headers = {"User-Agent": f"tailrace/{__version__}"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._http: dict[str, httpx.Client] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for http in self._http.values():
            http.close()

    def locate(self, argument: str) -> StreamAddress:
        """The stream that an argument names."""
        return locate(argument, self.server)

    def send(
        self,
        method: str,
        target: StreamAddress,
        *,
        action: str,
        missing: StreamAddress | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        timeout: httpx.Timeout = TIMEOUT,
    ) -> httpx.Response:
        """Send a request, and return the response; raises `Failure` for that of the last attempt.

        `action` completes "cannot …"; a 404 is reported for `missing`, by default the target.
        """
        attempt = 0
        while True:
            retry_after: float | None = None
            try:
                url = httpx.URL(target.url)
                response = self._connection(url.scheme).request(
                    method,
                    url.copy_merge_params(dict(params)) if params else url,
                    headers=headers,
                    content=content,
                    timeout=timeout,
                )
            except httpx.InvalidURL as error:
                raise Failure(f"'{target.url}' is not a URL: {error}", Exit.USAGE) from None
            except (httpx.TransportError, httpx.DecodingError) as error:
                failure = connection_failure(target, error)
            else:
                if response.is_success:
                    return response
                failure = response_failure(response, target, missing or target, action)
                if response.status_code not in RETRIED_STATUSES:
                    raise failure
                retry_after = parse_retry_after(response)
            if self.retries is not None and attempt >= self.retries:
                raise failure
            self._wait(attempt, retry_after, failure)
            attempt += 1

    def _connection(self, scheme: str) -> httpx.Client:
        if scheme not in self._http:
            # Loading the system's certificates takes longer than most commands, so plain HTTP uses
            # a context without any: it would refuse every TLS connection.
            bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._http[scheme] = httpx.Client(
                headers=self._headers, verify=True if scheme == "https" else bare
            )
        return self._http[scheme]

    def _wait(self, attempt: int, retry_after: float | None, failure: Failure) -> None:
        jitter = random.uniform(0.5, 1.0)  # noqa: S311
        wait = min(MAX_WAIT, INITIAL_WAIT * 2 ** min(attempt, 16)) * jitter
        wait = max(wait, min(retry_after or 0.0, MAX_RETRY_AFTER))
        if wait > UNREPORTED_WAIT:
            reason = failure.message.partition(";")[0]
            self._on_wait(f"tailrace: {reason}; retrying in {wait:.0f} s")
        time.sleep(wait)


def parse_retry_after(response: httpx.Response) -> float | None:
    """Seconds to wait before a retry, from a number or a date."""
    value = response.headers.get("Retry-After", "")
    try:
        if value.isdigit():
            return float(value)
        return parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None


def connection_failure(target: StreamAddress, error: httpx.RequestError) -> Failure:
    if isinstance(error, httpx.TimeoutException):
        reason = "no response in time"
    else:
        reason = str(error).partition("] ")[2] or str(error) or type(error).__name__
    return Failure(
        f"cannot reach {parse_origin(target.url)}: {reason}; start a server with 'tailrace serve'"
        " or set --url",
        Exit.UNREACHABLE,
    )


def response_failure(
    response: httpx.Response, target: StreamAddress, missing: StreamAddress, action: str
) -> Failure:
    """Build the failure for an error response, with the fix where there is one."""
    status = response.status_code
    code, reason = parse_error(response)
    exit_code = BY_STATUS.get(status, Exit.UNEXPECTED)
    closed = response.headers.get("Stream-Closed", "").lower() == "true"
    if status == 404 and missing.name:
        fix = f"create it with 'tailrace create {shlex.quote(missing.name)}'"
        message = f"cannot {action}: no stream at '{missing.name}'; see 'tailrace ls' or {fix}"
    elif status == 409 and closed:
        end = response.headers.get("Stream-Next-Offset", "an unknown offset")
        message = f"cannot {action}: the stream is closed at {end} and accepts no more appends"
    elif status == 409 and response.request.method == "PUT" and target.name:
        message = (
            f"cannot {action}: {reason}; compare with 'tailrace info {shlex.quote(target.name)}'"
        )
    elif exit_code is Exit.REFUSED:
        message = f"cannot {action}: {reason}; pass a token with --token or TAILRACE_TOKEN"
    elif exit_code is Exit.TOO_LARGE:
        message = f"cannot {action}: {reason}; append less at a time with --lines and --batch-bytes"
    elif exit_code is Exit.UNEXPECTED:
        message = f"cannot {action}: the server responded with {status}: {reason}"
    else:
        message = f"cannot {action}: {reason}"
    return Failure(message, exit_code, code=code, status=status)


def parse_error(response: httpx.Response) -> tuple[str, str]:
    """Code and message of an error response; other servers may send plain text."""
    try:
        error = response.json()["error"]
        return str(error["code"]), str(error["message"])
    except (ValueError, LookupError, TypeError):
        pass
    try:
        phrase = HTTPStatus(response.status_code).phrase
    except ValueError:
        phrase = "unknown status"
    text = response.text.strip() if "html" not in response.headers.get("Content-Type", "") else ""
    return "", text[:300] or phrase
