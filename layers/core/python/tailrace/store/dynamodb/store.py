"""The DynamoDB store: the methods of `store.base` as calls to one table.

Many processes share the table and nothing else. What a process remembers of a stream, its name and
its tail, may be outdated at any time; the chain corrects it: a writer that builds on an outdated
tail finds the slot filled, by an entry or by a tombstone.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from tailrace import metrics
from tailrace.aws.client.failures import ConditionFailed, Item, TransactionCanceled
from tailrace.aws.client.json_client import Call
from tailrace.clock import Clock, system_clock
from tailrace.errors import BodyTooLarge, SlotTrimmed, StoreUnavailable, StreamTooHot
from tailrace.limits import INDEX_SLOTS, ITEM_BODY_BYTES, RIVAL_SLOT_BYTES, SLOT_BYTES
from tailrace.log.append import tombstone
from tailrace.log.expiry import is_purged, renewal_slack
from tailrace.log.offsets import BEGINNING, NOW
from tailrace.log.state import Chunk, Entry, Fork, Listed, Producer, SlotInfo, State, Stream
from tailrace.settings import Settings
from tailrace.store.base import ReadResult, SegmentInfo, StoredDetails, Waiter, pass_on
from tailrace.store.dynamodb import actions, layout, listing, sweeping
from tailrace.store.dynamodb.batches import Batch
from tailrace.store.dynamodb.bodies import Bodies, Bucket
from tailrace.store.dynamodb.chain import Chain, OpenChains
from tailrace.store.dynamodb.polling import Poller
from tailrace.store.dynamodb.provision import Backend, connect
from tailrace.store.dynamodb.reading import Pieces, fill, fill_to_end, inherited, last_state
from tailrace.store.dynamodb.segments import BucketSegments
from tailrace.store.dynamodb.table import Action, Table

ROUNDS: Final = 100
"""Reads of a name that keeps being deleted and created, before the request fails."""

PAUSE_SECONDS: Final = 1.0
"""Correction of the wall clock, against the loop's, above which the process must have paused."""

logger = logging.getLogger("tailrace")


class _ChainRead(NamedTuple):
    """The result of reading a chain from a slot on."""

    chunk: Chunk
    end: State | None
    deleted: bool


