"""Appends that need no task: most of them, on a server that is open.

A plain append carries data and nothing else: no producer, sequence, condition or closure. On a
stream that is in memory it is decided as soon as its body has arrived, and answered when its slot
is committed. Every other request takes the general path, and so does one that would be refused:
both give the same answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from tailrace.auth.origins import LocalHosts, Origins
from tailrace.errors import BadPath, NotFound, TailraceError
from tailrace.limits import JSON_EVENT_LOOP_BYTES
from tailrace.log.append import Append
from tailrace.protocols.durable_streams.caching import append_tag
from tailrace.streams import Appending, Streams
from tailrace.web.messages import RawHeaders, Response, cors, new_id
from tailrace.web.statuses import error_response
from tailrace.web.urls import StreamUrls

_SPECIAL: Final = frozenset(
    (
        b"content-encoding",
        b"if-match",
        b"origin",
        b"producer-epoch",
        b"producer-id",
        b"producer-seq",
        b"stream-closed",
        b"stream-seq",
        b"x-request-id",
    )
)
"""Header fields that make a request one for the general path."""


class PlainAppends:
    def __init__(
        self, streams: Streams, urls: StreamUrls, origins: Origins, hosts: LocalHosts | None
    ) -> None:
        self._streams = streams
        self._urls = urls
        self._hosts = hosts
        self._cors: Final = cors(origins, None)
        self._path = lru_cache(maxsize=4096)(self._parse)

    def begin(self, url: bytes, headers: RawHeaders, body: Sequence[bytes]) -> PlainAppend | None:
        """Begin an append; None: the general path has to do it. `body`: its pieces."""
        fields = dict(headers)
        if len(body) != 1 or len(fields) != len(headers) or not _SPECIAL.isdisjoint(fields):
            return None
        content_type = fields.get(b"content-type")
        path = self._path(url)
        if not content_type or path is None or len(body[0]) > JSON_EVENT_LOOP_BYTES:
            return None
        if self._hosts is not None and not self._hosts.accepts_host(fields):
            return None
        request = Append(body[0], content_type.strip(b" \t").decode("latin-1"))
        appending = self._streams.begin_append(path, request)
        return None if appending is None else PlainAppend(appending, self._cors)

    def _parse(self, url: bytes) -> str | None:
        try:
            return None if b"?" in url else self._urls.parse(url.decode("latin-1"))
        except (BadPath, NotFound):
            return None


class PlainAppend:
    """An append that waits for its commit."""

    __slots__ = ("_appending", "_cors", "stored")

    def __init__(self, appending: Appending, cors_headers: RawHeaders) -> None:
        self._appending = appending
        self._cors = cors_headers
        self.stored: asyncio.Future[int | None] = appending.stored
        """Done when it is known whether the append has its slot."""

    def answer(self) -> Response | None:
        """Return the answer, once it is known; None: the general path has to append anew."""
        try:
            slot = self.stored.result()
        except TailraceError as error:
            refusal = error_response(error, new_id())
            return refusal._replace(headers=[*refusal.headers, *self._cors])
        if slot is None:
            return None
        next_offset = self._appending.appended(slot).next_offset
        headers: RawHeaders = [
            (b"stream-next-offset", next_offset.encode()),
            (b"etag", append_tag(next_offset)),
            (b"x-request-id", new_id().encode()),
            *self._cors,
        ]
        return Response(204, headers)
