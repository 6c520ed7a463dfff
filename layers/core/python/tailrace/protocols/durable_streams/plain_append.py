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
from tailrace.errors import TailraceError
from tailrace.limits import JSON_EVENT_LOOP_BYTES
from tailrace.log.append import Append
from tailrace.log.offsets import token
from tailrace.streams import Appending, Streams
from tailrace.web.messages import AppendCaller, RawHeaders, cors, new_id, render_headers
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
        self._rendered_cors: Final = render_headers(self._cors)
        self._path = lru_cache(maxsize=4096)(self._parse)
        self._content_type = lru_cache(maxsize=256)(_decode)

    def begin(
        self, url: bytes, headers: RawHeaders, body: Sequence[bytes], caller: AppendCaller
    ) -> bool:
        """Begin an append; returns False where the general path has to do it. `body`: its
        pieces."""
        fields = dict(headers)
        if len(body) != 1 or len(fields) != len(headers) or not _SPECIAL.isdisjoint(fields):
            return False
        data = body[0]
        content_type = fields.get(b"content-type")
        path = self._path(url)
        if not content_type or path is None or len(data) > JSON_EVENT_LOOP_BYTES:
            return False
        if self._hosts is not None and not self._hosts.accepts_host(fields):
            return False
        request = Append(data, self._content_type(content_type))
        appending = PlainAppend(caller, self._cors, self._rendered_cors)
        return self._streams.begin_append(path, request, appending)

    def _parse(self, url: bytes) -> str | None:
        try:
            return None if b"?" in url else self._urls.parse(url.decode("latin-1"))
        except TailraceError:
            return None


def _decode(content_type: bytes) -> str:
    return content_type.strip(b" \t").decode("latin-1")


class PlainAppend(Appending):
    """An append that waits for its commit, and answers it."""

    __slots__ = ("_caller", "_cors", "_rendered_cors")

    def __init__(
        self, caller: AppendCaller, cors_headers: RawHeaders, rendered_cors: bytes
    ) -> None:
        self._caller = caller
        self._cors = cors_headers
        self._rendered_cors = rendered_cors

    def done(self) -> bool:
        return False

    def set_result(self, slot: int | None, /) -> None:
        try:
            if slot is None:
                self._caller.serve()
                return
            self.count()
            request_id = new_id().encode()
            next_offset = token(slot, self.offset, self.epoch).encode()
            # The tag is that of `caching.append_tag`.
            fields = b'stream-next-offset: %b\r\netag: "%b"\r\nx-request-id: %b\r\n%b'
            self._caller.confirm_append(
                fields % (next_offset, next_offset, request_id, self._rendered_cors), request_id
            )
        except Exception as error:  # noqa: BLE001 - other appends of the commit wait for theirs
            self._caller.fail(error)

    def set_exception(self, error: Exception, /) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(error, TailraceError):
            loop.call_soon(self._caller.fail, error)
            return
        refusal = error_response(error, new_id())
        answer = refusal._replace(headers=[*refusal.headers, *self._cors])
        # Later: the connection may have another append, and the store is not done with this one.
        loop.call_soon(self._caller.refuse_append, answer)
