"""Subscriptions with real processes: servers that are killed, and workers that race on two servers.

Every message is processed at least once, cursors never go back, and no two workers get the same
generation."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from devtools.engines.ministack import Engine
from devtools.server import Server
from tests.conftest import on_dynamodb

SECONDS = 120.0
"""How long to wait for what must happen."""

KILLS = 4
STREAMS = 3
JSON = {"Content-Type": "application/json"}


class Client:
    """A client of servers on one store, which goes on while a server is down."""

    def __init__(self, *servers: Server) -> None:
        self._servers = servers
        self._http = httpx.Client(trust_env=False, timeout=30)

    def close(self) -> None:
        self._http.close()

    def send(self, method: str, path: str, server: int = 0, **more: Any) -> httpx.Response:
        """Send a request once; raises httpx.TransportError."""
        url = f"{self._servers[server].url}/v1/stream/{path}"
        return self._http.request(method, url, **more)

    def insist(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Send a request until it has an answer that is not the server's failure."""
        limit = time.monotonic() + SECONDS
        while time.monotonic() < limit:
            with suppress(httpx.TransportError):
                answer = self.send(method, path, **more)
                if answer.status_code < 500:
                    return answer
            time.sleep(0.05)
        raise AssertionError("the server does not come back")


def subscription(name: str, action: str = "") -> str:
    return f"__ds/subscriptions/{name}{action and '/'}{action}"


