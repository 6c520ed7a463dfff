"""Cable messages as server-sent events, on the wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from devtools.server import Server
from tests.support.cable import BroadcastClient, pubsub, signed, token


class Events:
    """The events of a response, each a dictionary of its fields, without pings."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.iter_lines()

    def next(self) -> dict[str, str]:
        while True:
            fields: dict[str, str] = {}
            for line in self._lines:
                if not line:
                    break
                name, _, value = line.partition(": ")
                fields[name] = f"{fields[name]}\n{value}" if name in fields else value
            if fields and fields.get("event") != "ping" and "" not in fields:
                return fields


@contextmanager
def listening(http: httpx.Client, **request: Any) -> Iterator[Events]:
    with http.stream(request.pop("method", "GET"), "/events", **request) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert "no-store" in response.headers["cache-control"]
        yield Events(response)


def begun(events: Events) -> None:
    assert events.next()["event"] == "welcome"
    assert events.next()["event"] == "confirm_subscription"


def test_messages_come_as_they_are(
    http: httpx.Client, broadcast: BroadcastClient, stream: str
) -> None:
    with listening(http, params={"stream": stream}) as events:
        begun(events)
        broadcast(stream, '{"a": 1}')
        first = events.next()
        assert first["data"] == '{"a": 1}'
        offset, epoch, name = first["id"].split("/", 2)
        assert (offset, name) == ("1", stream)
        assert int(epoch, 16) > 0
        broadcast(stream, json.dumps("<p>\n</p>"))
        assert events.next()["data"] == "<p>\n</p>"


def test_a_client_that_reconnects_continues_after_its_last_event(
    http: httpx.Client, broadcast: BroadcastClient, stream: str
) -> None:
    with listening(http, params={"stream": stream}) as events:
        begun(events)
        broadcast(stream, "1")
        last = events.next()["id"]
    broadcast(stream, "2")
    broadcast(stream, "3")
    headers = {"last-event-id": last}
    with listening(http, params={"stream": stream}, headers=headers) as events:
        begun(events)
        assert [events.next()["data"] for _ in range(2)] == ["2", "3"]
        assert events.next()["event"] == "confirm_history"
        broadcast(stream, "4")
        assert events.next()["data"] == "4"


def test_history_since_a_time(http: httpx.Client, broadcast: BroadcastClient, stream: str) -> None:
    broadcast(stream, "1")
    with listening(http, params={"stream": stream, "history_since": "1"}) as events:
        begun(events)
        assert events.next()["data"] == "1"
        assert events.next()["event"] == "confirm_history"


def test_raw_has_nothing_but_messages(
    http: httpx.Client, broadcast: BroadcastClient, stream: str
) -> None:
    broadcast(stream, "1")
    params = {"stream": stream, "history_since": "1", "raw": "1"}
    with listening(http, params=params) as events:
        assert events.next()["data"] == "1"
        broadcast(stream, "2")
        assert events.next()["data"] == "2"


def test_a_post_listens_to_many(
    http: httpx.Client, broadcast: BroadcastClient, stream: str
) -> None:
    other = f"{stream}/other"
    commands = [
        {"command": "subscribe", "identifier": pubsub(stream)},
        {"command": "subscribe", "identifier": signed(other)},
        {"command": "subscribe", "identifier": "{}"},
    ]
    body = "\n".join(map(json.dumps, commands))
    with listening(http, method="POST", content=body) as events:
        begun(events)
        assert events.next()["event"] == "confirm_subscription"
        assert events.next()["event"] == "reject_subscription"
        for name, identifier in ((stream, pubsub(stream)), (other, signed(other))):
            broadcast(name, "1")
            heard = json.loads(events.next()["data"])
            assert (heard["identifier"], heard["message"]) == (identifier, 1)
            assert heard["stream_id"] == name


def test_a_signed_name_is_enough(http: httpx.Client, broadcast: BroadcastClient) -> None:
    name = json.loads(signed("chat/sse"))["signed_stream_name"]
    for parameter in ("signed_stream", "turbo_signed_stream_name"):
        with listening(http, params={parameter: name}) as events:
            begun(events)
            broadcast("chat/sse", "1")
            assert events.next()["data"] == "1"


