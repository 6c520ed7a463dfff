"""Requests without I/O: an operation yields what it needs done, and is sent the outcome.

    operation = append(...)          # a generator
    effect = next(operation)         # GetToken, Fetch, Pause, …
    effect = operation.send(answer)  # until it returns its result

`tailrace.client.blocking` and `tailrace.client.asynchronous` carry the effects out, so that both
clients share every decision: what is repeated, when, and what a response means.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeVar

from tailrace.client.errors import (
    RETRIED_STATUSES,
    UNWRITTEN_CODES,
    StreamError,
    UnclearError,
    UnreachableError,
    parse_error,
)
from tailrace.client.urls import parse_origin

T = TypeVar("T")

MAX_DOUBLINGS: Final = 16


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""
    patience: float | None = None
    """Seconds of silence after which the connection counts as lost; None is the client's own."""


class HttpAnswer(NamedTuple):
    """A response; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    def says(self, header: str) -> bool:
        return self.headers.get(header, "").lower() == "true"


class LostConnection(Exception):
    """Sent into an operation when a request got no complete response."""

    def __init__(self, reason: str, *, delivered: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delivered = delivered
        """Whether the server may have got the request."""


@dataclass(frozen=True, slots=True)
class GetToken:
    """Get the token; with `refresh` a new one, because the server refused the last."""

    refresh: bool = False


@dataclass(frozen=True, slots=True)
class Fetch:
    """Send a request, and get the whole response."""

    request: HttpRequest


@dataclass(frozen=True, slots=True)
class Open:
    """Send a request, and get the head of its response; that of an error has its body."""

    request: HttpRequest


@dataclass(frozen=True, slots=True)
class Receive:
    """Get more of the response that was opened; nothing at its end."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait, for the reason given if that is an error."""

    seconds: float
    error: StreamError | None = None


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand a value to the caller, who iterates."""

    value: Any


@dataclass(frozen=True, slots=True)
class Now:
    """Get the seconds of a clock that never goes back."""


Effect = GetToken | Fetch | Open | Receive | Pause | Emit | Now
Operation = Generator[Effect, Any, T]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When a failed request is repeated: with growing, random pauses, and as `Retry-After` says.

    `attempts` counts the repetitions; None is any number.
    """

    attempts: int | None = 5
    first_pause: float = 0.1
    longest_pause: float = 15.0
    longest_retry_after: float = 60.0

    def permits(self, attempt: int) -> bool:
        return self.attempts is None or attempt < self.attempts

    def pause(self, attempt: int, error: StreamError) -> Pause:
        jitter = random.uniform(0.5, 1.0)  # noqa: S311
        seconds = self.first_pause * 2 ** min(attempt, MAX_DOUBLINGS)
        seconds = min(self.longest_pause, seconds) * jitter
        return Pause(max(seconds, min(error.retry_after or 0.0, self.longest_retry_after)), error)


FOR_EVER: Final = RetryPolicy(attempts=None)


def exchange(
    request: HttpRequest,
    retries: RetryPolicy,
    *,
    repeatable: bool = True,
    streaming: bool = False,
) -> Operation[HttpAnswer]:
    """Send a request until it succeeds; raises the error of the last attempt.

    One that is not repeatable is repeated only if the server has certainly not applied it.
    """
    attempt = 0
    refreshed = unclear = False
    token: str | None = yield GetToken()
    while True:
        error: StreamError
        sent = _authorized(request, token)
        try:
            answer: HttpAnswer = yield (Open(sent) if streaming else Fetch(sent))
        except LostConnection as lost:
            unclear |= lost.delivered
            error = _lost_error(request, lost, unclear and not repeatable)
            final = lost.delivered and not repeatable
        else:
            if answer.status < 300:
                return answer
            if request.method == "DELETE" and unclear and answer.status in (404, 410):
                return answer
            error = parse_error(request, answer)
            if answer.status == 401 and token is not None and not refreshed:
                refreshed = True
                renewed: str | None = yield GetToken(refresh=True)
                if renewed != token:
                    token = renewed
                    continue
            final = answer.status not in RETRIED_STATUSES
            if not repeatable and answer.status != 429 and error.code not in UNWRITTEN_CODES:
                final = True
        if final or not retries.permits(attempt):
            raise error
        yield retries.pause(attempt, error)
        attempt += 1


def _authorized(request: HttpRequest, token: str | None) -> HttpRequest:
    if token is None or "Authorization" in request.headers:
        return request
    return replace(request, headers={**request.headers, "Authorization": f"Bearer {token}"})


def _lost_error(request: HttpRequest, lost: LostConnection, unclear: bool) -> UnreachableError:
    origin = parse_origin(request.url)
    if unclear:
        return UnclearError(f"lost the connection to {origin}: {lost.reason}")
    return UnreachableError(f"cannot reach {origin}: {lost.reason}")
