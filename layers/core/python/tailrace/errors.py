"""Errors: one class per failure.

A class says what went wrong and carries what a response needs; its status is decided by one table
per protocol (`tailrace.web.statuses`).
"""

from __future__ import annotations

from typing import ClassVar


class TailraceError(Exception):
    """A failure with a stable `code` for programs and a message for people."""

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
    """The store could not commit; nothing was written, and a retry is safe."""

    code = "STORE_UNAVAILABLE"


class OutcomeUnknown(StoreUnavailable):
    """The store did not respond, so the operation may or may not have been applied."""

    code = "OUTCOME_UNKNOWN"


class DamagedData(TailraceError):
    """Stored data is missing, or is not what was written; it is never served."""

    code = "DAMAGED_DATA"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{why}; it is not served, but a backup may have it")
        self.name = name
        """That of the file or object."""


class CheckUnavailable(TailraceError):
    """The process that checks large JSON bodies failed; nothing was written."""

    code = "CHECK_UNAVAILABLE"


class StreamTooHot(TailraceError):
    """One stream is written or read more often than the store allows; nothing was done."""

    code = "STREAM_TOO_HOT"


class NotThroughTheEdge(TailraceError):
    """A request bypassed CloudFront, which enforces access."""

    code = "NOT_THROUGH_THE_EDGE"


class CredentialsMissing(TailraceError):
    """The operation needs credentials, and none were sent that could be sufficient."""

    code = "CREDENTIALS_MISSING"
    challenge: ClassVar[str] = 'Bearer realm="tailrace"'
    """The value of `WWW-Authenticate`."""


class BadCredentials(TailraceError):
    """Credentials are forged, malformed, ambiguous, or for another stream."""

    code = "BAD_CREDENTIALS"
    challenge: ClassVar[str] = 'Bearer realm="tailrace", error="invalid_token"'


class TokenExpired(BadCredentials):
    """A valid token has expired; the client only needs a new one."""

    code = "TOKEN_EXPIRED"
    challenge = f'{BadCredentials.challenge}, error_description="token_expired"'


class NotAllowed(TailraceError):
    """Valid credentials are not sufficient. Reveals nothing about whether the stream exists."""

    code = "NOT_ALLOWED"
    challenge: ClassVar[str] = 'Bearer realm="tailrace", error="insufficient_scope"'


class KeysUnavailable(TailraceError):
    """The keys to verify a token with cannot be read, so it may or may not be valid."""

    code = "KEYS_UNAVAILABLE"


class CannotSign(TailraceError):
    code = "CANNOT_SIGN"


class BadRequest(TailraceError):
    """A request that is invalid in every state of the stream."""

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
    """The body of a broadcast request is not a broadcast."""

    code = "BAD_BROADCAST"


class ForkOutOfRange(BadRequest):
    code = "FORK_OUT_OF_RANGE"


class NewEpochNotAtZero(BadRequest):
    code = "NEW_EPOCH_NOT_AT_ZERO"


class BodyTooLarge(TailraceError):
    code = "BODY_TOO_LARGE"


class ServerBusy(TailraceError):
    """The server has no memory left for the body; nothing was done, and a retry is safe."""

    code = "SERVER_BUSY"


class HeadersTooLarge(TailraceError):
    code = "HEADERS_TOO_LARGE"


class RequestTooSlow(TailraceError):
    """A request arrives more slowly than the minimum rate."""

    code = "REQUEST_TOO_SLOW"


class UnsupportedEncoding(TailraceError):
    """A body has a Content-Encoding: stored unchanged, it would be served as the content."""

    code = "UNSUPPORTED_ENCODING"


class TooManyRequests(TailraceError):
    """A client exceeds a rate limit; nothing was done."""

    code = "TOO_MANY_REQUESTS"

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """The value of `Retry-After`, in whole seconds."""


class TooManyStreams(TailraceError):
    """The prefix has reached its maximum number of streams."""

    code = "TOO_MANY_STREAMS"