def test_a_disconnected_client_gets_a_long_retry(
    http: httpx.Client, broadcast: BroadcastClient, stream: str
) -> None:
    with listening(http, params={"stream": stream, "jid": token("sse")}) as events:
        begun(events)
        broadcast.post({"command": "disconnect", "payload": {"identifier": "sse"}})
        told = events.next()
        assert told["event"] == "disconnect"
        assert int(told["retry"]) > 86_400_000


@pytest.mark.parametrize(
    ("params", "status", "code"),
    [
        ({}, 400, "BAD_PARAMETER"),
        ({"stream": "chat/private"}, 400, "BAD_PARAMETER"),
        ({"channel": "ChatChannel"}, 400, "BAD_PARAMETER"),
        ({"signed_stream": "x--y"}, 400, "BAD_PARAMETER"),
        ({"stream": "open/1", "history_since": "x"}, 400, "BAD_PARAMETER"),
        ({"stream": "open/1", "jid": "x"}, 401, "BAD_CREDENTIALS"),
        ({"stream": "open/1", "jid": token(lasting=-1)}, 401, "TOKEN_EXPIRED"),
    ],
)
def test_invalid_requests_are_refused(
    http: httpx.Client, params: dict[str, str], status: int, code: str
) -> None:
    answer = http.get("/events", params=params)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_an_answer_may_end_after_a_time_and_its_client_goes_on(tmp_path: Path) -> None:
    settings = {"TAILRACE_EVENTS_PATH": "/events", "TAILRACE_EVENTS_LIFETIME": "0.5"}
    with Server(tmp_path / "data", settings) as server, httpx.Client(trust_env=False) as client:
        url, post = f"{server.url}/events?stream=a&raw=1", f"{server.url}/_broadcast"
        client.post(post, json={"stream": "a", "data": "1"})
        first = client.get(f"{url}&history_since=1")
        assert first.text.startswith(": welcome\n\n")
        (id_,) = [line[4:] for line in first.text.splitlines() if line.startswith("id: ")]
        client.post(post, json={"stream": "a", "data": "2"})
        again = client.get(url, headers={"last-event-id": id_})
        assert [line for line in again.text.splitlines() if line.startswith("data")] == ["data: 2"]


def test_methods(http: httpx.Client) -> None:
    assert http.options("/events").status_code == 204
    assert http.put("/events").headers["allow"] == "GET, POST, OPTIONS"
    assert http.post("/events", content=b"x").status_code == 400
    assert http.post("/events", content=b" " * 65_537).status_code == 413


def test_events_are_off_by_default(server: Server) -> None:
    assert httpx.get(f"{server.url}/events", trust_env=False).status_code == 404


def test_a_server_that_stops_says_so(own_server: Server) -> None:
    own_server.stop()
    own_server.env["TAILRACE_EVENTS_PATH"] = "/events"
    own_server.start()
    with (
        httpx.Client(base_url=own_server.url, trust_env=False) as client,
        listening(client, params={"stream": "a"}) as events,
    ):
        begun(events)
        own_server.stop()
        assert events.next()["event"] == "disconnect"


def test_a_deletion_is_an_event(
    http: httpx.Client, broadcast: BroadcastClient, stream: str
) -> None:
    admin = token(scope="admin")
    with (
        listening(http, params={"stream": stream}) as events,
        listening(http, params={"stream": stream, "raw": "1"}) as raw,
    ):
        begun(events)
        for message in ("1", "2"):
            broadcast(stream, message)
            assert events.next()["data"] == message
            assert raw.next()["data"] == message
            headers = {"authorization": f"Bearer {admin}"}
            assert http.delete(f"/v1/stream/{stream}", headers=headers).status_code == 204
            told = events.next()
            assert told["event"] == "deleted"
            assert json.loads(told["data"])["type"] == "deleted"
