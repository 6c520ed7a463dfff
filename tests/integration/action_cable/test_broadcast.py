"""`POST /_broadcast` on the wire."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from devtools.server import Server
from tests.support.cable import KEY, SECRET, BroadcastClient, Log, on_cable, pubsub, token


def bearer(scope: str, streams: str) -> str:
    claims = {"scope": scope, "streams": streams, "exp": int(time.time()) + 60}
    return jwt.encode(claims, SECRET)


def posted(server: Server, asked: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/_broadcast", content=json.dumps(asked), trust_env=False)


def test_success_is_201_and_nothing_else(broadcast: BroadcastClient, stream: str) -> None:
    answer = broadcast.post({"stream": stream, "data": "1"})
    assert (answer.status_code, answer.content) == (201, b"")


def test_the_key_is_the_one_that_other_libraries_derive() -> None:
    expected = "a239a7ca182c90fc32bdedf73703d271388cf433843affffd3a5e757041fc716"
    assert hmac.new(b"s3Krit", b"broadcast-cable", hashlib.sha256).hexdigest() == expected


@pytest.mark.parametrize(
    "key", ["x", SECRET, KEY.upper(), jwt.encode({"scope": "write"}, "another" * 8)]
)
def test_broadcasting_needs_the_key(broadcast: BroadcastClient, stream: str, key: str) -> None:
    # A client without permission does not learn the errors of a body.
    for asked in ({"stream": stream, "data": "1"}, b"garbage"):
        answer = broadcast.post(asked, key)
        assert answer.status_code == 401
        assert "www-authenticate" in answer.headers


def test_a_bearer_token_broadcasts_where_it_may_write(
    broadcast: BroadcastClient, stream: str
) -> None:
    asked = {"stream": stream, "data": "1"}
    assert broadcast.post(asked, bearer("write", stream)).status_code == 201
    assert broadcast.post(asked, bearer("write", "elsewhere/*")).status_code == 403
    assert broadcast.post(asked, bearer("read", stream)).status_code == 403
    both = [asked, {"stream": "elsewhere/1", "data": "1"}]
    assert broadcast.post(both, bearer("write", stream)).status_code == 403
    command = {"command": "disconnect", "payload": {"identifier": "nobody"}}
    assert broadcast.post(command, bearer("write", "**")).status_code == 403
    assert broadcast.post(command, bearer("admin", "**")).status_code == 201


@pytest.mark.parametrize("body", [b"", b"x", b"[]", b"{}", b'{"stream":"s","data":1}'])
def test_garbage_is_refused_by_name(broadcast: BroadcastClient, body: bytes) -> None:
    answer = broadcast.post(body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "BAD_BROADCAST"


def test_nothing_of_a_batch_is_kept_if_a_part_of_it_is_garbage(
    broadcast: BroadcastClient, log: Log, stream: str
) -> None:
    assert broadcast.post([{"stream": stream, "data": "1"}, {"data": "2"}]).status_code == 400
    assert log.ask("GET", stream).status_code == 404


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
def test_only_post_is_allowed(http: httpx.Client, method: str) -> None:
    answer = http.request(method, "/_broadcast")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"


def test_a_batch_is_kept_in_order(broadcast: BroadcastClient, log: Log, stream: str) -> None:
    other = f"{stream}/other"
    names = [stream, stream, other, stream, other]
    asked = [{"stream": name, "data": str(i)} for i, name in enumerate(names)]
    assert broadcast.post(asked).status_code == 201
    assert log.read(stream) == [0, 1, 3]
    assert log.read(other) == [2, 4]


def test_an_array_is_one_message(broadcast: BroadcastClient, log: Log, stream: str) -> None:
    for data in ("[1, 2]", "[]", "plain", "1,2"):
        broadcast(stream, data)
    answer = log.ask("GET", stream)
    assert answer.content == b'[[1, 2],[],"plain","1,2"]'
    assert answer.headers["stream-next-offset"].endswith("_0000000000000004")


async def test_a_message_is_stored_and_not_sent_to_the_excluded_session(
    cable_server: Server, broadcast: BroadcastClient, log: Log, stream: str
) -> None:
    async with on_cable(cable_server) as one, on_cable(cable_server) as two:
        for cable in (one, two):
            await cable.subscribe(pubsub(stream))
        for i in range(20):
            broadcast(stream, str(i), exclude_socket=one.sid if i % 2 else two.sid)
        assert await one.messages(10) == list(range(0, 20, 2))
        assert await two.messages(10) == list(range(1, 20, 2))
    assert log.read(stream) == list(range(20))


async def test_transient_messages_are_sent_and_not_stored(
    cable_server: Server, broadcast: BroadcastClient, log: Log, stream: str
) -> None:
    async with on_cable(cable_server) as one, on_cable(cable_server) as two:
        for cable in (one, two):
            await cable.subscribe(pubsub(stream))
        broadcast(stream, '{"now": 1}', transient=True, exclude_socket=two.sid)
        assert await one.hear() == {"identifier": pubsub(stream), "message": {"now": 1}}
        assert await two.is_silent()
    assert log.ask("GET", stream).status_code == 404


async def test_a_publisher_may_give_a_message_a_type(
    cable_server: Server, broadcast: BroadcastClient, stream: str
) -> None:
    async with on_cable(cable_server) as cable:
        await cable.subscribe(pubsub(stream))
        broadcast(stream, "1", broadcast_type="custom")
        broadcast(stream, "2")
        one, two = await cable.hear(), await cable.hear()
        assert (one["type"], one["message"], one["offset"]) == ("custom", 1, 1)
        assert "type" not in two


async def test_disconnecting_an_identity_ends_its_sessions(
    cable_server: Server, broadcast: BroadcastClient, stream: str
) -> None:
    query = f"jid={token('many')}"
    async with (
        on_cable(cable_server, query) as one,
        on_cable(cable_server, query) as two,
        on_cable(cable_server, f"jid={token('other')}") as other,
    ):
        for cable in (one, two, other):
            await cable.subscribe(pubsub(stream))
        payload = {"identifier": "many", "reconnect": True}
        assert broadcast.post({"command": "disconnect", "payload": payload}).status_code == 201
        for cable in (one, two):
            heard = await cable.hear()
            assert heard == {"type": "disconnect", "reason": "remote", "reconnect": True}
        assert await other.is_silent()


async def test_disconnecting_an_identity_ends_dropped_sessions(
    cable_server: Server, broadcast: BroadcastClient, stream: str
) -> None:
    query = f"jid={token('dropped')}"
    async with on_cable(cable_server, query) as cable:
        await cable.subscribe(pubsub(stream))
    broadcast.post({"command": "disconnect", "payload": {"identifier": "dropped"}})
    async with on_cable(cable_server, f"{query}&sid={cable.sid}") as again:
        assert "restored" not in again.welcome


# Other servers


def test_on_an_open_server_no_key_is_needed(own_server: Server) -> None:
    assert posted(own_server, {"stream": "a", "data": "1"}).status_code == 201


def test_a_stream_keeps_the_type_that_it_has(own_server: Server) -> None:
    Log(own_server).change("PUT", "a", content_type="text/plain")
    answer = posted(own_server, {"stream": "a", "data": "1"})
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "CONTENT_TYPE_CONFLICT"


def test_settings_of_broadcasts(tmp_path: Path) -> None:
    settings = {
        "TAILRACE_CABLE_TTL": "3600",
        "TAILRACE_STREAMS_PER_PREFIX": "few/=1",
        "TAILRACE_BROADCAST_PATH": "/publish",
        "TAILRACE_MAX_BODY_BYTES": "1024",
    }
    with Server(tmp_path / "data", settings) as server:

        def publish(stream: str, data: str = "1") -> int:
            asked = {"stream": stream, "data": data}
            answer = httpx.post(f"{server.url}/publish", json=asked, trust_env=False)
            return answer.status_code

        assert posted(server, {"stream": "a", "data": "1"}).status_code == 404
        assert publish("few/1") == 201
        assert publish("few/1") == 201
        assert publish("few/2") == 403
        assert publish("a", "x" * 2000) == 413
        head = Log(server).ask("HEAD", "few/1")
        assert head.headers["stream-ttl"] == "3600"
        assert head.headers["content-type"] == "application/json"


def test_broadcasts_are_rate_limited(tmp_path: Path) -> None:
    with Server(tmp_path / "data", {"TAILRACE_APPEND_RATE": "0.01"}) as server:
        codes = [posted(server, {"stream": "a", "data": "1"}).status_code for _ in range(4)]
    assert codes[0] == 201
    assert codes[-1] == 429


def test_a_server_that_only_reads_takes_no_broadcasts(tmp_path: Path) -> None:
    with Server(tmp_path / "data", {"TAILRACE_READ_ONLY": "true"}) as server:
        assert posted(server, {"stream": "a", "data": "1"}).status_code == 404