class Receiver:
    """A webhook that acknowledges what it has read, by its answer or by a callback."""

    def __init__(self, client: Client) -> None:
        self.messages: Counter[int] = Counter()
        self.generations: list[int] = []
        self._client = client
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                wake = json.loads(self.rfile.read(length))
                outer.generations.append(wake["generation"])
                status, answer = outer.process(wake)
                with suppress(OSError):
                    self.send_response(status)
                    self.end_headers()
                    self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def process(self, wake: dict[str, Any]) -> tuple[int, bytes]:
        choice = random.random()
        if choice < 0.2:
            return 503, b""
        acks = []
        try:
            for stream in wake["streams"]:
                chunk = self._client.send(
                    "GET", stream["path"], params={"offset": stream["acked_offset"]}
                )
                if chunk.status_code != 200:
                    return 500, b""
                with self._lock:
                    self.messages.update(chunk.json())
                acks.append(
                    {"stream": stream["path"], "offset": chunk.headers["Stream-Next-Offset"]}
                )
            if choice < 0.6:
                return 200, b'{"done":true}'
            headers = {"Authorization": f"Bearer {wake['callback_token']}"}
            body = {"wake_id": wake["wake_id"], "generation": wake["generation"]}
            self._client.send(
                "POST", subscription(wake["subscription_id"], "callback"), headers=headers,
                json={**body, "acks": acks, "done": True},
            )  # fmt: skip
        except httpx.TransportError:
            return 500, b""
        return 202, b""

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Workers:
    """Pull-wake workers that sometimes die with a wake."""

    def __init__(self, client: Client, name: str, count: int, servers: int = 1) -> None:
        self.messages: Counter[int] = Counter()
        self.claims: Counter[int] = Counter()
        """How often each generation was given to a worker."""
        self._client = client
        self._name = name
        self._servers = servers
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(count)]
        self.failures: list[Exception] = []
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        try:
            while not self._stopping.is_set():
                with suppress(httpx.TransportError):
                    self._work(number)
                time.sleep(random.uniform(0.01, 0.1))
        except Exception as failure:  # noqa: BLE001 - the test shows it
            self.failures.append(failure)

    def _work(self, number: int) -> None:
        claim = self._send("claim", number, {"worker": f"worker {number}"})
        if claim.status_code != 200:
            assert claim.status_code in (409, 503), claim.text
            return
        wake = claim.json()
        with self._lock:
            self.claims[wake["generation"]] += 1
        fence = {"wake_id": wake["wake_id"], "generation": wake["generation"]}
        for stream in wake["streams"]:
            chunk = self._client.send(
                "GET", stream["path"], number % self._servers,
                params={"offset": stream["acked_offset"]},
            )  # fmt: skip
            if chunk.status_code != 200 or random.random() < 0.1:
                return  # It dies.
            with self._lock:
                self.messages.update(chunk.json())
            ack = {"stream": stream["path"], "offset": chunk.headers["Stream-Next-Offset"]}
            answer = self._send("ack", number, {**fence, "acks": [ack]}, wake["token"])
            if answer.status_code != 200:
                assert answer.json()["error"]["code"] in ("FENCED", "STORE_UNAVAILABLE")
                return
        action = "release" if random.random() < 0.2 else "ack"
        self._send(action, number, {**fence, "done": True}, wake["token"])

    def _send(
        self, action: str, number: int, body: dict[str, Any], token: str = ""
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self._client.send(
            "POST", subscription(self._name, action), number % self._servers, json=body,
            headers=headers,
        )  # fmt: skip

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


class CursorWatch:
    """Notes every cursor that goes back."""

    def __init__(self, client: Client, *names: str) -> None:
        self.regressions: list[str] = []
        self._client = client
        self._names = names
        self._seen: dict[tuple[str, str], str] = {}

    def look(self) -> None:
        for name in self._names:
            for stream in self._client.insist("GET", subscription(name)).json()["streams"]:
                key, offset = (name, stream["path"]), stream["acked_offset"]
                before = self._seen.get(key, "-1")
                if (offset == "-1") < (before == "-1") or offset >= before:
                    self._seen[key] = offset
                elif offset != before:
                    self.regressions.append(f"{key}: {before} to {offset}")


Connect = Callable[..., Client]


@pytest.fixture
def connect() -> Iterator[Connect]:
    clients: list[Client] = []

    def begin(*servers: Server) -> Client:
        clients.append(Client(*servers))
        return clients[-1]

    yield begin
    for client in clients:
        client.close()


@pytest.fixture
def tag() -> str:
    return uuid.uuid4().hex[:8]


def until(condition: Callable[[], Any]) -> None:
    limit = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < limit, "it does not happen"
        time.sleep(0.1)


def test_nothing_is_lost_when_the_server_is_killed(
    own_server: Server, connect: Connect, tag: str
) -> None:
    kill_again_and_again(own_server, connect(own_server), tag, KILLS)


def kill_again_and_again(own_server: Server, client: Client, tag: str, kills: int) -> None:
    """Append, and process what was appended, while the server is killed so often."""
    client.insist("PUT", f"wakes-{tag}", headers=JSON)
    pull, push = f"pull-{tag}", f"push-{tag}"
    receiver = Receiver(client)
    fields: dict[str, Any] = {"pattern": f"{tag}/**", "lease_ttl_ms": 1000}
    client.insist(
        "PUT", subscription(pull),
        json={**fields, "type": "pull-wake", "wake_stream": f"wakes-{tag}"},
    )  # fmt: skip
    client.insist(
        "PUT",
        subscription(push),
        json={**fields, "type": "webhook", "webhook": {"url": receiver.url}},
    )
    workers, watch = Workers(client, pull, 2), CursorWatch(client, pull, push)
    appended = 0
    try:
        chance = random.Random(tag)
        for round_ in range(kills + 1):
            end = time.monotonic() + chance.uniform(0.3, 1.5)
            while time.monotonic() < end:
                path = f"{tag}/{appended % STREAMS}"
                client.insist("PUT", path, headers=JSON)
                # A producer's repeated request is appended once.
                producer = {
                    "Producer-Id": str(appended),
                    "Producer-Epoch": "0",
                    "Producer-Seq": "0",
                }
                answer = client.insist(
                    "POST", path, headers={**JSON, **producer}, content=str(appended)
                )
                assert answer.is_success, answer.text
                appended += 1
                watch.look()
            if round_ < kills:
                own_server.kill()
                own_server.start()
        expected = set(range(appended))
        until(lambda: expected <= set(workers.messages) and expected <= set(receiver.messages))
    finally:
        workers.stop()
        receiver.close()
        own_server.stop()
    assert workers.failures == []
    assert watch.regressions == []
    assert set(workers.claims.values()) == {1}, "a generation was given to two workers"
    assert receiver.generations == sorted(receiver.generations)
    assert set(workers.messages) == set(receiver.messages) == expected


def test_workers_race_on_two_servers_of_which_one_is_killed(
    aws: Engine, tmp_path: Path, connect: Connect, tag: str
) -> None:
    settings = {**on_dynamodb(aws), "TAILRACE_LONG_POLL_TIMEOUT": "2"}
    with (
        Server(tmp_path / "one", settings) as one,
        Server(tmp_path / "two", settings) as two,
    ):
        client = connect(one, two)
        client.insist("PUT", f"wakes-{tag}", headers=JSON)
        fields = {"type": "pull-wake", "wake_stream": f"wakes-{tag}", "pattern": f"{tag}/*"}
        client.insist("PUT", subscription(tag), json={**fields, "lease_ttl_ms": 1000})
        for stream in range(STREAMS):
            client.insist("PUT", f"{tag}/{stream}", headers=JSON)
        workers, watch = Workers(client, tag, 6, servers=2), CursorWatch(client, tag)
        try:
            for number in range(60):
                path = f"{tag}/{number % STREAMS}"
                assert client.insist("POST", path, headers=JSON, content=str(number)).is_success
                watch.look()
                if number == 20:
                    two.kill()
                if number == 40:
                    two.start()
            until(lambda: set(range(60)) <= set(workers.messages))
        finally:
            workers.stop()
        assert workers.failures == []
        assert watch.regressions == []
        assert set(workers.claims.values()) == {1}, "a generation was given to two workers"


def test_claims_at_once_have_one_winner(own_server: Server, connect: Connect, tag: str) -> None:
    client = connect(own_server)
    client.insist("PUT", f"wakes-{tag}", headers=JSON)
    client.insist("PUT", f"{tag}/a", headers=JSON)
    fields = {"type": "pull-wake", "wake_stream": f"wakes-{tag}", "streams": [f"{tag}/a"]}
    client.insist("PUT", subscription(tag), json=fields)
    with ThreadPoolExecutor(16) as threads:
        for generation in range(1, 21):
            client.insist("POST", f"{tag}/a", headers=JSON, content="1")
            answers = list(
                threads.map(
                    lambda n: client.send(
                        "POST", subscription(tag, "claim"), json={"worker": f"worker {n}"}
                    ),
                    range(16),
                )
            )
            (winner,) = [each.json() for each in answers if each.status_code == 200]
            losers = [each.json()["error"] for each in answers if each.status_code == 409]
            assert len(losers) == 15
            assert {each["code"] for each in losers} <= {"ALREADY_CLAIMED", "NO_PENDING_WORK"}
            assert winner["generation"] == generation
            stream = winner["streams"][0]
            done = client.send(
                "POST", subscription(tag, "ack"),
                headers={"Authorization": f"Bearer {winner['token']}"},
                json={
                    "wake_id": winner["wake_id"], "generation": generation, "done": True,
                    "acks": [{"stream": stream["path"], "offset": stream["tail_offset"]}],
                },
            )  # fmt: skip
            assert done.json() == {"ok": True, "next_wake": False}
