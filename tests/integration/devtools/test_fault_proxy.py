"""The fault proxy does to requests what it says, and only that."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

import httpx
import pytest

from devtools.fault_proxy.proxy import ROUGH, Action, FaultProxy

A = Action

FATAL = (A.DROP_REQUEST, A.DROP_ANSWER, A.TRUNCATE_ANSWER, A.LATE)
"""Actions that leave a client without an answer."""


class Engine:
    """Answers every DynamoDB request with its own parameters, and remembers what it carried out."""

    def __init__(self, chunked: bool = False) -> None:
        self.carried_out: list[dict[str, Any]] = []
        self.connections = 0
        self.url = ""
        self._chunked = chunked

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Engine]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        async with server:
            yield self
        await asyncio.sleep(0.01)  # The connections' own tasks notice that the proxy has gone.

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                assert "expect:" not in head
                length = int(head.partition("content-length:")[2].partition("\r\n")[0] or 0)
                body = await reader.readexactly(length)
                self.carried_out.append(json.loads(body or b"{}"))
                writer.write(self._answer(head.split(" ")[0], body))
        except (EOFError, OSError):
            writer.close()

    def _answer(self, method: str, body: bytes) -> bytes:
        if method == "head":
            return b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"
        if method == "delete":
            return b"HTTP/1.1 204 No Content\r\n\r\n"
        if not self._chunked:
            return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        half = len(body) // 2
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(b), b) for b in (body[:half], body[half:]))
        return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%s0\r\n\r\n" % chunks


@pytest.fixture
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    async with Engine(getattr(request, "param", False)).running() as engine:
        yield engine


FRAMED = pytest.mark.parametrize("engine", [False, True], ids=["length", "chunked"], indirect=True)
"""How the engine says where an answer ends."""


def held(proxy: FaultProxy) -> asyncio.Event:
    """Lets every delay of the proxy last until the event is set."""
    over = asyncio.Event()

    async def pause() -> None:
        await over.wait()

    proxy._pause = pause  # type: ignore[method-assign]
    return over


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not check():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)


class Client:
    def __init__(self, proxy: FaultProxy) -> None:
        self.http = httpx.AsyncClient(base_url=proxy.url, trust_env=False, timeout=120)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def call(self, operation: str = "PutItem", **parameters: Any) -> httpx.Response:
        target = {"x-amz-target": f"DynamoDB_20120810.{operation}"}
        return await self.http.post("/", json=parameters, headers=target)


@asynccontextmanager
async def through(engine: Engine, **options: Any) -> AsyncIterator[tuple[FaultProxy, Client]]:
    async with (
        FaultProxy(engine.url, delay=(0.02, 0.03), **options) as proxy,
        Client(proxy) as client,
    ):
        yield proxy, client


def always(action: Action) -> Callable[[str, dict[str, Any]], Action]:
    return lambda _operation, _parameters: action


@FRAMED
async def test_a_request_passes_with_its_answer(engine: Engine) -> None:
    async with through(engine) as (proxy, client):
        for n in range(10):
            answer = await client.call(n=n)
            assert (answer.status_code, answer.json()) == (200, {"n": n})
    assert engine.carried_out == [{"n": n} for n in range(10)]
    assert engine.connections == 1
    assert proxy.counts == {A.PASS: 10}
    assert proxy.operations == {"PutItem": 10}


async def test_requests_of_several_connections_do_not_mix(engine: Engine) -> None:
    async with through(engine) as (_, client):
        answers = await asyncio.gather(*(client.call(n=n) for n in range(50)))
    assert [answer.json()["n"] for answer in answers] == list(range(50))


@FRAMED
async def test_a_large_body_passes_whole(engine: Engine) -> None:
    async with through(engine) as (_, client):
        answer = await client.call(text="x" * 3_000_000)
    assert len(answer.json()["text"]) == 3_000_000


async def test_s3_passes_too(engine: Engine) -> None:
    async with through(engine) as (proxy, client):
        assert (await client.http.head("/bucket/key")).headers["content-length"] == "99"
        assert (await client.http.delete("/bucket/key")).status_code == 204
        put = await client.http.put("/bucket/key", json=[1], headers={"expect": "100-continue"})
        assert put.json() == [1]
    assert set(proxy.operations) == {"HEAD /bucket/key", "DELETE /bucket/key", "PUT /bucket/key"}


async def test_s3_may_be_another_engine(engine: Engine) -> None:
    async with (
        Engine().running() as store,
        through(engine, s3=store.url) as (_, client),
    ):
        await client.call(n=1)
        await client.http.put("/bucket/key", json={"n": 2})
        await client.call(n=3)
    assert engine.carried_out == [{"n": 1}, {"n": 3}]
    assert store.carried_out == [{"n": 2}]


@pytest.mark.parametrize("action", FATAL)
async def test_lost_responses_do_not_reach_the_client(engine: Engine, action: Action) -> None:
    async with through(engine, script=always(action)) as (proxy, client):
        over = held(proxy)
        with pytest.raises(httpx.TransportError) as failed:
            await client.call(n=1)
        if action in (A.DROP_ANSWER, A.TRUNCATE_ANSWER):
            assert isinstance(failed.value, httpx.ReadError), "the connection was not reset"
        before = len(engine.carried_out)
        over.set()
        await proxy.committed()
        after = len(engine.carried_out)
    carried_out = {A.DROP_REQUEST: (0, 0), A.LATE: (0, 1)}.get(action, (1, 1))
    assert (before, after) == carried_out
    assert proxy.counts == {action: 1}


@FRAMED
async def test_an_answer_is_truncated_within_its_body(engine: Engine) -> None:
    async with through(engine, script=always(A.TRUNCATE_ANSWER)) as (proxy, _):
        port = int(proxy.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b'{"n": "0123456789"}'
        writer.write(b"POST / HTTP/1.1\r\nx-amz-target: D.PutItem\r\n")
        writer.write(b"content-length: %d\r\n\r\n%s" % (len(body), body))
        await reader.readuntil(b"\r\n\r\n")
        await reader.readuntil(b'{"n')
        with pytest.raises(ConnectionResetError):
            await reader.readuntil(b'9"}')
        writer.close()


async def test_a_duplicate_is_carried_out_again_later(engine: Engine) -> None:
    async with through(engine, script=always(A.DUPLICATE)) as (proxy, client):
        over = held(proxy)
        assert (await client.call(n=1)).json() == {"n": 1}
        assert engine.carried_out == [{"n": 1}]
        over.set()
        await proxy.committed()
    assert engine.carried_out == [{"n": 1}, {"n": 1}]


@pytest.mark.parametrize("action", [A.DELAY_REQUEST, A.DELAY_ANSWER])
async def test_a_delay_takes_time(engine: Engine, action: Action) -> None:
    async with through(engine, script=always(action)) as (_, client):
        begun = time.monotonic()
        call = asyncio.ensure_future(client.call(n=1))
        await until(lambda: bool(engine.carried_out))
        if action is A.DELAY_REQUEST:
            assert time.monotonic() - begun >= 0.02
        assert (await call).json() == {"n": 1}
        assert time.monotonic() - begun >= 0.02


@pytest.mark.parametrize(
    ("action", "status", "code", "carried_out"),
    [
        (A.THROTTLE_PROVISIONED, 400, "ProvisionedThroughputExceededException", 0),
        (A.THROTTLE, 400, "ThrottlingException", 0),
        (A.HOT_KEY_PROVISIONED, 400, "ProvisionedThroughputExceededException", 0),
        (A.HOT_KEY, 400, "ThrottlingException", 0),
        (A.FAIL_BEFORE, 500, "InternalServerError", 0),
        (A.FAIL_AFTER, 500, "InternalServerError", 1),
    ],
)
async def test_errors_have_the_format_of_dynamodb(
    engine: Engine, action: Action, status: int, code: str, carried_out: int
) -> None:
    async with through(engine, script=always(action)) as (_, client):
        answer = await client.call("Query")
        again = await client.call("PutItem")
    assert answer.status_code == again.status_code == status
    assert answer.headers["content-type"] == "application/x-amz-json-1.0"
    assert answer.json()["__type"] == f"com.amazonaws.dynamodb.v20120810#{code}"
    assert answer.json()["message"]
    assert len(engine.carried_out) == 2 * carried_out
    if action is A.HOT_KEY:
        (reason,) = answer.json()["throttlingReasons"]
        assert reason["reason"] == "TableReadKeyRangeThroughputExceeded"
        (reason,) = again.json()["throttlingReasons"]
        assert reason["reason"] == "TableWriteKeyRangeThroughputExceeded"
    if action is A.HOT_KEY_PROVISIONED:
        assert len(answer.json()["ThrottlingReasons"]) == 1


async def test_an_error_of_s3_is_xml(engine: Engine) -> None:
    async with through(engine, script=always(A.THROTTLE)) as (proxy, client):
        assert "<Code>SlowDown</Code>" in (await client.http.put("/bucket/key", json=1)).text
        assert (await client.http.head("/bucket/key")).status_code == 503
        proxy.script = always(A.FAIL_BEFORE)
        assert "<Code>InternalError</Code>" in (await client.http.get("/bucket/key")).text
    assert engine.carried_out == []


async def test_a_script_hits_one_exact_call(engine: Engine) -> None:
    def script(operation: str, parameters: dict[str, Any]) -> Action | None:
        return A.FAIL_BEFORE if (operation, parameters["n"]) == ("PutItem", 2) else None

    async with through(engine, script=script) as (_, client):
        calls = [("PutItem", 1), ("Query", 2), ("PutItem", 2), ("PutItem", 3)]
        statuses = [(await client.call(operation, n=n)).status_code for operation, n in calls]
    assert statuses == [200, 200, 500, 200]


async def test_random_faults_are_limited_to_the_selected_operations(engine: Engine) -> None:
    async with through(engine, weights={A.THROTTLE: 1}, only={"PutItem"}) as (_, client):
        assert (await client.call("PutItem")).status_code == 400
        assert (await client.call("Query")).status_code == 200


async def outcomes(engine: Engine, seed: int) -> list[int]:
    async with through(engine, seed=seed, weights={A.PASS: 1, A.THROTTLE: 1}) as (_, client):
        return [(await client.call()).status_code for _ in range(40)]


async def test_the_same_seed_makes_the_same_choices(engine: Engine) -> None:
    first = await outcomes(engine, 1)
    assert first == await outcomes(engine, 1)
    assert first != await outcomes(engine, 2)
    assert set(first) == {200, 400}


async def test_concurrent_faults_are_counted_and_leave_nothing_behind(engine: Engine) -> None:
    seen = Counter[str]()

    async def call(client: Client) -> None:
        try:
            seen[str((await client.call()).status_code)] += 1
        except httpx.TransportError:
            seen["none"] += 1

    async with through(engine, seed=3, weights=ROUGH) as (proxy, client):
        for _ in range(12):
            await asyncio.gather(*(call(client) for _ in range(25)))
    counts = proxy.counts
    assert counts.keys() == ROUGH.keys()
    assert seen["none"] == sum(counts[action] for action in FATAL)
    assert seen["500"] == counts[A.FAIL_BEFORE] + counts[A.FAIL_AFTER]
    assert counts.total() == seen.total() == 300
    assert [task for task in asyncio.all_tasks() if "FaultProxy" in repr(task)] == []


async def test_an_outage_resets_all_connections_until_it_ends(engine: Engine) -> None:
    async with through(engine) as (proxy, client):
        await client.call(n=1)
        held(proxy)
        proxy.script = always(A.DELAY_ANSWER)
        under_way = asyncio.ensure_future(client.call(n=2))
        await until(lambda: len(engine.carried_out) == 2)
        proxy.outage = True
        for call in (under_way, client.call(n=3), client.call(n=4)):
            with pytest.raises(httpx.TransportError):
                await call
        await proxy.heal()
        assert (await client.call(n=5)).json() == {"n": 5}
    assert [call["n"] for call in engine.carried_out] == [1, 2, 5]


async def test_healing_waits_for_late_deliveries(engine: Engine) -> None:
    async with through(engine, weights={A.LATE: 1}) as (proxy, client):
        over = held(proxy)
        for n in range(3):
            with pytest.raises(httpx.TransportError):
                await client.call(n=n)
        assert engine.carried_out == []
        over.set()
        await proxy.heal()
        assert sorted(call["n"] for call in engine.carried_out) == [0, 1, 2]
        assert (await client.call(n=3)).status_code == 200


async def test_requests_fail_while_the_engine_is_down() -> None:
    async with Engine().running() as engine:
        pass
    async with through(engine) as (_, client):
        with pytest.raises(httpx.TransportError):
            await client.call()
