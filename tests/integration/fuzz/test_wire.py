"""The server answers any bytes or hangs up: no 5xx, no hanging, no traceback."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from devtools.server import Server
from tests.support.events import parsed
from tests.support.wire import CLOSE, JSON, TEXT, Answer, Connection, Hangup, request, target

SECONDS = 120.0
"""How long an answer may take: a safety net, not a measure."""

EXAMPLES = int(os.environ.get("TEST_FUZZ_EXAMPLES", "40"))
"""Of each test; tests/slow/fuzz tries more."""

ENV = {
    "TAILRACE_CHUNK_BYTES": "1024",
    "TAILRACE_LONG_POLL_TIMEOUT": "0.02",
    "TAILRACE_MAX_BODY_BYTES": "20000",
    "TAILRACE_SSE_LIFETIME": "0.1",
    "TAILRACE_SWEEP_INTERVAL": "0.5",
}

fuzz = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("fuzz") / "data", ENV) as server:
        with Connection(server.port) as wire:
            wire.ask("PUT", target("open"), TEXT, b"some data")
            wire.ask("PUT", target("json"), JSON, b"[1,2,3]")
            wire.ask("PUT", target("closed"), TEXT | CLOSE, b"all data")
            wire.ask("PUT", target("kept"), TEXT | CLOSE, b"all data")
        yield server


@pytest.fixture
def port(fuzzed: Server) -> Iterator[int]:
    """The server's port; what a test did to the server is looked at after it."""
    logged = fuzzed.log.stat().st_size
    yield fuzzed.port
    assert httpx.get(f"{fuzzed.url}/health", trust_env=False, timeout=SECONDS).is_success
    with Connection(fuzzed.port, SECONDS) as wire:
        wire.ask("PUT", target("after"), TEXT)
        assert wire.ask("POST", target("after"), TEXT, b"x").status == 204
        assert wire.ask("GET", target("after")).body.startswith(b"x")
    output = fuzzed.log.read_bytes()[logged:].decode()
    assert "Traceback" not in output
    assert "ERROR" not in output


def new_path() -> str:
    return f"new/{next(_NUMBERS)}"


def assert_sound(answer: Answer) -> None:
    assert 100 <= answer.status < 500
    assert b"Traceback" not in answer.body
    if answer.status >= 400:
        error = json.loads(answer.body)["error"]
        assert error["code"]
        assert error["message"]


# Requests that are well formed, whatever they say.

METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"]
NUMBERS = ["0", "1", "2", "-1", "00", "1e3", "9007199254740991", "9007199254740992", "9" * 40, "x"]
INTERESTING: dict[str, list[str]] = {
    "content-type": ["text/plain", "application/json", "text/plain; charset=x", "", ";", "a/b,c/d"],
    "stream-ttl": NUMBERS,
    "stream-expires-at": [
        "2040-01-01T00:00:00Z",
        "1970-01-01T00:00:00Z",
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00+23:59",
        "2040-01-01T00:00:60Z",
    ],
    "stream-closed": ["true", "TRUE", "false", "", "1"],
    "stream-seq": ["", "a", "z" * 300],
    "producer-id": ["p", "", "q" * 300],
    "producer-epoch": NUMBERS,
    "producer-seq": NUMBERS,
    "stream-forked-from": [target("open"), "/ds/json", "/ds/", "open", target("none"), "/ds/%"],
    "stream-fork-offset": [f"{0:016d}_{0:016d}", f"{1:016d}_{0:016d}", "-1", "now", ""],
    "stream-fork-sub-offset": NUMBERS,
    "if-none-match": ["*", '"x"', 'W/"', '"' * 99],
    "accept-encoding": ["gzip", "br;q=0.5, zstd", "*;q=nan", "gzip;q=", ",;,"],
    "expect": ["100-continue", "x"],
    "connection": ["close", "keep-alive", "x"],
    "authorization": ["Bearer x"],
    "range": ["bytes=0-1"],
    "te": ["trailers"],
}

values = st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=40)
known_fields = st.sampled_from(sorted(INTERESTING)).flatmap(
    lambda name: st.tuples(st.just(name), st.sampled_from(INTERESTING[name]) | values)
)
unknown_fields = st.tuples(st.from_regex(r"x-[a-z0-9-]{1,20}", fullmatch=True), values)
fields = st.lists(known_fields | unknown_fields, max_size=8)

