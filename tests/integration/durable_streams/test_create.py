"""PUT: new streams, repeated creation of the same stream, and conflicts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support.wire import CLOSE, JSON, START, TEXT, Connection, error_of, place, target

FORK_HEADERS = ("stream-forked-from", "stream-fork-offset", "stream-fork-sub-offset")


def test_a_new_stream_is_201(client: httpx.Client, path: str) -> None:
    answer = client.put(path, headers=TEXT)
    assert answer.status_code == 201
    assert answer.headers["content-type"] == "text/plain"
    assert place(answer.headers["stream-next-offset"]) == START
    assert answer.headers["location"] == str(client.base_url.join(path))
    assert answer.headers["content-length"] == "0"
    assert "stream-closed" not in answer.headers
    assert not [name for name in FORK_HEADERS if name in answer.headers]


@pytest.mark.parametrize(
    ("kind", "body", "count"),
    [
        ("text/plain", b"hello", 5),
        ("application/octet-stream", bytes(range(256)), 256),
        ("application/json", b" [1, 2, [3]] ", 3),
        ("application/json", b"[]", 0),
    ],
)
def test_the_body_is_the_first_content(
    client: httpx.Client, path: str, kind: str, body: bytes, count: int
) -> None:
    answer = client.put(path, content=body, headers={"content-type": kind})
    assert answer.status_code == 201
    assert place(answer.headers["stream-next-offset"]) == f"{int(count > 0):016d}_{count:016d}"
    read = client.get(path)
    assert read.headers["stream-next-offset"] == answer.headers["stream-next-offset"]
    if kind == "application/json":
        assert len(read.json()) == count
    else:
        assert read.content == body


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (None, "application/octet-stream"),
        ("", "application/octet-stream"),
        ("TEXT/Plain; Charset=UTF-8", "TEXT/Plain; Charset=UTF-8"),
    ],
)
def test_the_content_type_is_stored_unchanged(
    client: httpx.Client, path: str, sent: str | None, stored: str
) -> None:
    headers = {} if sent is None else {"content-type": sent}
    assert client.put(path, headers=headers).headers["content-type"] == stored
    assert client.head(path).headers["content-type"] == stored
    assert client.get(path).headers["content-type"] == stored


@pytest.mark.parametrize("kind", ["te xt/plain", "a/" + 256 * "b"])
def test_a_malformed_content_type_is_refused(client: httpx.Client, path: str, kind: str) -> None:
    answer = client.put(path, headers={"content-type": kind})
    assert (answer.status_code, error_of(answer)["code"]) == (400, "BAD_HEADER")
    assert client.head(path).status_code == 404


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {}),
        (JSON, {"content-type": "APPLICATION/JSON; charset=utf-8"}),
        ({**TEXT, "stream-ttl": "60"}, {**TEXT, "stream-ttl": "60"}),
        ({"stream-fork-offset": START}, {}),
    ],
)
def test_creating_the_same_stream_again_is_200(
    client: httpx.Client, path: str, first: dict[str, str], second: dict[str, str]
) -> None:
    created = client.put(path, content=b"1", headers=first)
    again = client.put(path, content=b"22", headers=second)
    assert (created.status_code, again.status_code) == (201, 200)
    assert "location" not in again.headers
    for name in ("content-type", "stream-next-offset"):
        assert again.headers[name] == created.headers[name]
    assert client.get(path).content in (b"1", b"[1]")


def test_the_body_of_a_repeated_create_is_ignored(client: httpx.Client, path: str) -> None:
    client.put(path, content=b"[1]", headers=JSON)
    assert client.put(path, content=b"{", headers=JSON).status_code == 200
    assert client.get(path).content == b"[1]"


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (TEXT, JSON, "CONTENT_TYPE_CONFLICT"),
        (TEXT, {}, "CONTENT_TYPE_CONFLICT"),
        ({"stream-ttl": "60"}, {"stream-ttl": "61"}, "STREAM_CONFLICT"),
        ({}, {"stream-expires-at": "2040-01-01T00:00:00Z"}, "STREAM_CONFLICT"),
        ({}, {"stream-forked-from": "/v1/stream/x"}, "STREAM_CONFLICT"),
    ],
)
def test_creating_another_stream_at_the_path_is_409(
    client: httpx.Client, path: str, first: dict[str, str], second: dict[str, str], code: str
) -> None:
    client.put(path, content=b"kept", headers=first)
    answer = client.put(path, content=b"lost", headers=second)
    assert (answer.status_code, error_of(answer)["code"]) == (409, code)
    assert client.get(path).content == b"kept"


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize(
    ("value", "means_closed"),
    [(None, False), (" tRuE\t", True), ("yes", False), ("true, true", False)],
)
def test_a_repeated_create_must_agree_on_closure(
    wire: Connection, path: str, closed: bool, value: str | None, means_closed: bool
) -> None:
    wire.ask("PUT", target(path), CLOSE if closed else {}, b"x")
    answer = wire.ask("PUT", target(path), {} if value is None else {"stream-closed": value})
    assert answer.status == (200 if means_closed == closed else 409)
    if answer.status == 200:
        assert answer.headers.get("stream-closed") == ("true" if closed else None)
    else:
        assert answer.code == "STREAM_CONFLICT"


@pytest.mark.parametrize(("value", "closes"), [("True", True), ("yes", False)])
@pytest.mark.parametrize(("body", "offset"), [(b"", START), (b"ab", f"{1:016d}_{2:016d}")])
def test_a_stream_is_created_closed(
    client: httpx.Client, path: str, value: str, closes: bool, body: bytes, offset: str
) -> None:
    answer = client.put(path, content=body, headers={"stream-closed": value})
    assert answer.status_code == 201
    for seen in (answer, client.head(path), client.get(path)):
        assert seen.headers.get("stream-closed") == ("true" if closes else None)
        assert place(seen.headers["stream-next-offset"]) == offset
    assert client.get(path).content == body


def test_an_empty_batch_creates_a_closed_empty_stream(client: httpx.Client, path: str) -> None:
    answer = client.put(path, content=b"[]", headers=JSON | CLOSE)
    assert answer.headers["stream-closed"] == "true"
    assert client.get(path).content == b"[]"


def test_a_body_that_is_not_json_creates_nothing(client: httpx.Client, path: str) -> None:
    answer = client.put(path, content=b"{", headers=JSON)
    assert (answer.status_code, error_of(answer)["code"]) == (400, "INVALID_JSON")
    assert client.head(path).status_code == 404
    assert client.put(path, content=b"1", headers=JSON).status_code == 201


def test_one_of_many_concurrent_creates_creates_the_stream(client: httpx.Client, path: str) -> None:
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda n: client.put(path, content=b"%d;" % n), range(12)))
    assert sorted(answer.status_code for answer in answers) == [200] * 11 + [201]
    assert len({answer.headers["stream-next-offset"] for answer in answers}) == 1
    winner = next(n for n, answer in enumerate(answers) if answer.status_code == 201)
    assert client.get(path).content == b"%d;" % winner


def test_location_has_the_host_of_the_request(wire: Connection, path: str) -> None:
    answer = wire.ask("PUT", target(path), {"Host": "streams.localhost:81"})
    assert answer.headers["location"] == f"http://streams.localhost:81/v1/stream/{path}"


def test_location_is_the_public_url_if_it_is_set(cramped_client: httpx.Client, path: str) -> None:
    location = cramped_client.put(path).headers["location"]
    assert location == f"https://streams.example:8443/v1/stream/{path}"
