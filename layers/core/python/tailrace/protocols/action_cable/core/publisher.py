"""Broadcasts become appends, which readers of all protocols see."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Final, Protocol

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
"""How often a stream may come and go while something is published to it."""


class Audience(Protocol):
    """Those who listen, wherever they are connected."""

    async def tell(self, publication: Publication) -> None:
        """Something that is not kept."""

    async def publish(
        self, batch: Sequence[Publication], append: Callable[[], Awaitable[int]]
    ) -> None:
        """`append` puts a batch of one stream into the log, and gives the offset after it."""

    async def expel(self, identity: str, *, reconnect: bool) -> None:
        """End all sessions of somebody, and let none of them come back."""


class Publisher:
    def __init__(self, streams: Streams, audience: Audience, settings: Settings) -> None:
        self._streams = streams
        self._audience = audience
        self._quota = Quota.parse(settings.streams_per_prefix)
        self._ttl = settings.cable_ttl or None

    async def publish(self, publications: Iterable[Publication]) -> None:
        """In their order; those that follow each other in one stream are one append."""
        for (_, transient), some in groupby(publications, _run):
            if transient:
                for each in some:
                    await self._audience.tell(each)
            else:
                batch = list(some)
                await self._audience.publish(batch, partial(self._append, batch))

    async def _append(self, batch: Sequence[Publication]) -> int:
        """The stream's offset after them."""
        path = batch[0].path
        # In brackets, for a message that is a list would be taken for several.
        body = b"[%b]" % b",".join(each.text for each in batch)
        note = _note(batch)
        for _ in range(ATTEMPTS):
            try:
                accepted = await self._streams.append(path, Append(body, JSON, note=note))
            except StreamNotFound:
                await self._quota.check(path, self._streams.list)
            else:
                return accepted.state.offset
            # A note goes with an append.
            first = b"" if note else body
            try:
                created = await self._streams.create(path, Create(first, JSON, self._ttl))
            except StreamConflict:
                # Somebody else was faster, and made it differently.
                continue
            if created.new and first:
                return created.state.offset
        raise StoreUnavailable(f"'{path}' is created and deleted too often; try again")


def _run(publication: Publication) -> tuple[str, bool]:
    return publication.stream, publication.transient


def _note(batch: Sequence[Publication]) -> str | None:
    """What there is to say about the messages of a batch: for each, who does not get it and what
    its `type` is."""
    if not any(each.noted for each in batch):
        return None
    return orjson.dumps([[each.exclude, each.kind] for each in batch]).decode()
