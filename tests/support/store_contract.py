"""The contract of every store.

A store's own test module derives from `StoreContract` and gives it a fixture `make`: a function
that makes stores, unopened, over the same data. Nothing here knows how anything is stored, nor the
rules: entries are made by hand.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from tailrace.errors import SlotTrimmed
from tailrace.limits import SLOT_APPENDS
from tailrace.log.content import DEFAULT_TYPE
from tailrace.log.expiry import renewal_slack
from tailrace.log.state import (
    NO_PRODUCERS,
    Ancestor,
    Chunk,
    Config,
    Entry,
    Fork,
    Part,
    Producer,
    Producers,
    SlotInfo,
    State,
    Stream,
)
from tailrace.store.base import Store, T, Tail

Make = Callable[[], Store[Any]]

NOW = 1_700_000_000_000
PLENTY = 1 << 30
"""A chunk size that nothing here fills."""
SAFETY_SECONDS = 60
"""How long to wait for what must happen; far more than it takes on a busy machine."""

_ids = itertools.count((1 << 61) + 1)


# What tests are written in


def stream(path: str, config: Config | None = None) -> Stream:
    return Stream(path, next(_ids), config or Config("text/plain", NOW))


def forked(path: str, source: Stream, state: State, **config: Any) -> Stream:
    """A fork at the tail of its source."""
    fork = source.config.fork
    lineage = (*(fork.lineage if fork else ()), Ancestor(source.id, state.tail))
    base = (state.tail, state.offset, state.size)
    return stream(
        path,
        Config("text/plain", NOW, base=base, own_expiry=False, **config)._replace(
            fork=Fork(source.path, source.id, state.tail, 0, lineage)
        ),
    )


def entry(state: State, body: bytes | None, spill: Producers = NO_PRODUCERS, **after: Any) -> Entry:
    """The entry that follows a state."""
    length = len(body or b"")
    following = state._replace(
        slot=state.slot + 1, offset=state.offset + length, size=state.size + length
    )
    return Entry(state.slot, body, following._replace(**after), spill)


def following(made: Stream, contents: Sequence[bytes]) -> list[Entry]:
    """The first entries of a new stream."""
    entries: list[Entry] = []
    state = made.config.initial_state()
    for body in contents:
        entries.append(entry(state, body))
        state = entries[-1].state
    return entries


def closing(state: State) -> Entry:
    return entry(state, None, end=state.slot)


async def create(store: Store[T], path: str, *bodies: bytes, config: Config | None = None) -> T:
    """A new stream with these bodies."""
    tail = await store.create(stream(path, config), [])
    assert tail is not None
    for body in bodies:
        await append(store, tail, body)
    return tail


async def fork(store: Store[T], path: str, source: T, *bodies: bytes) -> T:
    tail = await store.create(forked(path, source.stream, source.committed), [])
    assert tail is not None
    for body in bodies:
        await append(store, tail, body)
    return tail


async def append(store: Store[T], tail: T, body: bytes | None, **after: Any) -> int:
    """Append by itself; returns the slot to read next."""
    slot = await put(store, tail, body, **after)
    assert slot is not None
    return slot


def put(
    store: Store[T], tail: T, body: bytes | None, spill: Producers = NO_PRODUCERS, **after: Any
) -> Awaitable[int | None]:
    """Put an entry that was decided on the state that the tail has now."""
    before = tail.state
    return store.put(tail, before, entry(before, body, spill, **after))


async def together(store: Store[T], tail: T, *contents: bytes) -> list[int | None]:
    """Put appends at once; each advances the offset by two."""
    puts = [put(store, tail, body, offset=tail.state.offset + 2) for body in contents]
    return await asyncio.gather(*puts)


async def find(store: Store[T], path: str) -> T:
    tail = await store.tail(path)
    assert tail is not None
    return tail


async def bodies(store: Store[T], tail: T) -> list[bytes]:
    """All data of a chain itself, without what a fork inherits."""
    n, stop = tail.stream.config.base[0], tail.committed.tail
    if n == stop:
        return []
    chunk = await store.read(tail.stream.id, n, stop, PLENTY)
    assert chunk.slot == stop
    return list(chunk.bodies)


def same(chunk: Chunk) -> Chunk:
    """A chunk without what may differ by the place that it comes from."""
    return chunk._replace(bodies=list(chunk.bodies), cold=False)


class Placed(NamedTuple):
    """An append as readers find it."""

    slot: int
    body: bytes
    offset: int
    """After it, as the next."""
    size: int


class Shared:
    """A stream whose slots hold several appends, and what reads of it should return."""

    def __init__(self, slots: Sequence[Sequence[int]]) -> None:
        """`slots`: the sizes of the appends of each slot."""
        self.slots = [
            [bytes([97 + n % 26]) * size for n, size in enumerate(sizes)] for sizes in slots
        ]
        self.appends: list[Placed] = []
        offset = size = 0
        for slot, contents in enumerate(self.slots):
            for body in contents:
                offset, size = offset + 2, size + len(body)
                self.appends.append(Placed(slot, body, offset, size))

    async def create(self, store: Store[T], path: str) -> T:
        tail = await create(store, path)
        for slot, contents in enumerate(self.slots):
            expected = [slot] * (len(contents) - 1) + [slot + 1]
            assert await together(store, tail, *contents) == expected
        return tail

    def begin(self, slot: int) -> tuple[int, int]:
        """Offset and size at which a slot begins."""
        before = [each for each in self.appends if each.slot < slot]
        return before[-1][2:] if before else (0, 0)

    def read(self, slot: int, stop: int, chunk_bytes: int, after: int) -> Chunk:
        boundary = (self.begin(slot)[1] // chunk_bytes + 1) * chunk_bytes
        last = next((n for n in range(slot, stop) if self.begin(n + 1)[1] >= boundary), stop - 1)
        taken = [
            each.body for each in self.appends if slot <= each.slot <= last and each.offset > after
        ]
        return Chunk(taken, last + 1, *self.begin(last + 1))


@asynccontextmanager
async def opened(make: Make) -> AsyncIterator[Store[Any]]:
    store = make()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


class Waiting:
    """A wait under way."""

    def __init__(self, store: Store[Any], tail: Tail, n: int) -> None:
        self._task = asyncio.ensure_future(store.wait(tail, n, 10 * SAFETY_SECONDS))

    async def goes_on(self, seconds: float = 0.1) -> bool:
        done, _ = await asyncio.wait([self._task], timeout=seconds)
        return not done

    async def ends(self) -> bool:
        """By itself, long before its time is up."""
        done, _ = await asyncio.wait([self._task], timeout=SAFETY_SECONDS)
        if not done:
            self._task.cancel()
        return bool(done) and self._task.exception() is None

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


# Tables


CONFIGS: dict[str, Config] = {
    "plain": Config(DEFAULT_TYPE, NOW),
    "parameters": Config('text/plain; charset="utf-8"', NOW),
    "ttl": Config("text/plain", NOW, ttl=2**53 - 1),
    "ttl 0": Config("text/plain", NOW, ttl=0),
    "expires": Config("text/plain", NOW, expires_at=NOW + 1),
    "expired": Config("text/plain", NOW, expires_at=-1),
    "epoch": Config("text/plain", NOW, epoch=8999),
}

STATES: dict[str, dict[str, Any]] = {
    "open": {},
    "later": {"written_at": NOW + 123_456},
    "Stream-Seq": {"seq": "0001"},
    "empty Stream-Seq": {"seq": ""},
    "latin Stream-Seq": {"seq": 'ä"\\\x80'},
    "closed with data": {"end": 1},
    "closed by a producer": {"end": 1, "closer": Producer("p", 3, 2**53 - 1)},
    "producers": {"producers": {"z": (0, 0), "a": (2**53 - 1, 7), 'ä"\\': (1, 2)}},
    "spilled": {"producers": {"p": (1, 1)}, "spilled": 7},
    "everything": {
        "written_at": NOW + 1, "end": 1, "closer": Producer("p", 1, 1), "seq": "x",
        "producers": {"p": (1, 1)}, "spilled": 1,
    },
}  # fmt: skip

SHAPES: dict[str, Sequence[int]] = {
    "on the boundary": [64] * 5,
    "larger than a chunk": [200, 1, 1, 64, 300, 63, 1, 1],
    "any": [random.Random(5).randint(1, 150) for _ in range(20)],
}

SHARED: dict[str, Sequence[Sequence[int]]] = {
    "one each": [[64]] * 4,
    "several each": [[10, 20, 3], [1, 1], [60, 5, 40, 7], [2, 2]],
    "longer than a chunk": [[100, 90, 80], [1], [64, 64], [1, 1, 1]],
    "any": [
        [random.Random(n).randint(1, 60) for _ in range(random.Random(n).randint(1, 6))]
        for n in range(6)
    ],
}  # fmt: skip
"""The sizes of the appends of each slot."""

PATHS = [
    "A", "a", "a/1", "a/10", "a/2", "a0", "a_b", "ab", "b", "b/%", "b/%20x", "b/x", "é", "z",
]  # fmt: skip


# The contract


class StoreContract:
    @pytest.fixture
    async def store(self, make: Make) -> AsyncIterator[Store[Any]]:
        async with opened(make) as store:
            yield store

    # Names

    async def test_where_nothing_was_created_nothing_is(self, store: Store[Any]) -> None:
        assert await store.tail("a") is None

    async def test_a_new_stream_is_empty(self, store: Store[Any]) -> None:
        made = stream("a/b")
        created = await store.create(made, [])
        assert created is not None
        tail = await find(store, "a/b")
        assert tail.stream == made
        assert tail.state == tail.committed == made.config.initial_state()
        assert not tail.soft_deleted
        assert not tail.watched
        assert tail.accessed == NOW

    async def test_a_new_stream_has_its_first_entries(self, store: Store[Any]) -> None:
        made = stream("a")
        first = entry(made.config.initial_state(), b"one")
        second = entry(first.state, b"two", end=2)
        created = await store.create(made, [first, second])
        assert created is not None
        assert created.state == created.committed == second.state
        tail = await find(store, "a")
        assert tail.committed == second.state
        assert await bodies(store, tail) == [b"one", b"two"]

    async def test_a_new_stream_may_be_closed_and_empty(self, store: Store[Any]) -> None:
        made = stream("a")
        end = closing(made.config.initial_state())
        created = await store.create(made, [end])
        assert created is not None
        assert created.committed == end.state
        assert created.committed.tail == 0

    async def test_a_path_is_any_text(self, store: Store[Any]) -> None:
        paths = ["b", "a/b/c", "UPPER", "with%20space", "dots.-_~", "%", "_", "x" * 1000, "a'b"]
        for path in paths:
            await create(store, path, b"x")
        for path in paths:
            assert (await find(store, path)).stream.path == path
            assert await store.tail(path + "x") is None
            assert await store.tail(path.swapcase() if path.isalpha() else path[:-1]) is None

    async def test_a_name_is_claimed_once(self, store: Store[Any]) -> None:
        tail = await create(store, "a", b"mine")
        assert await store.create(stream("a"), []) is None
        state = Config("text/plain", NOW).initial_state()
        assert await store.create(stream("a"), [entry(state, b"theirs")]) is None
        current = await find(store, "a")
        assert current.stream == tail.stream
        assert await bodies(store, current) == [b"mine"]

    async def test_one_of_many_concurrent_creations_gets_the_name(self, store: Store[Any]) -> None:
        claims = [stream("a") for _ in range(20)]
        tails = await asyncio.gather(*(store.create(claim, []) for claim in claims))
        winners = [claim for claim, tail in zip(claims, tails, strict=True) if tail is not None]
        assert len(winners) == 1
        assert (await find(store, "a")).stream == winners[0]

    async def test_a_configuration_is_kept(self, make: Make) -> None:
        streams = [stream(name, config) for name, config in CONFIGS.items()]
        async with opened(make) as store:
            for made in streams:
                assert await store.create(made, []) is not None
                assert (await find(store, made.path)).stream == made
        async with opened(make) as store:
            for made in streams:
                assert (await find(store, made.path)).stream == made

    async def test_the_configuration_of_a_fork_is_kept(self, make: Make) -> None:
        async with opened(make) as store:
            root = await create(store, "root", b"1", b"2")
            child = await fork(store, "child", root, b"3")
            grandchild = await fork(store, "grandchild", child)
            expected = grandchild.stream
        async with opened(make) as store:
            tail = await find(store, "grandchild")
            assert tail.stream == expected
            assert tail.state == expected.config.initial_state()
            assert tail.state.slot == 3

    # Slots

    async def test_an_entry_fills_its_slot(self, store: Store[Any]) -> None:
        tail = await create(store, "a")
        first = entry(tail.state, b"one", written_at=NOW + 1)
        assert await store.put(tail, tail.state, first) == 1
        assert tail.state == tail.committed == first.state
        assert (await find(store, "a")).committed == first.state
        assert await bodies(store, tail) == [b"one"]

    async def test_a_filled_slot_is_not_filled_again(self, store: Store[Any]) -> None:
        mine, theirs = await create(store, "a"), await find(store, "a")
        before = mine.state
        won, lost = entry(before, b"won"), entry(before, b"lost")
        assert await store.put(mine, before, won) == 1
        assert await store.put(theirs, before, lost) is None
        assert theirs.state == won.state, "a writer that lost knows the state to go on from"
        assert await append(store, theirs, b"second") == 2
        assert await bodies(store, await find(store, "a")) == [b"won", b"second"]

    async def test_one_of_many_concurrent_writers_gets_the_slot(self, store: Store[Any]) -> None:
        tail = await create(store, "a")
        before = tail.state
        racers = [entry(before, b"%d" % number) for number in range(20)]
        won = await asyncio.gather(*(store.put(tail, before, racer) for racer in racers))
        assert won.count(None) == 19
        assert await bodies(store, await find(store, "a")) == [racers[won.index(1)].body]

    async def test_losers_of_a_race_try_again_and_no_entry_is_lost(self, store: Store[Any]) -> None:
        await create(store, "a")

        async def write(number: int) -> int:
            while True:
                tail = await find(store, "a")
                offset: int = tail.state.offset
                if await put(store, tail, b"<%02d>" % number) is not None:
                    return offset
                await asyncio.sleep(random.uniform(0, 0.01))

        offsets = await asyncio.gather(*map(write, range(16)))
        assert sorted(offsets) == list(range(0, 64, 4))
        stored = await bodies(store, await find(store, "a"))
        assert stored == [b"<%02d>" % offsets.index(offset) for offset in range(0, 64, 4)]

    async def test_streams_do_not_disturb_each_other(self, store: Store[Any]) -> None:
        tails = [await create(store, f"s{number}") for number in range(5)]

        async def fill(tail: Tail) -> None:
            for number in range(5):
                await append(store, tail, b"%s %d" % (tail.stream.path.encode(), number))

        await asyncio.gather(*map(fill, tails))
        for tail in tails:
            path = tail.stream.path.encode()
            assert await bodies(store, tail) == [b"%s %d" % (path, n) for n in range(5)]

    async def test_an_entrys_state_is_the_streams_state(self, make: Make) -> None:
        expected: dict[str, State] = {}
        async with opened(make) as store:
            for path, after in STATES.items():
                tail = await create(store, path)
                await append(store, tail, b"data", **after)
                expected[path] = tail.committed
                assert (await find(store, path)).committed == expected[path]
        async with opened(make) as store:
            for path, state in expected.items():
                reopened = await find(store, path)
                assert reopened.state == reopened.committed == state, path
                assert list(reopened.state.producers) == list(state.producers), "coldest first"

    async def test_a_closing_mark_holds_no_data(self, make: Make) -> None:
        async with opened(make) as store:
            tail = await create(store, "a", b"one")
            assert await store.put(tail, tail.state, closing(tail.state))
        async with opened(make) as store:
            tail = await find(store, "a")
            assert tail.committed.closed
            assert tail.committed.tail == 1
            assert await bodies(store, tail) == [b"one"]

    async def test_details_count_forks_and_name_spilled_producers(self, store: Store[Any]) -> None:
        source = await create(store, "a", b"one", b"two")
        await fork(store, "b", source)
        entry_after: dict[str, Any] = {"producers": {"p": (1, 2)}, "spilled": 1}
        await put(store, source, b"three", {"q": (3, 4)}, **entry_after)
        details = await store.details(await find(store, "a"), 10)
        # A store that compacts may have moved some of it.
        assert details.cold_bytes == sum(each.bytes for each in details.segments)
        assert details.hot_from == max((each.stop for each in details.segments), default=0)
        assert details.forks == 1
        assert list(details.fork_paths) in ([], ["b"])
        assert list(details.producers) == [Producer("q", 3, 4)]

    async def test_all_that_was_put_is_there_after_opening_again(self, make: Make) -> None:
        expected = [b"%d" % number for number in range(40)]
        async with opened(make) as store:
            await create(store, "a", *expected[:20])
        async with opened(make) as store:
            tail = await find(store, "a")
            assert await bodies(store, tail) == expected[:20]
            for body in expected[20:]:
                await append(store, tail, body)
            assert await bodies(store, tail) == expected
        async with opened(make) as store:
            assert await bodies(store, await find(store, "a")) == expected

    async def test_a_body_of_any_size_is_kept(self, make: Make) -> None:
        lengths = [1, 1024, 65_536, 65_537, 300_000, 1_100_000]
        expected = {
            f"{length}": [b"before", random.Random(length).randbytes(length), b"after"]
            for length in lengths
        }
        async with opened(make) as store:
            for path, contents in expected.items():
                tail = await create(store, path, *contents)
                assert await bodies(store, tail) == contents
        async with opened(make) as store:
            for path, contents in expected.items():
                assert await bodies(store, await find(store, path)) == contents

    # Slots of several appends

    async def test_appends_put_at_once_share_a_slot(self, make: Make) -> None:
        contents = [b"one", b"2", b"three", b"4"]
        async with opened(make) as store:
            tail = await create(store, "a", b"before")
            assert await together(store, tail, *contents) == [1, 1, 1, 2]
            after = tail.committed
            assert (after.slot, after.offset, after.size) == (2, 14, 16)
            assert await bodies(store, tail) == [b"before", *contents]
        async with opened(make) as store:
            tail = await find(store, "a")
            assert tail.committed == after
            assert await bodies(store, tail) == [b"before", *contents]
            assert await append(store, tail, b"after") == 3

    async def test_a_stale_append_is_lost_by_itself(self, store: Store[Any]) -> None:
        tail = await create(store, "a")
        before = tail.state
        puts = [put(store, tail, b"one")]
        puts.append(store.put(tail, before, entry(before, b"stale", {"p": (0, 1)}, spilled=1)))
        puts.append(put(store, tail, b"two"))
        assert await asyncio.gather(*puts) == [0, None, 1]
        assert await bodies(store, tail) == [b"one", b"two"]
        assert await store.producer(tail, "p") is None

    async def test_an_append_stays_in_its_slot_without_its_caller(self, store: Store[Any]) -> None:
        tail = await create(store, "a")
        puts = [asyncio.ensure_future(put(store, tail, b"%d" % number)) for number in range(3)]
        puts[1].cancel()
        assert [await puts[0], await puts[2]] == [0, 1]
        assert await bodies(store, tail) == [b"0", b"1", b"2"]

    async def test_a_large_body_has_a_slot_of_its_own(self, make: Make) -> None:
        large = random.Random(2).randbytes(200_000)
        contents = [b"1", b"2", large, large, b"3", b"4"]
        async with opened(make) as store:
            tail = await create(store, "a")
            assert await together(store, tail, *contents) == [0, 1, 2, 3, 3, 4]
            assert await bodies(store, tail) == contents
        async with opened(make) as store:
            assert await bodies(store, await find(store, "a")) == contents

    async def test_a_slot_takes_only_so_many_appends(self, store: Store[Any]) -> None:
        tail = await create(store, "a")
        slots = await together(store, tail, *[b"x"] * (SLOT_APPENDS + 2))
        assert slots == [0] * (SLOT_APPENDS - 1) + [1, 1, 2]

    async def test_producers_spill_out_of_a_shared_slot(self, make: Make) -> None:
        async with opened(make) as store:
            tail = await create(store, "a")
            kept = {"q": (1, 1)}
            puts = [
                put(store, tail, b"1", producers={"p": (0, 7)}),
                put(store, tail, b"2", {"p": (0, 7)}, producers=kept, spilled=1),
                put(store, tail, b"3", seq="s"),
            ]
            assert await asyncio.gather(*puts) == [0, 0, 1]
            assert await store.producer(tail, "p") == (0, 7)
        async with opened(make) as store:
            tail = await find(store, "a")
            assert (tail.state.producers, tail.state.spilled, tail.state.seq) == (kept, 1, "s")
            assert await store.producer(tail, "p") == (0, 7)

    async def test_a_stream_closes_within_a_shared_slot(self, make: Make) -> None:
        async with opened(make) as store:
            with_data, alone = await create(store, "data"), await create(store, "alone")
            puts = [put(store, with_data, b"one"), put(store, with_data, b"last", end=2)]
            assert await asyncio.gather(*puts) == [0, 1]
            puts = [put(store, alone, b"one"), put(store, alone, None, end=1)]
            assert await asyncio.gather(*puts) == [1, 1], "a closing mark moves no reader"
        async with opened(make) as store:
            for path, contents in (("data", [b"one", b"last"]), ("alone", [b"one"])):
                tail = await find(store, path)
                assert (tail.committed.closed, tail.committed.tail) == (True, 1)
                assert await bodies(store, tail) == contents
                assert await Waiting(store, tail, 1).ends()

    async def test_a_stream_may_begin_with_a_shared_slot(self, store: Store[Any]) -> None:
        """A fork does that takes some appends of a slot, which may be too large for the table."""
        large = random.Random(2).randbytes(200_000)
        for path, contents in (("a", [b"12", b"345"]), ("b", [b"12", large])):
            made = stream(path)
            first = entry(made.config.initial_state(), b"".join(contents))
            parts = [Part(len(body), len(body)) for body in contents]
            tail = await store.create(made, [first._replace(parts=parts)])
            assert tail is not None
            assert await bodies(store, tail) == contents
            rest = await store.read(made.id, 0, 1, PLENTY, 2)
            assert list(rest.bodies) == contents[1:]

    async def test_an_entry_ends_a_wait_for_the_slot_that_it_shares(
        self, store: Store[Any]
    ) -> None:
        tail = await create(store, "a", b"one")
        waiting = Waiting(store, tail, 1)
        assert await waiting.goes_on()
        assert await together(store, tail, b"two", b"three") == [1, 2]
        assert await waiting.ends()

    @pytest.mark.parametrize("sizes", SHARED.values(), ids=SHARED.keys())
    async def test_a_read_begins_at_every_place_of_a_shared_slot(
        self, make: Make, sizes: Sequence[Sequence[int]]
    ) -> None:
        """At an append, and inside of one: then the whole of it is read."""
        shared = Shared(sizes)
        total = len(sizes)

        async def check(store: Store[Any], tail: Tail) -> None:
            for chunk_bytes, slot in itertools.product([64, 1024], range(total)):
                begin, end = shared.begin(slot)[0], shared.begin(slot + 1)[0]
                for after, stop in itertools.product([0, *range(begin, end)], {slot + 1, total}):
                    expected = shared.read(slot, stop, chunk_bytes, after)
                    chunk = await store.read(tail.stream.id, slot, stop, chunk_bytes, after)
                    assert same(chunk) == expected
                    if stop == total:
                        result = await store.read_at("a", slot, chunk_bytes, after)
                        assert result is not None
                        assert same(result.chunk) == expected
                        assert (result.end is None) == (expected.slot < total)

        async with opened(make) as store:
            await check(store, await shared.create(store, "a"))
        async with opened(make) as store:
            await check(store, await find(store, "a"))

    async def test_a_reader_that_has_all_of_a_slot_goes_on_after_it(self, make: Make) -> None:
        """Even if it says that it has more: that is no place in another slot."""
        shared = Shared(SHARED["several each"])

        async def check(store: Store[Any]) -> None:
            for chunk_bytes, slot, excess in itertools.product([7, 1024], range(4), [0, 1, 99]):
                seen: list[bytes] = []
                place, after = slot, shared.begin(slot + 1)[0] + excess
                while place < 4:
                    result = await store.read_at("a", place, chunk_bytes, after)
                    assert result is not None
                    seen += result.chunk.bodies
                    assert result.chunk.slot > place
                    place, after = result.chunk.slot, 0
                assert seen == [each.body for each in shared.appends if each.slot > slot]

        async with opened(make) as store:
            await shared.create(store, "a")
            await check(store)
        async with opened(make) as store:
            await check(store)

    async def test_a_fork_reads_from_inside_of_an_inherited_slot(self, make: Make) -> None:
        shared = Shared([[3, 4, 5], [6, 7]])
        inherited = [each.body for each in shared.appends]

        async def check(store: Store[Any]) -> None:
            for each in shared.appends:
                for chunk_bytes in (8, 14, PLENTY):
                    whole = await store.read_at("f", each.slot, chunk_bytes)
                    result = await store.read_at("f", each.slot, chunk_bytes, each.offset - 1)
                    assert result is not None
                    assert whole is not None
                    assert result.chunk.slot == whole.chunk.slot
                    found = [*result.chunk.bodies]
                    place = shared.appends.index(each)
                    assert found == [*inherited, b"own"][place : place + len(found)]
                    assert (result.end is None) == (len(found) < 6 - place)
                assert len(found) == 6 - place
            # An offset beyond its slot is none in the fork's own.
            for after in (10, 11, 99):
                result = await store.read_at("f", 1, PLENTY, after)
                assert result is not None
                assert list(result.chunk.bodies) == [b"own"]

        async with opened(make) as store:
            source = await shared.create(store, "a")
            await fork(store, "f", source, b"own")
            await check(store)
        async with opened(make) as store:
            await check(store)

    async def test_a_shared_slot_begins_and_ends_as_one(self, make: Make) -> None:
        shared = Shared(SHARED["several each"])
        async with opened(make) as store:
            chain = (await shared.create(store, "a")).stream.id
        async with opened(make) as store:
            for slot in range(4):
                assert (await store.slot_info(chain, slot)).offset == shared.begin(slot + 1)[0]
                assert tuple(await store.start_of(chain, slot + 1)) == shared.begin(slot + 1)

    async def test_a_large_body_may_be_the_first_entry(self, store: Store[Any]) -> None:
        made, body = stream("a"), random.Random(1).randbytes(200_000)
        tail = await store.create(made, [entry(made.config.initial_state(), body)])
        assert tail is not None
        assert await bodies(store, tail) == [body]

    async def test_after_settling_the_state_is_committed(self, store: Store[Any]) -> None:
        tail = await create(store, "a")
        putting = asyncio.ensure_future(put(store, tail, b"x"))
        await asyncio.sleep(0)
        await store.confirm(tail)
        assert tail.state == tail.committed
        assert await putting
        assert (await find(store, "a")).committed.slot == 1

    # Spilled producers

    async def test_a_producer_is_unknown_until_it_is_spilled(self, store: Store[Any]) -> None:
        tail = await create(store, "a", b"x")
        assert await store.producer(tail, "p") is None

    async def test_a_spilled_producer_is_found(self, make: Make) -> None:
        async with opened(make) as store:
            tail = await create(store, "a")
            spill = {"p": (1, 2), "ä": (2**53 - 1, 2**53 - 1), "": (0, 0)}
            assert await put(store, tail, b"x", spill, spilled=1) == 1
            assert await store.producer(tail, "p") == (1, 2)
            assert await store.producer(tail, "q") is None
        async with opened(make) as store:
            tail = await find(store, "a")
            for name, last in spill.items():
                assert await store.producer(tail, name) == last

    async def test_a_producer_that_spills_again_is_replaced(self, store: Store[Any]) -> None:
        tail = await create(store, "a")
        for seq in (3, 4):
            assert await put(store, tail, b"x", {"p": (0, seq), f"q{seq}": (0, 0)}, spilled=1)
        assert await store.producer(tail, "p") == (0, 4)
        assert await store.producer(tail, "q3") == (0, 0)

    async def test_producers_belong_to_one_incarnation(self, store: Store[Any]) -> None:
        tail, other = await create(store, "a"), await create(store, "b")
        assert await put(store, tail, b"x", {"p": (0, 1)}, spilled=1)
        assert await store.producer(other, "p") is None
        assert await store.drop(tail)
        again = await create(store, "a")
        assert await store.producer(again, "p") is None

    async def test_a_lost_race_spills_nothing(self, store: Store[Any]) -> None:
        tail = await create(store, "a")
        before = tail.state
        await append(store, tail, b"won")
        lost = entry(before, b"lost", {"p": (0, 1)}, spilled=1)
        assert await store.put(tail, before, lost) is None
        assert await store.producer(tail, "p") is None

    # Deleting

    async def test_a_dropped_stream_is_gone(self, make: Make) -> None:
        async with opened(make) as store:
            tail = await create(store, "a", b"x")
            await create(store, "b", b"y")
            assert await store.drop(tail)
            assert await store.tail("a") is None
            assert await bodies(store, await find(store, "b")) == [b"y"]
        async with opened(make) as store:
            assert await store.tail("a") is None
            assert await bodies(store, await find(store, "b")) == [b"y"]

    async def test_a_stream_is_dropped_once(self, store: Store[Any]) -> None:
        tail = await create(store, "a", b"x")
        dropped = await asyncio.gather(*(store.drop(tail) for _ in range(10)))
        assert dropped.count(True) == 1
        assert not await store.drop(tail)

    async def test_a_dropped_stream_takes_no_entry(self, store: Store[Any]) -> None:
        tail = await create(store, "a", b"x")
        before = tail.state
        assert await store.drop(tail)
        assert await store.put(tail, before, entry(before, b"late")) is None
        assert await store.tail("a") is None

    async def test_an_entry_and_a_drop_at_once_agree(self, store: Store[Any]) -> None:
        """An acknowledged entry came before the drop; it is never written into the void."""
        for number in range(10):
            tail = await create(store, f"s{number}")
            slot, dropped = await asyncio.gather(put(store, tail, b"x"), store.drop(tail))
            if dropped:
                assert await store.tail(f"s{number}") is None
            else:
                assert slot
                assert await bodies(store, await find(store, f"s{number}")) == [b"x"]

    async def test_a_path_created_again_never_meets_its_old_data(self, make: Make) -> None:
        async with opened(make) as store:
            old = await create(store, "a", b"old", b"older")
            assert await store.drop(old)
            new = await create(store, "a")
            assert new.state.slot == 0
            assert await bodies(store, new) == []
            await append(store, new, b"new")
            # The old incarnation's tail is no way in.
            assert await put(store, old, b"zombie") is None
            assert not await store.drop(old)
            assert await bodies(store, await find(store, "a")) == [b"new"]
        async with opened(make) as store:
            assert await bodies(store, await find(store, "a")) == [b"new"]

    # Forks

    async def test_a_fork_begins_at_its_base(self, store: Store[Any]) -> None:
        source = await create(store, "a", b"one", b"two")
        tail = await fork(store, "f", source)
        assert tail.state.slot == 2
        await append(store, tail, b"three")
        await append(store, source, b"drei")
        assert await bodies(store, tail) == [b"three"]
        assert await bodies(store, source) == [b"one", b"two", b"drei"]
        assert tail.committed.next_offset(0) == "0000000000000003_0000000000000011"

    async def test_a_source_with_forks_is_kept_soft_deleted(self, make: Make) -> None:
        async with opened(make) as store:
            source = await create(store, "a", b"one")
            await fork(store, "f", source, b"two")
            assert await store.drop(source)
            assert (await find(store, "a")).soft_deleted
        async with opened(make) as store:
            source = await find(store, "a")
            assert source.soft_deleted
            assert not await store.drop(source)
            assert await store.create(stream("a"), []) is None
            chunk = await store.read(source.stream.id, 0, 1, PLENTY)
            assert list(chunk.bodies) == [b"one"]
            assert await bodies(store, await find(store, "f")) == [b"two"]

    async def test_a_soft_deleted_source_cannot_be_forked(self, store: Store[Any]) -> None:
        source = await create(store, "a", b"one")
        await fork(store, "f", source)
        assert await store.drop(source)
        assert await store.create(forked("g", source.stream, source.committed), []) is None
        assert await store.tail("g") is None

    async def test_a_dropped_source_cannot_be_forked(self, store: Store[Any]) -> None:
        source = await create(store, "a", b"one")
        assert await store.drop(source)
        assert await store.create(forked("f", source.stream, source.committed), []) is None
        assert await store.tail("f") is None

    async def test_a_source_created_again_is_not_the_one_that_was_to_be_forked(
        self, store: Store[Any]
    ) -> None:
        source = await create(store, "a", b"one")
        wanted = forked("f", source.stream, source.committed)
        assert await store.drop(source)
        await create(store, "a", b"other")
        assert await store.create(wanted, []) is None
        assert await store.tail("f") is None

    async def test_a_drop_and_a_fork_at_once_exclude_each_other(self, store: Store[Any]) -> None:
        """Either the fork keeps the source, or there is no fork: never a fork without data."""
        for number in range(10):
            source = await create(store, f"a{number}", b"one")
            wanted = forked(f"f{number}", source.stream, source.committed)
            racers = [store.create(wanted, []), store.drop(source)]
            if number % 2:
                racers.reverse()
            await asyncio.gather(*racers)
            tail, kept = await store.tail(f"f{number}"), await store.tail(f"a{number}")
            if tail is not None:
                assert kept is not None
                chunk = await store.read(source.stream.id, 0, 1, PLENTY)
                assert list(chunk.bodies) == [b"one"]
            else:
                assert kept is None

    async def test_a_fork_that_was_not_created_leaves_no_reference(self, store: Store[Any]) -> None:
        source = await create(store, "a", b"one")
        await create(store, "taken")
        assert await store.create(forked("taken", source.stream, source.committed), []) is None
        assert await store.drop(source)
        assert await store.tail("a") is None

    async def test_dropping_a_fork_leaves_a_live_source(self, store: Store[Any]) -> None:
        source = await create(store, "a", b"one")
        tail = await fork(store, "f", source, b"two")
        assert await store.drop(tail)
        assert await store.tail("f") is None
        assert not (await find(store, "a")).soft_deleted
        assert await bodies(store, source) == [b"one"]
        assert await store.drop(source)
        assert await store.tail("a") is None

    async def test_the_last_fork_takes_a_soft_deleted_source_with_it(self, make: Make) -> None:
        async with opened(make) as store:
            source = await create(store, "a", b"one")
            first, second = await fork(store, "f", source), await fork(store, "g", source)
            assert await store.drop(source)
            assert await store.drop(first)
            assert (await find(store, "a")).soft_deleted
            assert await store.drop(second)
            assert await store.tail("a") is None
            assert await store.create(stream("a"), []) is not None
        async with opened(make) as store:
            assert (await find(store, "a")).committed.slot == 0

    async def test_a_cascade_goes_up_through_everything_soft_deleted(
        self, store: Store[Any]
    ) -> None:
        chain = [await create(store, "0", b"0")]
        for level in range(1, 5):
            chain.append(await fork(store, f"{level}", chain[-1], b"%d" % level))
        # 0 stays alive; 1, 2 and 3 are kept only for 4.
        for level in (2, 1, 3):
            assert await store.drop(chain[level])
            assert (await find(store, f"{level}")).soft_deleted
        assert await store.drop(chain[4])
        for level in (1, 2, 3, 4):
            assert await store.tail(f"{level}") is None
        assert not (await find(store, "0")).soft_deleted
        assert await bodies(store, chain[0]) == [b"0"]

    async def test_a_cascade_stops_where_another_fork_needs_the_data(
        self, store: Store[Any]
    ) -> None:
        root = await create(store, "root", b"1")
        middle = await fork(store, "middle", root, b"2")
        leaf, other = await fork(store, "leaf", middle), await fork(store, "other", middle)
        assert await store.drop(root)
        assert await store.drop(middle)
        assert await store.drop(leaf)
        assert (await find(store, "middle")).soft_deleted
        assert (await find(store, "root")).soft_deleted
        assert await store.drop(other)
        assert await store.tail("middle") is None
        assert await store.tail("root") is None

    async def test_a_cascade_works_for_streams_that_are_not_held_open(self, make: Make) -> None:
        async with opened(make) as store:
            root = await create(store, "root", b"1")
            middle = await fork(store, "middle", root, b"2")
            await fork(store, "leaf", middle, b"3")
            assert await store.drop(middle)
            assert await store.drop(root)
        async with opened(make) as store:
            assert await store.drop(await find(store, "leaf"))
            for path in ("leaf", "middle", "root"):
                assert await store.tail(path) is None

    # Reading

    @pytest.mark.parametrize("sizes", SHAPES.values(), ids=SHAPES.keys())
    async def test_a_chunk_ends_at_the_first_multiple_passed(
        self, make: Make, sizes: Sequence[int]
    ) -> None:
        contents = [b"%c" % (65 + n % 26) * size for n, size in enumerate(sizes)]
        ends = list(itertools.accumulate(sizes))
        total = len(sizes)

        def expected(n: int, stop: int, chunk_bytes: int) -> Chunk:
            begin = ends[n - 1] if n else 0
            boundary = (begin // chunk_bytes + 1) * chunk_bytes
            last = next((m for m in range(n, stop) if ends[m] >= boundary), stop - 1)
            return Chunk(contents[n : last + 1], last + 1, ends[last], ends[last])

        async def check(store: Store[Any], chain: int) -> None:
            for chunk_bytes, n in itertools.product([7, 64, 1024], range(total)):
                for stop in {(n + total) // 2 + 1, total}:
                    chunk = await store.read(chain, n, stop, chunk_bytes)
                    assert same(chunk) == expected(n, stop, chunk_bytes)

        async with opened(make) as store:
            made = stream("a")
            assert await store.create(made, following(made, contents)) is not None
            await check(store, made.id)
        async with opened(make) as store:
            await check(store, made.id)

    @pytest.mark.parametrize("chunk_bytes", [50, 333])
    async def test_readers_meet_at_the_same_boundaries_wherever_they_began(
        self, store: Store[Any], chunk_bytes: int
    ) -> None:
        chance = random.Random(chunk_bytes)
        made = stream("a")
        contents = [b"x" * chance.randint(1, 120) for _ in range(30)]
        assert await store.create(made, following(made, contents)) is not None
        ends = [(await store.read(made.id, n, 30, chunk_bytes)).slot for n in range(30)]

        def walk(n: int) -> list[int]:
            boundaries = []
            while n < 30:
                n = ends[n]
                boundaries.append(n)
            return boundaries

        whole = walk(0)
        assert len(whole) > 4
        for n in range(30):
            steps = walk(n)
            assert steps == whole[-len(steps) :], f"from slot {n}"

    async def test_a_growing_log_keeps_its_boundaries(self, store: Store[Any]) -> None:
        """A chunk that was full once is the same for ever: caches keep it."""
        chance = random.Random(9)
        tail = await create(store, "a")
        full: dict[int, int] = {}
        for _ in range(20):
            await append(store, tail, b"x" * chance.randint(1, 90))
            n = 0
            while n < tail.committed.tail:
                chunk = await store.read(tail.stream.id, n, tail.committed.tail, 100)
                if chunk.slot < tail.committed.tail:
                    assert full.setdefault(n, chunk.slot) == chunk.slot
                n = chunk.slot
        assert len(full) > 4

    async def test_a_position_is_what_lies_before_a_slot(self, make: Make) -> None:
        sizes = [3, 1, 4, 1, 5]
        ends = list(itertools.accumulate(sizes))
        async with opened(make) as store:
            tail = await create(store, "a")
            for size in sizes:
                state = tail.state
                # Messages and bytes count differently in JSON.
                await append(store, tail, b"x" * size, offset=state.offset + 2)
            source = tail.stream.id
            for n in range(1, 6):
                assert tuple(await store.start_of(source, n)) == (2 * n, ends[n - 1])
            child = await fork(store, "f", tail, b"sixth")
            assert tuple(await store.start_of(child.stream.id, 6)) == (15, 19)
        async with opened(make) as store:
            for n in range(1, 6):
                assert tuple(await store.start_of(source, n)) == (2 * n, ends[n - 1])

    async def test_slot_info_is_the_offset_after_a_slot_and_its_time(self, make: Make) -> None:
        async with opened(make) as store:
            tail = await create(store, "a")
            for n in range(5):
                offset = tail.state.offset + 2
                await append(store, tail, b"x", offset=offset, written_at=NOW + 10 * n)
            child = await fork(store, "f", tail, b"sixth")
            source, fork_id = tail.stream.id, child.stream.id
        async with opened(make) as store:
            for n in range(5):
                assert await store.slot_info(source, n) == SlotInfo(2 * n + 2, NOW + 10 * n)
            assert (await store.slot_info(fork_id, 5)).offset == 15
            for chain, n in ((source, 5), (fork_id, 4), (fork_id, 6)):
                with pytest.raises(SlotTrimmed):
                    await store.slot_info(chain, n)

    async def test_a_read_shows_offsets_as_the_entries_have_them(self, store: Store[Any]) -> None:
        tail = await create(store, "a")
        await append(store, tail, b"1,2", offset=2)
        await append(store, tail, b"3", offset=3)
        chunk = await store.read(tail.stream.id, 0, 2, PLENTY)
        assert same(chunk) == Chunk([b"1,2", b"3"], 2, 3, 4)
        chunk = await store.read(tail.stream.id, 0, 1, PLENTY)
        assert same(chunk) == Chunk([b"1,2"], 1, 2, 3)

    # Waiting

    async def test_a_wait_ends_with_data(self, store: Store[Any]) -> None:
        tail = await create(store, "a", b"one")
        waiting = Waiting(store, tail, 1)
        assert await waiting.goes_on()
        await append(store, tail, b"two")
        assert await waiting.ends()
        assert (await find(store, "a")).committed.tail == 2

    async def test_an_entry_ends_every_wait(self, store: Store[Any]) -> None:
        tail = await create(store, "a")
        waits = [Waiting(store, tail, 0) for _ in range(20)]
        assert await waits[0].goes_on()
        await append(store, tail, b"one")
        assert all([await waiting.ends() for waiting in waits])

    async def test_a_wait_for_what_is_there_is_none(self, store: Store[Any]) -> None:
        tail = await create(store, "a", b"one", b"two")
        for n in (0, 1):
            assert await Waiting(store, tail, n).ends()

    async def test_a_wait_ends_with_the_stream(self, store: Store[Any]) -> None:
        tail = await create(store, "a", b"one")
        waiting = Waiting(store, tail, 1)
        assert await waiting.goes_on()
        assert await store.put(tail, tail.state, closing(tail.state))
        assert await waiting.ends()
        assert await Waiting(store, tail, 1).ends(), "nothing comes after the end"

    async def test_a_wait_ends_when_the_stream_is_dropped(self, store: Store[Any]) -> None:
        tail = await create(store, "a", b"one")
        waiting = Waiting(store, tail, 1)
        assert await waiting.goes_on()
        assert await store.drop(tail)
        assert await waiting.ends()
        assert await Waiting(store, tail, 1).ends()

    async def test_a_wait_ends_when_the_stream_is_soft_deleted(self, store: Store[Any]) -> None:
        tail = await create(store, "a", b"one")
        await fork(store, "f", tail)
        waiting = Waiting(store, tail, 1)
        assert await waiting.goes_on()
        assert await store.drop(tail)
        assert await waiting.ends()

    async def test_a_wait_ends_when_the_path_changes_hands(self, store: Store[Any]) -> None:
        tail = await create(store, "a", b"one")
        waiting = Waiting(store, tail, 1)
        assert await waiting.goes_on()
        assert await store.drop(tail)
        await create(store, "a")
        assert await waiting.ends()

    async def test_a_wait_ends_when_time_is_up(self, store: Store[Any]) -> None:
        tail = await create(store, "a", b"one")
        loop = asyncio.get_running_loop()
        begin = loop.time()
        await store.wait(tail, 1, 0.2)
        assert loop.time() - begin >= 0.19
        assert not tail.watched

    async def test_every_wait_ends_at_once_when_woken(self, store: Store[Any]) -> None:
        tails = [await create(store, path) for path in "abc"]
        waits = [Waiting(store, tail, 0) for tail in tails for _ in range(3)]
        assert await waits[-1].goes_on()
        store.wake()
        assert all([await waiting.ends() for waiting in waits])

    async def test_a_wait_is_not_disturbed_by_other_streams(self, store: Store[Any]) -> None:
        source, other = await create(store, "a", b"one"), await create(store, "b")
        tail = await fork(store, "f", source)
        waiting = Waiting(store, tail, 1)
        await append(store, other, b"x")
        await append(store, source, b"two")
        assert await waiting.goes_on(0.2)
        await append(store, tail, b"zwei")
        assert await waiting.ends()

    async def test_a_stream_is_watched_while_somebody_waits(self, store: Store[Any]) -> None:
        tail = await create(store, "a")
        first, second = Waiting(store, tail, 0), Waiting(store, tail, 0)
        assert await first.goes_on()
        assert tail.watched
        await first.leave()
        assert tail.watched
        await second.leave()
        assert not tail.watched

    # Listing

    async def test_a_listing_has_what_begins_with_the_prefix_in_order(
        self, store: Store[Any]
    ) -> None:
        await asyncio.gather(*(create(store, path, path.encode()) for path in PATHS))
        prefixes = ["", "a", "a/", "a/1", "A", "b/", "b/%", "%", "_", "a_", "é", "zz", "a/10/"]
        for prefix in prefixes:
            listed = await store.list(prefix, "", 100, NOW)
            expected = sorted(path for path in PATHS if path.startswith(prefix))
            assert [each.stream.path for each in listed] == expected
            for each in listed:
                tail = await find(store, each.stream.path)
                assert (each.stream, each.state) == (tail.stream, tail.committed)

    async def test_pages_have_every_stream_once(self, store: Store[Any]) -> None:
        await asyncio.gather(*(create(store, path) for path in PATHS))
        for prefix, limit in (("", 5), ("", 14), ("", 100), ("a", 2), ("b/", 1)):
            seen: list[str] = []
            after = ""
            while page := await store.list(prefix, after, limit, NOW):
                assert len(page) <= limit
                seen += [each.stream.path for each in page]
                after = seen[-1]
            assert seen == sorted(path for path in PATHS if path.startswith(prefix))

    async def test_a_page_begins_after_any_text(self, store: Store[Any]) -> None:
        for path in ("a", "c", "e"):
            await create(store, path)
        assert [each.stream.path for each in await store.list("", "b", 10, NOW)] == ["c", "e"]
        assert [each.stream.path for each in await store.list("c", "a", 10, NOW)] == ["c"]
        assert await store.list("a", "b", 10, NOW) == []

    async def test_a_listing_has_no_deleted_streams(self, store: Store[Any]) -> None:
        source = await create(store, "soft", b"1")
        await fork(store, "fork", source)
        gone = await create(store, "gone")
        assert await store.drop(source)
        assert await store.drop(gone)
        assert [each.stream.path for each in await store.list("", "", 10, NOW)] == ["fork"]

    async def test_a_listing_has_no_expired_streams(self, store: Store[Any]) -> None:
        await create(store, "ever")
        await create(store, "fixed", config=Config("text/plain", NOW, expires_at=NOW + 500))
        await create(store, "idle", config=Config("text/plain", NOW, ttl=1))

        async def listed(now: int) -> list[str]:
            return [each.stream.path for each in await store.list("", "", 10, now)]

        assert await listed(NOW + 499) == ["ever", "fixed", "idle"]
        assert await listed(NOW + 500) == ["ever", "idle"]
        assert await listed(NOW + 999) == ["ever", "idle"]
        assert await listed(NOW + 1_000 + renewal_slack(1)) == ["ever"]

    # Expiry

    async def test_a_stream_that_never_expires_is_never_expiring(self, store: Store[Any]) -> None:
        await create(store, "a")
        assert await store.expiring(NOW * 100) == []

    async def test_a_fixed_instant_is_exact(self, store: Store[Any]) -> None:
        await create(store, "a", config=Config("text/plain", NOW, expires_at=NOW + 500))
        assert await store.expiring(NOW + 499) == []
        assert await store.expiring(NOW + 500) == ["a"]

    async def test_an_idle_window_ends_never_early_and_a_slack_late_at_most(
        self, store: Store[Any]
    ) -> None:
        ttls = [0, 1, 60, 86_400]
        for ttl in ttls:
            await create(store, f"{ttl}", config=Config("text/plain", NOW, ttl=ttl))
        for ttl in ttls:
            end = NOW + ttl * 1000
            assert f"{ttl}" not in await store.expiring(end - 1)
            assert f"{ttl}" in await store.expiring(end + renewal_slack(ttl))

    async def test_an_access_moves_the_window(self, store: Store[Any]) -> None:
        tail = await create(store, "a", config=Config("text/plain", NOW, ttl=60))
        await store.touch(tail, NOW + 50_000)
        # A store that others use, too, may have to allow for what it has not heard of.
        for seen in (tail, await find(store, "a")):
            assert 0 <= seen.accessed - NOW - 50_000 <= renewal_slack(60)
        # A touch may return at once; something that waits for the store comes after it.
        await append(store, tail, b"x")
        assert await store.expiring(NOW + 110_000 - 1) == []
        assert await store.expiring(NOW + 110_000 + renewal_slack(60)) == ["a"]

    async def test_the_clock_survives_opening_again(self, make: Make) -> None:
        walks = {
            "1": [1], "5999": [5_999], "6000": [6_000], "6001": [6_001], "50000": [50_000],
            "few": [1_000, 2_000, 3_000], "many": [*range(0, 59_000, 700)],
        }  # fmt: skip
        async with opened(make) as store:
            for path, touches in walks.items():
                tail = await create(store, path, config=Config("text/plain", NOW, ttl=60))
                for touch in touches:
                    await store.touch(tail, NOW + touch)
        async with opened(make) as store:
            for path, touches in walks.items():
                accessed = (await find(store, path)).accessed
                assert 0 <= accessed - NOW - touches[-1] <= renewal_slack(60), path
                assert path not in await store.expiring(NOW + touches[-1] + 60_000 - 1)

    async def test_an_append_counts_as_an_access_after_opening_again(self, make: Make) -> None:
        async with opened(make) as store:
            tail = await create(store, "a", config=Config("text/plain", NOW, ttl=60))
            await append(store, tail, b"x", written_at=NOW + 3_000)
        async with opened(make) as store:
            assert (await find(store, "a")).accessed >= NOW + 3_000

    async def test_a_deleted_stream_is_not_expiring(self, store: Store[Any]) -> None:
        brief = Config("text/plain", NOW, ttl=1)
        source, gone = (
            await create(store, "a", b"1", config=brief),
            await create(store, "b", config=brief),
        )
        await fork(store, "f", source)
        assert await store.drop(source)
        assert await store.drop(gone)
        assert await store.expiring(NOW * 2) == []

    # Sweeping

    async def test_a_sweep_removes_only_what_is_deleted(self, make: Make) -> None:
        large = random.Random(3).randbytes(200_000)
        async with opened(make) as store:
            kept = await create(store, "kept", b"1", large)
            gone = await create(store, "gone", b"2", large)
            source = await create(store, "source", b"3", large)
            await fork(store, "fork", source, b"4", large)
            assert await store.drop(gone)
            assert await store.drop(source)
            for _ in range(2):
                await store.sweep()
                assert await bodies(store, kept) == [b"1", large]
                assert list((await store.read(source.stream.id, 0, 2, PLENTY)).bodies) == [
                    b"3",
                    large,
                ]
                assert await bodies(store, await find(store, "fork")) == [b"4", large]
                assert await store.tail("gone") is None
        async with opened(make) as store:
            await store.sweep()
            assert await bodies(store, await find(store, "kept")) == [b"1", large]
            assert await bodies(store, await find(store, "fork")) == [b"4", large]
            assert (await find(store, "source")).soft_deleted

    async def test_a_sweep_leaves_the_new_incarnation_of_a_path(self, store: Store[Any]) -> None:
        assert await store.drop(await create(store, "a", b"old"))
        new = await create(store, "a", b"new")
        await store.sweep()
        assert await bodies(store, new) == [b"new"]
        await append(store, new, b"more")
        assert await bodies(store, await find(store, "a")) == [b"new", b"more"]

    async def test_writing_goes_on_during_sweeps(self, store: Store[Any]) -> None:
        tail = await create(store, "busy")
        for number in range(10):
            await create(store, f"gone{number}", b"x", b"y")

        async def sweep() -> None:
            for number in range(10):
                assert await store.drop(await find(store, f"gone{number}"))
                await store.sweep()

        async def write() -> None:
            for number in range(40):
                await append(store, tail, b"%d" % number)

        await asyncio.gather(sweep(), write())
        assert await bodies(store, tail) == [b"%d" % number for number in range(40)]
        assert [each.stream.path for each in await store.list("", "", 100, NOW)] == ["busy"]
