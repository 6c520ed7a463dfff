"""Which status each error has over HTTP, and the answer that says so."""

from __future__ import annotations

from typing import Final

import orjson

from tailrace import errors
from tailrace.errors import TailraceError
from tailrace.http.wire import RawHeaders, Response

STATUSES: Final[dict[type[TailraceError], int]] = {
    errors.BadRequest: 400,
    errors.NotThroughTheEdge: 403,
    errors.ProducerFenced: 403,
    errors.NotFound: 404,
    errors.StreamNotFound: 404,
    errors.MethodNotAllowed: 405,
    errors.StreamConflict: 409,
    errors.ContentTypeConflict: 409,
    errors.StreamClosed: 409,
    errors.SequenceConflict: 409,
    errors.ProducerGap: 409,
    errors.StreamGone: 410,
    errors.OffsetTrimmed: 410,
    errors.BodyTooLarge: 413,
    errors.PathTooLong: 414,
    errors.StreamTooHot: 429,
    errors.HeadersTooLarge: 431,
    errors.StoreUnavailable: 503,
}


def status_of(error: TailraceError) -> int:
    for kind in type(error).__mro__:
        if kind in STATUSES:
            return STATUSES[kind]
    return 500


def error_response(error: TailraceError) -> Response:
    status = status_of(error)
    headers: RawHeaders = [
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
    ]
    match error:
        case errors.StreamClosed():
            headers.append((b"stream-closed", b"true"))
            headers.append((b"stream-next-offset", error.next_offset.encode()))
        case errors.ProducerFenced():
            headers.append((b"producer-epoch", b"%d" % error.epoch))
        case errors.ProducerGap():
            headers.append((b"producer-expected-seq", b"%d" % error.expected))
            headers.append((b"producer-received-seq", b"%d" % error.received))
        case errors.MethodNotAllowed():
            headers.append((b"allow", error.allowed.encode()))
        case errors.StoreUnavailable() | errors.StreamTooHot():
            headers.append((b"retry-after", b"1"))
    return Response(status, headers, error_body(error.code, str(error)))


def error_body(code: str, message: str) -> bytes:
    return orjson.dumps({"error": {"code": code, "message": message}})


INTERNAL_ERROR: Final = Response(
    500,
    [(b"content-type", b"application/json"), (b"cache-control", b"no-store")],
    error_body("INTERNAL", "something went wrong in the server; its log says what"),
)
