"""Offsets: valid and malformed ones, and the data they return."""

from __future__ import annotations

import httpx
import pytest

from tests.support.wire import CLOSE, JSON, START, TEXT, Connection, error_of, place, target

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


@pytest.mark.parametrize("query", ["live=false", "offset=-1&live=false", "live=sse&live=false"])
def test_live_false_is_a_catch_up_read(wire: Connection, path: str, query: str) -> None:
    wire.ask("PUT", target(path), TEXT, b"data")
    answer = wire.ask("GET", f"{target(path)}?{query}")
    assert (answer.status, answer.body) == (200, b"data")


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
    assert offsets[-1] == client.head(path).headers["stream-next-offset"]
    assert sorted(set(offsets)) == offsets
    places = [place(offset) for offset in offsets]
    assert places[0] == START
    assert offsets[0] > START, "the epoch of a stream is not that of any stream"
    for n, both in enumerate(zip(offsets, places, strict=True)):
        for offset in both:
            read = client.get(path, params={"offset": offset})
            assert read.content == b"".join(bodies[n:])
            assert read.headers["stream-next-offset"] == offsets[-1]
            assert read.headers["stream-up-to-date"] == "true"


LIVE = ["", "long-poll", "sse"]


def read(client: httpx.Client, path: str, offset: str, live: str = "") -> httpx.Response:
    return client.get(path, params={"offset": offset, **({"live": live} if live else {})})


def another_stream(client: httpx.Client, path: str, old: str) -> None:
    """Replace the stream at a path, which has given an offset, by one of another epoch."""
    while True:
        client.delete(path)
        created = client.put(path, content=b"new", headers=TEXT)
        if created.headers["stream-next-offset"][:4] != old[:4]:
            return


@pytest.mark.parametrize("live", LIVE)
def test_an_offset_of_an_earlier_stream_is_410(client: httpx.Client, path: str, live: str) -> None:
    old = client.put(path, content=b"old", headers=TEXT).headers["stream-next-offset"]
    another_stream(client, path, old)
    for offset in (old, old[:4] + START[4:]):
        refused = read(client, path, offset, live)
        assert (refused.status_code, error_of(refused)["code"]) == (410, "STALE_OFFSET")
        assert refused.headers["cache-control"] == "no-store"
        assert "offset=-1" in error_of(refused)["message"], "it says what to do"
    assert client.get(path).content == b"new"


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("live", LIVE)
def test_an_offset_in_a_slot_beyond_the_end_is_410(
    client: httpx.Client, path: str, live: str, closed: bool
) -> None:
    """The stream that gave it may have been restored to an earlier time."""
    created = client.put(path, content=b"data", headers=TEXT | (CLOSE if closed else {}))
    epoch = created.headers["stream-next-offset"][:4]
    for offset in (f"{epoch}{2:012d}_{4:016d}", f"{2:016d}_{0:016d}", f"0{'9' * 15}_{0:016d}"):
        refused = read(client, path, offset, live)
        assert (refused.status_code, error_of(refused)["code"]) == (410, "STALE_OFFSET")


@pytest.mark.parametrize("closed", [False, True])
def test_more_data_in_an_offset_than_there_is_makes_it_the_tail(
    client: httpx.Client, path: str, closed: bool
) -> None:
    """Programs exist that add one to the second half of an offset."""
    created = client.put(path, content=b"data", headers=TEXT | (CLOSE if closed else {}))
    tail = created.headers["stream-next-offset"]
    ahead = [tail[:17] + f"{offset:016d}" for offset in (5, 10**16 - 1)]
    for offset in ahead:
        answer = read(client, path, offset)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["stream-next-offset"] == tail
        assert answer.headers["stream-up-to-date"] == "true"
        assert answer.headers.get("stream-closed") == ("true" if closed else None)
    if not closed:
        client.post(path, content=b"more", headers=TEXT)
        assert read(client, path, ahead[0]).content == b"more", "it is inside of that append"


def test_the_final_offset_of_a_stream_closed_without_a_body_is_read(
    client: httpx.Client, path: str
) -> None:
    client.put(path, content=b"data", headers=TEXT)
    final = client.post(path, headers=CLOSE).headers["stream-next-offset"]
    answer = read(client, path, final)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["stream-closed"] == "true"


def test_a_fork_reads_from_offsets_of_its_source(client: httpx.Client, path: str) -> None:
    fork = f"{path}/fork"
    offsets = [client.put(path, headers=TEXT).headers["stream-next-offset"]]
    for body in (b"one", b"two", b"three", b"four"):
        appended = client.post(path, content=body, headers=TEXT)
        offsets.append(appended.headers["stream-next-offset"])
    origin = {"stream-forked-from": target(path), "stream-fork-offset": offsets[2]}
    assert client.put(fork, content=b"2", headers=origin).status_code == 201
    assert client.post(fork, content=b"3", headers=TEXT).status_code == 204
    contents = [read(client, fork, offset).content for offset in offsets[:3]]
    assert contents == [b"onetwo23", b"two23", b"23"]
    # What the fork has from there on is not what they were given for; nothing shows that.
    assert [read(client, fork, offset).status_code for offset in offsets[3:]] == [200, 200]
    client.post(path, content=b"five", headers=TEXT)
    beyond = client.head(path).headers["stream-next-offset"]
    assert read(client, fork, beyond).status_code == 410


def test_an_empty_stream_has_a_real_offset(client: httpx.Client, path: str) -> None:
    client.put(path, headers=TEXT)
    for query in ({}, {"offset": "-1"}, {"offset": "now"}, {"offset": START}):
        read = client.get(path, params=query)
        assert (read.content, place(read.headers["stream-next-offset"])) == (b"", START)
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
