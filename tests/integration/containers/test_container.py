"""The server as a container runs it: requests come through CloudFront, and nothing is written."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from devtools.load.client import Address
from devtools.load.sse import SseTail
from devtools.load.wire import render
from devtools.processes import fresh_name
from devtools.server import Server
from tailrace.auth.signed_names import sign
from tailrace.aws.edge.origin_secret import derive_key, sign_edge_token
from tailrace.settings import Settings
from tests.integration.containers.conftest import KEY, ORIGIN_SECRET

EDGE = {"x-tailrace-origin": ORIGIN_SECRET}
SECONDS = 60.0
AS_ACTION_CABLE = Subprotocol("actioncable-v1-json")


@pytest.fixture
def stream(writer: Server) -> str:
    """The path of a stream with one message."""
    path = f"/v1/stream/{fresh_name('room')}"
    text = {"content-type": "text/plain"}
    httpx.put(f"{writer.url}{path}", headers=text, content="hello").raise_for_status()
    return path


@pytest.fixture
def client(container: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=container.url, timeout=SECONDS, trust_env=False) as client:
        yield client


def token_for(path: str, secret: str = ORIGIN_SECRET) -> dict[str, str]:
    """The headers of a read that the edge has verified."""
    token = sign_edge_token(derive_key(secret.encode()), path.encode())
    return {**EDGE, "x-tailrace-edge-token": token.decode()}


@pytest.mark.parametrize(
    "path", ["/v1/stream/a", "/v1/read?stream=a", "/health?verbose=1", "/docs"]
)
@pytest.mark.parametrize("headers", [{}, {"x-tailrace-origin": "another"}])
def test_requests_that_did_not_come_through_the_edge_get_403(
    client: httpx.Client, path: str, headers: dict[str, str]
) -> None:
    response = client.get(path, headers=headers)
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "NOT_THROUGH_THE_EDGE"
    assert response.headers["cache-control"] == "no-store"


def test_nothing_is_answered_past_the_guard_because_it_was_answered_before(
    embedded: Server,
) -> None:
    with httpx.Client(base_url=embedded.url, timeout=SECONDS, trust_env=False) as client:
        text = {**EDGE, "content-type": "text/plain"}
        assert client.put("/v1/stream/a", headers=text, content="hello").status_code == 201
        for _ in range(3):
            assert client.get("/v1/stream/a", headers=EDGE).text.startswith("hello")
            assert client.get("/v1/stream/a", headers=EDGE).status_code == 200
            assert client.get("/v1/stream/a").status_code == 403
            polled = client.get("/v1/stream/a", params={"offset": "now", "live": "long-poll"})
            assert polled.status_code == 403
            assert client.post("/v1/stream/a", headers=text, content="x").status_code == 204
            refused = client.post(
                "/v1/stream/a", headers={"content-type": "text/plain"}, content="y"
            )
            assert refused.status_code == 403
        assert client.get("/v1/stream/a", headers=EDGE).text == "helloxxx"


def test_a_websocket_that_did_not_come_through_the_edge_gets_403(container: Server) -> None:
    url = f"{container.url.replace('http', 'ws', 1)}/cable"
    with pytest.raises(InvalidStatus) as refused:
        connect(url, proxy=None)
    assert refused.value.response.status_code == 403


def test_a_websocket_through_the_edge_has_its_credentials_restored(container: Server) -> None:
    url = f"{container.url.replace('http', 'ws', 1)}/cable"
    with connect(url, proxy=None, additional_headers=EDGE, subprotocols=[AS_ACTION_CABLE]) as open_:
        assert json.loads(open_.recv(SECONDS))["type"] == "welcome"
    bad = {**EDGE, "x-tailrace-query": "jid=nonsense"}
    with connect(url, proxy=None, additional_headers=bad, subprotocols=[AS_ACTION_CABLE]) as open_:
        assert json.loads(open_.recv(SECONDS))["type"] == "disconnect"


def test_health_needs_no_secret(client: httpx.Client) -> None:
    """The load balancer does not have it."""
    assert client.get("/health").json() == {"status": "ok"}


def test_an_edge_token_is_enough_to_read(client: httpx.Client, stream: str) -> None:
    response = client.get(stream, headers=token_for(stream))
    assert response.text == "hello"
    assert "private" not in response.headers["cache-control"]


def test_an_edge_token_of_another_stream_or_secret_gets_403(
    client: httpx.Client, stream: str
) -> None:
    for headers in (token_for("/v1/stream/other"), token_for(stream, "another secret")):
        assert client.get(stream, headers=headers).status_code == 403


def test_credentials_that_the_edge_has_moved_are_those_of_the_request(
    client: httpx.Client, stream: str
) -> None:
    name = stream.removeprefix("/v1/stream/")
    moved = {**EDGE, "x-tailrace-query": f"signed={quote(sign(name, KEY), safe='')}"}
    assert client.get(stream, headers=moved).text == "hello"
    assert client.get(stream, headers=EDGE).status_code == 401


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
def test_writes_get_405(client: httpx.Client, stream: str, method: str) -> None:
    response = client.request(method, stream, headers=EDGE, content="x")
    assert response.status_code == 405
    assert response.headers["allow"] == "GET, HEAD, OPTIONS"


def test_server_sent_events_tell_of_what_another_process_appends(
    client: httpx.Client, writer: Server, stream: str
) -> None:
    query = {"offset": "-1", "live": "sse"}
    with client.stream("GET", stream, params=query, headers=token_for(stream)) as response:
        lines = response.iter_lines()
        assert next(line for line in lines if line.startswith("data:")) == "data:hello"
        httpx.post(
            f"{writer.url}{stream}", headers={"content-type": "text/plain"}, content="more"
        ).raise_for_status()
        assert "data:more" in lines


def test_events_have_a_greater_cursor_than_their_reader_while_long_polls_count_otherwise(
    client: httpx.Client, stream: str
) -> None:
    """Readers share long-polls, whose cursors the edge replaces, but not events that are held."""
    held = 10**9
    query = {"offset": "-1", "live": "sse", "cursor": str(held)}
    with client.stream("GET", stream, params=query, headers=token_for(stream)) as response:
        control = next(line for line in response.iter_lines() if "streamCursor" in line)
    assert int(json.loads(control.removeprefix("data:"))["streamCursor"]) > held


def metric_lines(container: Server) -> list[dict[str, Any]]:
    return [json.loads(line) for line in container.printed().splitlines() if line[:1] == "{"]


def test_metrics_are_lines_of_the_log(container: Server) -> None:
    deadline = time.monotonic() + SECONDS
    while len(metric_lines(container)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    line = metric_lines(container)[-1]
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "Tailrace"
    assert directive["Dimensions"] == [["function", "service"]]
    assert (line["function"], line["service"]) == ("containers", "tailrace-test")
    assert {"Name": "connections_num", "Unit": "Count"} in directive["Metrics"]
    assert {each["Name"] for each in directive["Metrics"]} <= line.keys()


async def test_a_process_polls_once_for_all_readers_of_a_stream(
    container: Server, stream: str
) -> None:
    """By the calls that it counts: one for each pause at most, for a hundred readers."""
    request = render("GET", f"{stream}?offset=now&live=sse", token_for(stream))
    tails = [SseTail(request) for _ in range(100)]
    address = Address("127.0.0.1", container.port)
    await address.connect_all(tails)
    try:
        for tail in tails:
            event = await asyncio.wait_for(tail.events.get(), SECONDS)
            assert event is not None
            assert event.kind == "control"
        # Lines from now on are about waiting readers only.
        begun = len(metric_lines(container)) + 1
        deadline = time.monotonic() + SECONDS
        while len(lines := metric_lines(container)[begun:]) < 4:
            assert time.monotonic() < deadline, container.output()
            await asyncio.sleep(0.05)
    finally:
        for tail in tails:
            tail.close()
    assert all(line["connections_num"] >= 100 for line in lines)
    milliseconds = lines[-1]["_aws"]["Timestamp"] - lines[0]["_aws"]["Timestamp"]
    calls = sum(line.get("dynamodb_calls_total", 0) for line in lines[1:])
    assert 0 < calls <= milliseconds / 1000 / Settings().poll_fastest + 5


def test_sigterm_ends_server_sent_events_at_an_event(writer: Server, container: Server) -> None:
    """The last test: it ends the shared container."""
    path = f"/v1/stream/{fresh_name('room')}"
    httpx.put(f"{writer.url}{path}", content="hello").raise_for_status()
    query = {"offset": "-1", "live": "sse"}
    with httpx.stream(
        "GET", container.url + path, params=query, headers=token_for(path), timeout=SECONDS
    ) as response:
        lines = response.iter_lines()
        next(line for line in lines if line.startswith("id:"))
        assert container.stop() == 0
        # The whole answer has come: httpx would raise an error if it had broken off.
        assert not any(line.startswith(("id:", "data:")) for line in lines)
    assert json.loads(container.printed().splitlines()[-1])["function"] == "containers"
