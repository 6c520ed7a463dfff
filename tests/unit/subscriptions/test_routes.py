"""The endpoints of subscriptions on a server: statuses, errors, permissions, restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace.app import Application
from tailrace.clock import Clock, system_clock
from tailrace.settings import Settings
from tests.support.auth import NOW, SECRET, bearer

Start = Callable[..., Awaitable[httpx.AsyncClient]]

SUBSCRIPTIONS = "/v1/stream/__ds/subscriptions"
PULL: dict[str, Any] = {"type": "pull-wake", "pattern": "jobs/*", "wake_stream": "wakes"}
JSON = {"content-type": "application/json"}
SECONDS = 30


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start a server; another call stops the first, and starts again on its data."""
    running: list[tuple[Application, httpx.AsyncClient]] = []

    async def stop() -> None:
        for application, client in running:
            await client.aclose()
            await application.stop()
        running.clear()

    async def start_server(clock: Clock = system_clock, **settings: Any) -> httpx.AsyncClient:
        await stop()
        loaded = Settings(data=str(tmp_path / "data"), **settings)
        application = Application(loaded, clock=clock)
        await application.start()
        transport = httpx.ASGITransport(application, raise_app_exceptions=False)
        client = httpx.AsyncClient(transport=transport, base_url="http://here")
        running.append((application, client))
        return client

    yield start_server
    await stop()


@pytest.fixture
async def client(start: Start) -> httpx.AsyncClient:
    client = await start()
    await client.put("/v1/stream/wakes", headers=JSON)
    assert (await client.put(f"{SUBSCRIPTIONS}/s", json=PULL)).status_code == 201
    return client


async def post(client: httpx.AsyncClient, action: str, **body: Any) -> httpx.Response:
    token = body.pop("token", None)
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return await client.post(f"{SUBSCRIPTIONS}/s/{action}", json=body, headers=headers)


async def claim(client: httpx.AsyncClient) -> dict[str, Any]:
    answer = await post(client, "claim", worker="w")
    assert answer.status_code == 200, answer.text
    claimed: dict[str, Any] = answer.json()
    return claimed


