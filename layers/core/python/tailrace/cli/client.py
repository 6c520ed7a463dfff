"""The client of the commands: `tailrace.client`, with failures that say what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from tailrace.cli.address import StreamAddress, locate
from tailrace.cli.exit_codes import BY_STATUS, Exit, Failure
from tailrace.client import (
    BadRequestError,
    Client,
    ClosedError,
    ExistsError,
    ProtocolError,
    RetryPolicy,
    Stream,
    StreamError,
    UnreachableError,
    UnsupportedError,
)
from tailrace.client.exchange import HttpAnswer, HttpRequest, exchange
from tailrace.client.urls import add_query

RETRIES: Final = 2
UNREPORTED_WAIT: Final = 1.0
"""Waits up to this many seconds are not reported."""


class CommandClient:
    """Sends requests to one server, each of which can be repeated safely."""

    def __init__(
        self, server: str, token: str | None = None, *, on_wait: Callable[[str], None] = print
    ) -> None:
        self.server = server
        self._on_wait = on_wait
        self._subject = ("", StreamAddress("", server))
        self._client = Client(
            server,
            token=token or None,
            retries=RetryPolicy(attempts=RETRIES),
            live_retries=RetryPolicy(attempts=RETRIES),
            on_retry=self._note_wait,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    def locate(self, argument: str) -> StreamAddress:
        """The stream that an argument names."""
        return locate(argument, self.server)

    def repeat(self, attempts: int | None) -> None:
        """Repeat each failed request so often from now on; None is for ever."""
        self._client.retries = self._client.live_retries = RetryPolicy(attempts=attempts)

    def send(
        self,
        method: str,
        target: StreamAddress,
        *,
        action: str,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        timeout: float | None = None,
    ) -> HttpAnswer:
        """Send a request to something that is no stream; its errors become failures."""
        request = HttpRequest(
            method, add_query(target.url, params or {}), headers or {}, content, timeout
        )
        with self.reporting(action, target):
            return self._client.run(exchange(request, self._client.retries))

    @contextmanager
    def stream(
        self, target: StreamAddress, action: str, missing: StreamAddress | None = None
    ) -> Iterator[Stream]:
        """A stream to do something with; its errors become failures.

        `action` completes "cannot …"; a 404 is reported for `missing`, by default the target.
        """
        with self.reporting(action, missing or target):
            yield self._client.stream(target.url)

    @contextmanager
    def listing(self, action: str) -> Iterator[Client]:
        with self.reporting(action, StreamAddress("", self.server)):
            yield self._client

    @contextmanager
    def reporting(self, action: str, target: StreamAddress) -> Iterator[None]:
        """Raise errors as failures to carry out an action."""
        self._subject = (action, target)
        try:
            yield
        except StreamError as error:
            raise as_failure(error, action, target) from None

    def _note_wait(self, seconds: float, error: StreamError) -> None:
        if seconds > UNREPORTED_WAIT:
            reason = as_failure(error, *self._subject).message.partition(";")[0]
            self._on_wait(f"tailrace: {reason}; retrying in {seconds:.0f} s")


def as_failure(error: StreamError, action: str, target: StreamAddress) -> Failure:
    """The failure for an error, with the fix where there is one."""
    status, reason = error.status, error.message
    exit_code = BY_STATUS.get(status or 0, Exit.UNEXPECTED)
    name = shlex.quote(target.name)
    match error:
        case UnreachableError():
            exit_code = Exit.UNREACHABLE
            message = f"{reason}; start a server with 'tailrace serve' or set --url"
        case ProtocolError():
            message = f"{reason}; check --url"
        case UnsupportedError():
            message = f"cannot {action}: {error}"
        case ClosedError():
            end = error.next_offset or "an unknown offset"
            message = f"cannot {action}: the stream is closed at {end} and accepts no more appends"
        case ExistsError() if target.name:
            message = f"cannot {action}: {reason}; compare with 'tailrace info {name}'"
        case BadRequestError() if status is None:
            exit_code, message = Exit.USAGE, reason
        case _ if status == 404 and target.name:
            message = (
                f"cannot {action}: no stream at '{target.name}'; see 'tailrace ls' or create it"
                f" with 'tailrace create {name}'"
            )
        case _ if exit_code is Exit.REFUSED:
            message = f"cannot {action}: {reason}; pass a token with --token or TAILRACE_TOKEN"
        case _ if exit_code is Exit.TOO_LARGE:
            message = (
                f"cannot {action}: {reason}; append less at a time with --lines and --batch-bytes"
            )
        case _ if exit_code is Exit.UNEXPECTED and status is not None:
            message = f"cannot {action}: the server responded with {status}: {reason}"
        case _:
            message = f"cannot {action}: {reason}"
    return Failure(message, exit_code, code=error.code, status=status)
