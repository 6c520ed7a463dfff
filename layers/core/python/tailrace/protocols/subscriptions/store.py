"""The interface of a store of subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tailrace.protocols.subscriptions.core.records import (
    DurableSubscription,
    Link,
    LinkChange,
)


class IndexedLink(NamedTuple):
    """A subscription that follows a stream, as the index of streams knows it."""

    id: str
    uid: str
    path: str


class SubscriptionStore(Protocol):
    """A place where subscriptions are kept; `load` and `link` are strongly consistent.

    Every method raises `StoreUnavailable` when the storage behind it does not do its part."""

    async def open(self) -> None:
        """Read what is to be in memory; the storage is open."""

    def follows(self, stream: int) -> bool:
        """Whether a subscription may follow an incarnation, as far as is known without asking the
        storage; True in doubt."""

    async def load(self, id: str) -> DurableSubscription | None:  # noqa: A002
        """Return a record; one that is being erased, too."""

    async def create(self, record: DurableSubscription) -> bool:
        """Store a new record, and its pattern in the index; False when the id is taken."""

    async def save(
        self,
        before: DurableSubscription,
        after: DurableSubscription,
        links: Sequence[LinkChange] = (),
    ) -> bool:
        """Replace a record and up to `WAKE_STREAMS` of its links, with their index, all or nothing.

        Returns False when the record is no longer that version of `before`."""

    async def erase(self, record: DurableSubscription) -> None:
        """Remove a record in the phase DELETED, all of its links and its index."""

    async def link(self, record: DurableSubscription, path: str) -> Link | None: ...

    async def links(self, record: DurableSubscription, after: str, limit: int) -> Sequence[Link]:
        """Return links whose path sorts after `after`, in order; they may lag behind the record."""

    async def pending(self, record: DurableSubscription, limit: int) -> Sequence[Link]:
        """Return links with news: as many as the record counts, up to the limit, unless it has
        changed meanwhile."""

    async def followers(self, stream: int) -> Sequence[IndexedLink]:
        """Return the subscriptions that follow an incarnation."""

    async def forget(self, stream: int, follower: IndexedLink) -> None:
        """Remove a follower from the index, whose subscription is gone."""

    async def interested(self, path: str) -> Sequence[str]:
        """Return the ids of subscriptions with an explicit link to a path, or a pattern that it
        matches."""

    async def list(self, after: str, limit: int) -> Sequence[DurableSubscription]:
        """Return records whose id sorts after `after`."""

    async def due(self, until: int, limit: int) -> Sequence[tuple[str, int]]:
        """Return ids of subscriptions that are due until a time, with the time of each, the
        earliest first. It may lag behind."""