printable = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30)
escaped = st.lists(
    st.from_regex(r"%[0-9A-Fa-f]{2}", fullmatch=True) | st.sampled_from("/.%a~_ "), max_size=12
).map(lambda parts: "".join(parts).replace(" ", ""))
paths = st.sampled_from(["open", "json", "closed", "none", "__ds/x"]) | printable | escaped
offsets = (
    st.sampled_from(["-1", "now", "", f"{0:016d}_{0:016d}", f"{1:016d}_{9:016d}", "9" * 16 + "_0"])
    | st.from_regex(r"0{15}[0-2]_0{15}[0-9]", fullmatch=True)
    | st.from_regex(r"[0-9]{14,18}_[0-9]{14,18}", fullmatch=True)
    | printable
    | escaped
)
queries = st.lists(
    st.tuples(st.just("offset"), offsets)
    | st.tuples(st.just("live"), st.sampled_from(["long-poll", "sse", "", "x"]))
    | st.tuples(st.just("cursor"), st.sampled_from(["", "0", "x", "9" * 18, "9" * 19]) | escaped)
    | st.tuples(printable, printable),
    max_size=4,
).map(lambda pairs: "&".join(f"{name}={value}" for name, value in pairs))
prefixes = st.sampled_from(["/v1/stream/", "/ds/"])
targets = st.builds("{}{}?{}".format, prefixes, paths, queries) | st.builds("/{}".format, printable)
bodies = st.none() | st.binary(max_size=60) | st.sampled_from([b"[1]", b"{", b"x" * 20_001])


@given(method=st.sampled_from(METHODS), where=targets, headers=fields, body=bodies)
@fuzz
def test_any_request(
    port: int, method: str, where: str, headers: list[tuple[str, str]], body: bytes | None
) -> None:
    with Connection(port, SECONDS) as wire:
        wire.send(request(method, where, headers, body))
        answer = wire.answer(method)
        if answer.status == 100:
            answer = wire.answer(method)
        if method != "HEAD":
            assert_sound(answer)
        assert answer.status < 500
        if answer.headers.get("connection") != "close":
            # The answer ended where it said that it would.
            assert wire.ask("HEAD", target("kept")).status == 200


# What is hardly a request.

VALID = [
    request("POST", target("open"), TEXT, b"more"),
    request("PUT", target("json"), JSON, b"[1]"),
    request("GET", target("open", offset="-1", live="sse")),
    request("GET", target("open", offset="now", live="long-poll")),
    request("GET", target("open"), {"if-none-match": '"x"', "accept-encoding": "gzip"}),
    request("HEAD", target("closed")),
    request(
        "POST",
        target("open"),
        TEXT | {"transfer-encoding": "chunked"},
        b"4\r\nmore\r\n3;x=y\r\n!!!\r\n0\r\nx-trailer: 1\r\n\r\n",
    ),
    request("POST", target("open"), TEXT | {"expect": "100-continue"}, b"more"),
    request("GET", "/health"),
    request("GET", "/v1/streams?limit=5&prefix=o"),
]

fragments = st.sampled_from(VALID) | st.sampled_from(
    [b"\r\n", b"\r\n\r\n", b" ", b":", b"\x00", b"HTTP/1.1", b"GET ", b"0\r\n\r\n", b"%00", b"?"]
)
garbage = st.lists(st.binary(max_size=40) | fragments, max_size=6).map(b"".join)


def answers_to(port: int, pieces: list[bytes]) -> list[Answer]:
    """Everything that comes back until the server hangs up, which it does when we end."""
    answers = []
    with Connection(port, SECONDS) as wire:
        try:
            for piece in pieces:
                wire.send(piece)
            wire.stop_sending()
        except (ConnectionError, OSError):
            return []  # It has hung up already.
        try:
            while True:
                answers.append(wire.answer())
        except (Hangup, ConnectionResetError):
            return answers


def assert_all_sound(answers: list[Answer]) -> None:
    for answer in answers:
        assert 100 <= answer.status < 500
        assert b"Traceback" not in answer.body


@given(data=garbage)
@fuzz
def test_garbage(port: int, data: bytes) -> None:
    assume(b"HEAD " not in data)  # Its answer's end could not be told from here.
    assert_all_sound(answers_to(port, [data]))


