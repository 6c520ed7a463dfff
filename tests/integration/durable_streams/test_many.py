"""`/v1/read`: what the answers about many streams say, in every mode."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from devtools.server import Server
from tailrace.auth.signed_names import sign
from tailrace.limits import READ_STREAMS
from tests.conftest import StoreSettings
from tests.integration.durable_streams.conftest import SECONDS, Connect
from tests.support.event_source import EventSource
from tests.support.events import parsed
from tests.support.wire import CLOSE, JSON, TEXT, Connection, request

SECRET = "a-secret-of-more-than-32-bytes-as-it-should-be"


def read(client: httpx.Client, *streams: str, **query: str) -> httpx.Response:
    return client.get("/v1/read", params={"stream": streams, **query})


def news(answer: httpx.Response) -> dict[str, Any]:
    """Parse the news of each stream, by its path, and check what the answer says of all."""
    assert answer.status_code == 200, answer.text
    streams = answer.json()["streams"]
    assert answer.json()["nextOffset"] == answer.headers["stream-next-offset"]
    return {each.pop("stream"): each for each in streams}


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=SECONDS, trust_env=False) as client:
        yield client


@pytest.fixture
def pair(client: httpx.Client, path: str) -> tuple[str, str]:
    """A stream with two messages, and an empty one."""
    client.put(f"{path}/a", content=b"[1,2]", headers=JSON)
    client.put(f"{path}/b", headers=JSON)
    return f"{path}/a", f"{path}/b"


def test_a_catch_up_read_tells_of_each_stream(
    http: httpx.Client, client: httpx.Client, pair: tuple[str, str]
) -> None:
    a, b = pair
    answer = read(http, a, b, f"{a}/missing")
    found = news(answer)
    end = client.head(a).headers["stream-next-offset"]
    assert found[a] == {"data": [1, 2], "nextOffset": end, "upToDate": True, "closed": False}
    assert (found[b]["data"], found[b]["upToDate"]) == ([], True)
    missing = found[f"{a}/missing"]
    assert missing.pop("error")["code"] == "STREAM_NOT_FOUND"
    assert missing == {"upToDate": True, "closed": False}
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["stream-up-to-date"] == "true"
    # It resumes in each stream, and one that was missing begins at its beginning.
    client.post(b, content=b"3", headers=JSON | CLOSE)
    client.put(f"{a}/missing", content="ü".encode(), headers=TEXT)
    offset = answer.headers["stream-next-offset"]
    assert re.fullmatch(r"[0-9a-f.~]+", offset)
    again = news(read(http, a, b, f"{a}/missing", offset=offset))
    assert again[a]["data"] == []
    assert (again[b]["data"], again[b]["closed"]) == ([3], True)
    assert again[f"{a}/missing"]["data"] == "ü"


def test_bytes_are_base64(http: httpx.Client, client: httpx.Client, path: str) -> None:
    client.put(path, content=b"\xff\x00")
    assert news(read(http, path))[path].items() >= {"data": "/wA=", "encoding": "base64"}.items()


def test_an_answer_has_about_one_chunk_in_sum(cramped: Server, path: str) -> None:
    with httpx.Client(base_url=cramped.url, timeout=SECONDS, trust_env=False) as http:
        streams = [f"{path}/{number}" for number in range(3)]
        for stream in streams:
            http.put(f"/v1/stream/{stream}", content=b"x" * 5000, headers=TEXT)
        first = read(http, *streams)
        found = news(first)
        assert "stream-up-to-date" not in first.headers
        assert len(found[streams[0]]["data"]) == 5000
        assert found[streams[1]] == found[streams[2]] == {"upToDate": False, "closed": False}
        second = news(read(http, *streams, offset=first.headers["stream-next-offset"]))
        assert [len(second[each].get("data", "")) for each in streams] == [0, 5000, 0]


@pytest.mark.parametrize(("query", "data"), [({"last": "1"}, [2]), ({"since": "0"}, [1, 2]),
                                             ({"offset": "now"}, [])])  # fmt: skip
def test_a_read_may_begin_elsewhere(
    http: httpx.Client, pair: tuple[str, str], query: dict[str, str], data: list[int]
) -> None:
    assert news(read(http, *pair, **query))[pair[0]]["data"] == data


def test_a_deleted_and_a_new_stream_are_told_apart(
    http: httpx.Client, client: httpx.Client, pair: tuple[str, str]
) -> None:
    a, b = pair
    offset = read(http, a, b).headers["stream-next-offset"]
    client.delete(a)
    client.put(a, content=b"[7]", headers=JSON)
    client.delete(b)
    found = news(read(http, a, b, offset=offset))
    assert found[a]["error"]["code"] == "STALE_OFFSET"
    assert found[a]["data"] == [7]
    assert found[b]["error"]["code"] == "STREAM_NOT_FOUND"


def poll(wire: Connection, offset: str, *streams: str) -> None:
    names = "&".join(f"stream={stream}" for stream in streams)
    wire.send(request("GET", f"/v1/read?{names}&live=long-poll&offset={offset}"))


def test_a_long_poll_waits_for_news_of_any_stream(
    http: httpx.Client, client: httpx.Client, wire: Connection, pair: tuple[str, str]
) -> None:
    a, b = pair
    streams = (a, b, f"{a}/missing")
    client.post(b, headers=CLOSE)
    offset = read(http, *streams).headers["stream-next-offset"]
    changes: list[tuple[Callable[[], object], dict[str, Any]]] = [
        (lambda: client.post(a, content=b"3", headers=JSON), {a: [3]}),
        (lambda: client.put(streams[2], content=b"4", headers=JSON), {streams[2]: [4]}),
        (lambda: client.delete(a), {a: None}),
    ]
    for change, expected in changes:
        # Neither a closed stream whose end is known nor a missing one is news.
        poll(wire, offset, *streams)
        assert wire.quiet(0.1)
        change()
        answer = wire.answer()
        found = json.loads(answer.body)["streams"]
        assert {each["stream"]: each.get("data") for each in found} == expected
        offset = answer.offset


def test_a_long_poll_at_the_end_of_all_streams_is_answered_at_once(
    http: httpx.Client, client: httpx.Client, pair: tuple[str, str]
) -> None:
    for stream in pair:
        client.post(stream, headers=CLOSE)
    offset = read(http, *pair).headers["stream-next-offset"]
    answer = read(http, *pair, live="long-poll", offset=offset)
    assert (answer.status_code, answer.headers["stream-closed"]) == (204, "true")


def test_events_tell_of_all_streams_and_end_with_them(
    client: httpx.Client, connect: Connect, pair: tuple[str, str]
) -> None:
    a, b = pair
    wire = connect()
    wire.send(request("GET", f"/v1/read?stream={a}&stream={b}&live=sse&offset=-1"))
    assert wire.head()[0] == 200
    pushed = wire.chunk()
    while b"event: control" not in pushed:
        pushed += wire.chunk()
    [data, control] = parsed(pushed)
    assert json.loads(data.data) == {"stream": a, "data": [1, 2]}
    assert control.control.keys() == {"streamNextOffset", "upToDate"}
    client.delete(a)
    client.put(a, content=b"[9]", headers=JSON | CLOSE)
    client.post(b, headers=CLOSE)
    events = parsed(b"".join(iter(wire.chunk, b"")))
    told = [(event.kind, json.loads(event.data)) for event in events]
    kinds = [(kind, data.get("stream")) for kind, data in told]
    assert kinds.index(("deleted", a)) < kinds.index(("data", a)) < kinds.index(("closed", a))
    assert ("closed", b) in kinds
    kind, last = told[-1]
    assert (kind, last["upToDate"], last["streamClosed"]) == ("control", True, True)
    # A browser that reconnects there is told to stop.
    where = f"/v1/read?stream={a}&stream={b}&live=sse&offset=-1"
    answer = wire.ask("GET", where, {"last-event-id": last["streamNextOffset"]})
    assert answer.status == 204


def test_an_event_source_resumes_in_all_streams(tmp_path: Path, path: str) -> None:
    with Server(tmp_path / "data", {"TAILRACE_SSE_LIFETIME": "0.2"}) as server:
        names = [f"{path}/{number}" for number in range(3)]
        streams = "&".join(f"stream={name}" for name in names)
        source = EventSource(f"{server.url}/v1/read?{streams}&live=sse&last=1")
        got: dict[str, list[int]] = {name: [] for name in names}
        events = source.events()
        with httpx.Client(base_url=f"{server.url}/v1/stream/", trust_env=False) as client:
            for number in range(12):
                name = names[number % 3]
                client.put(name, headers=JSON)
                client.post(name, content=b"%d" % number, headers=JSON)
                while number not in got[name]:
                    kind, text = next(events)
                    if kind == "data":
                        data = json.loads(text)
                        got[data["stream"]] += data["data"]
                if number % 4 == 3:
                    time.sleep(0.3)
        assert [got[name] for name in names] == [[*range(start, 12, 3)] for start in range(3)]
        assert source.connections > 2


def test_a_pattern_finds_streams_also_later(
    http: httpx.Client, client: httpx.Client, wire: Connection, path: str
) -> None:
    client.put(f"{path}/a b", content=b"[1]", headers=JSON)
    client.put(f"{path}/c/d", content=b"[2]", headers=JSON)
    found = news(read(http, f"{path}/*"))
    assert found.keys() == {f"{path}/a%20b"}
    answer = read(http, f"{path}/*", offset="now")
    poll(wire, answer.headers["stream-next-offset"], f"{path}/*")
    client.put(f"{path}/e", content=b"[3]", headers=JSON)
    [new] = json.loads(wire.answer().body)["streams"]
    assert (new["stream"], new["data"]) == (f"{path}/e", [3])


def test_a_path_may_be_given_encoded_or_not(
    http: httpx.Client, client: httpx.Client, path: str
) -> None:
    client.put(f"{path}/a%2Fb%20%C3%BC", content=b"1", headers=JSON)
    for name in (f"{path}/a%2Fb ü", f"{path}/a%2Fb%20%C3%BC"):
        assert news(read(http, name)).keys() == {f"{path}/a%2Fb%20%C3%BC"}


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "BAD_PARAMETER"),
        ("&".join(f"stream=s{number}" for number in range(READ_STREAMS + 1)), "BAD_PARAMETER"),
        ("stream=a&live=yes", "BAD_PARAMETER"),
        ("stream=a&live=sse", "BAD_OFFSET"),
        ("stream=a&offset=x", "BAD_OFFSET"),
        ("stream=a&offset=-1&last=1", "BAD_PARAMETER"),
        ("stream=a/../b", "BAD_PATH"),
    ],
)
def test_bad_requests_are_400(http: httpx.Client, query: str, code: str) -> None:
    answer = http.get(f"/v1/read?{query}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)


def test_other_methods_are_405(http: httpx.Client) -> None:
    answer = http.post("/v1/read?stream=a")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, OPTIONS")
    assert http.options("/v1/read").status_code == 204


# Access


@pytest.fixture(scope="module")
def closed(
    store_settings: StoreSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    settings = {"TAILRACE_SECRET": SECRET, "TAILRACE_PUBLIC_STREAMS": "news/*"}
    data = tmp_path_factory.mktemp("many") / "data"
    with (
        Server(data, {**store_settings(), **settings}) as server,
        httpx.Client(base_url=server.url, timeout=SECONDS, trust_env=False) as client,
    ):
        yield client


def bearer(streams: str) -> dict[str, str]:
    claims = {"scope": "read", "streams": streams, "exp": time.time() + 60}
    return {"authorization": f"Bearer {jwt.encode(claims, SECRET)}"}


def test_access_is_decided_for_each_stream(closed: httpx.Client) -> None:
    signed = sign("chat/1", SECRET)
    streams = {"stream": [signed, "news/1", "own/1"]}
    answer = closed.get("/v1/read", params=streams, headers=bearer("own/*"))
    assert news(answer).keys() == {"chat/1", "news/1", "own/1"}
    for refused in (["news/1", "own/1"], [f"{signed}0"], ["news/*"]):
        answer = closed.get("/v1/read", params={"stream": refused})
        assert answer.status_code == 401, refused
    refusal = closed.get("/v1/read", params={"stream": ["own/1"]}).json()["error"]
    assert "own/1" in refusal["message"]
    answer = closed.get("/v1/read", params={"stream": "chat/1"}, headers=bearer("own/*"))
    assert answer.status_code == 403
    assert "chat/1" in answer.json()["error"]["message"]


def test_a_pattern_needs_a_token_for_all_below_its_prefix(closed: httpx.Client) -> None:
    own = bearer("own/**")
    assert closed.get("/v1/read", params={"stream": "own/*"}, headers=own).status_code == 200
    answer = closed.get("/v1/read", params={"stream": "o*"}, headers=own)
    assert (answer.status_code, "'o*'" in answer.json()["error"]["message"]) == (403, True)