def fence(claimed: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {name: claimed[name] for name in ("token", "wake_id", "generation")} | more


async def append(client: httpx.AsyncClient, path: str = "jobs/1") -> str:
    await client.put(f"/v1/stream/{path}", headers=JSON)
    answer = await client.post(f"/v1/stream/{path}", json={"n": 1})
    return answer.headers["stream-next-offset"]


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    """Wait for a condition; returns what it is."""
    async with asyncio.timeout(SECONDS):
        while True:
            if result := await condition():
                return result
            await asyncio.sleep(0.01)


async def wake_event(client: httpx.AsyncClient, generation: int) -> dict[str, Any]:
    """The event of a wake, when it is there."""

    async def find() -> dict[str, Any] | None:
        events: list[dict[str, Any]] = (await client.get("/v1/stream/wakes")).json()
        return next((each for each in events if each["generation"] == generation), None)

    event: dict[str, Any] = await until(find)
    return event


# Configurations


async def test_a_subscription_is_confirmed_described_and_deleted(client: httpx.AsyncClient) -> None:
    again = await client.put(f"{SUBSCRIPTIONS}/s", json={**PULL, "lease_ttl_ms": 30_000})
    assert again.status_code == 200
    got = (await client.get(f"{SUBSCRIPTIONS}/s")).json()
    assert got == again.json()
    assert {name: got[name] for name in PULL} == PULL
    assert (got["id"], got["subscription_id"], got["status"]) == ("s", "s", "active")
    assert got["streams"] == []
    other = await client.put(f"{SUBSCRIPTIONS}/s", json={**PULL, "pattern": "other/*"})
    assert code(other) == (409, "SUBSCRIPTION_ALREADY_EXISTS")
    for _ in range(2):
        assert (await client.delete(f"{SUBSCRIPTIONS}/s")).status_code == 204
    assert code(await client.get(f"{SUBSCRIPTIONS}/s")) == (404, "SUBSCRIPTION_NOT_FOUND")
    created = await client.put(f"{SUBSCRIPTIONS}/s", json={**PULL, "pattern": "other/*"})
    assert created.status_code == 201


async def test_subscriptions_are_listed_in_pages(client: httpx.AsyncClient) -> None:
    for name in ("t", "a b", "u"):
        await client.put(f"{SUBSCRIPTIONS}/{name}", json={**PULL, "streams": ["x"]})
    await client.delete(f"{SUBSCRIPTIONS}/t")
    pages = []
    after: str | None = ""
    while after is not None:
        page = await client.get(SUBSCRIPTIONS, params={"limit": 2, "after": after})
        pages.append([each["id"] for each in page.json()["subscriptions"]])
        after = page.json()["next"]
    assert pages == [["a b", "s"], ["u"]]
    for limit in ("0", "1001", "x", "", "-1", "000000001999999999"):
        bad = await client.get(SUBSCRIPTIONS, params={"limit": limit})
        assert code(bad) == (400, "INVALID_REQUEST")


async def test_streams_that_exist_are_linked_at_their_tail(client: httpx.AsyncClient) -> None:
    tail = await append(client, "old/1")
    await client.put(f"{SUBSCRIPTIONS}/t", json={**PULL, "pattern": "old/**", "streams": ["x/y"]})
    got = (await client.get(f"{SUBSCRIPTIONS}/t")).json()["streams"]
    assert got == [
        {"path": "old/1", "link_type": "glob", "acked_offset": tail},
        {"path": "x/y", "link_type": "explicit", "acked_offset": "-1"},
    ]


async def test_explicit_links_come_and_go(client: httpx.AsyncClient) -> None:
    tail = await append(client)
    for _ in range(2):
        linked = await post(client, "streams", streams=["jobs/1", "/other/x/"])
        assert linked.status_code == 204
    links = (await client.get(f"{SUBSCRIPTIONS}/s")).json()["streams"]
    assert [(each["path"], each["link_type"]) for each in links] == [
        ("jobs/1", "explicit"), ("other/x", "explicit"),
    ]  # fmt: skip
    for path in ("jobs/1", "other%2Fx", "other/x", "never"):
        gone = await client.delete(f"{SUBSCRIPTIONS}/s/streams/{path}")
        assert gone.status_code == 204
    (link,) = (await client.get(f"{SUBSCRIPTIONS}/s")).json()["streams"]
    assert (link["path"], link["link_type"]) == ("jobs/1", "glob")
    assert link["acked_offset"] in ("-1", tail)


ROUTES = [
    ("GET", "/v1/stream/__ds/jwks.json", 200),
    ("GET", "/ds/__ds/jwks.json", 200),
    ("HEAD", "/v1/stream/__ds/jwks.json", 200),
    ("PUT", "/v1/stream/__ds/jwks.json", 405),
    ("POST", f"{SUBSCRIPTIONS}/s", 405),
    ("GET", f"{SUBSCRIPTIONS}/s/claim", 405),
    ("PUT", f"{SUBSCRIPTIONS}/s/streams", 405),
    ("POST", f"{SUBSCRIPTIONS}/s/streams/a", 405),
    ("GET", f"{SUBSCRIPTIONS}/s/else", 404),
    ("GET", "/v1/stream/__ds/else", 404),
    ("GET", "/v1/stream/__ds", 404),
    ("PUT", "/v1/stream/__ds/else", 404),
    ("PUT", "/v1/stream/%5F_ds/x", 404),
    ("OPTIONS", f"{SUBSCRIPTIONS}/s", 204),
]


@pytest.mark.parametrize(("method", "path", "status"), ROUTES)
async def test_routes(client: httpx.AsyncClient, method: str, path: str, status: int) -> None:
    answer = await client.request(method, path)
    assert answer.status_code == status
    if status in (404, 405) and method != "HEAD":
        assert answer.json()["error"]["code"] in ("NOT_FOUND", "METHOD_NOT_ALLOWED")
    if path.endswith("jwks.json") and status == 200:
        assert answer.headers["content-type"] == "application/jwk-set+json"
        assert answer.headers["cache-control"] == "public, max-age=300"


BAD = [
    ("PUT", "", b"x"),
    ("PUT", "", b'{"type":"webhook"}'),
    ("POST", "/streams", b"{}"),
    ("POST", "/streams", b'{"streams":["__ds/x"]}'),
    ("POST", "/streams", b'{"streams":["wakes"]}'),
    ("POST", "/claim", b"{}"),
    ("POST", "/claim", b'{"worker":7}'),
    ("POST", "/claim", b'{"worker":""}'),
]


@pytest.mark.parametrize(("method", "path", "body"), BAD)
async def test_malformed_requests(
    client: httpx.AsyncClient, method: str, path: str, body: bytes
) -> None:
    answer = await client.request(method, f"{SUBSCRIPTIONS}/s{path}", content=body)
    assert code(answer) == (400, "INVALID_REQUEST")


async def test_webhooks_are_at_public_addresses(client: httpx.AsyncClient) -> None:
    for url in ("http://10.0.0.1/hook", "https://169.254.169.254/", "http://127.0.0.1/"):
        body = {"type": "webhook", "pattern": "a/*", "webhook": {"url": url}}
        answer = await client.put(f"{SUBSCRIPTIONS}/w", json=body)
        assert code(answer) == (400, "WEBHOOK_URL_REJECTED")


# Wakes


async def test_a_wake_from_its_event_to_its_end(client: httpx.AsyncClient) -> None:
    tail = await append(client)
    event = await wake_event(client, 1)
    assert event.items() >= {
        "type": "wake", "subscription_id": "s", "stream": "jobs/1", "generation": 1,
    }.items()  # fmt: skip
    claimed = await claim(client)
    assert claimed["lease_ttl_ms"] == 30_000
    assert claimed["streams"] == [
        {
            "path": "jobs/1", "link_type": "glob", "acked_offset": "-1", "tail_offset": tail,
            "has_pending": True,
        }
    ]  # fmt: skip
    busy = await post(client, "claim", worker="other")
    assert code(busy) == (409, "ALREADY_CLAIMED")
    assert busy.json()["error"]["current_holder"] == "w"
    assert busy.json()["error"]["generation"] == 1
    beat = await post(client, "ack", **fence(claimed))
    assert beat.json() == {"ok": True, "next_wake": False}
    acks = [{"stream": "jobs/1", "offset": tail}]
    done = await post(client, "ack", **fence(claimed, acks=acks, done=True))
    assert done.json() == {"ok": True, "next_wake": False}
    again = await post(client, "ack", **fence(claimed, acks=acks, done=True))
    assert code(again) == (409, "FENCED")
    assert code(await post(client, "claim", worker="w")) == (409, "NO_PENDING_WORK")


async def test_news_that_were_not_acknowledged_wake_again(client: httpx.AsyncClient) -> None:
    await append(client)
    claimed = await claim(client)
    assert (await post(client, "release", **fence(claimed))).status_code == 204
    await wake_event(client, 2)
    second = await claim(client)
    assert second["generation"] == 2
    done = await post(client, "ack", **fence(second, done=True))
    assert done.json() == {"ok": True, "next_wake": True}
    await wake_event(client, 3)
    assert code(await post(client, "release", **fence(second))) == (409, "FENCED")


async def test_a_lease_that_expires_wakes_again(start: Start) -> None:
    client = await start()
    await client.put("/v1/stream/wakes", headers=JSON)
    await client.put(f"{SUBSCRIPTIONS}/s", json={**PULL, "lease_ttl_ms": 1000})
    await append(client)
    claimed = await claim(client)
    await wake_event(client, 2)
    assert (await claim(client))["generation"] == 2
    assert code(await post(client, "ack", **fence(claimed, done=True))) == (409, "FENCED")


async def test_offsets_are_checked_before_any_cursor_moves(client: httpx.AsyncClient) -> None:
    one, two = await append(client, "jobs/1"), await append(client, "jobs/2")
    claimed = await claim(client)
    wrong = [
        ("other", one),
        ("jobs/2", "-1"),
        ("jobs/2", "x"),
        ("jobs/2", f"{two[:-1]}9"),
        ("jobs/2", f"{(int(two[:4]) + 1) % 9000:04d}{two[4:]}"),
    ]
    for path, offset in wrong:
        acks = [{"stream": "jobs/1", "offset": one}, {"stream": path, "offset": offset}]
        answer = await post(client, "ack", **fence(claimed, acks=acks))
        assert code(answer) == (409, "INVALID_OFFSET"), (path, offset)
    links = (await client.get(f"{SUBSCRIPTIONS}/s")).json()["streams"]
    assert {each["acked_offset"] for each in links} == {"-1"}
    both = [{"stream": "/jobs/1/", "offset": one}, {"stream": "jobs/2", "offset": two}]
    done = await post(client, "ack", **fence(claimed, acks=both, done=True))
    assert done.json() == {"ok": True, "next_wake": False}


async def test_cursors_never_go_back(client: httpx.AsyncClient) -> None:
    first = await append(client)
    second = await append(client)
    claimed = await claim(client)
    for offset, expected in ((second, 200), (first, 409)):
        acks = [{"stream": "jobs/1", "offset": offset}]
        answer = await post(client, "ack", **fence(claimed, acks=acks))
        assert answer.status_code == expected


async def test_tokens_are_checked(client: httpx.AsyncClient) -> None:
    await append(client)
    claimed = await claim(client)
    token = claimed.pop("token")
    payload, _, mac = token.partition(".")
    for bad in (None, "x", f"{payload}.{mac[::-1]}", f".{mac}"):
        answer = await post(client, "ack", **{**fence({**claimed, "token": bad}), "done": True})
        assert code(answer) == (401, "TOKEN_INVALID")
        assert "www-authenticate" in answer.headers
    for name, value in (("wake_id", "w_other"), ("generation", 7)):
        body = fence({**claimed, "token": token, name: value}, done=True)
        assert code(await post(client, "ack", **body)) == (409, "FENCED")
    for name, value in (("wake_id", 7), ("generation", "1"), ("generation", True)):
        body = fence({**claimed, "token": token, name: value}, done=True)
        assert code(await post(client, "ack", **body)) == (400, "INVALID_REQUEST")


async def test_a_deleted_subscription_fails_what_is_under_way(client: httpx.AsyncClient) -> None:
    tail = await append(client)
    claimed = await claim(client)
    await client.delete(f"{SUBSCRIPTIONS}/s")
    acks = [{"stream": "jobs/1", "offset": tail}]
    gone = await post(client, "ack", **fence(claimed, acks=acks, done=True))
    assert code(gone) == (404, "SUBSCRIPTION_NOT_FOUND")
    await client.put(f"{SUBSCRIPTIONS}/s", json=PULL)
    fenced = await post(client, "ack", **fence(claimed, acks=acks, done=True))
    assert code(fenced) == (409, "FENCED")


async def test_a_stream_that_is_created_again_is_processed_from_its_beginning(
    client: httpx.AsyncClient,
) -> None:
    tail = await append(client)
    claimed = await claim(client)
    acks = [{"stream": "jobs/1", "offset": tail}]
    await post(client, "ack", **fence(claimed, acks=acks, done=True))
    await client.delete("/v1/stream/jobs/1")
    await append(client)
    await wake_event(client, 2)
    (stream,) = (await claim(client))["streams"]
    assert stream["acked_offset"] == "-1"


# Restarts


async def test_everything_survives_a_restart(client: httpx.AsyncClient, start: Start) -> None:
    tail = await append(client)
    claimed = await claim(client)
    again = await start()
    acks = [{"stream": "jobs/1", "offset": tail}]
    done = await post(again, "ack", **fence(claimed, acks=acks, done=True))
    assert done.json() == {"ok": True, "next_wake": False}
    await append(again)
    assert (await claim(again))["generation"] == 2


async def test_news_of_a_server_that_did_not_notice_them_wake_after_a_restart(
    client: httpx.AsyncClient, start: Start
) -> None:
    await append(client)
    claimed = await claim(client)
    quiet = await start(subscription_runner=False)
    acks = [{"stream": "jobs/1", "offset": claimed["streams"][0]["tail_offset"]}]
    await post(quiet, "ack", **fence(claimed, acks=acks, done=True))
    await append(quiet, "jobs/1")
    await append(quiet, "jobs/2")
    again = await start()
    await wake_event(again, 2)

    async def are_linked() -> bool:
        return len((await again.get(f"{SUBSCRIPTIONS}/s")).json()["streams"]) == 2

    await until(are_linked)
    assert {each["path"] for each in (await claim(again))["streams"]} == {"jobs/1", "jobs/2"}


# Permissions


def as_(scope: str, *streams: str) -> dict[str, str]:
    return {"authorization": f"Bearer {bearer(scope=scope, streams=[*streams])}"}


@pytest.fixture
async def closed(start: Start) -> httpx.AsyncClient:
    return await start(lambda: NOW, secret=SECRET, public_streams="news/*")


PERMITTED = [
    (PULL, ("read write", "jobs/*", "wakes"), 201),
    (PULL, ("read write", "jobs/**", "wakes"), 201),
    (PULL, ("read write", "jobs/*"), 403),
    (PULL, ("read", "jobs/*", "wakes"), 403),
    (PULL, ("write", "jobs/*", "wakes"), 403),
    (PULL, ("read write", "jobs/1", "wakes"), 403),
    (PULL, ("admin", "**"), 201),
    ({**PULL, "pattern": None, "streams": ["jobs/1"]}, ("read write", "jobs/1", "wakes"), 201),
    ({**PULL, "pattern": None, "streams": ["jobs/1", "x"]}, ("read write", "jobs/1", "wakes"), 403),
    ({**PULL, "pattern": "news/*"}, ("read write", "jobs/*", "wakes"), 403),
]


@pytest.mark.parametrize(("body", "grant", "status"), PERMITTED)
async def test_a_subscription_needs_all_that_it_follows(
    closed: httpx.AsyncClient, body: dict[str, Any], grant: tuple[str, ...], status: int
) -> None:
    answer = await closed.put(f"{SUBSCRIPTIONS}/s", json=body, headers=as_(*grant))
    assert answer.status_code == status


OTHERS = [
    ("GET", "", None),
    ("DELETE", "", None),
    ("POST", "/claim", {"worker": "w"}),
    ("POST", "/streams", {"streams": ["jobs/2"]}),
    ("DELETE", "/streams/jobs/1", None),
]


@pytest.mark.parametrize(("method", "path", "body"), OTHERS)
async def test_others_may_not_use_a_subscription(
    closed: httpx.AsyncClient, method: str, path: str, body: object
) -> None:
    creator = as_("read write", "jobs/*", "wakes")
    wanted = {**PULL, "streams": ["jobs/1"]}
    await closed.put(f"{SUBSCRIPTIONS}/s", json=wanted, headers=creator)
    url = f"{SUBSCRIPTIONS}/s{path}"
    for headers, status in (({}, 401), (as_("read", "mail/*", "jobs/2"), 403)):
        answer = await closed.request(method, url, json=body, headers=headers)
        assert answer.status_code == status
    allowed = await closed.request(method, url, json=body, headers=as_("read", "jobs/**"))
    assert allowed.status_code in (200, 204, 409)


async def test_a_subscription_sees_no_more_than_its_creator(closed: httpx.AsyncClient) -> None:
    creator, admin = as_("read write", "jobs/**", "wakes"), as_("admin", "**")
    # The token is for all that is below jobs, but not for jobs itself.
    body = {**PULL, "pattern": "jobs/**"}
    await closed.put(f"{SUBSCRIPTIONS}/s", json=body, headers=creator)
    more = await closed.post(
        f"{SUBSCRIPTIONS}/s/streams", json={"streams": ["mail/1"]}, headers=admin
    )
    assert code(more) == (403, "NOT_ALLOWED")
    for path in ("jobs", "jobs/1"):
        await closed.put(f"/v1/stream/{path}", json=[1], headers=admin)

    async def links() -> list[dict[str, Any]]:
        got = (await closed.get(f"{SUBSCRIPTIONS}/s", headers=admin)).json()
        linked: list[dict[str, Any]] = got["streams"]
        return linked

    assert [each["path"] for each in await until(links)] == ["jobs/1"]
    for headers, listed in ((admin, 1), (as_("read", "mail/*"), 0)):
        page = (await closed.get(SUBSCRIPTIONS, headers=headers)).json()
        assert len(page["subscriptions"]) == listed


async def test_the_keys_are_public(closed: httpx.AsyncClient) -> None:
    assert (await closed.get("/v1/stream/__ds/jwks.json")).status_code == 200


async def test_a_read_only_server_has_no_subscriptions(start: Start) -> None:
    client = await start(read_only=True)
    assert (await client.get(f"{SUBSCRIPTIONS}/s")).status_code == 404


async def test_the_base_url_is_that_of_the_settings(start: Start) -> None:
    client = await start(public_url="https://streams.example/", webhook_loopback=True)
    body = {"type": "webhook", "pattern": "a", "webhook": {"url": "http://127.0.0.1:9/"}}
    created = (await client.put(f"{SUBSCRIPTIONS}/s", json=body)).json()
    assert created["webhook"]["signing"]["jwks_url"] == (
        "https://streams.example/v1/stream/__ds/jwks.json"
    )
