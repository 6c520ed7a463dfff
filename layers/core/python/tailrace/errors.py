"""One small named error per failure.

The class says what went wrong and carries what an answer needs; which status a protocol gives it is
decided in one table per protocol (`tailrace.web.statuses`).
"""

from __future__ import annotations

from typing import ClassVar


class TailraceError(Exception):
    """A failure with a stable `code` for machines and a message for people."""

    code: ClassVar[str] = "INTERNAL"


class BadSetting(TailraceError):
    code = "BAD_SETTING"


class DataDirectoryInUse(TailraceError):
    code = "DATA_DIRECTORY_IN_USE"


class UnreadableData(TailraceError):
    code = "UNREADABLE_DATA"


class CannotListen(TailraceError):
    code = "CANNOT_LISTEN"


class StoreUnavailable(TailraceError):
    """The store could not commit; nothing was written, a retry is safe."""

    code = "STORE_UNAVAILABLE"


class OutcomeUnknown(StoreUnavailable):
    """The store did not answer; what was asked for may have been done or not."""

    code = "OUTCOME_UNKNOWN"


class CheckUnavailable(TailraceError):
    """The process that checks large JSON bodies has ended; nothing was written."""

    code = "CHECK_UNAVAILABLE"


class StreamTooHot(TailraceError):
    """One stream is written or read more often than its store can; nothing was done."""

    code = "STREAM_TOO_HOT"


class NotThroughTheEdge(TailraceError):
    """A request that did not come through CloudFront, where the rules about access are."""

    code = "NOT_THROUGH_THE_EDGE"


class CredentialsMissing(TailraceError):
    """What was asked for needs credentials, and none were shown that could be enough."""

    code = "CREDENTIALS_MISSING"
    challenge: ClassVar[str] = 'Bearer realm="tailrace"'
    """The value of `WWW-Authenticate`."""


class BadCredentials(TailraceError):
    """Credentials that are forged, malformed, ambiguous, or for something else."""

    code = "BAD_CREDENTIALS"
    challenge: ClassVar[str] = 'Bearer realm="tailrace", error="invalid_token"'


class TokenExpired(BadCredentials):
    """A token that was good: its owner only needs a new one."""

    code = "TOKEN_EXPIRED"
    challenge = f'{BadCredentials.challenge}, error_description="token_expired"'


class NotAllowed(TailraceError):
    """Good credentials that are not enough. Whether the stream exists was not looked at."""

    code = "NOT_ALLOWED"
    challenge: ClassVar[str] = 'Bearer realm="tailrace", error="insufficient_scope"'


class KeysUnavailable(TailraceError):
    """The keys to check a token with cannot be read, so nobody knows whether it is good."""

    code = "KEYS_UNAVAILABLE"


class CannotSign(TailraceError):
    code = "CANNOT_SIGN"


class BadRequest(TailraceError):
    """A request that no state of the stream could make right."""

    code = "BAD_REQUEST"


class BadPath(BadRequest):
    code = "BAD_PATH"


class PathTooLong(TailraceError):
    code = "PATH_TOO_LONG"


class BadHeader(BadRequest):
    code = "BAD_HEADER"


class BadParameter(BadRequest):
    code = "BAD_PARAMETER"


class BadOffset(BadRequest):
    code = "BAD_OFFSET"


class EmptyBody(BadRequest):
    code = "EMPTY_BODY"


class InvalidJson(BadRequest):
    code = "INVALID_JSON"


class EmptyBatch(BadRequest):
    code = "EMPTY_BATCH"


class BadBroadcast(BadRequest):
    """What was posted to be broadcast is nothing that could be."""

    code = "BAD_BROADCAST"


class ForkOutOfRange(BadRequest):
    code = "FORK_OUT_OF_RANGE"


class NewEpochNotAtZero(BadRequest):
    code = "NEW_EPOCH_NOT_AT_ZERO"


class BodyTooLarge(TailraceError):
    code = "BODY_TOO_LARGE"


class ServerBusy(TailraceError):
    """The server has no memory left for what was sent; nothing was done, a retry is safe."""

    code = "SERVER_BUSY"


class HeadersTooLarge(TailraceError):
    code = "HEADERS_TOO_LARGE"


class RequestTooSlow(TailraceError):
    """A request of which too little has arrived for the time it took."""

    code = "REQUEST_TOO_SLOW"


class UnsupportedEncoding(TailraceError):
    """A body in a Content-Encoding: stored as it is, it would be taken for the content."""

    code = "UNSUPPORTED_ENCODING"


class TooManyRequests(TailraceError):
    """A client does something more often than it may; nothing was done."""

    code = "TOO_MANY_REQUESTS"

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Whole seconds, the value of `Retry-After`."""


class TooManyStreams(TailraceError):
    """No room for another stream where it was to be created."""

    code = "TOO_MANY_STREAMS"


class NotFound(TailraceError):
    """No such route."""

    code = "NOT_FOUND"


class MethodNotAllowed(TailraceError):
    code = "METHOD_NOT_ALLOWED"

    def __init__(self, method: str, allowed: str) -> None:
        super().__init__(f"{method} is not supported here; use one of {allowed}")
        self.allowed = allowed


class StreamNotFound(TailraceError):
    code = "STREAM_NOT_FOUND"

    def __init__(self, path: str) -> None:
        super().__init__(f"no stream at '{path}'; create it with PUT")


class StreamGone(TailraceError):
    code = "STREAM_GONE"

    def __init__(self, path: str) -> None:
        super().__init__(f"the stream at '{path}' was deleted; only its forks still read its data")


class SlotTrimmed(TailraceError):
    """What a store says of a slot that is no longer kept; the first one kept is `earliest`."""

    code = "SLOT_TRIMMED"

    def __init__(self, earliest: int) -> None:
        super().__init__(f"slots before {earliest} are no longer retained")
        self.earliest = earliest


class OffsetTrimmed(TailraceError):
    code = "OFFSET_TRIMMED"

    def __init__(self, earliest: str) -> None:
        super().__init__(f"data before offset {earliest} is no longer retained")
        self.earliest = earliest
        """The token of the first slot that is."""


class StreamConflict(TailraceError):
    """A PUT that does not match what is at the path already."""

    code = "STREAM_CONFLICT"


class ContentTypeConflict(TailraceError):
    code = "CONTENT_TYPE_CONFLICT"

    def __init__(self, expected: str, received: str) -> None:
        super().__init__(f"the stream's content type is '{expected}', not '{received}'")


class StreamClosed(TailraceError):
    code = "STREAM_CLOSED"

    def __init__(self, next_offset: str) -> None:
        super().__init__("the stream is closed; it takes no more appends")
        self.next_offset = next_offset


class SequenceConflict(TailraceError):
    code = "SEQUENCE_CONFLICT"

    def __init__(self, last: str, received: str) -> None:
        super().__init__(f"Stream-Seq must sort after '{last}'; received '{received}'")


class ProducerFenced(TailraceError):
    code = "PRODUCER_FENCED"

    def __init__(self, epoch: int) -> None:
        super().__init__(f"a newer producer took over with epoch {epoch}")
        self.epoch = epoch


class ProducerGap(TailraceError):
    code = "PRODUCER_GAP"

    def __init__(self, expected: int, received: int) -> None:
        super().__init__(f"expected Producer-Seq {expected}, received {received}")
        self.expected = expected
        self.received = received
