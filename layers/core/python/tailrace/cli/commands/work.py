"""`tailrace work`: a pull-wake worker that runs a command for each batch of messages.

One worker at a time holds the wake of a subscription. It reads what is pending of each stream, runs
the command with it, and acknowledges it; meanwhile another thread extends the lease. Whatever goes
wrong, what was not acknowledged wakes again: the command gets every message at least once.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import click

from tailrace.cli.address import StreamAddress, address_of
from tailrace.cli.commands.read import format_chunk, split_messages
from tailrace.cli.commands.subscriptions import (
    address_of_subscription,
    get_subscription,
    parse_object,
)
from tailrace.cli.exit_codes import Exit, Failure
from tailrace.cli.options import (
    Duration,
    HeaderText,
    Output,
    client_command,
    format_count,
    to_json_line,
)

if TYPE_CHECKING:
    from tailrace.cli.client import CommandClient
    from tailrace.client import StreamChunk

CLAIM_SECONDS: Final = 60.0
"""Longest time between two claims: a wake event that was missed delays a message by no more."""

PAUSE: Final = 1.0
"""Seconds before the first repetition of a failed command; each further pause is twice as long."""

LONGEST_PAUSE: Final = 60.0

BEATS_PER_LEASE: Final = 3
"""How often the lease is extended while it lasts: two requests in a row may fail."""

POLL_SECONDS: Final = 0.2
"""How often a running command is looked at for a lost lease, or for SIGTERM."""

GRACE_SECONDS: Final = 10
"""Time that a command has after SIGTERM before it is killed."""

LONGEST_DOWNTIME_PAUSE: Final = 5.0
"""The same while the server cannot be reached: it is no burden to ask."""

STDERR: Final = 2

FENCED: Final = frozenset(("FENCED", "TOKEN_INVALID", "TOKEN_EXPIRED", "SUBSCRIPTION_NOT_FOUND"))
"""Codes of responses that say that another worker may hold the wake."""

GONE: Final = frozenset(("OFFSET_TRIMMED", "STALE_OFFSET"))
"""Codes of responses that say that what was at an offset is not there any more."""

RETRIED: Final = frozenset((429, 500, 502, 503, 504))

NO_CLAIM: Final = frozenset(("ALREADY_CLAIMED", "NO_PENDING_WORK"))


@click.command()
@click.argument("subscription")
@click.option(
    "-e",
    "--exec",
    "command",
    required=True,
    metavar="COMMAND",
    help="Command to run for each batch of messages, which it gets on stdin; without a shell.",
)
@click.option("--once", is_flag=True, help="End when nothing is pending.")
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=4,
    show_default=True,
    help="How often a failed command is repeated before the wake is given up for a while.",
)
@click.option(
    "--timeout",
    type=Duration(),
    metavar="DURATION",
    help="Stop a command that takes longer than this: 90, 15m.  [default: no limit]",
)
@click.option(
    "--worker",
    type=HeaderText(),
    metavar="NAME",
    help="Name of this worker, for people.  [default: host and process]",
)
@client_command
def work(
    client: CommandClient,
    out: Output,
    subscription: str,
    command: str,
    once: bool,
    retries: int,
    timeout: int | None,
    worker: str | None,
) -> None:
    """Run a command for the news of SUBSCRIPTION, again and again.

    Any number of workers may do so for one subscription: one at a time works, the others wait. The
    command gets the messages on stdin, one per line if they are JSON, and TAILRACE_STREAM,
    TAILRACE_OFFSET, TAILRACE_NEXT_OFFSET, TAILRACE_SUBSCRIPTION, TAILRACE_GENERATION and
    TAILRACE_URL in its environment. If it succeeds, the batch is acknowledged. If not, it is
    repeated.
    """
    try:
        arguments = shlex.split(command)
    except ValueError as error:
        raise click.UsageError(f"--exec {command!r} is not a command: {error}") from None
    if not arguments or shutil.which(arguments[0]) is None:
        raise click.UsageError(f"--exec: there is no program {(arguments or [''])[0]!r}")
    name = worker or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    run = Worker(client, out, subscription, name, arguments, retries, timeout)
    if not run.work(once=once):
        raise Failure(
            f"some messages of '{subscription}' could not be processed; they stay pending",
            Exit.UNEXPECTED,
        )


class Stopped(BaseException):
    """SIGTERM arrived while the worker waited."""


class LeaseLost(Exception):
    """The wake may be that of another worker."""


class Claim(NamedTuple):
    wake_id: str
    generation: int
    token: str
    streams: Sequence[dict[str, Any]]
    lease_seconds: float


class Worker:
    def __init__(
        self,
        client: CommandClient,
        out: Output,
        subscription: str,
        name: str,
        command: Sequence[str],
        retries: int,
        timeout: float | None,
    ) -> None:
        self._client = client
        self._out = out
        self._id = subscription
        self._name = name
        self._command = command
        self._retries = retries
        self._timeout = timeout
        self._signals = Signals()

    def work(self, *, once: bool) -> bool:
        """Process what is pending until SIGTERM, or with `once` until there is nothing; returns
        whether all of it was processed."""
        with self._signals.installed():
            try:
                with self._signals.interruptible():
                    found = get_subscription(self._client, self._id)
                    wake_stream = self._check(found)
                return self._drain() if once else self._follow(wake_stream)
            except Stopped:
                return True

    def _check(self, found: dict[str, Any]) -> StreamAddress:
        if found.get("type") != "pull-wake":
            raise Failure(
                f"'{self._id}' is a subscription of the type {found.get('type')}: it needs no"
                " worker; create one with 'tailrace subscribe --wake-stream'",
                Exit.USAGE,
            )
        return address_of(str(found["wake_stream"]), self._client.server)

    def _drain(self) -> bool:
        while (claim := self._claim()) is not None:
            if not self._process(claim):
                return False
        return True

    def _follow(self, wake_stream: StreamAddress) -> bool:
        # Before the first claim, so that no event after it is missed.
        end = self._find_end(wake_stream)
        self._out.note(f"waiting for news of {self._id} as {self._name}; Ctrl-C ends")
        failures = 0
        while True:
            longest = LONGEST_PAUSE
            try:
                claim = self._claim()
                if claim is None:
                    end = self._wait(wake_stream, end)
                    continue
                done = self._process(claim)
            except Failure as failure:
                if not is_transient(failure):
                    raise
                self._out.note(f"tailrace: {failure.message.partition(';')[0]}")
                done, longest = False, LONGEST_DOWNTIME_PAUSE
            failures = 0 if done else failures + 1
            if failures:
                self._sleep(failures, f"going on with {self._id}", longest)

    def _find_end(self, wake_stream: StreamAddress) -> StreamChunk:
        with (
            self._signals.interruptible(),
            self._client.stream(wake_stream, f"read '{wake_stream.name}'") as handle,
        ):
            return handle.read("now")

    def _wait(self, wake_stream: StreamAddress, end: StreamChunk) -> StreamChunk:
        """Wait for a wake event, though not for long; returns where the stream was read to."""
        until = time.monotonic() + CLAIM_SECONDS
        try:
            with (
                self._signals.interruptible(),
                self._client.stream(wake_stream, f"read '{wake_stream.name}'") as handle,
            ):
                for chunk in handle.tail(after=end, live="long-poll", empty=True):
                    is_woken = any(map(self._is_wake, split_messages(chunk)))
                    if is_woken or time.monotonic() > until:
                        return chunk
        except Failure as failure:
            if failure.code not in GONE:
                raise
            # It was deleted and created again.
            return self._find_end(wake_stream)
        raise Failure(f"the wake stream '{wake_stream.name}' was closed", Exit.CONFLICT)

    def _is_wake(self, message: bytes) -> bool:
        try:
            event = json.loads(message)
            return (event["type"], event["subscription_id"]) == ("wake", self._id)
        except (ValueError, LookupError, TypeError):
            return False

    def _claim(self) -> Claim | None:
        """Claim the wake; None if there is none, or another worker has it."""
        self._signals.check()
        try:
            response = self._client.send(
                "POST",
                address_of_subscription(self._client, self._id, "claim"),
                action=f"claim the subscription '{self._id}'",
                headers={"Content-Type": "application/json"},
                content=json.dumps({"worker": self._name}).encode(),
            )
        except Failure as failure:
            if failure.code in NO_CLAIM:
                return None
            raise
        claim = parse_claim(parse_object(response, self._client))
        self._out.note(
            f"claimed generation {claim.generation}: {format_count(len(claim.streams), 'stream')}"
        )
        return claim

    def _process(self, claim: Claim) -> bool:
        """Process all streams of a wake, and end it; returns whether all succeeded."""
        done = True
        with Lease(self._client, self._id, claim) as lease:
            try:
                for stream in claim.streams:
                    if stream.get("has_pending", True):
                        done &= self._process_stream(lease, stream)
                if done and not self._signals.is_stopping():
                    lease.acknowledge(done=True)
                else:
                    lease.release()
            except LeaseLost as lost:
                self._out.note(f"lost generation {claim.generation}: {lost}")
                done = False
            except Failure:
                with contextlib.suppress(Failure, LeaseLost):
                    lease.release()
                raise
        self._signals.check()
        return done

    def _process_stream(self, lease: Lease, stream: dict[str, Any]) -> bool:
        """Process the batches of a stream up to the end that it had; returns whether all
        succeeded."""
        path, offset = stream["path"], stream["acked_offset"]
        address = address_of(path, self._client.server)
        try:
            for chunk in read_pending(self._client, address, offset):
                if chunk.body and not self._process_batch(lease, address, offset, chunk):
                    return False
                lease.acknowledge(path, chunk.next_offset)
                offset = chunk.next_offset
                if offset >= stream["tail_offset"]:
                    break
        except Failure as failure:
            if failure.code != "INVALID_OFFSET" and failure.exit_code is not Exit.NOT_FOUND:
                raise
            # It was deleted meanwhile. If the server does not know yet, a pause follows.
            self._out.note(f"skipping {address.name}: {failure.message}")
            return False
        return True

    def _process_batch(
        self, lease: Lease, stream: StreamAddress, offset: str, chunk: StreamChunk
    ) -> bool:
        """Run the command until it succeeds; returns whether it did."""
        for attempt in range(self._retries + 1):
            lease.check()
            if self._signals.is_stopping():
                return False
            failure = self._run(lease, stream, offset, chunk)
            if failure is None:
                self._report(lease, stream, offset, chunk, attempt)
                return True
            if self._signals.is_stopping():
                return False
            self._out.note(f"{stream.name} at {offset}: the command {failure}")
            if attempt < self._retries:
                self._hold(lease, attempt)
        return False

    def _run(
        self, lease: Lease, stream: StreamAddress, offset: str, chunk: StreamChunk
    ) -> str | None:
        """Run the command once; returns what went wrong."""
        environment = {
            **os.environ,
            "TAILRACE_URL": self._client.server,
            "TAILRACE_SUBSCRIPTION": self._id,
            "TAILRACE_GENERATION": str(lease.claim.generation),
            "TAILRACE_STREAM": stream.name,
            "TAILRACE_OFFSET": offset,
            "TAILRACE_NEXT_OFFSET": chunk.next_offset,
        }
        with tempfile.TemporaryFile() as batch:
            # A file, and no pipe: a command that does not read all of it cannot block.
            batch.write(format_chunk(chunk))
            batch.seek(0)
            try:
                process = subprocess.Popen(  # noqa: S603 - the command of --exec
                    self._command,
                    stdin=batch,
                    stdout=STDERR if self._out.as_json else None,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                return f"cannot be started: {error.strerror}"
            return self._watch(process, lease)

    def _watch(self, process: subprocess.Popen[bytes], lease: Lease) -> str | None:
        """Wait for the command to end; stop it when it may not go on."""
        until = None if self._timeout is None else time.monotonic() + self._timeout
        while True:
            try:
                code = process.wait(POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                if lease.is_lost():
                    terminate(process)
                    lease.check()
                if self._signals.is_stopping():
                    code = terminate(process)
                    break
                if until is not None and time.monotonic() > until:
                    terminate(process)
                    return f"took longer than {self._timeout:g} s"
        if code == 0:
            return None
        return f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"

    def _report(
        self, lease: Lease, stream: StreamAddress, offset: str, chunk: StreamChunk, attempt: int
    ) -> None:
        from tailrace.client import ContentKind

        messages = len(split_messages(chunk)) if chunk.kind is ContentKind.JSON else None
        if self._out.as_json:
            fields = {
                "stream": stream.name,
                "offset": offset,
                "next_offset": chunk.next_offset,
                "messages": messages,
                "bytes": len(chunk.body),
                "attempts": attempt + 1,
                "generation": lease.claim.generation,
            }
            self._out.line(to_json_line(fields))
            return
        size = (
            f"{len(chunk.body):,} bytes" if messages is None else format_count(messages, "message")
        )
        self._out.note(f"{stream.name}: {size}, up to {chunk.next_offset}")

    def _sleep(self, failures: int, what: str, longest: float) -> None:
        """Wait after failures, without a wake."""
        pause = self._announce(failures, what, longest)
        with self._signals.interruptible():
            time.sleep(pause)

    def _hold(self, lease: Lease, attempt: int) -> None:
        """Wait before a command is repeated, with its wake."""
        pause = self._announce(attempt, "repeating it", LONGEST_PAUSE)
        until = time.monotonic() + pause
        while not self._signals.is_stopping() and (left := until - time.monotonic()) > 0:
            lease.check()
            time.sleep(min(left, POLL_SECONDS))

    def _announce(self, failures: int, what: str, longest: float) -> float:
        pause = min(PAUSE * float(1 << min(failures, 16)), longest)
        pause *= random.uniform(0.8, 1.2)  # noqa: S311
        self._out.note(f"{what} in {pause:.0f} s")
        return pause


class Lease:
    """The lease of a wake, extended by a thread until it is ended."""

    def __init__(self, client: CommandClient, subscription: str, claim: Claim) -> None:
        from tailrace.cli.client import CommandClient as Client

        self.claim = claim
        self._client = client
        self._id = subscription
        # Of its own: the other one may be in the middle of a long wait for a retry.
        self._heart = Client(client.server, on_wait=lambda _: None)
        self._heart.repeat(0)
        self._ended = threading.Event()
        self._lost: str | None = None
        self._until = time.monotonic() + claim.lease_seconds
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._heart.__exit__(None, None, None)

    def is_lost(self) -> bool:
        """Whether another worker may hold the wake."""
        return self._lost is not None or time.monotonic() > self._until

    def check(self) -> None:
        """Raise `LeaseLost` if another worker may hold the wake."""
        if self.is_lost():
            raise LeaseLost(self._lost or "the lease could not be extended in time")

    def acknowledge(self, path: str = "", offset: str = "", *, done: bool = False) -> None:
        """Acknowledge a stream up to an offset, or end the wake; both extend the lease."""
        acks = [{"stream": path, "offset": offset}] if path else []
        if done:
            self._stop()
        self.check()
        self._send(self._client, "ack", {"acks": acks, **({"done": True} if done else {})})

    def release(self) -> None:
        self._stop()
        self.check()
        self._send(self._client, "release", {})

    def _stop(self) -> None:
        """End the heartbeats before the wake: one that comes after it would be fenced."""
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(self.claim.lease_seconds / BEATS_PER_LEASE):
            try:
                self._send(self._heart, "ack", {"acks": []})
            except LeaseLost as lost:
                self._lost = str(lost)
                return
            except Failure:
                continue  # `check` notices when it has lasted too long.

    def _send(self, client: CommandClient, action: str, fields: dict[str, Any]) -> None:
        sent = time.monotonic()
        try:
            client.send(
                "POST",
                address_of_subscription(client, self._id, action),
                action=f"{action} generation {self.claim.generation} of '{self._id}'",
                headers={
                    "Content-Type": "application/json",
                    "Authorization": f"Bearer {self.claim.token}",
                },
                content=json.dumps(
                    {"wake_id": self.claim.wake_id, "generation": self.claim.generation, **fields}
                ).encode(),
                timeout=max(1.0, self.claim.lease_seconds / BEATS_PER_LEASE),
            )
        except Failure as failure:
            if failure.code in FENCED:
                raise LeaseLost(failure.message) from None
            raise
        self._until = max(self._until, sent + self.claim.lease_seconds)


class Signals:
    """SIGTERM and Ctrl-C: they interrupt waits, and let a batch in progress come to its end."""

    def __init__(self) -> None:
        self._stopping = False
        self._interruptible = False
        self._received: int | None = None

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self._stop) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
        if self._received == signal.SIGINT:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        self._interruptible = True
        try:
            self.check()
            yield
        finally:
            self._interruptible = False

    def is_stopping(self) -> bool:
        return self._stopping

    def check(self) -> None:
        if self._stopping:
            raise Stopped

    def _stop(self, number: int, _: FrameType | None) -> None:
        self._stopping = True
        self._received = number
        if self._interruptible:
            raise Stopped


def read_pending(
    client: CommandClient, stream: StreamAddress, offset: str
) -> Iterator[StreamChunk]:
    """Read from an offset to the end, or from the beginning if what was there is gone."""
    try:
        with client.stream(stream, f"read '{stream.name}'") as handle:
            yield from handle.chunks(offset)
    except Failure as failure:
        if failure.code not in GONE:
            raise
        with client.stream(stream, f"read '{stream.name}'") as handle:
            yield from handle.chunks()


def parse_claim(value: dict[str, Any]) -> Claim:
    try:
        return Claim(
            value["wake_id"],
            value["generation"],
            value["token"],
            value["streams"],
            value["lease_ttl_ms"] / 1000,
        )
    except (LookupError, TypeError):
        raise Failure("the server did not return a claim; check --url", Exit.UNEXPECTED) from None


def is_transient(failure: Failure) -> bool:
    """Whether a request may succeed later."""
    return failure.exit_code is Exit.UNREACHABLE or failure.status in RETRIED


def terminate(process: subprocess.Popen[bytes]) -> int:
    """Stop a command with its children, gently at first; returns its exit code."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            return process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    return process.wait()
