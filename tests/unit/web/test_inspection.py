"""Operators see the inside of streams and cables, and callers their own access."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace.app import Application
from tailrace.auth.jws import sign_token
from tailrace.auth.signed_names import sign
from tailrace.settings import Settings
from tests.support.wire import JSON

SECRET = "0f" * 32

ADMIN_ONLY = (
    "/v1/details?stream=chat/1",
    "/v1/cable/connections",
    "/v1/cable/presence?stream=chat/1",
)

Start = Callable[..., Awaitable[httpx.AsyncClient]]


def signed_token(scope: str, **claims: Any) -> dict[str, str]:
    claims = {"scope": scope, "exp": int(time.time()) + 600, **claims}
    return {"authorization": f"Bearer {sign_token(claims, SECRET.encode(), 'HS256')}"}


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    started: list[Application] = []
    clients: list[httpx.AsyncClient] = []

    async def begin(**settings: Any) -> httpx.AsyncClient:
        application = Application(Settings(data=str(tmp_path / "data"), **settings))
        await application.start()
        started.append(application)
        transport = httpx.ASGITransport(application)
        clients.append(httpx.AsyncClient(transport=transport, base_url="http://here"))
        return clients[-1]

    yield begin
    for client in clients:
        await client.aclose()
    for application in started:
        await application.stop()


async def test_details_of_a_stream(start: Start) -> None:
    client = await start()
    await client.put("/v1/stream/chat/1", headers=JSON, content="[1, 2]")
    producer = {"producer-id": "p1", "producer-epoch": "3", "producer-seq": "0"}
    await client.post("/v1/stream/chat/1", headers={**JSON, **producer}, content="[3]")
    tail = (await client.head("/v1/stream/chat/1")).headers["stream-next-offset"]
    fork = {"stream-forked-from": "/v1/stream/chat/1"}
    assert (await client.put("/v1/stream/chat/2", headers=fork)).status_code == 201
    details = (await client.get("/v1/details?stream=chat/1")).json()
    assert details["length"] == 3
    assert details["bytes"] == details["hot"]["bytes"] == len("1, 2") + len("3")
    assert details["hot"] | {"bytes": 0} == {"first_slot": 0, "slots": 2, "bytes": 0}
    assert details["cold"] == {"bytes": 0, "segments": []}
    assert details["producers"] == [{"id": "p1", "epoch": 3, "seq": 0}]
    assert (details["forks"], details["fork_paths"]) == (1, ["chat/2"])
    assert details["forked_from"] is None
    assert details["next_offset"] == tail
    fork_details = (await client.get("/v1/details", params={"stream": "chat/2"})).json()
    assert fork_details["forked_from"] == {"path": "chat/1", "offset": tail}
    assert fork_details["hot"] == {"first_slot": 2, "slots": 0, "bytes": 0}
    listed = (await client.get("/v1/streams")).json()["streams"]
    assert [each["length"] for each in listed] == [3, 3]
    assert listed[0].items() <= details.items()
    assert (await client.get("/v1/details?stream=chat/3")).status_code == 404
    assert (await client.get("/v1/details?stream=")).json()["error"]["code"] == "BAD_PATH"


async def test_cold_parts_are_listed(start: Start) -> None:
    client = await start(segment_max_messages=2, compact_interval=0.05, hot_bytes=0)
    await client.put("/v1/stream/log", headers={"content-type": "text/plain"})
    body = b"x" * 1024
    for _ in range(4):
        await client.post("/v1/stream/log", headers={"content-type": "text/plain"}, content=body)
    deadline = time.monotonic() + 60
    while True:
        details = (await client.get("/v1/details?stream=log")).json()
        if details["cold"]["bytes"] or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.05)
    cold, hot = details["cold"], details["hot"]
    assert sum(each["bytes"] for each in cold["segments"]) == cold["bytes"] > 0
    assert cold["segments"][0]["stop_slot"] == hot["first_slot"]
    assert cold["bytes"] + hot["bytes"] == details["bytes"]


@pytest.mark.parametrize("url", ADMIN_ONLY)
async def test_only_admins_see_the_inside(start: Start, url: str) -> None:
    client = await start(secret=SECRET)
    admin = signed_token("admin")
    await client.put("/v1/stream/chat/1", headers={**JSON, **admin})
    assert (await client.get(url)).status_code == 401
    for scope in ("read", "write", "read write"):
        refused = await client.get(url, headers=signed_token(scope, streams=["**"]))
        assert refused.status_code == 403
    for headers in ({"x-signed": sign("chat/1", SECRET)}, signed_token("admin", streams="b/**")):
        assert (await client.get(url, headers=headers)).status_code in (401, 403)
    allowed = await client.get(url, headers=admin)
    assert allowed.status_code == 200
    assert allowed.headers["cache-control"] == "no-store"


async def test_an_admin_of_a_prefix_sees_details_below_it(start: Start) -> None:
    client = await start(secret=SECRET)
    admin = signed_token("admin", streams="chat/**")
    await client.put("/v1/stream/chat/1", headers={**JSON, **admin})
    assert (await client.get("/v1/details?stream=chat/1", headers=admin)).status_code == 200
    assert (await client.get("/v1/cable/connections", headers=admin)).status_code == 403


async def test_a_caller_learns_what_it_may_do(start: Start) -> None:
    client = await start(secret=SECRET, public_streams="open/*")
    writer = signed_token("write", streams=["chat/*"], sub="ada")
    access = (await client.get("/v1/access?stream=chat/1", headers=writer)).json()
    assert access["kind"] == "bearer token"
    assert (access["subject"], access["scopes"], access["streams"]) == (
        "ada",
        ["write"],
        ["chat/*"],
    )
    assert access["operations"]["append"] is True
    assert access["operations"]["read"] is False
    other = (await client.get("/v1/access?stream=b", headers=writer)).json()["operations"]
    assert not any(other.values())
    name = {"x-signed": sign("chat/1", SECRET)}
    signed = (await client.get("/v1/access", headers=name)).json()
    assert (signed["kind"], signed["stream"]) == ("signed name", "chat/1")
    assert [name for name, may in signed["operations"].items() if may] == ["read", "head"]
    nothing = (await client.get("/v1/access?stream=open/1")).json()
    assert nothing["kind"] == "none"
    assert [name for name, may in nothing["operations"].items() if may] == ["read", "head"]
    everything = (await client.get("/v1/access", headers=signed_token("admin"))).json()
    assert everything["operations"] == {"list": True, "api": True, "admin": True}
    assert everything["stream"] is None


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"x-signed": "bm8=--00"}, "BAD_CREDENTIALS"),
        ({"authorization": "Bearer a.b.c"}, "BAD_CREDENTIALS"),
        (signed_token("read", exp=1), "TOKEN_EXPIRED"),
    ],
)
async def test_bad_credentials_are_refused(
    start: Start, headers: dict[str, str], code: str
) -> None:
    client = await start(secret=SECRET)
    answer = await client.get("/v1/access", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, code)


async def test_on_an_open_server_everyone_may_do_everything(start: Start) -> None:
    client = await start()
    access = (await client.get("/v1/access?stream=a")).json()
    assert access["kind"] == "open"
    assert all(access["operations"].values())
    for url in ADMIN_ONLY[1:]:
        assert (await client.get(url)).status_code == 200
