"""The DynamoDB store on a bad day: what was acknowledged is there once, in order, for everybody.

All calls go through a proxy that loses, cuts, delays, repeats and refuses them. The engine behind
it is a real one.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from devtools.engines.ministack import Engine
from devtools.fault_proxy.proxy import ROUGH, Action, FaultProxy, Script
from devtools.linearizability.checker import (
    Acknowledged,
    Delete,
    Duplicate,
    Final,
    History,
    Incarnation,
    Unknown,
    check,
)
from devtools.linearizability.load import InProcess, Recorder, read_final, run_load, tally
from devtools.processes import fresh_name
from tailrace.aws.client import pool
from tailrace.errors import (
    OutcomeUnknown,
    SlotTrimmed,
    StoreUnavailable,
    StreamNotFound,
    StreamTooHot,
)
from tailrace.limits import ITEM_BODY_BYTES
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.log.offsets import START, epoch_of, token
from tailrace.log.state import Producer
from tailrace.settings import Settings
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.streams import Streams
from tailrace.web.statuses import status_of
from tests.support.dynamo import SAFETY_SECONDS

SEED = 20_240_611
INLINE_BYTES = 1024
CHUNK_BYTES = 1024
"""So few that many reads end before the end."""
PAGE_BYTES = 1 << 20
"""Most that one Query returns: from further away a reader does not see the end."""
BEYOND = 10**15
"""A slot that no chain reaches."""
LARGE = b"<%s>" % (b"x" * 2 * INLINE_BYTES)

ANSWER_LOST = (Action.DROP_ANSWER, Action.TRUNCATE_ANSWER, Action.FAIL_AFTER)
REQUEST_LOST = (Action.DROP_REQUEST, Action.FAIL_BEFORE, Action.THROTTLE, Action.HOT_KEY)


@dataclass
class Site:
    """The proxy, and processes' worth of clients whose calls go through it."""

    proxy: FaultProxy
    settings: Settings
    streams: list[Streams] = field(default_factory=list)
    stores: list[DynamoStore] = field(default_factory=list)
    history: History = field(default_factory=History)

    @property
    def recorders(self) -> list[Recorder]:
        return [Recorder(InProcess(streams), self.history) for streams in self.streams]

    def recovered(self) -> int:
        return sum(store.outcomes["recovered"] for store in self.stores)

    async def final(self, *paths: str) -> dict[Incarnation, Final]:
        """The stream as a new reader sees it at the end."""
        await self.proxy.heal()
        async with opened(self.settings) as (store, streams):
            final = await read_final(InProcess(streams), paths)
            for event in self.history.events:
                if isinstance(event, Delete):
                    name = Incarnation(event.stream, event.incarnation)
                    final[name] = await read_deleted(store, event.incarnation)
            return final

    async def check(self, *paths: str) -> Final:
        """The content of the last path, after the history was found to be right."""
        final = await self.final(*paths)
        check(self.history, final)
        return next(each for name, each in final.items() if name.stream == paths[-1])


async def read_deleted(store: DynamoStore, chain: int) -> Final:
    """The items of a chain when it was deleted; it is kept for a while."""
    content, n, offset = b"", 0, 0
    while True:
        try:
            chunk = await store.read(chain, n, BEYOND, 1 << 20)
        except SlotTrimmed:
            return Final(content, token(n, offset, epoch_of(chain)))
        content += b"".join(chunk.bodies)
        n, offset = chunk.slot, chunk.offset


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[tuple[DynamoStore, Streams]]:
    store = DynamoStore(settings)
    await store.open()
    try:
        yield store, Streams(store, settings)
    finally:
        await store.close()


