"""Pull-wake subscriptions: claim a wake, read what is pending, acknowledge it; no I/O.

One worker at a time holds the wake of a subscription, for the time of a lease. What it does not
acknowledge wakes again, so each message is handled at least once.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote

from tailrace.client.content import StreamChunk
from tailrace.client.errors import (
    BadRequestError,
    ConflictError,
    GoneError,
    NotFoundError,
    ProtocolError,
    StreamError,
    UnauthorizedError,
)
from tailrace.client.exchange import (
    Emit,
    HttpAnswer,
    HttpRequest,
    Now,
    Operation,
    Pause,
    RetryPolicy,
    exchange,
)
from tailrace.client.reading import START, ReadStart, StreamReading
from tailrace.client.urls import STREAMS

SUBSCRIPTIONS: Final = f"{STREAMS}__ds/subscriptions/"
CLAIM_SECONDS: Final = 60.0
"""Longest time between two claims: a wake event that was missed delays a message by no more."""

SKIPPED_PAUSE: Final = 1.0
"""Seconds before the next claim after a stream could not be read."""

BEATS_PER_LEASE: Final = 3
"""How often the lease is extended while it lasts: two requests in a row may fail."""

NO_CLAIM: Final = frozenset({"ALREADY_CLAIMED", "NO_PENDING_WORK"})
FENCING: Final = frozenset({"FENCED", "TOKEN_INVALID", "TOKEN_EXPIRED"})


class LeaseLostError(StreamError):
    """The lease of a wake is over: another worker may hold it."""

    default_code = "FENCED"
    default_fix = "what was not acknowledged is handled again"


@dataclass(frozen=True, slots=True)
class PendingStream:
    """A stream with news: from `offset` to `tail_offset` there are messages to handle."""

    path: str
    offset: str
    tail_offset: str


@dataclass(frozen=True, slots=True)
class Wake:
    """A wake that a worker has claimed."""

    wake_id: str
    generation: int
    token: str
    streams: Sequence[PendingStream]
    lease_seconds: float
    claimed_at: float


@dataclass(frozen=True, slots=True)
class WorkItem:
    """Messages to handle: a chunk of a stream."""

    path: str
    offset: str
    chunk: StreamChunk

    @property
    def name(self) -> str:
        """The path, as it names the stream in this client."""
        return unquote(self.path, errors="surrogateescape")

    def items(self) -> list[Any]:
        """The messages of a JSON stream."""
        return self.chunk.json()


class SubscriptionWork:
    """A worker: it claims wakes, emits what is pending, and acknowledges it when asked for more.

    While an item is handled, the lease is extended from outside, by `beat`.
    """

    def __init__(
        self,
        server: str,
        subscription: str,
        worker: str,
        retries: RetryPolicy,
        live_retries: RetryPolicy,
        live_timeout: float,
    ) -> None:
        self.wake: Wake | None = None
        self.url = subscription_url(server, subscription)
        self._server = server
        self._id = subscription
        self._worker = worker
        self._retries = retries
        self._live_retries = live_retries
        self._live_timeout = live_timeout
        self._until = 0.0

    @property
    def beat_seconds(self) -> float:
        """How long to wait until the next `beat`."""
        return 1.0 if self.wake is None else self.wake.lease_seconds / BEATS_PER_LEASE

    def beat(self) -> Operation[None]:
        """Extend the lease, if there is one."""
        wake = self.wake
        if wake is None:
            return
        now: float = yield Now()
        try:
            yield from acknowledge(self.url, RetryPolicy(attempts=0), wake)
        except LeaseLostError:
            if self.wake is wake:
                self.wake = None
        except StreamError:
            pass  # The next one may succeed in time.
        else:
            self._extend(wake, now)

    def run(self, *, once: bool) -> Operation[None]:
        """Emit items for ever, or with `once` until nothing is pending."""
        fields = yield from get_subscription(self.url, self._retries)
        wake_stream = fields.get("wake_stream")
        if not isinstance(wake_stream, str):
            raise BadRequestError(
                f"'{self._id}' is not a pull-wake subscription",
                code="WRONG_TYPE",
                fix="create it with a wake_stream",
            )
        reading = self._reading(wake_stream)
        # Before the first claim, so that no event after it is missed.
        end = yield from reading.all(ReadStart("now"))
        while True:
            self.wake = yield from claim(self.url, self._live_retries, self._worker)
            if self.wake is not None:
                self._until = self.wake.claimed_at + self.wake.lease_seconds
                yield from self._process(self.wake)
                continue
            if once:
                return
            end = yield from self._wait(reading, end)

    def _wait(self, reading: StreamReading, end: StreamChunk) -> Operation[StreamChunk]:
        """Wait for an event, though not for long."""
        until: float = yield Now()
        until += CLAIM_SECONDS
        now = 0.0
        while now < until and not end.closed:
            try:
                end = yield from reading.poll(end)
            except GoneError:
                # It was deleted and created again.
                return (yield from reading.all(ReadStart("now")))
            if any(is_wake(event, self._id) for event in end.json()):
                break
            now = yield Now()
        if end.closed:
            raise ConflictError("the wake stream was closed", fix="create the subscription anew")
        return end

    def _process(self, wake: Wake) -> Operation[None]:
        try:
            complete = True
            for pending in wake.streams:
                complete &= yield from self._process_stream(wake, pending)
            yield from self._check(wake)
            if complete:
                yield from acknowledge(self.url, self._live_retries, wake, done=True)
            else:
                yield from release(self.url, self._live_retries, wake)
                self.wake = None
                yield Pause(SKIPPED_PAUSE)
        except LeaseLostError:
            pass
        self.wake = None

    def _process_stream(self, wake: Wake, pending: PendingStream) -> Operation[bool]:
        """Emit what a stream has, up to the end that it had; False if it was skipped."""
        reading = self._reading(pending.path)
        offset = pending.offset
        while True:
            try:
                chunk = yield from reading.read_at(offset)
            except GoneError:
                if offset == START:
                    return False
                offset = START
                continue
            except NotFoundError:
                return False
            yield from self._check(wake)
            if not chunk.is_empty:
                yield Emit(WorkItem(pending.path, offset, chunk))
                yield from self._check(wake)
            if chunk.next_offset == offset:
                return True
            now: float = yield Now()
            offset = chunk.next_offset
            try:
                yield from acknowledge(self.url, self._live_retries, wake, {pending.path: offset})
            except ConflictError:
                return False  # It was deleted meanwhile.
            self._extend(wake, now)
            if chunk.up_to_date or chunk.closed or offset >= pending.tail_offset:
                return True

    def _check(self, wake: Wake) -> Operation[None]:
        now: float = yield Now()
        if self.wake is not wake or now > self._until:
            raise LeaseLostError("the lease could not be extended in time")

    def _extend(self, wake: Wake, sent: float) -> None:
        if self.wake is wake:
            self._until = max(self._until, sent + wake.lease_seconds)

    def _reading(self, path: str) -> StreamReading:
        url = self._server.rstrip("/") + STREAMS + path
        return StreamReading(url, self._retries, self._live_retries, self._live_timeout)


def subscription_url(server: str, subscription: str) -> str:
    encoded = quote(subscription, safe="", errors="surrogateescape")
    return f"{server.rstrip('/')}{SUBSCRIPTIONS}{encoded}"


def pull_wake(
    wake_stream: str,
    pattern: str | None,
    streams: Iterable[str] | None,
    lease_ttl_ms: int | None,
    description: str | None,
) -> dict[str, Any]:
    """The body that creates a subscription."""
    return {
        "type": "pull-wake",
        "pattern": pattern,
        "streams": None if streams is None else list(streams),
        "wake_stream": wake_stream,
        "lease_ttl_ms": lease_ttl_ms,
        "description": description,
    }


def worker_name() -> str:
    """A name that no other worker has."""
    return f"worker-{secrets.token_hex(6)}"


def create_subscription(
    url: str, retries: RetryPolicy, fields: Mapping[str, Any]
) -> Operation[Mapping[str, Any]]:
    body = json.dumps({name: each for name, each in fields.items() if each is not None}).encode()
    request = HttpRequest("PUT", url, {"Content-Type": "application/json"}, body)
    return _parse((yield from exchange(request, retries)))


def get_subscription(url: str, retries: RetryPolicy) -> Operation[Mapping[str, Any]]:
    return _parse((yield from exchange(HttpRequest("GET", url), retries)))


def delete_subscription(url: str, retries: RetryPolicy) -> Operation[None]:
    yield from exchange(HttpRequest("DELETE", url), retries)


def claim(url: str, retries: RetryPolicy, worker: str) -> Operation[Wake | None]:
    """Claim the wake; None if there is none, or another worker has it."""
    now: float = yield Now()
    try:
        fields = _parse((yield from _post(f"{url}/claim", retries, {"worker": worker})))
    except ConflictError as error:
        if error.code in NO_CLAIM:
            return None
        raise
    try:
        streams = [
            PendingStream(each["path"], each["acked_offset"], each["tail_offset"])
            for each in fields["streams"]
            if each.get("has_pending", True)
        ]
        return Wake(
            fields["wake_id"],
            fields["generation"],
            fields["token"],
            streams,
            fields["lease_ttl_ms"] / 1000,
            now,
        )
    except (LookupError, TypeError):
        raise ProtocolError("the server did not return a claim") from None


def acknowledge(
    url: str,
    retries: RetryPolicy,
    wake: Wake,
    acks: Mapping[str, str] | None = None,
    *,
    done: bool = False,
) -> Operation[bool]:
    """Acknowledge streams up to offsets, extend the lease, and end the wake if `done`.

    Returns whether there was more news meanwhile.
    """
    fields = {
        "acks": [{"stream": path, "offset": offset} for path, offset in (acks or {}).items()],
        **({"done": True} if done else {}),
    }
    answer = _parse((yield from _fenced(f"{url}/ack", retries, wake, fields)))
    return answer.get("next_wake") is True


def release(url: str, retries: RetryPolicy, wake: Wake) -> Operation[None]:
    """Give the wake up; what is left wakes again."""
    yield from _fenced(f"{url}/release", retries, wake, {})


def is_wake(message: Any, subscription: str) -> bool:
    """Whether a message of a wake stream is an event of the subscription."""
    return (
        isinstance(message, dict)
        and message.get("type") == "wake"
        and message.get("subscription_id") == subscription
    )


def _fenced(
    url: str, retries: RetryPolicy, wake: Wake, fields: Mapping[str, Any]
) -> Operation[HttpAnswer]:
    body = {"wake_id": wake.wake_id, "generation": wake.generation, **fields}
    try:
        return (yield from _post(url, retries, body, wake.token))
    except (ConflictError, UnauthorizedError) as error:
        if isinstance(error, UnauthorizedError) or error.code in FENCING:
            raise LeaseLostError(error.message, code=error.code, status=error.status) from None
        raise


def _post(
    url: str, retries: RetryPolicy, fields: Mapping[str, Any], token: str | None = None
) -> Operation[HttpAnswer]:
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    request = HttpRequest("POST", url, headers, json.dumps(fields).encode())
    return (yield from exchange(request, retries))


def _parse(answer: HttpAnswer) -> Mapping[str, Any]:
    try:
        value = json.loads(answer.body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ProtocolError("the server did not return a JSON object")
    return value
