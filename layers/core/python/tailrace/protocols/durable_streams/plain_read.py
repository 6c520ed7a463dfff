"""Reads that need no task: the same one again of a stream that has not changed.

On a server that is open the answer to a plain catch-up read depends on the URL and the stream
alone. So the answers that reach the tail are kept, rendered, for as long as the stream's state is
the same. Every other request takes the general path: both give the same answers.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from tailrace import metrics
from tailrace.auth.origins import LocalHosts, Origins
from tailrace.limits import JOINED_BYTES
from tailrace.log.state import State
from tailrace.protocols.durable_streams.caching import next_cursor
from tailrace.streams import Streams, View
from tailrace.web.messages import (
    RawHeaders,
    Rendered,
    Request,
    Response,
    cors,
    new_id,
    render_headers,
)

_SPECIAL: Final = frozenset((b"if-none-match", b"origin", b"x-request-id"))
"""Header fields that make a request one for the general path."""

_OVERHEAD: Final = 2048
"""Bytes of memory that an answer takes beside its body, at most."""

_LONGEST_URL: Final = 256


class _Kept(NamedTuple):
    path: str
    incarnation: int
    state: State
    earliest: int
    cursor: int
    headers: bytes
    body: bytes


class PlainReads:
    def __init__(self, streams: Streams, origins: Origins, hosts: LocalHosts | None) -> None:
        self._streams = streams
        self._hosts = hosts
        self._cors: Final = render_headers(cors(origins, None))
        self._answers: OrderedDict[tuple[bytes, bytes], _Kept] = OrderedDict()
        self._bytes = 0

    def answer(self, url: bytes, headers: RawHeaders) -> Rendered | None:
        """Answer a read; None: the general path has to do it."""
        key = request_key(url, headers, self._hosts)
        kept = None if key is None else self._answers.get(key)
        if key is None or kept is None:
            return None
        tail = self._streams.store.held(kept.path)
        if (
            tail is None
            or tail.soft_deleted
            or tail.committed is not kept.state
            or tail.stream.id != kept.incarnation
            or tail.earliest != kept.earliest
            or next_cursor(None, self._streams.clock()) != kept.cursor
        ):
            self._forget(key)
            return None
        self._answers.move_to_end(key)
        metrics.count("ds_requests_total")
        return render_with_id(200, kept.headers, self._cors, kept.body)

    def keep(self, request: Request, view: View, response: Response) -> None:
        """Keep an answer of the general path, without the headers of a single request, if it is
        one that `answer` may give."""
        tail, url = view.tail, request.raw_path.encode("latin-1")
        config = tail.stream.config
        if config.ttl is not None or config.expires_at is not None:
            return
        if response.status != 200 or not view.up_to_date or view.closed:
            return
        if request.query:
            url += b"?" + request.query.encode("latin-1")
        key = request_key(url, request.fields, self._hosts)
        too_large = len(url) > _LONGEST_URL or len(response.body) > JOINED_BYTES // 8
        if key is None or too_large or b"cursor=" in url or tail.committed.tail != view.end:
            return
        self._forget(key)
        self._answers[key] = _Kept(
            tail.stream.path,
            tail.stream.id,
            tail.committed,
            tail.earliest,
            next_cursor(None, self._streams.clock()),
            render_headers(response.headers),
            response.body,
        )
        self._bytes += len(response.body) + _OVERHEAD
        while self._bytes > JOINED_BYTES:
            self._forget(next(iter(self._answers)))

    def _forget(self, key: tuple[bytes, bytes]) -> None:
        kept = self._answers.pop(key, None)
        if kept is not None:
            self._bytes -= len(kept.body) + _OVERHEAD


def request_key(
    url: bytes, headers: RawHeaders, hosts: LocalHosts | None
) -> tuple[bytes, bytes] | None:
    """Return what the answer to a plain read depends on beside the stream; None: on more."""
    fields = dict(headers)
    if len(fields) != len(headers) or not _SPECIAL.isdisjoint(fields):
        return None
    if hosts is not None and not hosts.accepts_host(fields):
        return None
    return url, fields.get(b"accept-encoding", b"")


def render_with_id(status: int, headers: bytes, after: bytes, body: bytes) -> Rendered:
    """Put a new request id between the headers that the handlers have made and the others."""
    request_id = new_id().encode()
    return Rendered(
        status, b"%bx-request-id: %b\r\n%b" % (headers, request_id, after), body, request_id
    )