@given(valid=st.sampled_from([raw for raw in VALID if b"HEAD" not in raw]), data=st.data())
@fuzz
def test_requests_cut_and_changed(port: int, valid: bytes, data: st.DataObject) -> None:
    raw = bytearray(valid * data.draw(st.integers(1, 3)))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(raw)))
        change = data.draw(st.sampled_from(["cut", "flip", "insert", "remove"]))
        if change == "cut":
            del raw[at:]
        elif change == "flip" and at < len(raw):
            raw[at] = data.draw(st.integers(0, 255))
        elif change == "insert":
            raw[at:at] = data.draw(st.binary(max_size=5) | fragments)
        else:
            del raw[at : at + data.draw(st.integers(1, 20))]
    assume(b"HEAD " not in raw)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=4)))
    pieces = [bytes(raw[a:b]) for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert_all_sound(answers_to(port, pieces))


# What is accepted is what the protocol says.


@given(offset=offsets)
@fuzz
def test_any_offset_is_refused_or_leads_to_the_rest(port: int, offset: str) -> None:
    assume("&" not in offset and "#" not in offset)
    with Connection(port, SECONDS) as wire:
        answer = wire.ask("GET", f"{target('kept')}?offset={offset}")
        tail = wire.ask("HEAD", target("kept")).offset
    text = httpx.QueryParams(f"o={offset}")["o"]
    token = re.fullmatch("([0-9]{4})([0-9]{12})_[0-9]{16}", text)
    if token is not None:
        stale = token[1] not in ("0000", tail[:4]) or token[2] > tail[4:16]
        assert answer.status == (410 if stale else 200)
    else:
        assert answer.status == (200 if text in ("-1", "now") else 400)
    if answer.status == 200:
        assert b"all data".endswith(answer.body)


@pytest.mark.parametrize("name", ["stream-ttl", "producer-epoch", "producer-seq"])
@given(value=st.sampled_from(NUMBERS) | st.from_regex(r"[-+0-9.e ]{0,20}", fullmatch=True) | values)
@fuzz
def test_any_number_is_refused_or_meant(port: int, name: str, value: str) -> None:
    value = value.strip(" \t")
    number = "(0|[1-9][0-9]*)" if name == "stream-ttl" else "[0-9]+"
    valid = re.fullmatch(number, value, re.ASCII) is not None and int(value) < 2**53
    # Leading zeros are the server's choice where the protocol does not forbid them.
    assume(name == "stream-ttl" or not (valid and len(value) > 1 and value[0] == "0"))
    with Connection(port, SECONDS) as wire:
        path = new_path()
        if name == "stream-ttl":
            status = wire.ask("PUT", target(path), {name: value}).status
            assert status == (201 if valid else 400)
            return
        wire.ask("PUT", target(path), TEXT)
        producer = {"producer-id": "p", "producer-epoch": "0", "producer-seq": "0"}
        answer = wire.ask("POST", target(path), TEXT | producer | {name: value}, b"x")
        if not valid:
            assert answer.status == 400
        elif name == "producer-epoch" or int(value) == 0:
            assert answer.status == 200
            assert answer.headers[name] == str(int(value))
        else:
            assert answer.status == 409
            assert answer.headers["producer-received-seq"] == str(int(value))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(values=st.lists(json_values, min_size=1, max_size=4), indent=st.sampled_from([None, 0, 2]))
@fuzz
def test_any_json_comes_back(port: int, values: list[Any], indent: int | None) -> None:
    body = json.dumps(values, indent=indent).encode()
    assume(len(body) < 900)
    with Connection(port, SECONDS) as wire:
        path = new_path()
        created = wire.ask("PUT", target(path), JSON, body)
        assert (created.status, created.offset[17:]) == (201, f"{len(values):016d}")
        assert json.loads(wire.ask("GET", target(path)).body) == values
        wire.ask("POST", target(path), CLOSE)
        events = parsed(wire.ask("GET", target(path, live="sse", offset="-1")).body)
    assert [event.kind for event in events] == ["data", "control"]
    assert json.loads(events[0].data) == values


@given(text=st.text(min_size=1) | st.lists(st.sampled_from("\r\n :a"), min_size=1).map("".join))
@fuzz
def test_any_text_comes_through_events(port: int, text: str) -> None:
    with Connection(port, SECONDS) as wire:
        path = new_path()
        wire.ask("PUT", target(path), TEXT | CLOSE, text.encode())
        assert wire.ask("GET", target(path)).body == text.encode()
        events = parsed(wire.ask("GET", target(path, live="sse", offset="-1")).body)
    assert [event.kind for event in events] == ["data", "control"]
    assert events[0].data == re.sub("\r\n|\r", "\n", text)
    assert events[1].control["streamClosed"] is True