class DynamoStore:
    def __init__(
        self,
        settings: Settings,
        clock: Clock = system_clock,
        backend: Backend | None = None,
        meter: Callable[[Call], None] | None = None,
        *,
        check_table: bool = True,
    ) -> None:
        """`backend` replaces DynamoDB and S3, as in tests; `meter` gets every call to DynamoDB.
        `check_table`: whether `open` checks that the table exists and fits."""
        self._settings = settings
        self._clock = clock
        self._backend = backend
        self._meter = meter
        self._check_table = check_table
        self._grace = settings.trim_grace * 1000
        self._chains = OpenChains(settings.open_streams)
        self.observer: Callable[[Stream, State], None] | None = None
        self._writing: set[asyncio.Task[None]] = set()
        self.outcomes: Counter[str] = Counter()
        """Counts of writes: appended, lost (to another writer), recovered (after a lost answer)."""

    @property
    def damaged(self) -> int:
        readers = (self._bodies, self._segments)
        return sum(len(reader.damage) for reader in readers if reader is not None)

    # Life

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lead = self._clock_lead()
        """By how many seconds the wall clock was ahead of the loop's after the last pause."""
        if self._backend is None:
            self._backend = await connect(
                self._settings, self._meter, check_table=self._check_table
            )
        self._table = Table(self._backend.client, self._settings.table)
        bucket: Bucket | None = self._backend.bucket
        self._bodies = self._segments = None
        if bucket is not None:
            self._bodies = Bodies(self._table, bucket, self._clock)
            self._segments = BucketSegments(self._table, bucket, INDEX_SLOTS, self._clock)
        self._inline_bytes = min(self._settings.inline_bytes, ITEM_BODY_BYTES)
        self._poller = Poller(self._table, self._clock, self._settings)

    async def close(self) -> None:
        self.wake()
        await asyncio.gather(*self._writing)
        await self._poller.stop()
        assert self._backend is not None
        await self._backend.close()

    @property
    def table(self) -> Table:
        """The table, for other items that are kept there."""
        return self._table

    async def probe(self) -> None:
        await self._table.get(layout.name_key("health"))

    # Writing

    async def tail(self, path: str) -> Chain | None:
        for _ in range(ROUNDS):
            begun = self._loop.time()
            chain = self._chains.get(path)
            if chain is None:
                chain = await self._resolve(path)
                if chain is None:
                    return None
                named = True
                await self._refresh(chain)
            else:
                named, _ = await asyncio.gather(self._has_name(chain), self._refresh(chain))
            if named and (chain.soft_deleted or not chain.deleted):
                chain = self._chains.keep(chain)
                chain.confirmed = begun >= chain.used_at
                return chain
            self._chains.forget(chain)
        raise _too_unstable(path)

    def held(self, path: str) -> Chain | None:
        self._notice_pause()
        chain = self._chains.get(path)
        if chain is None or chain.deleted or not chain.trusted(self._loop.time()):
            return None
        chain.use(self._loop.time())
        return chain

    def put(self, chain: Chain, before: State, entry: Entry) -> asyncio.Future[int | None]:
        if chain.state is not before or chain.ended:
            lost: asyncio.Future[int | None] = self._loop.create_future()
            lost.set_result(None)
            return lost
        batches = chain.batches
        large = entry.body is not None and len(entry.body) > self._inline_bytes
        rivals = chain.has_rivals(self._loop.time())
        most = min(RIVAL_SLOT_BYTES if rivals else SLOT_BYTES, self._inline_bytes)
        future = batches.add(before, entry, most, large=large)
        if batches.task is None:
            batches.task = self._loop.create_task(self._store_batches(chain))
            self._writing.add(batches.task)
            batches.task.add_done_callback(self._writing.discard)
        return future

    def put_then(self, chain: Chain, before: State, entry: Entry, waiter: Waiter) -> None:
        self.put(chain, before, entry).add_done_callback(partial(pass_on, waiter))

    async def confirm(self, chain: Chain) -> bool:
        slot, confirmed = chain.state.slot, chain.confirmed
        if chain.batches:
            batch = chain.batches.last
            sent = batch.sent
            if not await batch.done():
                return False
            if not sent:
                # The conclusion holds at the moment at which what it rests on was stored.
                return True
            # That moment was perhaps before the request came, and others have written since.
            confirmed = False
        if not confirmed and await self.tail(chain.stream.path) is not chain:
            return False
        return chain.committed.slot == slot and not chain.ended

    async def producer(self, tail: Chain, producer: str) -> tuple[int, int] | None:
        # The producer that is read may be newer than the tail in memory.
        tail.use(self._loop.time())
        item = await self._table.get(layout.producer_key(tail.stream.id, producer))
        return None if item is None else (int(item["e"]["N"]), int(item["q"]["N"]))

    async def create(self, stream: Stream, entries: Sequence[Entry]) -> Chain | None:
        name = layout.name_item(stream)
        chain = Chain(layout.name_of(name))
        begun = self._loop.time()
        parts = [actions.put_new(name)]
        for entry in entries:
            key = await self._upload(stream, entry)
            item = layout.entry_item(stream.id, entry, secrets.token_hex(8), key)
            parts += _filling(stream, entry, item, key)
        fork = stream.config.fork
        if fork is not None:
            parts += actions.add_edge(fork, stream.id, stream.config.earliest)
        try:
            # Even a name alone: the token of a transaction keeps a late or repeated attempt from
            # claiming the name again after the stream was deleted.
            await self._table.transact(parts)
        except TransactionCanceled as error:
            holder = error.reasons[0].item
            if holder is None or holder["incarnation"] != name["incarnation"]:
                return None
        if fork is not None:
            source = self._chains.get(fork.source)
            if source is not None and source.stream.id == fork.parent:
                source.forked += 1
        state = entries[-1].state if entries else stream.config.initial_state()
        self._learn(chain, state, begun)
        return self._chains.keep(chain)

    async def drop(self, chain: Chain) -> bool:
        stream = chain.stream
        if chain.batches:
            await chain.batches.last.done()
        if chain.ended:
            return False
        if chain.outdated(self._loop.time()):
            await self._refresh(chain)
        soft = chain.forked > 0
        now = self._clock()
        attempt = secrets.token_hex(8)
        begun = self._loop.time()
        item = layout.entry_item(stream.id, tombstone(chain.committed, now), attempt, None)
        if not soft:
            item |= layout.due(layout.CHAINS_DUE, item, now + self._grace)
        if is_purged(
            stream.config,
            complete=chain.committed.closed or chain.committed.size >= self._settings.chunk_bytes,
            cold=chain.archived,
        ):
            item["h"] = layout.number(1)
        fork = stream.config.fork
        if fork is not None:
            item["f"] = layout.source_text(fork)
        parts = [actions.put_new(item), actions.release_name(chain)]
        if fork is not None and not soft:
            parts += actions.remove_edge(fork, stream.id)
        try:
            await self._table.transact(parts)
        except TransactionCanceled as error:
            if not self._won(chain, error, attempt, begun):
                return False
        chain.deleted = True
        chain.soft_deleted = soft
        self._chains.forget(chain)
        if fork is not None and not soft:
            await self._release_source(fork, now)
        return True

    async def touch(self, chain: Chain, now: int) -> None:
        ttl = chain.stream.config.ttl
        if ttl is None:
            return
        chain.touch(now)
        slack = renewal_slack(ttl)
        if now - chain.stored <= slack:
            return
        # Concurrent callers wait: they may only rely on a persisted access time.
        async with chain.access_lock:
            if now - chain.stored > slack:
                await self._store_clock(chain, now)

    # Reading

    async def read_at(
        self, path: str, slot: int, chunk_bytes: int, after: int = 0
    ) -> ReadResult | None:
        for _ in range(ROUNDS):
            chain = self._chains.get(path)
            if chain is None:
                chain = await self._resolve(path)
                if chain is None:
                    return None
                result = await self._read_chain(chain, slot, chunk_bytes, after)
            else:
                first = chain.earliest if slot == BEGINNING else slot
                named, seen = await asyncio.gather(
                    self._has_name(chain),
                    self._read_chain(chain, first, chunk_bytes, after),
                    return_exceptions=True,
                )
                if isinstance(named, BaseException):
                    raise named
                if not named:
                    # The chain has lost its name, so what was read of it does not count.
                    self._chains.forget(chain)
                    continue
                if NOW != first < chain.earliest:
                    raise SlotTrimmed(chain.earliest)
                if isinstance(seen, BaseException):
                    raise seen
                result = seen
            if chain.soft_deleted or not result.deleted:
                return ReadResult(self._chains.keep(chain), result.chunk, result.end)
            self._chains.forget(chain)
        raise _too_unstable(path)

    async def read(
        self, chain: int, slot: int, stop: int, chunk_bytes: int, after: int = 0
    ) -> Chunk:
        pieces = Pieces(slot, chunk_bytes, after)
        await fill(self._table, self._segments, pieces, chain, stop)
        if not pieces:
            raise SlotTrimmed(stop)
        return await pieces.chunk(self._bodies)

    async def start_of(self, chain: int, slot: int) -> tuple[int, int]:
        item = await self._table.get(layout.slot_key(chain, slot - 1))
        if item is not None:
            entry = layout.entry_of(item)
            return entry.offset, entry.size
        start = None if self._segments is None else await self._segments.end_of(chain, slot - 1)
        if start is None:
            raise SlotTrimmed(slot)
        return start

    async def slot_info(self, chain: int, slot: int) -> SlotInfo:
        item = await self._table.get(layout.slot_key(chain, slot))
        if item is not None:
            return SlotInfo(layout.entry_of(item).offset, int(item["a"]["N"]))
        info = None if self._segments is None else await self._segments.slot_info(chain, slot)
        if info is None:
            raise SlotTrimmed(slot + 1)
        return info

    async def body(self, entry: layout.Stored) -> bytes:
        """The data of an entry, wherever it is."""
        key = entry.object_key
        if key is None:
            return entry.body
        assert self._bodies is not None, "there is a bucket where a large body was stored"
        return await self._bodies.read(key)

    async def wait(self, chain: Chain, slot: int, seconds: float) -> bool:
        if chain.ended or chain.committed.closed or chain.committed.tail > slot:
            return True
        if self._chains.get(chain.stream.path) is not chain:
            return True
        return await self._poller.wait(chain, slot, seconds)

    def wake(self) -> None:
        self._chains.wake()

    async def list(self, prefix: str, after: str, limit: int, now: int) -> Sequence[Listed]:
        return await listing.list_streams(self._table, prefix, after, limit, now)

    async def details(self, tail: Chain, limit: int) -> StoredDetails:
        chain = tail.stream.id
        partition, begin = layout.segment_partition(chain), layout.slot_text(0)
        segments, first, producers, _ = await asyncio.gather(
            self._table.query(partition, begin, layout.LAST_SLOT, limit=limit, backward=True),
            self._table.query(partition, begin, layout.LAST_SLOT, limit=1),
            self._table.begins(layout.producer_partition(chain), "", limit, None),
            self._has_name(tail),
        )
        manifests = [layout.manifest_of(item) for item in segments.items]
        return StoredDetails(
            hot_from=manifests[0].stop if manifests else 0,
            cold_bytes=manifests[0].size - layout.manifest_of(first.items[0]).begin
            if manifests and first.items
            else 0,
            segments=[
                SegmentInfo(each.first, each.stop, each.data_bytes, each.committed_at)
                for each in manifests
            ],
            forks=tail.forked,
            # Edges have the incarnations of forks, and their names cannot be looked up by those.
            fork_paths=(),
            producers=[
                Producer(item["s"]["S"][1:], int(item["e"]["N"]), int(item["q"]["N"]))
                for item in producers.items
            ],
        )

    # Maintenance

    async def expiring(self, now: int) -> Sequence[str]:
        return await sweeping.expiring(self._table, self._bodies, now)

    async def sweep(self) -> None:
        await sweeping.sweep(self._table, self._bodies, self._clock(), self._grace)

    # The cached chains

    async def _resolve(self, path: str) -> Chain | None:
        """The chain a name stands for now; nothing is known of its tail yet."""
        if not path:
            return None
        item = await self._table.get(layout.name_key(path))
        return None if item is None else Chain(layout.name_of(item))

    async def _has_name(self, chain: Chain) -> bool:
        """Whether the name still stands for this chain."""
        item = await self._table.get(layout.name_key(chain.stream.path))
        if item is None or not layout.is_name_of(item, chain.stream.id):
            return False
        chain.update_name(layout.name_of(item))
        return True

    async def _refresh(self, chain: Chain) -> State:
        begun = self._loop.time()
        state = await last_state(self._table, chain.stream)
        self._learn(chain, state, begun)
        chain.losses = 0
        return state

    async def _store_clock(self, chain: Chain, now: int) -> None:
        try:
            await self._table.update(
                layout.name_key(chain.stream.path),
                "SET accessed_at = :now",
                "incarnation = :id AND accessed_at < :now",
                {":now": layout.number(now), ":id": layout.text(layout.id_text(chain.stream.id))},
            )
        except ConditionFailed:
            # Another stream, or a later time: both are told by asking again.
            self._chains.forget(chain)
        except (StoreUnavailable, StreamTooHot):
            pass  # The read or write that this is about says itself whether it can be done.
        else:
            chain.stored = max(chain.stored, now)

    def _notice_pause(self) -> None:
        """Trust no tail from before a pause that the loop's clock did not count.

        A function is frozen between two requests, or restored from a snapshot, for as long as it
        pleases the platform."""
        lead = self._clock_lead()
        if lead - self._lead > PAUSE_SECONDS:
            self._chains.distrust()
            self._lead = lead
        else:
            self._lead = min(self._lead, lead)

    def _clock_lead(self) -> float:
        return self._clock() / 1000 - self._loop.time()

    def _learn(self, chain: Chain, state: State, seen: float) -> None:
        chain.known_at = self._loop.time()
        chain.learn_tail(state, seen, max(0, self._clock() - state.written_at) / 1000)

    async def _read_chain(
        self, chain: Chain, slot: int, chunk_bytes: int, after: int
    ) -> _ChainRead:
        """The chunk at a slot, and the state if it reaches the end: mostly in one query."""
        if slot == NOW:
            return _at_end(await self._refresh(chain))
        if slot == BEGINNING:
            slot = chain.earliest
        elif slot < chain.earliest:
            raise SlotTrimmed(chain.earliest)
        pieces = Pieces(slot, chunk_bytes, after)
        for ancestor in inherited(chain.stream, slot):
            await fill(self._table, self._segments, pieces, ancestor.id, ancestor.until)
            if not pieces:
                raise SlotTrimmed(ancestor.until)
            if pieces.full or pieces.slot < ancestor.until:
                return _ChainRead(await pieces.chunk(self._bodies), None, deleted=False)
        while True:
            begun = self._loop.time()
            state, ends = await fill_to_end(self._table, self._segments, pieces, chain.stream.id)
            if state is not None and ends:
                self._learn(chain, state, begun)
            elif state is None:
                # Nothing is at this slot or after it: it is the tail, or lies beyond.
                is_tail = chain.committed.slot == pieces.slot
                state = chain.committed if is_tail else await self._refresh(chain)
                if state.tail > pieces.slot:
                    continue
            if not pieces:
                if state.tail > pieces.slot and not state.deleted:
                    raise SlotTrimmed(state.tail)
                return _at_end(state)
            end = state if ends and pieces.slot >= state.tail else None
            return _ChainRead(await pieces.chunk(self._bodies), end, state.deleted)

    # Writing, in detail

    async def _store_batches(self, chain: Chain) -> None:
        """Store what waits for a stream, batch by batch."""
        batches = chain.batches
        try:
            while batches:
                # Appends that come meanwhile join the batch.
                await asyncio.sleep(chain.pacer.free_at - self._loop.time())
                batch = batches.first
                try:
                    stored = await self._follows(chain, batch)
                    stored = stored and await self._fill(chain, batch.freeze())
                except Exception as error:  # noqa: BLE001 - each caller gets it
                    batches.pop().failed(error)
                    stored = False
                if stored:
                    batches.pop().stored()
                else:
                    batches.lose()
        finally:
            batches.task = None
            batches.lose()

    async def _follows(self, chain: Chain, batch: Batch) -> bool:
        """Whether a batch follows the last entry, as far as can be known before it is sent."""
        self._notice_pause()
        if not chain.trusted(self._loop.time()):
            # Those who wait ask for the name, too: the chain may have been deleted and erased.
            return False
        if chain.outdated(self._loop.time()):
            await self._refresh(chain)
        return batch.before.slot == chain.committed.slot and not chain.ended

    async def _fill(self, chain: Chain, entry: Entry) -> bool:
        """Fill the next slot; False when another writer was faster."""
        if chain.unused_upload is not None and chain.unused_upload[0] == entry.body:
            key: str | None = chain.unused_upload[1]
        else:
            key = await self._upload(chain.stream, entry)
        attempt = secrets.token_hex(8)
        item = layout.entry_item(chain.stream.id, entry, attempt, key)
        begun = self._loop.time()
        try:
            if key is None and not entry.spill:
                await self._table.put_new(item)
            else:
                await self._table.transact(_filling(chain.stream, entry, item, key))
        except (ConditionFailed, TransactionCanceled) as error:
            if not self._won(chain, error, attempt, begun):
                # The next try may use the object, unless its intent was revoked.
                if key and entry.body and _lost_to(error) is not None:
                    chain.unused_upload = entry.body, key
                else:
                    chain.unused_upload = None
                self.outcomes["lost"] += 1
                metrics.count("appends_lost_total")
                return False
            self.outcomes["recovered"] += 1
            metrics.count("appends_recovered_total")
        self.outcomes["appended"] += 1
        chain.losses = 0
        chain.unused_upload = None
        now = self._loop.time()
        chain.pacer.appended(entry.slot, begun, now, rivals=chain.has_rivals(now))
        chain.other_writers.appended(entry.slot, now)
        self._learn(chain, entry.state, begun)
        if self.observer is not None:
            self.observer(chain.stream, entry.state)
        return True

    def _won(
        self, chain: Chain, error: ConditionFailed | TransactionCanceled, attempt: str, begun: float
    ) -> bool:
        """Whether the slot was taken by this very attempt, of which only the answer was lost."""
        item = _lost_to(error)
        if item is None:
            return False
        entry = layout.entry_of(item)
        if entry.attempt == attempt:
            return True
        chain.losses += 1
        chain.lost_at = begun
        chain.known_at = self._loop.time()
        chain.observe(entry.state, begun)
        if chain.deleted:
            self._chains.forget(chain)
        return False

    async def _upload(self, stream: Stream, entry: Entry) -> str | None:
        """Store a large body outside of its entry."""
        body = entry.body
        if body is None or len(body) <= self._inline_bytes:
            return None
        if self._bodies is not None:
            return await self._bodies.upload(f"bodies/{stream.id:016x}", body)
        if len(body) <= ITEM_BODY_BYTES:
            return None
        raise BodyTooLarge(
            f"without a bucket a body has at most {ITEM_BODY_BYTES} bytes;"
            " set TAILRACE_BUCKET to store larger ones in S3"
        )

    async def _release_source(self, fork: Fork, now: int) -> None:
        """Release a source that only this fork still needed; if that fails, the sweep does it."""
        source = self._chains.get(fork.source)
        if source is not None and source.stream.id == fork.parent:
            source.forked -= 1
        try:
            await sweeping.release(self._table, fork.source, fork.parent, now + self._grace)
        except (StoreUnavailable, StreamTooHot):
            logger.warning("the source of a deleted fork is released later")


def _filling(stream: Stream, entry: Entry, item: Item, key: str | None) -> Sequence[Action]:
    """Return the actions that fill a slot, when that takes more than the entry."""
    parts = [actions.put_new(item), *actions.spill(stream.id, entry)]
    if key is not None:
        parts.append(actions.end_upload_intent(key))
    return parts


def _too_unstable(path: str) -> StoreUnavailable:
    return StoreUnavailable(f"'{path}' is being deleted and created repeatedly; try again")


def _at_end(state: State) -> _ChainRead:
    return _ChainRead(Chunk((), state.tail, state.offset, state.size), state, state.deleted)


def _lost_to(error: ConditionFailed | TransactionCanceled) -> Item | None:
    """Return the item that holds the slot; in a transaction the slot is the first action."""
    return error.item if isinstance(error, ConditionFailed) else error.reasons[0].item
