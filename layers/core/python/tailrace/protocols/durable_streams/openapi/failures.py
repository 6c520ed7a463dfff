"""Every error that HTTP can answer, and which operation answers which.

Each error has one sample; its status, headers and body are what `error_response` makes of it, so
they are true by construction. Tests fail when an error has no sample.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import orjson

from tailrace import errors
from tailrace.errors import TailraceError
from tailrace.limits import (
    BODY_RATE,
    BODY_SECONDS,
    FORK_DEPTH,
    HEAD_SECONDS,
    HEADER_BYTES,
    HEADER_COUNT,
    JSON_DEPTH,
    PATH_BYTES,
)
from tailrace.log.offsets import START, token
from tailrace.log.paths import RESERVED
from tailrace.settings import Settings
from tailrace.web import messages
from tailrace.web.statuses import error_response, internal_error

Kind = type[TailraceError]

REQUEST_ID: Final = "5f2d8a0c91e7b364"
"""In examples."""


class Known(NamedTuple):
    """An error as the server answers it, and when it does."""

    sample: TailraceError
    when: str

    @property
    def answer(self) -> messages.Response:
        return error_response(self.sample, REQUEST_ID)


def known_errors(settings: Settings) -> list[Known]:
    """Every error that HTTP can answer, in the order of their statuses."""
    path = "chat/room-1"
    internal = orjson.loads(internal_error(REQUEST_ID).body)["error"]["message"]
    known = [
        Known(errors.BadRequest("Invalid HTTP request received."), "The bytes are not HTTP."),
        Known(
            errors.BadPath("the path has a control character"),
            "The stream's path is empty, not UTF-8, or has a broken percent-encoding, a control"
            " character, or a `.` or `..` segment.",
        ),
        Known(
            errors.BadHeader("send Stream-TTL or Stream-Expires-At, not both"),
            "A request header has a value that it cannot have, is missing, or contradicts another"
            " one. The message names it.",
        ),
        Known(
            errors.BadParameter("live must be long-poll or sse, not 'poll'"),
            "A query parameter has a value that it cannot have.",
        ),
        Known(
            errors.BadOffset("an offset is a value this server gave as Stream-Next-Offset"),
            "The offset is malformed or given twice, or a live read has none.",
        ),
        Known(
            errors.EmptyBody("the body is empty; send data, or Stream-Closed: true to close"),
            "An append without a body that does not close the stream either.",
        ),
        Known(
            errors.InvalidJson("the body is not valid JSON: Expecting value: line 1 column 2"),
            f"The stream holds JSON and the body is none, or is nested deeper than {JSON_DEPTH}"
            " levels.",
        ),
        Known(
            errors.EmptyBatch("an empty JSON array appends nothing; send at least one message"),
            "`[]` was appended to a stream of JSON.",
        ),
        Known(
            errors.BadBroadcast("a broadcast has the texts stream and data"),
            "What was posted to be broadcast is nothing that could be. Nothing of it was.",
        ),
        Known(
            errors.ForkOutOfRange(f"the source ends at {START}, before the fork's offset"),
            "A fork's offset is beyond the end of its source, or its sub-offset beyond the end of"
            " the append that it divides.",
        ),
        Known(
            errors.NewEpochNotAtZero("a new epoch starts at Producer-Seq 0; received 7"),
            "The first request of a new `Producer-Epoch` must have `Producer-Seq: 0`.",
        ),
        Known(
            errors.CredentialsMissing(
                "this takes a bearer token with the scope write for the stream"
            ),
            "What was asked for takes credentials, and none were shown. Whether the stream exists"
            " was not looked at.",
        ),
        Known(
            errors.BadCredentials("the signed name is another stream's"),
            "Credentials that were shown are forged, malformed, given twice, or for something"
            " else; even where none are needed.",
        ),
        Known(
            errors.TokenExpired("the token has expired; get a new one"),
            "The token was good, and is not any more.",
        ),
        Known(
            errors.NotAllowed("this takes a bearer token with the scope write for the stream"),
            "The credentials are good, but not for this. Whether the stream exists was not looked"
            " at.",
        ),
        Known(
            errors.ProducerFenced(4),
            "A newer instance of the producer, with a higher epoch, took over. Stop, or claim the"
            " stream again with a higher epoch than the one in `Producer-Epoch`.",
        ),
        Known(
            errors.TooManyStreams(
                "there are 100 streams below 'users/7/', and there may be no more"
            ),
            "No more streams may be created below a prefix: `TAILRACE_STREAMS_PER_PREFIX`.",
        ),
        Known(
            errors.RequestTooSlow("the body took too long to arrive"),
            f"The header fields took longer than {HEAD_SECONDS} seconds to arrive, or the body"
            f" longer than {BODY_SECONDS} and a second for each {BODY_RATE:,} bytes.",
        ),
        Known(
            errors.UnsupportedEncoding("a body has no Content-Encoding here, but 'gzip' was given"),
            "The body has a `Content-Encoding` other than `identity`. Send it as it is.",
        ),
        Known(
            errors.TooManyRequests("a client may append 10 times a second; wait", 1),
            "The client appends more often, or has more live reads, than one client may; or it asks"
            " again and again for what follows a stream's end. Wait for `Retry-After` seconds.",
        ),
        Known(
            errors.NotFound("nothing is at '/v1/stream'; /docs lists what is"),
            f"No such route. Paths whose first segment is `{RESERVED}` are the protocol's own.",
        ),
        Known(errors.StreamNotFound(path), "No stream is at this path: never created, or deleted."),
        Known(
            errors.MethodNotAllowed("PATCH", messages.METHODS),
            "The path takes other methods; `Allow` lists them.",
        ),
        Known(
            errors.StreamConflict("the stream exists already, with another TTL or expiry"),
            "A stream with another configuration is at the path, or the path or a fork's source is"
            " deleted and kept only for its forks, or forks of forks are nested deeper than"
            f" {FORK_DEPTH}.",
        ),
        Known(
            errors.ContentTypeConflict("application/json", "text/plain"),
            "The request's `Content-Type` is not the stream's. Parameters such as `charset` do not"
            " count.",
        ),
        Known(
            errors.StreamClosed(token(3, 51)),
            "The stream is closed for good. `Stream-Next-Offset` is where it ends.",
        ),
        Known(
            errors.SequenceConflict("0009", "0008"),
            "`Stream-Seq` does not sort after the last one that was accepted.",
        ),
        Known(
            errors.ProducerGap(5, 7),
            "A request of this producer is missing: send `Producer-Expected-Seq` first.",
        ),
        Known(
            errors.StreamGone(path),
            "The stream was deleted or has expired, and its data is kept only for its forks.",
        ),
        Known(
            errors.OffsetTrimmed(token(128, 90210)),
            "Data at this offset is no longer retained.",
        ),
        Known(
            errors.BodyTooLarge(f"a body has at most {settings.max_body_bytes} bytes"),
            f"The body has more than {settings.max_body_bytes:,} bytes. Send it in parts.",
        ),
        Known(
            errors.PathTooLong(f"a stream's path has at most {PATH_BYTES} bytes"),
            f"The stream's path has more than {PATH_BYTES:,} bytes, percent-encoded.",
        ),
        Known(
            errors.HeadersTooLarge(
                f"a request has at most {HEADER_COUNT} header fields and {HEADER_BYTES} bytes of"
                " them"
            ),
            f"The request has more than {HEADER_COUNT} header fields, or more than"
            f" {HEADER_BYTES:,} bytes of them.",
        ),
        Known(
            errors.StreamTooHot(
                "the stream is used more often than DynamoDB lets one key be; try again later"
            ),
            "One stream is written or read more often than the store can. Nothing has changed;"
            " retry after `Retry-After` seconds.",
        ),
        Known(TailraceError(internal), "A fault of the server; its log has the details."),
        Known(
            errors.StoreUnavailable("the store could not commit: disk I/O error"),
            "The store could not be written. Nothing has changed; retry after `Retry-After`"
            " seconds.",
        ),
        Known(
            errors.ServerBusy("too many large bodies are under way; try again"),
            "The server has no memory left for another large body. Nothing has changed; retry"
            " after `Retry-After` seconds.",
        ),
        Known(
            errors.KeysUnavailable("the keys of tokens cannot be read; try again"),
            "The keys that tokens are checked with cannot be read just now.",
        ),
        Known(
            errors.CheckUnavailable("the process that checks large JSON bodies ended; try again"),
            "A large JSON body could not be checked. Nothing has changed; retry after"
            " `Retry-After` seconds.",
        ),
        Known(
            errors.OutcomeUnknown(
                "DynamoDB did not answer: the request may have been carried out or not;"
                " with a Producer-Id it can be repeated safely"
            ),
            "The store did not answer. The request may have been carried out; an append with a"
            " `Producer-Id` can be repeated safely.",
        ),
    ]
    return sorted(known, key=lambda error: error.answer.status)


ANY_ROUTE: Final[tuple[Kind, ...]] = (
    errors.BadRequest,
    errors.NotAllowed,
    errors.RequestTooSlow,
    errors.HeadersTooLarge,
    TailraceError,
)
DOOR: Final[tuple[Kind, ...]] = (
    errors.CredentialsMissing,
    errors.BadCredentials,
    errors.TokenExpired,
    errors.KeysUnavailable,
)
"""What is answered to those who may not."""

ANY_STREAM: Final[tuple[Kind, ...]] = (
    *ANY_ROUTE,
    *DOOR,
    errors.BadPath,
    errors.NotFound,
    errors.StreamNotFound,
    errors.PathTooLong,
    errors.StreamTooHot,
    errors.StoreUnavailable,
    errors.OutcomeUnknown,
)
OWN_ERRORS: Final[dict[str, tuple[Kind, ...]]] = {
    "createStream": (
        *ANY_STREAM,
        errors.BodyTooLarge,
        errors.ServerBusy,
        errors.UnsupportedEncoding,
        errors.TooManyRequests,
        errors.TooManyStreams,
        errors.BadHeader,
        errors.BadOffset,
        errors.InvalidJson,
        errors.CheckUnavailable,
        errors.ForkOutOfRange,
        errors.StreamConflict,
        errors.ContentTypeConflict,
        errors.OffsetTrimmed,
    ),
    "appendToStream": (
        *ANY_STREAM,
        errors.BodyTooLarge,
        errors.ServerBusy,
        errors.UnsupportedEncoding,
        errors.TooManyRequests,
        errors.BadHeader,
        errors.EmptyBody,
        errors.InvalidJson,
        errors.CheckUnavailable,
        errors.EmptyBatch,
        errors.NewEpochNotAtZero,
        errors.ProducerFenced,
        errors.ContentTypeConflict,
        errors.StreamClosed,
        errors.SequenceConflict,
        errors.ProducerGap,
        errors.StreamGone,
    ),
    "readStream": (
        *ANY_STREAM,
        errors.TooManyRequests,
        errors.BadOffset,
        errors.BadParameter,
        errors.StreamGone,
        errors.OffsetTrimmed,
    ),
    "inspectStream": (*ANY_STREAM, errors.StreamGone),
    "deleteStream": (*ANY_STREAM, errors.StreamGone),
    "preflightStream": ANY_ROUTE,
    "broadcast": (
        *ANY_ROUTE,
        *DOOR,
        errors.BadBroadcast,
        errors.BodyTooLarge,
        errors.ServerBusy,
        errors.TooManyRequests,
        errors.TooManyStreams,
        errors.InvalidJson,
        errors.CheckUnavailable,
        errors.ContentTypeConflict,
        errors.StreamClosed,
        errors.StreamConflict,
        errors.StreamGone,
        errors.StreamTooHot,
        errors.StoreUnavailable,
        errors.OutcomeUnknown,
    ),
    "listStreams": (
        *ANY_ROUTE,
        *DOOR,
        errors.BadParameter,
        errors.StreamTooHot,
        errors.StoreUnavailable,
    ),
}
"""The errors of each operation; those not named have only the errors of any route."""
