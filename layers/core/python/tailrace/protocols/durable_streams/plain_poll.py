"""Long-polls that need no task: clients that wait at the tail of a stream, on an open server.

One follower per stream waits for all of them. What comes is one answer, rendered once for all that
have sent the same request, and written to them in slices. Every other long-poll takes the general
path, and so do these when the follower cannot serve them: both give the same answers.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

from tailrace import metrics
from tailrace.auth.origins import LocalHosts, Origins
from tailrace.errors import TailraceError
from tailrace.live.follower import ChainFollower, Reader, slices
from tailrace.log import offsets
from tailrace.log.offsets import Position
from tailrace.protocols.durable_streams.plain_read import render_with_id, request_key
from tailrace.store.base import Tail
from tailrace.streams import Streams, View
from tailrace.web.messages import (
    PollClient,
    RawHeaders,
    Rendered,
    Request,
    Response,
    cors,
    render_headers,
)
from tailrace.web.urls import StreamUrls

LINGER_SECONDS: Final = 1.0
"""How long a follower stays without a reader: those that were answered poll again."""


class _Poll(NamedTuple):
    path: str
    start: Position
    cursor: str


AnswerPoll = Callable[[Request, View, Position, str], Awaitable[Response]]
"""Makes the answer of the general path: to a request, of a view, from a position, by a cursor."""


class PollReader(Reader):
    """A long-poll that waits."""

    __slots__ = ("_client", "_polls", "deadline", "headers", "key", "poll")

    def __init__(
        self,
        polls: PlainPolls,
        client: PollClient,
        tail: Tail,
        poll: _Poll,
        key: tuple[bytes, bytes],
        headers: RawHeaders,
        deadline: float,
    ) -> None:
        state = tail.committed
        super().__init__(client, tail.stream.id, state.tail, state.offset)
        self.poll = poll
        self.key = key
        """Pollers with the same one get the same answer."""
        self.headers = headers
        self.deadline = deadline
        self._client = client
        self._polls = polls

    def leave(self) -> None:
        """Forget it: its client has gone."""
        self._polls.leave(self)

    def answer(self, answer: Rendered) -> None:
        self._client.answer(answer)

    def on_release(self, *, closed: bool) -> None:  # noqa: ARG002 - the general path says so
        # The general path counts it, too.
        _count(-1)
        self._client.serve()


def _count(polls: int) -> None:
    metrics.count("ds_requests_total", by=polls)
    metrics.count("ds_poll_requests_total", by=polls)


class PlainPolls:
    def __init__(
        self,
        streams: Streams,
        urls: StreamUrls,
        origins: Origins,
        hosts: LocalHosts | None,
        seconds: float,
        answer: AnswerPoll,
    ) -> None:
        self._streams = streams
        self._urls = urls
        self._hosts = hosts
        self._seconds = seconds
        self._answer: Final = answer
        self._cors: Final = render_headers(cors(origins, None))
        self._parse = lru_cache(maxsize=4096)(self._parse_url)
        self._followers: dict[tuple[str, int | None], _PollFollower] = {}

    def begin(self, url: bytes, headers: RawHeaders, client: PollClient) -> PollReader | None:
        """Let a client wait; None: the general path has to answer it."""
        poll = self._parse(url)
        key = None if poll is None else request_key(url, headers, self._hosts)
        if poll is None or key is None or self._streams.draining:
            return None
        tail = self._streams.store.held(poll.path)
        if tail is None or not _waits(tail, poll.start):
            return None
        deadline = time.monotonic() + self._seconds
        reader = PollReader(self, client, tail, poll, key, headers, deadline)
        place = poll.path, reader.chain
        follower = self._followers.get(place)
        if follower is None or follower.over:
            follower = self._followers[place] = _PollFollower(self._streams, self, tail, reader)
        elif not follower.admits(reader):
            return None
        follower.add(reader)
        _count(1)
        metrics.count("ds_poll_clients_num")
        return reader

    def leave(self, reader: PollReader) -> None:
        follower = self._followers.get((reader.poll.path, reader.chain))
        if follower is not None and reader in follower.readers:
            follower.remove(reader)

    def forget(self, follower: _PollFollower) -> None:
        place = follower.path, follower.chain
        if self._followers.get(place) is follower:
            del self._followers[place]

    async def render(self, reader: PollReader, view: View) -> _Answer:
        """Render the answer to a reader, and to all that have sent the same."""
        raw_path, _, query = reader.key[0].partition(b"?")
        request = Request(
            "GET", raw_path.decode("latin-1"), query.decode("latin-1"), reader.headers, b""
        )
        answer = await self._answer(request, view, reader.poll.start, reader.poll.cursor)
        return _Answer(answer.status, render_headers(answer.headers), self._cors, answer.body)

    def _parse_url(self, url: bytes) -> _Poll | None:
        raw_path, _, query = url.partition(b"?")
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
        parameters = dict(pairs)
        if (
            parameters.get("live") != "long-poll"
            or len(parameters) != len(pairs)
            or not parameters.keys() <= {"live", "offset", "cursor"}
        ):
            return None
        try:
            path = self._urls.parse(raw_path.decode("latin-1"))
            start = offsets.parse_position(parameters.get("offset", ""))
        except TailraceError:
            return None
        return _Poll(path, start, parameters.get("cursor", ""))


class _Answer(NamedTuple):
    status: int
    headers: bytes
    cors: bytes
    body: bytes

    def send(self, reader: PollReader) -> None:
        reader.answer(render_with_id(self.status, self.headers, self.cors, self.body))


def _waits(tail: Tail, start: Position) -> bool:
    """Whether a long-poll has to wait, and nothing but an append or a deletion ends that."""
    state, config = tail.committed, tail.stream.config
    return (
        start.slot == state.tail
        and start.offset <= state.offset
        and start.epoch in (0, config.epoch)
        and not state.closed
        and not tail.soft_deleted
        and config.ttl is None
        and config.expires_at is None
    )


class _PollFollower(ChainFollower[PollReader]):
    def __init__(self, streams: Streams, polls: PlainPolls, tail: Tail, first: PollReader) -> None:
        chain = tail.stream.id
        super().__init__(streams, tail.stream.path, chain, first.slot, first.offset, tail=tail)
        self._polls = polls
        self._deadline = float("inf")
        """No reader has an earlier one."""

    def add(self, reader: PollReader) -> None:
        self._deadline = min(self._deadline, reader.deadline)
        super().add(reader)

    def remove(self, reader: PollReader) -> None:
        super().remove(reader)
        metrics.count("ds_poll_clients_num", by=-1)

    def longest_wait(self) -> float:
        if not self.readers:
            return LINGER_SECONDS
        return min(self._deadline - time.monotonic(), super().longest_wait())

    async def deliver(self, view: View) -> None:
        is_idle = not self.readers
        if view.bodies or view.closed:
            self.serving = view.offset
            behind = [each for each in self.readers if self.offset < each.offset < view.offset]
            self.release(behind)
            await self._answer([each for each in self.readers if each.offset == self.offset], view)
            self.slot, self.offset = view.end, view.offset
        elif self._deadline <= time.monotonic():
            now = time.monotonic()
            await self._answer([each for each in self.readers if each.deadline <= now], view)
            self._deadline = min((each.deadline for each in self.readers), default=float("inf"))
        if view.closed or (is_idle and not self.readers):
            self.end()

    async def _answer(self, readers: Sequence[PollReader], view: View) -> None:
        answers: dict[tuple[bytes, bytes], _Answer] = {}
        for reader in readers:
            if reader.key not in answers:
                answers[reader.key] = await self._polls.render(reader, view)
        async for some in slices(readers, view):
            for reader in some:
                if reader in self.readers:
                    self.remove(reader)
                    answers[reader.key].send(reader)

    def skip(self, earliest: str) -> None:  # noqa: ARG002 - the general path says what is missed
        self.end()

    def end(self) -> None:
        self._polls.forget(self)
        super().end()
