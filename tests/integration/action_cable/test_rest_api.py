"""AnyCable's REST API: publishing, and who is present."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from devtools.server import Server
from tests.integration.action_cable.test_broadcast import bearer
from tests.support.cable import API_KEY, KEY, SECRET, Log, on_cable, pubsub


def with_key(key: str = API_KEY) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def ask(http: httpx.Client, stream: str) -> Any:
    answer = http.get(f"/api/presence/{stream}/users", headers=with_key())
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()


def test_publish_is_a_broadcast(http: httpx.Client, log: Log, stream: str) -> None:
    batch = [{"stream": stream, "data": "1"}, {"stream": stream, "data": "[2]"}]
    answer = http.post("/api/publish", json=batch, headers=with_key())
    assert (answer.status_code, answer.content) == (201, b"")
    assert log.ask("GET", stream).json() == [1, [2]]
    assert http.post("/api/publish", json={}, headers=with_key()).status_code == 400


@pytest.mark.parametrize("encoded", [False, True])
async def test_members_of_a_stream_are_listed(
    cable_server: Server, http: httpx.Client, stream: str, encoded: bool
) -> None:
    assert "/" in stream
    shown = quote(stream, safe="" if encoded else "/")
    assert ask(http, shown) == {"type": "info", "total": 0, "records": []}
    async with on_cable(cable_server) as cable:
        await cable.subscribe(pubsub(stream))
        await cable.say("join", pubsub(stream), presence={"id": "u1", "info": {"name": "Ada"}})
        await cable.hear()
        records = [{"info": {"name": "Ada"}, "id": "u1"}]
        assert ask(http, shown) == {"type": "info", "total": 1, "records": records}


@pytest.mark.parametrize(
    ("key", "status"),
    [
        (lambda: None, 401),
        (lambda: KEY, 401),
        (lambda: SECRET, 401),
        (lambda: API_KEY.upper(), 401),
        (lambda: bearer("write", "**"), 403),
        (lambda: bearer("admin", "**"), 200),
    ],
    ids=["none", "broadcast key", "secret", "upper case", "write token", "admin token"],
)
def test_the_api_needs_its_key(
    http: httpx.Client, key: Callable[[], str | None], status: int
) -> None:
    shown = key()
    headers = {} if shown is None else with_key(shown)
    assert http.get("/api/presence/a/users", headers=headers).status_code == status
    published = http.post("/api/publish", json={"stream": "a", "data": "1"}, headers=headers)
    assert published.status_code == (201 if status == 200 else status)
    assert http.post("/_broadcast", json=[], headers=with_key()).status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/publish", 405),
        ("POST", "/api/presence/a/users", 405),
        ("GET", "/api/presence/a", 404),
        ("GET", "/api/presence//users", 404),
        ("GET", f"/api/presence/{'x' * 1100}/users", 414),
        ("GET", "/api/presence/__ds/users", 400),
    ],
)
def test_other_requests_are_refused(
    http: httpx.Client, method: str, path: str, status: int
) -> None:
    assert http.request(method, path, headers=with_key()).status_code == status


def test_without_a_secret_there_is_no_api(own_server: Server) -> None:
    for path in ("/api/publish", "/api/presence/a/users"):
        answer = httpx.get(f"{own_server.url}{path}", trust_env=False)
        assert answer.status_code == 404
        assert "TAILRACE_API_SECRET" in answer.text