class NotFound(TailraceError):
    """The route does not exist."""

    code = "NOT_FOUND"


class MethodNotAllowed(TailraceError):
    code = "METHOD_NOT_ALLOWED"

    def __init__(self, method: str, allowed: str) -> None:
        super().__init__(f"{method} is not allowed here; use one of {allowed}")
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
    """A slot is no longer retained; `earliest` is the first one that is."""

    code = "SLOT_TRIMMED"

    def __init__(self, earliest: int) -> None:
        super().__init__(f"slots before {earliest} are no longer retained")
        self.earliest = earliest


class OffsetTrimmed(TailraceError):
    code = "OFFSET_TRIMMED"

    def __init__(self, earliest: str) -> None:
        super().__init__(f"data before offset {earliest} is no longer retained")
        self.earliest = earliest
        """The offset of the first slot that is retained."""


class StaleOffset(TailraceError):
    """No stream at this path can have given the offset, as it is now; a reader has to start again:
    what it has read is of another stream, or of one that was restored to an earlier time."""

    code = "STALE_OFFSET"

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}; drop what was read of it, and start again at offset=-1")


class InvalidSubscription(BadRequest):
    """A request to the subscription endpoints is invalid, whatever the subscription's state."""

    code = "INVALID_REQUEST"


class SubscriptionTokenInvalid(BadCredentials):
    """The token of a wake is forged, malformed, missing, or of another subscription."""

    code = "TOKEN_INVALID"


class SubscriptionNotFound(TailraceError):
    code = "SUBSCRIPTION_NOT_FOUND"

    def __init__(self, id: str) -> None:  # noqa: A002 - the protocol's word
        super().__init__(f"no subscription '{id}'; create it with PUT")


class SubscriptionAlreadyExists(TailraceError):
    code = "SUBSCRIPTION_ALREADY_EXISTS"

    def __init__(self, id: str) -> None:  # noqa: A002 - the protocol's word
        super().__init__(f"the subscription '{id}' exists with another configuration")


class Fenced(TailraceError):
    """The wake is over: it was completed, released, or its lease has expired."""

    code = "FENCED"

    def __init__(self) -> None:
        super().__init__("the wake is over; only the holder of the current one may act on it")


class AlreadyClaimed(TailraceError):
    code = "ALREADY_CLAIMED"

    def __init__(self, holder: str, generation: int) -> None:
        super().__init__(f"'{holder}' holds the current wake")
        self.holder = holder
        self.generation = generation


class NoPendingWork(TailraceError):
    code = "NO_PENDING_WORK"

    def __init__(self) -> None:
        super().__init__("no stream of the subscription has news; wait for the next wake event")


class InvalidAckOffset(TailraceError):
    """An acknowledged offset is not between the cursor and the tail of a linked stream."""

    code = "INVALID_OFFSET"


class StreamConflict(TailraceError):
    """A PUT does not match the stream that exists at the path."""

    code = "STREAM_CONFLICT"


class ContentTypeConflict(TailraceError):
    code = "CONTENT_TYPE_CONFLICT"

    def __init__(self, expected: str, received: str) -> None:
        super().__init__(f"the stream's content type is '{expected}', not '{received}'")


class StreamClosed(TailraceError):
    code = "STREAM_CLOSED"

    def __init__(self, next_offset: str) -> None:
        super().__init__("the stream is closed and accepts no more appends")
        self.next_offset = next_offset


class OffsetMismatch(TailraceError):
    """The stream does not end where `If-Match` of an append says."""

    code = "OFFSET_MISMATCH"

    def __init__(self, next_offset: str) -> None:
        super().__init__(f"the stream ends at {next_offset}, not where If-Match says")
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


class WebhookUrlRejected(BadRequest):
    """A webhook may not be at this URL: it is not https, or leads to a place that is not public."""

    code = "WEBHOOK_URL_REJECTED"


class WebhookFailed(TailraceError):
    """A webhook gave no answer that can be used; its message is for the log only."""

    code = "WEBHOOK_FAILED"
