"""Publishes broadcasts: appends them to streams, and informs the audience."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import groupby
from typing import Final, NamedTuple, Protocol

import orjson

from tailrace.errors import StoreUnavailable, StreamConflict, StreamNotFound
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.log.quota import Quota
from tailrace.protocols.action_cable.core.broadcasts import Publication
from tailrace.settings import Settings
from tailrace.streams import Streams

JSON: Final = "application/json"

ATTEMPTS: Final = 8
"""How often an append is tried while others create and delete the stream."""


class ConnectionInfo(NamedTuple):
    """A client that is connected."""

    id: str
    identity: str
    connected_at: int
    """In milliseconds."""
    streams: Sequence[str]
    """The names of the streams that it is subscribed to; on AWS their paths."""


class Audience(Protocol):
    """The subscribers, in this process or connected to API Gateway."""

    def check(self, batch: Sequence[Publication]) -> None:
        """Raise an error for a message that cannot be delivered; called before anything is done."""

    async def send_transient(self, publication: Publication) -> None:
        """Send a message that is not stored to the current subscribers."""

    def hold_delivery(self, batch: Sequence[Publication]) -> AbstractAsyncContextManager[object]:
        """Hold the delivery of a stream while a batch is appended to it: the options of messages
        are known by their offsets, which only `published` gets."""

    async def published(self, batch: Sequence[Publication], offset: int) -> None:
        """A batch of one stream was appended; `offset`: the one after it."""

    async def members(self, stream: str, path: str) -> str:
        """The presence message that lists the members of a stream."""

    async def connected(self, limit: int) -> Sequence[ConnectionInfo]:
        """Return clients that are connected, at most `limit`."""

    async def disconnect_identity(self, identity: str, *, reconnect: bool) -> None:
        """End all sessions of an identity; none of them can be restored."""


class Publisher:
    def __init__(self, streams: Streams, audience: Audience, settings: Settings) -> None:
        self._streams = streams
        self._audience = audience
        self._quota = Quota.parse(settings.streams_per_prefix)
        self._ttl = settings.cable_ttl or None

    async def publish(self, publications: Iterable[Publication]) -> None:
        """Publish in order; consecutive publications of one stream are one append."""
        for (_, transient), group in groupby(publications, _stream_and_kind):
            batch = list(group)
            if transient:
                for each in batch:
                    self._audience.check([each])
                    await self._audience.send_transient(each)
            else:
                self._audience.check(batch)
                async with self._audience.hold_delivery(batch):
                    offset = await self._append(batch)
                    await self._audience.published(batch, offset)

    async def _append(self, batch: Sequence[Publication]) -> int:
        """Append a batch; returns the stream's offset after it."""
        path = batch[0].path
        # As an array: a message that is an array itself would be taken for several.
        body = b"[%b]" % b",".join(each.text for each in batch)
        note = _note(batch)
        for _ in range(ATTEMPTS):
            try:
                appended = await self._streams.append(path, Append(body, JSON, note=note))
            except StreamNotFound:
                await self._quota.check(path, self._streams.list)
            else:
                return appended.offset
            # Only an append can carry a note: with one, create the stream empty and append again.
            first = b"" if note else body
            try:
                created = await self._streams.create(path, Create(first, JSON, self._ttl))
            except StreamConflict:
                # The stream was created meanwhile, with another configuration.
                continue
            if created.new and first:
                return created.state.offset
        raise StoreUnavailable(f"'{path}' is created and deleted too often; try again")


def _stream_and_kind(publication: Publication) -> tuple[str, bool]:
    return publication.stream, publication.transient


def _note(batch: Sequence[Publication]) -> str | None:
    """The options of the messages of a batch, as JSON: for each, the excluded session and its
    `type`. None if there are no options."""
    if not any(each.has_options for each in batch):
        return None
    return orjson.dumps([[each.exclude, each.kind] for each in batch]).decode()
