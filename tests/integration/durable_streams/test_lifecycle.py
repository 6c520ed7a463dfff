"""Starting, stopping and starting again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from devtools.server import Server
from tests.conftest import embedded_only
from tests.integration.durable_streams.conftest import SECONDS, Connect
from tests.support.events import EventStream
from tests.support.wire import (
    CLOSE,
    JSON,
    TEXT,
    error_of,
    eventually,
    producer,
    request,
    target,
)


@pytest.fixture
def client(own_server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=f"{own_server.url}/v1/stream/", trust_env=False, timeout=SECONDS
    ) as client:
        yield client


def test_a_stopping_server_answers_all_requests(
    own_server: Server, client: httpx.Client, connect: Connect
) -> None:
    client.put("data", content=b"x", headers=TEXT)
    poll, watch, upload, idle, half = (connect(own_server) for _ in range(5))
    poll.send(request("GET", target("data", live="long-poll", offset="now")))
    events = EventStream(watch, "data", "now").caught_up()
    upload.send(request("POST", target("data"), TEXT | {"content-length": "2"}, b"y"))
    assert idle.ask("HEAD", target("data")).status == 200
    half.send(b"GET /ds/data HT")
    # The server has received all of the requests above when it answers this one.
    assert idle.ask("HEAD", target("data")).status == 200

    own_server.signal(signal.SIGTERM)
    answer = poll.answer()
    assert (answer.status, answer.headers["stream-up-to-date"]) == (204, "true")
    assert poll.ended(SECONDS)
    assert list(events) == []
    assert watch.ended(SECONDS)
    assert idle.ended(SECONDS)
    assert half.ended(SECONDS)
    upload.send(b"z")
    stored = upload.answer("POST")
    assert (stored.status, stored.headers["connection"]) == (204, "close")
    assert own_server.wait() == 0
    assert "Traceback" not in own_server.output()

    own_server.start()
    assert client.get("data").content == b"xyz"
    client.put("json", headers=JSON)
    assert error_of(client.post("json", content=b"{", headers=JSON))["code"] == "INVALID_JSON"


def test_the_server_stops_although_a_request_never_ends(tmp_path: Path, connect: Connect) -> None:
    with Server(tmp_path / "data", {"TAILRACE_SHUTDOWN_GRACE": "1"}) as server:
        stalled, unread = connect(server), connect(server, receive_bytes=4096)
        stalled.send(request("POST", target("x"), TEXT | {"content-length": "2"}, b"y"))
        unread.ask("PUT", target("large"), {}, b"x" * (20 << 20))
        unread.send(request("GET", target("large")))
        watching = connect(server, receive_bytes=4096)
        watching.send(request("GET", target("large", live="sse", offset="-1")))
        assert connect(server).ask("HEAD", target("large")).status == 200
        assert server.stop() == 0
        assert "Traceback" not in server.output()


def test_appends_acknowledged_while_stopping_are_stored(
    own_server: Server, client: httpx.Client
) -> None:
    client.put("data", headers=JSON)
    acknowledged: list[int] = []

    def write(writer: int) -> None:
        with httpx.Client(base_url=own_server.url, trust_env=False, timeout=SECONDS) as mine:
            for n in range(100_000):
                value = writer * 1_000_000 + n
                try:
                    answer = mine.post(target("data"), content=str(value), headers=JSON)
                except httpx.TransportError:
                    return
                if answer.status_code == 204:
                    acknowledged.append(value)

    writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for writer in writers:
        writer.start()
    eventually(lambda: len(acknowledged) > 50, seconds=SECONDS)
    own_server.signal(signal.SIGINT)
    assert own_server.wait() == 0
    for writer in writers:
        writer.join()
    own_server.start()
    stored: list[int] = client.get("data").json()
    assert len(stored) == len(set(stored))
    assert set(acknowledged) <= set(stored)
    for number in range(4):
        mine = [value for value in stored if value // 1_000_000 == number]
        assert mine == sorted(mine)


def test_all_state_survives_a_restart(own_server: Server, client: httpx.Client) -> None:
    large = os.urandom(300_000)
    many = [f"{n:02d}" + "x" * 200 for n in range(40)]
    client.put("text", content=b"a", headers={"content-type": "text/plain; x=y"})
    client.post("text", content=b"b", headers=TEXT | producer("p", 3, 0) | {"stream-seq": "m"})
    for name in many:
        client.post("text", content=b".", headers=TEXT | producer(name, 1, 0))
    client.put("large", content=large)
    client.put("json", content=b"[1e400, 2]", headers=JSON | {"stream-ttl": "3600"})
    client.put("until", headers={"stream-expires-at": "2040-01-01T00:00:00Z"})
    client.put("closed", content=b"c", headers=TEXT)
    client.post("closed", content=b"d", headers=TEXT | CLOSE | producer("q", 0, 0))
    client.put("source", content=b"shared", headers=TEXT)
    client.put("fork", content=b"own", headers={"stream-forked-from": target("source")})
    client.delete("source")
    client.put("deleted", content=b"e", headers=TEXT)
    client.delete("deleted")
    names = ["text", "large", "json", "until", "closed", "fork"]
    before = {name: client.get(name) for name in names}
    heads = {name: client.head(name) for name in [*names, "source", "deleted"]}

    assert own_server.restart().port == httpx.URL(str(client.base_url)).port

    for name, read in before.items():
        after = client.get(name)
        assert after.content == read.content
        for header in ("etag", "stream-next-offset", "content-type", "stream-closed"):
            assert after.headers.get(header) == read.headers.get(header)
    for name, head in heads.items():
        after = client.head(name)
        assert after.status_code == head.status_code
        for header in ("stream-ttl", "stream-expires-at", "stream-next-offset"):
            assert after.headers.get(header) == head.headers.get(header)
    tries = {
        "same producer": TEXT | producer("p", 3, 0),
        "old epoch": TEXT | producer("p", 2, 0),
        "old sequence": TEXT | {"stream-seq": "a"},
        "next": TEXT | producer("p", 3, 1) | {"stream-seq": "n"},
    }
    statuses = {what: client.post("text", content=b"!", headers=h) for what, h in tries.items()}
    assert [answer.status_code for answer in statuses.values()] == [204, 403, 409, 200]
    for name in many:
        again = client.post("text", content=b".", headers=TEXT | producer(name, 1, 0))
        assert again.status_code == 204
    closer = client.post("closed", content=b"d", headers=TEXT | CLOSE | producer("q", 0, 0))
    assert (closer.status_code, closer.headers["producer-seq"]) == (204, "0")
    assert client.post("closed", content=b"d", headers=TEXT).status_code == 409
    assert client.post("source", headers=CLOSE | producer("p", 0, 0)).status_code == 410
    assert client.delete("fork").status_code == 204
    assert client.head("source").status_code == 404


def serve(port: int, data: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tailrace", "serve", "--port", str(port), "--data", str(data)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@embedded_only
def test_a_second_server_on_the_same_data_is_refused(server: Server) -> None:
    done = serve(0, server.data)
    assert done.returncode not in (0, None)
    assert str(server.data) in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert httpx.get(f"{server.url}/health", trust_env=False).is_success


def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = serve(port, tmp_path / "data")
    assert done.returncode not in (0, None)
    assert str(port) in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
