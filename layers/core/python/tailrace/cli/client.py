"""Requests to a server: retried while that can help, and failures that say what to do."""

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
from tailrace.cli.address import Stream, locate, origin
from tailrace.cli.failures import BY_STATUS, Exit, Failure

RETRIED: Final = frozenset({429, 500, 502, 503, 504})
FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 15.0
LONGEST_RETRY_AFTER: Final = 60.0
SILENT_WAIT: Final = 1.0
"""Waits up to this long are not worth telling about."""

TIMEOUT: Final = httpx.Timeout(30.0, connect=10.0)
LIVE_TIMEOUT: Final = httpx.Timeout(90.0, connect=10.0)


class Client:
    """A connection to one server. Every request it sends may be repeated without harm."""

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

    def stream(self, given: str) -> Stream:
        return locate(given, self.server)

    def send(
        self,
        method: str,
        target: Stream,
        *,
        doing: str,
        missing: Stream | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        timeout: httpx.Timeout = TIMEOUT,
    ) -> httpx.Response:
        """The answer to a request that succeeded, or the `Failure` that the last attempt met.

        What a 404 says is `missing` is the target, unless another stream is given.
        """
        attempt = 0
        while True:
            asked: float | None = None
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
                failure = unreachable(target, error)
            else:
                if response.is_success:
                    return response
                failure = refused(response, target, missing or target, doing)
                if response.status_code not in RETRIED:
                    raise failure
                asked = retry_after(response)
            if self.retries is not None and attempt >= self.retries:
                raise failure
            self._wait(attempt, asked, failure)
            attempt += 1

    def _connection(self, scheme: str) -> httpx.Client:
        if scheme not in self._http:
            # Reading the system's certificates takes longer than most commands do; a context
            # without any fails closed should plain HTTP ever lead to TLS.
            bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._http[scheme] = httpx.Client(
                headers=self._headers, verify=True if scheme == "https" else bare
            )
        return self._http[scheme]

    def _wait(self, attempt: int, asked: float | None, failure: Failure) -> None:
        jitter = random.uniform(0.5, 1.0)  # noqa: S311
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(attempt, 16)) * jitter
        wait = max(wait, min(asked or 0.0, LONGEST_RETRY_AFTER))
        if wait > SILENT_WAIT:
            reason = failure.message.partition(";")[0]
            self._on_wait(f"tailrace: {reason}; trying again in {wait:.0f} s")
        time.sleep(wait)


def retry_after(response: httpx.Response) -> float | None:
    """Seconds the server asks to be left alone for, given as such or as a date."""
    value = response.headers.get("Retry-After", "")
    try:
        if value.isdigit():
            return float(value)
        return parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None


def unreachable(target: Stream, error: httpx.RequestError) -> Failure:
    if isinstance(error, httpx.TimeoutException):
        reason = "no answer in time"
    else:
        reason = str(error).partition("] ")[2] or str(error) or type(error).__name__
    return Failure(
        f"cannot reach {origin(target.url)}: {reason}; start a server with 'tailrace serve' or set"
        " --url",
        Exit.UNREACHABLE,
    )


def refused(response: httpx.Response, target: Stream, missing: Stream, doing: str) -> Failure:
    """What an answer other than success means, with the way out where there is one."""
    status = response.status_code
    code, said = server_error(response)
    exit_code = BY_STATUS.get(status, Exit.UNEXPECTED)
    closed = response.headers.get("Stream-Closed", "").lower() == "true"
    if status == 404 and missing.name:
        fix = f"create it with 'tailrace create {shlex.quote(missing.name)}'"
        message = f"cannot {doing}: no stream at '{missing.name}'; see 'tailrace ls' or {fix}"
    elif status == 409 and closed:
        end = response.headers.get("Stream-Next-Offset", "an unknown offset")
        message = f"cannot {doing}: the stream is closed at {end} and takes no more appends"
    elif status == 409 and response.request.method == "PUT":
        message = f"cannot {doing}: {said}; compare with 'tailrace info {shlex.quote(target.name)}'"
    elif exit_code is Exit.REFUSED:
        message = f"cannot {doing}: {said}; give a token with --token or TAILRACE_TOKEN"
    elif exit_code is Exit.TOO_LARGE:
        message = f"cannot {doing}: {said}; append less at once, see --lines and --batch-bytes"
    elif exit_code is Exit.UNEXPECTED:
        message = f"cannot {doing}: the server answered {status}: {said}"
    else:
        message = f"cannot {doing}: {said}"
    return Failure(message, exit_code, code=code, status=status)


def server_error(response: httpx.Response) -> tuple[str, str]:
    """Code and message of an error answer; other servers than ours may send plain text."""
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
