"""Limits of clients, over real connections to a server with small ones."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator

import pytest
from durable_streams import DurableStreamError, stream

from devtools.server import Server
from tailrace.limits import CLOSED_POLL_REQUESTS, CLOSED_POLL_SECONDS, LIVE_RETRY_SECONDS
from tests.conftest import StoreSettings
from tests.integration.durable_streams.conftest import SECONDS, Connect
from tests.support.wire import CLOSE, START, TEXT, Answer, Connection, eventually, request, target

RATE = 4
POLL_SECONDS = 600


@pytest.fixture(scope="module")
def limited(
    store_settings: StoreSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    settings = {
        **store_settings(),
        "TAILRACE_APPEND_RATE": str(RATE),
        "TAILRACE_LIVE_CONNECTIONS": "2",
        "TAILRACE_STREAMS_PER_PREFIX": "few/*/=2",
        "TAILRACE_LONG_POLL_TIMEOUT": str(POLL_SECONDS),
    }
    with Server(tmp_path_factory.mktemp("limited") / "data", settings) as server:
        yield server


@pytest.fixture
def wire(limited: Server, connect: Connect) -> Connection:
    return connect(limited)


def retry(wire: Connection, method: str, where: str, *more: object) -> Answer:
    """Send a request, and retry on 429: all connections count as one client."""
    while (answer := wire.ask(method, where, *more)).status == 429:  # type: ignore[arg-type]
        time.sleep(int(answer.headers["retry-after"]))
    return answer


def test_appends_are_limited_to_the_rate(wire: Connection, path: str) -> None:
    retry(wire, "PUT", target(path), TEXT)
    began = time.monotonic()
    answers: list[Answer] = []
    # Concurrent, so that a slow machine exceeds the rate; if it does not, again.
    while not any(answer.status == 429 for answer in answers):
        wire.send(request("POST", target(path), TEXT, b"x") * 40)
        answers += [wire.answer("POST") for _ in range(40)]
    most = 2 * RATE + RATE * (time.monotonic() - began)
    done = [answer for answer in answers if answer.status == 204]
    refused = [answer for answer in answers if answer.status == 429]
    assert len(done) + len(refused) == len(answers)
    assert 1 <= len(done) <= most
    for answer in refused:
        assert answer.code == "TOO_MANY_REQUESTS"
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["access-control-allow-origin"] == "*"
    # Refused appends are not stored, and reads are not limited.
    assert wire.ask("GET", target(path)).body == b"x" * len(done)
    time.sleep(1)
    assert wire.ask("POST", target(path), TEXT, b"y").status == 204


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_live_reads_of_a_client_are_limited(
    limited: Server, connect: Connect, wire: Connection, path: str, live: str
) -> None:
    retry(wire, "PUT", target(path), TEXT)
    where = target(path, live=live, offset=START)
    readers = [connect(limited) for _ in range(3)]
    for each in readers:
        each.send(request("GET", where))
    # Of three, two wait and one is refused.
    if live == "sse":
        statuses = {each: each.head()[0] for each in readers}
        waiting = [each for each, status in statuses.items() if status == 200]
        (refused,) = (each for each, status in statuses.items() if status == 429)
    else:
        eventually(lambda: not all(each.quiet(0) for each in readers), seconds=SECONDS)
        (refused,) = (each for each in readers if not each.quiet(0))
        waiting = [each for each in readers if each is not refused]
        answer = refused.answer()
        assert (answer.status, answer.code) == (429, "TOO_MANY_REQUESTS")
        assert answer.headers["retry-after"] == str(LIVE_RETRY_SECONDS)
    assert len(waiting) == 2
    assert wire.ask("GET", target(path)).status == 200
    # A reader that disconnects is no longer counted.
    waiting[0].close()
    if live == "sse":
        eventually(lambda: _is_admitted(connect(limited), where), seconds=SECONDS)
        return
    retry(wire, "POST", target(path), TEXT, b"news")
    assert waiting[1].answer().body == b"news"
    eventually(lambda: wire.ask("GET", where).body == b"news", seconds=SECONDS)


def _is_admitted(wire: Connection, where: str) -> bool:
    """Whether a live read is admitted; it lasts until its connection is closed."""
    wire.send(request("GET", where))
    return wire.head()[0] == 200


def test_spinning_at_the_end_of_a_closed_stream_is_429(wire: Connection, path: str) -> None:
    retry(wire, "PUT", target(path), TEXT | CLOSE, b"all")
    end = wire.ask("HEAD", target(path)).offset
    where = target(path, live="long-poll", offset=end)
    wire.send(request("GET", where) * (CLOSED_POLL_REQUESTS + 5))
    answers = [wire.answer() for _ in range(CLOSED_POLL_REQUESTS + 5)]
    assert [answer.status for answer in answers] == [204] * CLOSED_POLL_REQUESTS + [429] * 5
    assert 1 <= int(answers[-1].headers["retry-after"]) <= CLOSED_POLL_SECONDS
    assert wire.ask("GET", target(path)).body == b"all"
    assert wire.ask("GET", target(path, live="long-poll", offset="-1")).body == b"all"


def test_the_public_python_client_stops_spinning(
    limited: Server, wire: Connection, path: str
) -> None:
    retry(wire, "PUT", target(path), TEXT | CLOSE, b"all")
    url = f"{limited.url}{target(path)}"
    with (
        pytest.raises(DurableStreamError) as refused,
        stream(url, offset="-1", live="long-poll") as response,
    ):
        for _ in response.iter_text():
            pass
    assert refused.value.status == 429


def test_streams_below_a_prefix_are_limited(wire: Connection, path: str) -> None:
    for name in ("a", "b", "b"):
        where = target(f"few/{path.replace('/', '-')}/{name}")
        assert retry(wire, "PUT", where, TEXT).status in (200, 201)
    where = target(f"few/{path.replace('/', '-')}/c")
    answer = retry(wire, "PUT", where, TEXT)
    assert (answer.status, answer.code) == (403, "TOO_MANY_STREAMS")
    assert "retry-after" not in answer.headers
    assert wire.ask("HEAD", where).status == 404


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_compressed_body_is_not_stored_as_content(
    server: Server, connect: Connect, path: str, method: str
) -> None:
    wire = connect(server)
    if method == "POST":
        wire.ask("PUT", target(path), TEXT)
    body = gzip.compress(b"x" * 1_000_000)
    answer = wire.ask(method, target(path), TEXT | {"content-encoding": "gzip"}, body)
    assert (answer.status, answer.code) == (415, "UNSUPPORTED_ENCODING")
    assert answer.headers["accept-encoding"] == "identity"
    plain = wire.ask(method, target(path), TEXT | {"content-encoding": "identity"}, b"x")
    assert plain.status in (201, 204)
    assert wire.ask("GET", target(path)).body == b"x"