@asynccontextmanager
async def running(
    aws: Engine, clients: int, inline_bytes: int = INLINE_BYTES
) -> AsyncIterator[Site]:
    async with FaultProxy(aws.url, s3=aws.s3_url, seed=SEED) as proxy, AsyncExitStack() as stack:
        settings = Settings(
            store="dynamodb",
            table=fresh_name("faults"),
            bucket=fresh_name("faults"),
            endpoint_url=proxy.url,
            inline_bytes=inline_bytes,
            chunk_bytes=CHUNK_BYTES,
        )
        site = Site(proxy, settings)
        for _ in range(clients):
            store, streams = await stack.enter_async_context(opened(settings))
            site.stores.append(store)
            site.streams.append(streams)
        yield site


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DYNAMODB", "S3"):
        monkeypatch.delenv(f"AWS_ENDPOINT_URL_{name}", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.fixture
async def site(aws: Engine) -> AsyncIterator[Site]:
    """Two clients that both know the stream `s`, which holds `<0>`."""
    async with running(aws, 2) as site:
        first, second = site.recorders
        await first.create("s")
        await first.append("s", b"<0>")
        await second.read("s", START)
        yield site


def times(count: int, action: Action, *operations: str) -> Script:
    """The action for the next calls of these operations, by default of all that write."""
    left = count

    def script(operation: str, _parameters: dict[str, Any]) -> Action | None:
        nonlocal left
        if not left or operation not in (operations or ("PutItem", "TransactWriteItems")):
            return None
        left -= 1
        return action

    return script


def once(action: Action, *operations: str) -> Script:
    return times(1, action, *operations)


def always(action: Action) -> Script:
    return lambda _operation, _parameters: action


# One exact call


@pytest.mark.parametrize("action", ANSWER_LOST)
async def test_an_append_whose_answer_is_lost_is_acknowledged(site: Site, action: Action) -> None:
    first, second = site.recorders
    site.proxy.script = once(action)
    assert isinstance(await first.append("s", b"<1>"), Acknowledged)
    assert isinstance(await second.append("s", b"<2>"), Acknowledged)
    assert site.proxy.counts[action] == 1
    assert site.recovered() == 1
    assert (await site.check("s")).content == b"<0><1><2>"


async def test_a_large_append_whose_answer_is_lost_is_acknowledged(site: Site) -> None:
    first, second = site.recorders
    site.proxy.script = once(Action.DROP_ANSWER, "TransactWriteItems")
    assert isinstance(await first.append("s", LARGE), Acknowledged)
    assert isinstance(await second.append("s", b"<2>"), Acknowledged)
    assert site.proxy.counts[Action.DROP_ANSWER] == 1
    assert (await site.check("s")).content == b"<0>" + LARGE + b"<2>"


async def test_appends_of_a_slot_whose_answer_is_lost_are_sent_again_as_they_were(
    site: Site,
) -> None:
    first, second = site.recorders
    sent: list[str] = []

    def script(_operation: str, parameters: dict[str, Any]) -> Action | None:
        sent.append(json.dumps(parameters))
        return Action.DROP_ANSWER if len(sent) == 1 else None

    site.proxy.script = script
    outcomes = await asyncio.gather(*(first.append("s", b"<%d>" % n) for n in range(1, 6)))
    assert all(isinstance(outcome, Acknowledged) for outcome in outcomes)
    assert len(sent) == 2
    assert sent[0] == sent[1]
    assert site.recovered() == 1
    assert isinstance(await second.append("s", b"<6>"), Acknowledged)
    assert (await site.check("s")).content == b"<0><1><2><3><4><5><6>"


@pytest.mark.parametrize("action", REQUEST_LOST)
async def test_a_request_that_is_lost_or_refused_is_sent_again(site: Site, action: Action) -> None:
    first, second = site.recorders
    site.proxy.script = once(action)
    assert isinstance(await first.append("s", b"<1>"), Acknowledged)
    assert isinstance(await second.append("s", b"<2>"), Acknowledged)
    assert site.proxy.counts[action] == 1
    assert site.recovered() == 0
    assert (await site.check("s")).content == b"<0><1><2>"


@pytest.mark.parametrize("body", [b"<1>", LARGE], ids=["small", "large"])
@pytest.mark.parametrize("action", [Action.DUPLICATE, Action.LATE])
async def test_a_request_that_arrives_again_later_does_nothing(
    site: Site, action: Action, body: bytes
) -> None:
    first, second = site.recorders
    operation = "PutItem" if body == b"<1>" else "TransactWriteItems"
    site.proxy.script = once(action, operation)
    assert isinstance(await first.append("s", body), Acknowledged)
    assert isinstance(await second.append("s", b"<2>"), Acknowledged)
    await site.proxy.committed()
    assert isinstance(await second.append("s", b"<3>"), Acknowledged)
    assert isinstance(await first.append("s", b"<4>"), Acknowledged)
    assert site.proxy.counts[action] == 1
    assert (await site.check("s")).content == b"<0>" + body + b"<2><3><4>"


async def test_a_slow_answer_is_not_waited_for_without_end(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = site.recorders
    delayed = once(Action.DELAY_ANSWER)

    def script(operation: str, parameters: dict[str, Any]) -> Action | None:
        # The clock of this attempt runs by now; those that follow may take their time.
        monkeypatch.setattr(pool, "AWS_CALL_SECONDS", SAFETY_SECONDS)
        return delayed(operation, parameters)

    site.proxy.delay = (3600, 3600)
    site.proxy.script = script
    monkeypatch.setattr(pool, "AWS_CALL_SECONDS", 2)
    assert isinstance(await first.append("s", b"<1>"), Acknowledged)
    assert site.recovered() == 1
    assert (await site.check("s")).content == b"<0><1>"


@pytest.mark.parametrize("action", [Action.DROP_ANSWER, Action.LATE])
async def test_a_repeated_request_resolves_an_unknown_outcome(site: Site, action: Action) -> None:
    first, second = site.recorders
    site.proxy.script = always(action)
    producer = Producer("p", 0, 0)
    assert isinstance(await first.append("s", b"<1>", producer), Unknown)
    site.proxy.script = None
    await site.proxy.committed()
    assert isinstance(await second.append("s", b"<1>", producer), Duplicate)
    assert isinstance(await first.append("s", b"<2>"), Acknowledged)
    assert (await site.check("s")).content == b"<0><1><2>"


async def test_an_unknown_append_is_not_in_the_way_of_the_next(site: Site) -> None:
    first, second = site.recorders
    site.proxy.script = always(Action.DROP_ANSWER)
    assert isinstance(await first.append("s", b"<1>"), Unknown)
    site.proxy.script = None
    assert isinstance(await first.append("s", b"<2>"), Acknowledged)
    assert isinstance(await second.append("s", b"<3>"), Acknowledged)
    assert (await site.check("s")).content == b"<0><1><2><3>"


async def test_a_stream_that_stays_too_hot_says_so(site: Site) -> None:
    site.proxy.script = always(Action.HOT_KEY)
    with pytest.raises(StreamTooHot) as error:
        await site.streams[0].append("s", Append(b"<1>", "text/plain"))
    assert status_of(error.value) == 429
    with pytest.raises(StreamTooHot):
        await site.streams[0].view("s", 0)
    assert site.proxy.counts[Action.HOT_KEY] >= 4
    assert (await site.check("s")).content == b"<0>"


async def test_a_table_that_stays_throttled_is_unavailable(site: Site) -> None:
    site.proxy.script = always(Action.THROTTLE)
    with pytest.raises(StoreUnavailable) as error:
        await site.streams[0].append("s", Append(b"<1>", "text/plain"))
    assert not isinstance(error.value, OutcomeUnknown)
    assert status_of(error.value) == 503
    assert (await site.check("s")).content == b"<0>"


async def test_throttling_after_a_lost_answer_does_not_say_that_nothing_was_done(
    site: Site,
) -> None:
    actions = iter([Action.DROP_ANSWER, *[Action.HOT_KEY] * 9])
    site.proxy.script = lambda _operation, _parameters: next(actions)
    with pytest.raises(OutcomeUnknown):
        await site.streams[0].append("s", Append(b"<1>", "text/plain"))
    final = await site.final("s")
    assert [each.content for each in final.values()] == [b"<0><1>"]


async def test_an_outage_is_noticed_and_leaves_nothing_behind(site: Site) -> None:
    first, second = site.recorders
    site.proxy.outage = True
    with pytest.raises(StoreUnavailable):
        await site.streams[0].append("s", Append(b"<out>", "text/plain"))
    with pytest.raises(StoreUnavailable):
        await site.streams[1].view("s", 0)
    with pytest.raises(StoreUnavailable):
        await site.streams[0].create("t", Create(content_type="text/plain"))
    site.proxy.outage = False
    assert isinstance(await first.append("s", b"<1>"), Acknowledged)
    assert isinstance(await second.append("s", b"<2>"), Acknowledged)
    assert (await site.check("s")).content == b"<0><1><2>"


@pytest.mark.parametrize("action", [Action.DROP_ANSWER, Action.DUPLICATE, Action.LATE])
async def test_a_stream_is_created_once(site: Site, action: Action) -> None:
    first, second = site.recorders
    site.proxy.script = once(action)
    request = Create(content_type="text/plain")
    created = await site.streams[0].create("t", request)
    assert created.new
    assert isinstance(await second.append("t", b"<1>"), Acknowledged)
    await site.proxy.committed()
    assert (await site.streams[1].create("t", request)).stream.id == created.stream.id
    assert isinstance(await first.append("t", b"<2>"), Acknowledged)
    final = await site.final("t")
    assert final[Incarnation("t", created.stream.id)].content == b"<1><2>"


@pytest.mark.parametrize("action", [Action.DROP_ANSWER, Action.DUPLICATE, Action.LATE])
async def test_a_stream_is_deleted_once(site: Site, action: Action) -> None:
    first, second = site.recorders
    site.proxy.script = once(action)
    await site.streams[0].delete("s")
    with pytest.raises(StreamNotFound):
        await site.streams[1].append("s", Append(b"<1>", "text/plain"))
    again = await second.create("s")
    assert isinstance(await second.append("s", b"<2>"), Acknowledged)
    await site.proxy.committed()
    assert isinstance(await first.append("s", b"<3>"), Acknowledged)
    final = await site.final("s")
    assert final == {Incarnation("s", again): Final(b"<2><3>", token(2, 6, epoch_of(again)))}


async def test_a_deleted_stream_is_missing_even_far_from_its_end(aws: Engine) -> None:
    async with running(aws, 2, inline_bytes=ITEM_BODY_BYTES) as site:
        first, second = site.recorders
        incarnation = await first.create("s")
        for number in range(PAGE_BYTES // ITEM_BODY_BYTES + 2):
            await first.append("s", b"<%d%s>" % (number, b"." * (ITEM_BODY_BYTES - 3)))
        assert await second.read("s", START) is not None
        await first.delete("s", incarnation)
        assert await second.read("s", START) is None
        again = await first.create("s")
        piece = await second.read("s", START)
        assert piece is not None
        assert piece.incarnation == again
        assert (await site.check("s")).content == b""


# Everything at once


class BadDay:
    """Chance chooses what happens to requests, but of some appends every answer is lost."""

    VICTIM = 20
    """Every so many puts one becomes a victim."""

    def __init__(self) -> None:
        self._chance = random.Random(SEED)
        self._puts = 0
        self._victims = set[str]()

    def __call__(self, operation: str, parameters: dict[str, Any]) -> Action:
        if operation == "PutItem":
            # An attempt has the same parameters as those before it, and no other call has.
            call = json.dumps(parameters)
            self._puts += 1
            if self._puts % self.VICTIM == 0:
                self._victims.add(call)
            if call in self._victims:
                return Action.DROP_ANSWER
        return self._chance.choices([*ROUGH], [*ROUGH.values()])[0]


async def test_many_writers_and_readers_on_a_bad_day(aws: Engine) -> None:
    await bad_day(aws, 250)


async def bad_day(aws: Engine, operations: int) -> None:
    async with running(aws, 4) as site:
        site.proxy.script = BadDay()
        outages = asyncio.create_task(some_outages(site, operations))
        paths = await run_load(
            [InProcess(streams) for streams in site.streams],
            site.history,
            operations=operations,
            seed=SEED,
            large_bytes=2 * INLINE_BYTES,
        )
        outages.cancel()
        counted = tally(site.history)
        print(dict(counted), dict(site.proxy.counts), f"{site.recovered()} recovered")
        await site.check(*paths)
    assert site.proxy.counts.keys() == ROUGH.keys()
    assert counted["Append Acknowledged"] > operations / 4
    assert counted["Append Unknown"] > 0
    assert counted["Append Duplicate"] > 0
    assert site.recovered() > 0


async def some_outages(site: Site, operations: int) -> None:
    """Three of them, each until a few appends have failed for it."""

    def appends(kind: str = "") -> int:
        counted = tally(site.history).items()
        return sum(count for name, count in counted if name.startswith(f"Append {kind}"))

    for share in (0.25, 0.5, 0.75):
        while appends() < share * operations:  # noqa: ASYNC110 - a history has no event
            await asyncio.sleep(0.01)
        failed = appends(StoreUnavailable.code)
        site.proxy.outage = True
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                while appends(StoreUnavailable.code) < failed + 5:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        site.proxy.outage = False
