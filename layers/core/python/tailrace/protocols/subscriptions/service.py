"""The subscriptions: rules and store put together.

Every change of a subscription is one conditional write of its record and of the links that change
with it: load, decide, save, and again if another process was faster. What a change leaves to be
done (send a webhook, append a wake event, end an expired lease) is stored with it as due, so
another process does it if this one dies. A stream's tail is always read before the write that
relies on it, and news of a stream give the record another version, so that no end of a wake
overlooks them.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from urllib.parse import quote

import orjson

from tailrace.clock import Clock
from tailrace.errors import (
    AlreadyClaimed,
    BadOffset,
    InvalidAckOffset,
    InvalidSubscription,
    NoPendingWork,
    NotAllowed,
    StoreUnavailable,
    StreamGone,
    StreamNotFound,
    SubscriptionAlreadyExists,
    SubscriptionNotFound,
    TailraceError,
    WebhookFailed,
)
from tailrace.limits import CLAIM_CHECKS, WAKE_STREAMS
from tailrace.log.append import Append
from tailrace.log.offsets import parse, token
from tailrace.log.paths import Patterns
from tailrace.log.state import State, Stream
from tailrace.protocols.subscriptions.core import wakes
from tailrace.protocols.subscriptions.core.configuration import Configuration, follows
from tailrace.protocols.subscriptions.core.globs import PatternIndex, literal_prefix
from tailrace.protocols.subscriptions.core.records import (
    UNREAD,
    DurableSubscription,
    Link,
    LinkChange,
    Phase,
    SnapshotAck,
    offset_of,
)
from tailrace.protocols.subscriptions.core.wakes import Delivery
from tailrace.protocols.subscriptions.store import IndexedLink, SubscriptionStore
from tailrace.streams import Streams

ATTEMPTS: Final = 64
"""Races that a change may lose before it gives up."""

LINKING_SECONDS: Final = 60
"""Time after which a creation that did not finish is taken over."""

JSON_TYPE: Final = "application/json"
LIST_PAGE: Final = 100

logger = logging.getLogger("tailrace")

Change: TypeAlias = tuple[DurableSubscription, Sequence[LinkChange]]
Decide: TypeAlias = Callable[[DurableSubscription], Awaitable[Change | None]]


class ReceiverAnswer(Protocol):
    """The answer of a webhook."""

    @property
    def status(self) -> int: ...

    @property
    def body(self) -> bytes: ...


class Sender(Protocol):
    """Sends webhooks: `WebhookSender`, or a replacement in the simulation."""

    async def check_destination(self, url: str) -> None: ...

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> ReceiverAnswer: ...


class WakeSigner(Protocol):
    """Signs webhooks, and issues tokens for the holders of wakes."""

    async def sign(self, body: bytes, now: int) -> str:
        """Return the value of `Webhook-Signature`."""

    async def issue_token(self, subscription: str, generation: int, now: int) -> str: ...


class StreamEnd(NamedTuple):
    """A stream that a link may be to, as it is now."""

    stream: int
    epoch: int
    offset: str
    created: int


class Ack(NamedTuple):
    path: str
    offset: str


class Fence(NamedTuple):
    """The wake that a request acts on, as it names it."""

    token_generation: int
    generation: int
    wake_id: str


class Claimed(NamedTuple):
    record: DurableSubscription
    links: Sequence[Link]


class SubscriptionService:
    def __init__(
        self,
        streams: Streams,
        store: SubscriptionStore,
        sender: Sender,
        signer: WakeSigner,
        clock: Clock,
        changed: Callable[[DurableSubscription], None] = lambda _: None,
    ) -> None:
        """`changed` is told every record that was stored."""
        self.store = store
        self.streams = streams
        self._sender = sender
        self._signer = signer
        self._clock = clock
        self.changed = changed
        self.catch_up: Callable[[], Awaitable[None]] = _nothing
        """Waits until the news of this process are noticed."""
        self.send_elsewhere: Callable[[str], Awaitable[None]] | None = None
        """Has another process send a webhook; None: this one does."""
        self.works_elsewhere = False
        """Whether all but sending and ending leases is left to another process, which is told what
        is due by a change of the record."""

    # Subscriptions

    async def create(
        self,
        id: str,  # noqa: A002
        configuration: Configuration,
        base_url: str,
        reads: tuple[str, ...] | None,
    ) -> tuple[DurableSubscription, bool]:
        """Create a subscription, or confirm the one that exists; returns it, and whether it is
        new. All streams that exist are linked at their tails."""
        if configuration.url is not None:
            await self._sender.check_destination(configuration.url)
        digest = configuration.digest()
        while True:
            record = await self.store.load(id)
            if record is not None and record.phase is Phase.DELETED:
                await self.store.erase(record)
                continue
            if record is not None:
                if record.digest != digest:
                    raise SubscriptionAlreadyExists(id)
                if record.phase is Phase.LINKING:
                    record = await self._link_all(record, configuration.streams)
                return record, False
            now = self._clock()
            record = DurableSubscription(
                id,
                secrets.token_hex(8),
                configuration.type,
                configuration.pattern,
                configuration.url,
                configuration.wake_stream,
                configuration.lease_ttl_ms,
                configuration.description,
                digest,
                now,
                base_url,
                reads,
                due_at=now + LINKING_SECONDS * 1000,
                names_streams=bool(configuration.streams),
            )
            if await self.store.create(record):
                self.changed(record)
                return await self._link_all(record, configuration.streams), True

    async def find(self, id: str) -> DurableSubscription:  # noqa: A002
        record = await self.store.load(id)
        if record is None or record.phase is Phase.DELETED:
            raise SubscriptionNotFound(id)
        return record

    async def delete(self, id: str) -> None:  # noqa: A002
        """Delete a subscription, if there is one; nothing can be acknowledged from now on."""

        async def decide(record: DurableSubscription) -> Change:
            return record._replace(phase=Phase.DELETED, due_at=self._clock(), acks=()), ()

        try:
            record = await self._change(id, decide)
        except SubscriptionNotFound:
            return
        assert record is not None
        await self.store.erase(record)

    async def add_streams(self, id: str, paths: Sequence[str]) -> None:  # noqa: A002
        """Link streams explicitly, at their tails."""
        record = await self.find(id)
        if record.wake_stream in paths:
            raise InvalidSubscription("a subscription cannot follow its own wake_stream")
        for path in paths:
            if not may_read(record, path):
                raise NotAllowed(f"the creator of the subscription may not read '{path}'")
        await self._link_explicitly(record, paths)

    async def remove_stream(self, id: str, path: str) -> None:  # noqa: A002
        """Remove an explicit link; a link by the pattern stays."""

        async def decide(record: DurableSubscription) -> Change | None:
            link = await self.store.link(record, path)
            if link is None or not link.explicit:
                return None
            return record, [LinkChange(link, link._replace(explicit=False) if link.glob else None)]

        await self._change(id, decide)

    # Workers and receivers

    async def claim(self, id: str, worker: str) -> Claimed:  # noqa: A002
        """Give the wake to a worker, with a lease."""
        links: Sequence[Link] = ()

        async def decide(record: DurableSubscription) -> Change:
            nonlocal links
            now = self._clock()
            if record.wake_stream is None:
                raise InvalidSubscription("a webhook subscription has no claims")
            if record.phase is Phase.LINKING:
                raise NoPendingWork
            if record.phase is Phase.HELD and not wakes.has_expired(record, now):
                raise AlreadyClaimed(record.holder or "", record.generation)
            changes: Sequence[LinkChange] = ()
            links = await self.store.pending(record, WAKE_STREAMS)
            if not links:
                # The worker may have come before the news of what was just appended.
                changes = await self._look_for_news(record)
                links = [after for _, after in changes if after is not None]
            if not links:
                raise NoPendingWork
            return wakes.claim(record, worker, now, _new_wake_id()), changes

        try:
            record = await self._change(id, decide)
        except NoPendingWork:
            await self.catch_up()
            record = await self._change(id, decide)
        assert record is not None
        return Claimed(record, links)

    async def acknowledge(
        self,
        id: str,  # noqa: A002
        fence: Fence,
        acks: Sequence[Ack],
        *,
        done: bool,
    ) -> bool:
        """Move cursors, and extend the lease or, if `done`, end the wake; returns whether the next
        wake was begun."""

        async def decide(record: DurableSubscription) -> Change:
            now = self._clock()
            wakes.check_fence(record, *fence, now)
            changes = [await self._acknowledged(record, *each) for each in _newest(acks)]
            if not done:
                return wakes.extend(record, now), changes
            return self._end(record, changes), changes

        record = await self._change(id, decide)
        assert record is not None
        return done and record.phase is not Phase.IDLE

    async def release(self, id: str, fence: Fence) -> None:  # noqa: A002
        """Give the wake up; what is not acknowledged wakes again."""

        async def decide(record: DurableSubscription) -> Change:
            wakes.check_fence(record, *fence, self._clock())
            return self._end(record), ()

        await self._change(id, decide)

    async def token(self, record: DurableSubscription) -> str:
        """Issue the token of the current wake."""
        return await self._signer.issue_token(record.id, record.generation, self._clock())

    # News of streams

    async def appended(self, stream: int, slot: int, offset: int) -> None:
        """Wake the subscriptions that follow a stream, which ends at a slot and an offset now."""
        for follower in await self.store.followers(stream):
            if not await self._notice(follower, stream, slot, offset):
                await self.store.forget(stream, follower)

    async def created(self, path: str) -> None:
        """Link a stream that was created to the subscriptions that are interested in it."""
        for id_ in await self.store.interested(path):
            await self._link_new(id_, path)

    async def deleted(self, stream: int) -> None:
        """Unlink a stream that was deleted; an explicit link waits for the next one at its path."""
        for follower in await self.store.followers(stream):

            async def decide(
                record: DurableSubscription, follower: IndexedLink = follower
            ) -> Change | None:
                link = await self._followed(record, stream, follower)
                if link is None:
                    return None
                rest = Link(link.path, explicit=True, glob=link.glob) if link.explicit else None
                return record, [LinkChange(link, rest)]

            await self._try_change(follower.id, decide)

    async def reconcile(self, record: DurableSubscription) -> None:
        """Notice all news of the streams that are linked: for a start after a crash, which may have
        been between an append, or a creation, and its notice."""
        after = ""
        while page := await self.store.links(record, after, LIST_PAGE):
            for link in page:
                tail = await self._tail(link.path)
                if tail is None:
                    if link.stream is not None:
                        await self.deleted(link.stream)
                elif tail.stream != link.stream:
                    await self._link_new(record.id, link.path)
                elif offset_of(tail.offset) > offset_of(link.tail):
                    await self._recheck(record, link.path, None)
            after = page[-1].path

    async def link_missing(self, records: Iterable[DurableSubscription]) -> None:
        """Link streams that match and are not linked: the rest of `reconcile`, for all
        subscriptions at once, so that each stream is listed once."""
        index: PatternIndex[str] = PatternIndex()
        by_id = {record.id: record for record in records}
        for record in by_id.values():
            if record.pattern is not None:
                index.add(record.pattern, record.id)
        for prefix in index.literal_prefixes():
            after = ""
            while listed := await self.streams.list(prefix, after, LIST_PAGE):
                for stream, _ in listed:
                    for id_ in sorted(index.match(stream.path)):
                        record = by_id[id_]
                        is_own = stream.path == record.wake_stream
                        if not is_own and await self.store.link(record, stream.path) is None:
                            await self._link_new(record.id, stream.path)
                after = listed[-1].stream.path

    # Work that is due

    async def perform(self, id: str) -> None:  # noqa: A002
        """Do what is due of a subscription, until nothing is."""
        while True:
            record = await self.store.load(id)
            if record is None or record.due_at is None or record.due_at > self._clock():
                return
            match record.phase:
                case Phase.WAITING if record.url is not None and self.send_elsewhere is not None:
                    await self.send_elsewhere(id)
                    return
                case Phase.WAITING if record.url is not None:
                    await self.send(record)
                case Phase.HELD:
                    await self.expire(record)
                case _ if self.works_elsewhere:
                    await self._try_change(id, _touch)
                    return
                case Phase.LINKING:
                    await self._take_over(record)
                case Phase.WAITING:
                    await self._announce(record)
                case Phase.DONE:
                    await self._finish(record)
                case Phase.DELETED:
                    await self.store.erase(record)
                case Phase.IDLE:
                    return

    async def send(self, record: DurableSubscription) -> None:
        """Send the wake to the webhook; its lease begins before it is sent, so that no other
        process sends it, too."""
        links: Sequence[Link] = ()

        async def begin(current: DurableSubscription) -> Change | None:
            nonlocal links
            if current.version != record.version:
                return None
            links = await self.store.pending(current, WAKE_STREAMS)
            if not links:
                return wakes.end(current, self._clock(), "", pending=False), ()
            return wakes.send(current, self._clock()), ()

        sent = await self._try_change(record.id, begin)
        if sent is None or sent.phase is not Phase.HELD:
            return
        delivery = await self._post(sent, links)
        acks = tuple(SnapshotAck(link.path, link.stream, link.tail) for link in links)

        async def end(current: DurableSubscription) -> Change | None:
            jitter = random.uniform(-1, 1)  # noqa: S311 - no secret
            after = wakes.delivered(current, sent, delivery, acks, self._clock(), jitter)
            return None if after is None else (after, ())

        await self._try_change(record.id, end)

    async def expire(self, record: DurableSubscription) -> None:
        """End a wake whose lease is over, and begin the next one if there is news."""

        async def decide(current: DurableSubscription) -> Change | None:
            if not wakes.has_expired(current, self._clock()):
                return None
            return self._end(current), ()

        await self._try_change(record.id, decide)

    async def _announce(self, record: DurableSubscription) -> None:
        """Append the wake event; twice, if the process dies before that is stored."""
        links = await self.store.pending(record, 1)
        failure: TailraceError | None = None
        if links:
            event = {
                "type": "wake",
                "subscription_id": record.id,
                "stream": links[0].path,
                "generation": record.generation,
                "ts": self._clock(),
            }
            assert record.wake_stream is not None
            try:
                request = Append(orjson.dumps(event), JSON_TYPE)
                await self.streams.append(record.wake_stream, request)
            except TailraceError as error:
                failure = error
                logger.warning("the wake of '%s' could not be announced: %s", record.id, error)

        async def decide(current: DurableSubscription) -> Change | None:
            if current.wake_id != record.wake_id or current.phase is not Phase.WAITING:
                return None
            if not links:
                # News that come now give the record another version.
                if current.version != record.version:
                    return None
                return wakes.end(current, self._clock(), "", pending=False), ()
            if failure is None:
                return wakes.announced(current), ()
            jitter = random.uniform(-1, 1)  # noqa: S311 - no secret
            return wakes.announcement_failed(current, self._clock(), jitter), ()

        await self._try_change(record.id, decide)

    async def _finish(self, record: DurableSubscription) -> None:
        """Acknowledge what a webhook is done with."""

        async def decide(current: DurableSubscription) -> Change | None:
            if current.phase is not Phase.DONE:
                return None
            changes = []
            for path, stream, offset in current.acks:
                link = await self.store.link(current, path)
                if link is None or link.stream != stream:
                    continue
                tail = await self._tail(path)
                if tail is None or tail.stream != stream:
                    continue  # Its deletion is another change.
                newest = max(link.acked, offset, key=offset_of)
                changes.append(LinkChange(link, link._replace(acked=newest, tail=tail.offset)))
            return self._end(current, changes), changes

        await self._try_change(record.id, decide)

    async def _post(self, record: DurableSubscription, links: Sequence[Link]) -> Delivery:
        """Post the wake to the webhook."""
        assert record.url is not None
        body = orjson.dumps(
            {
                "subscription_id": record.id,
                "wake_id": record.wake_id,
                "generation": record.generation,
                "streams": [describe_link(link) for link in links],
                "callback_url": callback_url(record),
                "callback_token": await self.token(record),
            }
        )
        headers = {
            "content-type": JSON_TYPE,
            "webhook-signature": await self._signer.sign(body, self._clock()),
        }
        try:
            answer = await self._sender.send(record.url, body, headers)
        except WebhookFailed as error:
            logger.info("the webhook of '%s' failed: %s", record.id, error)
            return Delivery.FAILED
        if not 200 <= answer.status < 300:
            return Delivery.FAILED
        return Delivery.DONE if _is_done(answer.body) else Delivery.ACCEPTED

    # Links

    async def _take_over(self, record: DurableSubscription) -> None:
        """Finish a creation that was not answered; one that names streams, which the record does
        not have, is undone."""
        if record.names_streams:
            await self.delete(record.id)
        else:
            await self._link_all(record, ())

    async def _link_all(
        self, record: DurableSubscription, streams: Sequence[str]
    ) -> DurableSubscription:
        """Finish a creation: link all streams that match, and those that are named."""
        if record.pattern is not None:
            await self._link_matching(record)
        if streams:
            await self._link_explicitly(record, streams)

        async def decide(current: DurableSubscription) -> Change | None:
            if current.phase is not Phase.LINKING:
                return None
            return self._end(current._replace(linked_to=None)), ()

        return await self._change(record.id, decide) or await self.find(record.id)

    async def _link_matching(self, record: DurableSubscription) -> None:
        """Link the streams that exist and match the pattern, at their tails."""
        assert record.pattern is not None
        prefix, after = literal_prefix(record.pattern), record.linked_to or ""
        while listed := await self.streams.list(prefix, after, WAKE_STREAMS):
            after = listed[-1].stream.path
            found = [
                (stream, state)
                for stream, state in listed
                if follows(record.pattern, record.wake_stream, stream.path)
                and may_read(record, stream.path)
            ]

            async def decide(
                current: DurableSubscription,
                found: Sequence[tuple[Stream, State]] = found,
                last: str = after,
            ) -> Change | None:
                if current.phase is not Phase.LINKING or current.uid != record.uid:
                    return None
                changes = []
                for stream, state in found:
                    before = await self.store.link(current, stream.path)
                    if before is not None and before.glob:
                        continue
                    tail = _tail_of(stream, state)
                    changes.append(LinkChange(before, _linked(current, before, stream.path, tail)))
                due_at = self._clock() + LINKING_SECONDS * 1000
                return current._replace(linked_to=last, due_at=due_at), changes

            await self._change(record.id, decide)
            await asyncio.gather(
                *(
                    self._recheck(record, stream.path, _tail_of(stream, state))
                    for stream, state in found
                )
            )

    async def _link_explicitly(self, record: DurableSubscription, paths: Sequence[str]) -> None:
        for first in range(0, len(paths), WAKE_STREAMS):
            batch = paths[first : first + WAKE_STREAMS]

            async def decide(
                current: DurableSubscription, batch: Sequence[str] = batch
            ) -> Change | None:
                if current.uid != record.uid:
                    raise SubscriptionNotFound(record.id)
                changes = []
                for path in batch:
                    before = await self.store.link(current, path)
                    if before is not None and before.explicit:
                        continue
                    if before is not None:
                        after = before._replace(explicit=True)
                    else:
                        tail = await self._tail(path)
                        after = _linked(current, None, path, tail, explicit=True)
                    changes.append(LinkChange(before, after))
                return (current, changes) if changes else None

            await self._change(record.id, decide)
            for path in batch:
                tail = await self._tail(path)
                if tail is not None:
                    # It may have been created, or have got more, since it was looked for.
                    await self._link_new(record.id, path)

    async def _link_new(self, id: str, path: str) -> None:  # noqa: A002
        """Link the stream that is at a path now, from its beginning."""
        seen: StreamEnd | None = None

        async def decide(record: DurableSubscription) -> Change | None:
            nonlocal seen
            before, tail = await self.store.link(record, path), await self._tail(path)
            seen = tail
            if tail is None or not may_read(record, path):
                return None
            by_pattern = follows(record.pattern, record.wake_stream, path)
            explicit = before is not None and before.explicit
            if not by_pattern and not explicit:
                return None
            if before is not None and before.stream == tail.stream:
                after = before._replace(tail=tail.offset)
            else:
                after = Link(
                    path, tail.stream, tail.epoch, explicit, by_pattern, UNREAD, tail.offset
                )
            return self._noticed(record, before, after)

        changed = await self._try_change(id, decide)
        if changed is not None and seen is not None:
            await self._recheck(changed, path, seen)

    async def _recheck(
        self, record: DurableSubscription, path: str, seen: StreamEnd | None
    ) -> None:
        """Notice what was appended to a stream before it was known to be followed."""
        tail = await self._tail(path)
        if tail is not None and tail != seen:
            follower, (slot, offset, _) = (
                IndexedLink(record.id, record.uid, path),
                parse(tail.offset),
            )
            await self._notice(follower, tail.stream, slot, offset)

    async def _notice(self, follower: IndexedLink, stream: int, slot: int, offset: int) -> bool:
        """Note where a stream ends; returns whether the subscription exists."""

        async def decide(record: DurableSubscription) -> Change | None:
            before = await self._followed(record, stream, follower)
            if before is None:
                return None
            newest = max(before.tail, token(slot, offset, before.epoch), key=offset_of)
            return self._noticed(record, before, before._replace(tail=newest))

        try:
            await self._change(follower.id, decide)
        except SubscriptionNotFound:
            return False
        return True

    def _noticed(
        self, record: DurableSubscription, before: Link | None, after: Link
    ) -> Change | None:
        changed = wakes.notice(record, before, after, self._clock(), _new_wake_id())
        return None if changed is None else (changed, [LinkChange(before, after)])

    async def _followed(
        self, record: DurableSubscription, stream: int, follower: IndexedLink
    ) -> Link | None:
        """Return the link of a follower, if it is still one."""
        if record.uid != follower.uid:
            await self.store.forget(stream, follower)
            return None
        link = await self.store.link(record, follower.path)
        return link if link is not None and link.stream == stream else None

    async def _acknowledged(
        self, record: DurableSubscription, path: str, offset: str
    ) -> LinkChange:
        """Return the change of a link by an acknowledgement; raises InvalidAckOffset."""
        link, tail = await self.store.link(record, path), await self._tail(path)
        if link is None:
            raise InvalidAckOffset(f"'{path}' is not linked")
        if tail is None or tail.stream != link.stream:
            raise InvalidAckOffset(f"'{path}' is not the stream any more that the wake was for")
        try:
            position = parse(offset)
        except BadOffset as error:
            raise InvalidAckOffset(f"'{path}': {error}") from None
        if position.epoch not in (0, tail.epoch):
            raise InvalidAckOffset(f"'{path}': the offset is of an earlier stream")
        if not offset_of(link.acked) <= position.offset <= offset_of(tail.offset):
            raise InvalidAckOffset(f"'{path}': the offset is not between the cursor and the tail")
        return LinkChange(link, link._replace(acked=offset, tail=tail.offset))

    async def _look_for_news(self, record: DurableSubscription) -> Sequence[LinkChange]:
        """Ask the streams themselves, of the first links."""
        changes = []
        for listed in await self.store.links(record, "", CLAIM_CHECKS):
            tail = await self._tail(listed.path)
            if tail is None or tail.offset == listed.acked:
                continue
            # A listing may lag behind the record.
            link = await self.store.link(record, listed.path)
            if link is None or tail.stream != link.stream:
                continue
            after = link._replace(tail=tail.offset)
            if after.pending:
                changes.append(LinkChange(link, after))
            if len(changes) == WAKE_STREAMS:
                break
        return changes

    async def _tail(self, path: str) -> StreamEnd | None:
        """Return the stream at a path, strongly consistent."""
        try:
            tail = await self.streams.find(path)
        except (StreamNotFound, StreamGone):
            return None
        return _tail_of(tail.stream, tail.committed)

    # Changes

    def _end(
        self, record: DurableSubscription, changes: Sequence[LinkChange] = ()
    ) -> DurableSubscription:
        """End the wake, with some changes of links; begin the next one if there is news."""
        pending = record.pending_links + sum(each.pending for each in changes) > 0
        return wakes.end(record, self._clock(), _new_wake_id(), pending=pending)

    async def _change(
        self,
        id: str,  # noqa: A002
        decide: Decide,
    ) -> DurableSubscription | None:
        """Change a subscription as decided on its newest version; returns what was stored, or None
        if it was to stay as it is. Raises SubscriptionNotFound."""
        for attempt in range(ATTEMPTS):
            before = await self.find(id)
            change = await decide(before)
            if change is None:
                return None
            changed, links = change
            pending = before.pending_links + sum(each.pending for each in links)
            after = changed._replace(version=before.version + 1, pending_links=pending)
            if await self.store.save(before, after, links):
                self.changed(after)
                return after
            pause = random.uniform(0, min(0.001 * 2**attempt, 0.1))  # noqa: S311 - no secret
            await asyncio.sleep(pause)
        raise StoreUnavailable(f"the subscription '{id}' changes too often; try again")

    async def _try_change(
        self,
        id: str,  # noqa: A002
        decide: Decide,
    ) -> DurableSubscription | None:
        """Change a subscription, unless it was deleted."""
        try:
            return await self._change(id, decide)
        except SubscriptionNotFound:
            return None


def may_read(record: DurableSubscription, path: str) -> bool:
    """Whether the creator of a subscription may read the stream at a path."""
    return record.reads is None or Patterns(record.reads).matches(path)


def describe_link(link: Link) -> dict[str, Any]:
    """Describe a link as wakes and claims show it."""
    return {
        "path": link.path,
        "link_type": link.type,
        "acked_offset": link.acked,
        "tail_offset": link.tail,
        "has_pending": link.pending,
    }


def callback_url(record: DurableSubscription) -> str:
    return f"{subscription_url(record)}/callback"


def subscription_url(record: DurableSubscription) -> str:
    return f"{record.base_url}/v1/stream/__ds/subscriptions/{quote(record.id, safe='')}"


def _linked(
    record: DurableSubscription,
    before: Link | None,
    path: str,
    tail: StreamEnd | None,
    *,
    explicit: bool = False,
) -> Link:
    """Return a new link to a stream: at its tail if it is older than the subscription, and from
    its beginning otherwise."""
    if before is not None:
        return before._replace(glob=True)
    if tail is None:
        return Link(path, explicit=explicit, glob=not explicit)
    # A stream that is linked by name, later, has its past, too.
    old = explicit or tail.created <= record.created_at
    acked = tail.offset if old else UNREAD
    return Link(path, tail.stream, tail.epoch, explicit, not explicit, acked, tail.offset)


def _tail_of(stream: Stream, state: State) -> StreamEnd:
    config = stream.config
    return StreamEnd(stream.id, config.epoch, state.next_offset(config.epoch), config.created)


def _newest(acks: Iterable[Ack]) -> Iterable[Ack]:
    """Return the last acknowledgement of each stream."""
    return {ack.path: ack for ack in acks}.values()


def _is_done(body: bytes) -> bool:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return isinstance(value, dict) and value.get("done") is True


async def _touch(record: DurableSubscription) -> Change:
    """Give a record another version, so that the table's stream shows it."""
    return record, ()


async def _nothing() -> None:
    pass


def _new_wake_id() -> str:
    return f"w_{secrets.token_hex(12)}"
