"""Offsets: valid and malformed ones, and the data they return."""

from __future__ import annotations

import re

import httpx
import pytest

from tests.support.wire import CLOSE, JSON, START, TEXT, Connection, target

MALFORMED = [
    "", "0", "-2", "Now", "_", f"{0:015d}_{0:016d}", START + "0", START.replace("_", "-"),
    "%20" + START, START + "%0D%0A", "%00" + START, "now%00", "-1%20", "+-1", START + "%2F",
    START + ",", "%D9%A0" * 16 + "_" + "%D9%A0" * 16, "%FF", "%", "%zz", "9" * 300, "-1,-1",
]  # fmt: skip


@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse"])
def test_a_malformed_offset_is_400(wire: Connection, path: str, live: str) -> None:
    wire.ask("PUT", target(path), TEXT, b"data")
    answers = {
        offset: wire.ask("GET", f"{target(path)}?offset={offset}{live}") for offset in MALFORMED
    }
    wrong = {offset: answer for offset, answer in answers.items() if answer.status != 400}
    assert not wrong
    assert {answer.code for answer in answers.values()} == {"BAD_OFFSET"}


@pytest.mark.parametrize(
    "query",
    [
        "offset=-1&offset=-1",
        "offset=now&x=1&offset=-1",
        "offset=-1&%6Fffset=-1",
        "live=long-poll",
        "live=sse&offset",
    ],
)
def test_an_offset_is_given_once_and_required_for_live_reads(
    wire: Connection, path: str, query: str
) -> None:
    wire.ask("PUT", target(path), TEXT, b"data")
    answer = wire.ask("GET", f"{target(path)}?{query}")
    assert (answer.status, answer.code) == (400, "BAD_OFFSET")


@pytest.mark.parametrize("live", ["SSE", "long-poll,sse", "%00"])
def test_an_unknown_live_mode_is_400(wire: Connection, path: str, live: str) -> None:
    wire.ask("PUT", target(path), TEXT, b"data")
    answer = wire.ask("GET", f"{target(path)}?offset=-1&live={live}")
    assert (answer.status, answer.code) == (400, "BAD_PARAMETER")


@pytest.mark.parametrize(
    "query",
    ["offset=x", "live=sse", "live=long-poll&offset=now", "live=x"],
)
def test_a_missing_stream_is_404_before_bad_parameters_are_400(
    wire: Connection, path: str, query: str
) -> None:
    answer = wire.ask("GET", f"{target(path)}?{query}")
    assert (answer.status, answer.code) == (404, "STREAM_NOT_FOUND")


@pytest.mark.parametrize(
    "query",
    ["", "?", "?x=y&offset=-1", "?Offset=now", "?offset=%2D1", "?&&", "?a&b=%"],
)
def test_the_default_is_the_beginning_and_unknown_parameters_are_ignored(
    wire: Connection, path: str, query: str
) -> None:
    wire.ask("PUT", target(path), TEXT, b"data")
    answer = wire.ask("GET", target(path) + query)
    assert (answer.status, answer.body) == (200, b"data")


def test_offsets_increase_as_text_and_return_the_rest(client: httpx.Client, path: str) -> None:
    created = client.put(path, headers=TEXT)
    offsets = [created.headers["stream-next-offset"]]
    bodies = [b"x" * size for size in (1, 9, 10, 99, 1, 300)]
    for body in bodies:
        answer = client.post(path, content=body, headers=TEXT)
        offsets.append(answer.headers["stream-next-offset"])
    assert offsets[0] == START
    assert offsets[-1] == client.head(path).headers["stream-next-offset"]
    assert all(re.fullmatch("[0-9]{16}_[0-9]{16}", offset) for offset in offsets)
    assert sorted(set(offsets)) == offsets
    for n, offset in enumerate(offsets):
        read = client.get(path, params={"offset": offset})
        assert read.content == b"".join(bodies[n:])
        assert read.headers["stream-next-offset"] == offsets[-1]
        assert read.headers["stream-up-to-date"] == "true"


@pytest.mark.parametrize("offset", [f"{2:016d}_{4:016d}", "9" * 16 + "_" + "9" * 16])
@pytest.mark.parametrize("closed", [False, True])
def test_an_offset_past_the_tail_is_the_tail(
    client: httpx.Client, path: str, offset: str, closed: bool
) -> None:
    client.put(path, content=b"data", headers=TEXT | (CLOSE if closed else {}))
    read = client.get(path, params={"offset": offset})
    assert (read.status_code, read.content) == (200, b"")
    assert read.headers["stream-next-offset"] == f"{1:016d}_{4:016d}"
    assert read.headers["stream-up-to-date"] == "true"
    assert read.headers.get("stream-closed") == ("true" if closed else None)


def test_an_empty_stream_has_a_real_offset(client: httpx.Client, path: str) -> None:
    client.put(path, headers=TEXT)
    for query in ({}, {"offset": "-1"}, {"offset": "now"}, {"offset": START}):
        read = client.get(path, params=query)
        assert (read.content, read.headers["stream-next-offset"]) == (b"", START)
        assert read.headers["stream-up-to-date"] == "true"


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize(
    ("headers", "body", "empty"), [(TEXT, b"data", b""), (JSON, b"[1]", b"[]"), ({}, b"", b"")]
)
def test_now_returns_the_tail(
    client: httpx.Client,
    path: str,
    closed: bool,
    headers: dict[str, str],
    body: bytes,
    empty: bytes,
) -> None:
    client.put(path, content=body, headers=headers | (CLOSE if closed else {}))
    head = client.head(path)
    read = client.get(path, params={"offset": "now"})
    assert (read.status_code, read.content) == (200, empty)
    assert read.headers["cache-control"] == "no-store"
    assert "etag" not in read.headers
    assert read.headers["stream-up-to-date"] == "true"
    for name in ("stream-next-offset", "content-type", "stream-closed"):
        assert read.headers.get(name) == head.headers.get(name)
