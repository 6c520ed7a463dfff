"""Errors of the client: one class per reaction, each with a code, a status and the fix."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar, Final, Self

if TYPE_CHECKING:
    from tailrace.client.exchange import HttpAnswer, HttpRequest

RETRIED_STATUSES: Final = frozenset({429, 500, 502, 503, 504})
UNWRITTEN_CODES: Final = frozenset(
    {"STORE_UNAVAILABLE", "SERVER_BUSY", "KEYS_UNAVAILABLE", "CHECK_UNAVAILABLE"}
)
"""Codes with status 503 that promise that nothing was written."""


class StreamError(Exception):
    """A request that failed.

    `code` is for programs, `fix` says what to do about it, `status` is that of the response, or
    None if there was none.
    """

    code: str = "ERROR"
    fix: str = ""
    default_code: ClassVar[str] = "ERROR"
    default_fix: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        status: int | None = None,
        fix: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code or self.default_code
        self.fix = self.default_fix if fix is None else fix
        self.headers: Mapping[str, str] = headers or {}

    def __str__(self) -> str:
        # The message of a server may say what to do by itself.
        if not self.fix or (self.status is not None and ";" in self.message):
            return self.message
        return f"{self.message}; {self.fix}"

    @property
    def retry_after(self) -> float | None:
        """Seconds that the server asks to wait, from a number or a date."""
        value = self.headers.get("retry-after", "")
        try:
            if value.isdigit():
                return float(value)
            return parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None

    @property
    def next_offset(self) -> str | None:
        """The end of the stream, where the response has it."""
        return self.headers.get("stream-next-offset")

    def copy(self) -> Self:
        """An error to raise in another place; a traceback belongs to one."""
        return type(self)(
            self.message,
            code=self.code,
            status=self.status,
            fix=self.fix,
            headers=self.headers,
        )


class BadRequestError(StreamError):
    """The server does not understand the request, in any state of the stream."""

    default_code = "BAD_REQUEST"


class UnsupportedError(BadRequestError):
    """The server lacks a feature that is beyond the protocol."""

    default_code = "UNSUPPORTED"
    default_fix = "a Tailrace server has it"


class UnauthorizedError(StreamError):
    """The credentials are missing, malformed or expired."""

    default_code = "UNAUTHORIZED"
    default_fix = "pass a valid token"


class ForbiddenError(StreamError):
    """The credentials do not permit this."""

    default_code = "FORBIDDEN"
    default_fix = "pass a token that permits it"


class NotFoundError(StreamError):
    """The stream does not exist, or has expired."""

    default_code = "STREAM_NOT_FOUND"
    default_fix = "create it first"


class GoneError(StreamError):
    """The stream was deleted, or its data at this offset was."""

    default_code = "STREAM_GONE"
    default_fix = "drop what was read of it, and read again from the beginning (offset '-1')"


class ConflictError(StreamError):
    """The state of the stream does not permit this."""

    default_code = "CONFLICT"


class ExistsError(ConflictError):
    """A stream with other settings has this name."""

    default_code = "STREAM_CONFLICT"
    default_fix = "compare its settings, or choose another name"


class ClosedError(ConflictError):
    """The stream is closed, and accepts no more appends."""

    default_code = "STREAM_CLOSED"
    default_fix = "append to another stream"


class SequenceError(ConflictError):
    """The `Stream-Seq` does not sort after the last one."""

    default_code = "SEQUENCE_CONFLICT"


class ContentTypeError(ConflictError):
    """The content type is not that of the stream."""

    default_code = "CONTENT_TYPE_CONFLICT"
    default_fix = "leave it out, and the client asks for it"


class ProducerGapError(ConflictError):
    """The server has not got requests of this producer that it had acknowledged."""

    default_code = "PRODUCER_GAP"
    default_fix = (
        "the stream was probably deleted and created again: check what it holds, and start a new"
        " producer"
    )

    @property
    def expected(self) -> int:
        """The sequence number that the server takes next."""
        return _number(self.headers, "producer-expected-seq")


class FencedError(StreamError):
    """A producer with the same id and a newer epoch has taken over."""

    default_code = "PRODUCER_FENCED"
    default_fix = "stop this one, or give each its own id"

    @property
    def epoch(self) -> int:
        """The newer epoch."""
        return _number(self.headers, "producer-epoch")


class MismatchError(StreamError):
    """The stream does not end where `if_match` says; nothing was written."""

    default_code = "OFFSET_MISMATCH"
    default_fix = "read on from there, and decide again"


class TooLargeError(StreamError):
    """The body is larger than the server takes."""

    default_code = "BODY_TOO_LARGE"
    default_fix = "append less at a time"


class RateLimitedError(StreamError):
    """The server refuses so many requests; nothing was written."""

    default_code = "TOO_MANY_REQUESTS"
    default_fix = "send fewer requests"


class ServerError(StreamError):
    """The server failed."""

    default_code = "SERVER_ERROR"


class UnreachableError(StreamError):
    """The server cannot be reached, or the connection was lost."""

    default_code = "UNREACHABLE"
    default_fix = "check the URL, and that the server runs"


class UnclearError(UnreachableError):
    """The connection was lost after the request was sent: it may or may not have been applied."""

    default_code = "OUTCOME_UNKNOWN"
    default_fix = "read the end of the stream, or append with a Producer, which may repeat itself"


class StaleCacheError(StreamError):
    """The responses are old ones: a cache repeats them, or the stream has lost its end."""

    default_code = "STALE_CACHE"
    default_fix = (
        "a cache must use the whole query as its key, 'offset' and 'cursor' above all; if there is"
        " none, the stream is not what it was: read it from the beginning (offset '-1')"
    )


class ProtocolError(StreamError):
    """The response is none of this protocol."""

    default_code = "PROTOCOL_ERROR"
    default_fix = "check the URL"


_BY_CODE: Final[Mapping[str, type[StreamError]]] = {
    each.default_code: each for each in (SequenceError, ContentTypeError, ExistsError)
}

_BY_STATUS: Final[Mapping[int, type[StreamError]]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    412: MismatchError,
    413: TooLargeError,
    429: RateLimitedError,
}


def parse_error(request: HttpRequest, answer: HttpAnswer) -> StreamError:
    """The error that a response reports; servers other than Tailrace may send plain text."""
    status, headers = answer.status, answer.headers
    code, message = parse_body(answer)
    kind = _BY_STATUS.get(status, ServerError if status >= 500 else BadRequestError)
    if status == 409:
        if "producer-expected-seq" in headers:
            kind = ProducerGapError
        elif headers.get("stream-closed", "").lower() == "true":
            kind = ClosedError
        elif request.method == "PUT":
            kind = ExistsError
        else:
            kind = _BY_CODE.get(code, kind)
    elif status == 403 and "producer-epoch" in headers:
        kind = FencedError
    fix = None
    if code == "OFFSET_TRIMMED":
        fix = "older data is not kept: read from the beginning of what there is (offset '-1')"
    return kind(message, code=code, status=status, headers=headers, fix=fix)


def as_stream_error(error: Exception) -> StreamError:
    """An error as one of these, such as one of a function that returns tokens."""
    return error if isinstance(error, StreamError) else StreamError(f"{error!r}")


def parse_body(answer: HttpAnswer) -> tuple[str, str]:
    """Code and message of an error response."""
    try:
        error = json.loads(answer.body)["error"]
        return str(error["code"]), str(error["message"])
    except (ValueError, LookupError, TypeError):
        pass
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = "unknown status"
    is_html = "html" in answer.headers.get("content-type", "")
    text = "" if is_html else answer.body.decode(errors="replace").strip()
    return "", text[:300] or phrase


def _number(headers: Mapping[str, str], name: str) -> int:
    value = headers.get(name, "")
    return int(value) if value.isdigit() else 0
