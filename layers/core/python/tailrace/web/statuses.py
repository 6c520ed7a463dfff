"""The HTTP status of each error, and the answer to it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import orjson

from tailrace import errors
from tailrace.errors import TailraceError
from tailrace.web.messages import RawHeaders, Response, new_id

STATUSES: Final[dict[type[TailraceError], int]] = {
    errors.BadRequest: 400,
    errors.CredentialsMissing: 401,
    errors.BadCredentials: 401,
    errors.NotAllowed: 403,
    errors.NotThroughTheEdge: 403,
    errors.ProducerFenced: 403,
    errors.TooManyStreams: 403,
    errors.NotFound: 404,
    errors.StreamNotFound: 404,
    errors.SubscriptionNotFound: 404,
    errors.MethodNotAllowed: 405,
    errors.RequestTooSlow: 408,
    errors.StreamConflict: 409,
    errors.ContentTypeConflict: 409,
    errors.StreamClosed: 409,
    errors.SubscriptionAlreadyExists: 409,
    errors.Fenced: 409,
    errors.AlreadyClaimed: 409,
    errors.NoPendingWork: 409,
    errors.InvalidAckOffset: 409,
    errors.OffsetMismatch: 412,
    errors.SequenceConflict: 409,
    errors.ProducerGap: 409,
    errors.StreamGone: 410,
    errors.OffsetTrimmed: 410,
    errors.StaleOffset: 410,
    errors.BodyTooLarge: 413,
    errors.PathTooLong: 414,
    errors.UnsupportedEncoding: 415,
    errors.StreamTooHot: 429,
    errors.TooManyRequests: 429,
    errors.HeadersTooLarge: 431,
    errors.DamagedData: 500,
    errors.StoreUnavailable: 503,
    errors.ServerBusy: 503,
    errors.KeysUnavailable: 503,
    errors.CheckUnavailable: 503,
}

INTERNAL_MESSAGE: Final = "something went wrong in the server; its log says what"


def status_of(error: TailraceError) -> int:
    for kind in type(error).__mro__:
        if kind in STATUSES:
            return STATUSES[kind]
    return 500


def error_response(error: TailraceError, request_id: str | None = None) -> Response:
    """The answer to an error; without the request's id it gets a new one."""
    request_id = request_id or new_id()
    headers = _headers(request_id)
    details: dict[str, object] = {}
    match error:
        case errors.StreamClosed():
            headers.append((b"stream-closed", b"true"))
            headers.append((b"stream-next-offset", error.next_offset.encode()))
        case errors.OffsetMismatch():
            headers.append((b"stream-next-offset", error.next_offset.encode()))
            headers.append((b"etag", b'"%b"' % error.next_offset.encode()))
        case errors.ProducerFenced():
            headers.append((b"producer-epoch", b"%d" % error.epoch))
        case errors.ProducerGap():
            headers.append((b"producer-expected-seq", b"%d" % error.expected))
            headers.append((b"producer-received-seq", b"%d" % error.received))
        case errors.MethodNotAllowed():
            headers.append((b"allow", error.allowed.encode()))
        case errors.CredentialsMissing() | errors.BadCredentials() | errors.NotAllowed():
            headers.append((b"www-authenticate", error.challenge.encode()))
        case errors.UnsupportedEncoding():
            headers.append((b"accept-encoding", b"identity"))
        case errors.AlreadyClaimed():
            details = {"current_holder": error.holder, "generation": error.generation}
        case errors.TooManyRequests():
            headers.append((b"retry-after", b"%d" % error.retry_after))
        case (
            errors.StoreUnavailable()
            | errors.ServerBusy()
            | errors.StreamTooHot()
            | errors.KeysUnavailable()
            | errors.CheckUnavailable()
        ):
            headers.append((b"retry-after", b"1"))
    return Response(status_of(error), headers, _body(error.code, str(error), request_id, details))


def internal_error(request_id: str | None = None) -> Response:
    """The answer to an unexpected error; the log has its traceback under the same id."""
    request_id = request_id or new_id()
    return Response(500, _headers(request_id), _body("INTERNAL", INTERNAL_MESSAGE, request_id))


def _headers(request_id: str) -> RawHeaders:
    return [
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        (b"x-request-id", request_id.encode()),
    ]


def _body(
    code: str, message: str, request_id: str, details: Mapping[str, object] = MappingProxyType({})
) -> bytes:
    error = {"code": code, "message": message, "request_id": request_id, **details}
    return orjson.dumps({"error": error})
