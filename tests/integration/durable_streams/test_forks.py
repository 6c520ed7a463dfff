"""PUT with Stream-Forked-From: forks, repeated creation of a fork, and refused forks."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support.wire import CLOSE, JSON, START, TEXT, error_of, place

BEYOND = "0000" + "9" * 12 + "_" + "9" * 16
FOREIGN = f"9999{0:012d}_{0:016d}"
"""An offset whose epoch no stream has."""


def fork_of(path: str, offset: str | None = None, sub_offset: str | None = None) -> dict[str, str]:
    headers = {"stream-forked-from": f"/v1/stream/{path}"}
    if offset is not None:
        headers["stream-fork-offset"] = offset
    if sub_offset is not None:
        headers["stream-fork-sub-offset"] = sub_offset
    return headers


@pytest.fixture
def source(client: httpx.Client, path: str) -> str:
    """Three appends: `abc`, `defg` and `h`."""
    source = f"{path}/source"
    client.put(source, content=b"abc", headers={"content-type": "text/plain; x=y"})
    client.post(source, content=b"defg", headers=TEXT)
    client.post(source, content=b"h", headers=TEXT)
    return source


AT = [START, f"{1:016d}_{3:016d}", f"{2:016d}_{7:016d}", f"{3:016d}_{8:016d}"]


@pytest.mark.parametrize(
    ("offset", "sub_offset", "body", "content", "tail"),
    [
        (None, None, b"", b"abcdefgh", AT[3]),
        (AT[1], None, b"XY", b"abcXY", f"{2:016d}_{5:016d}"),
        (AT[1], "1", b"XY", b"abcdXY", f"{3:016d}_{6:016d}"),
    ],
)
def test_a_fork_has_the_content_of_its_source(
    client: httpx.Client,
    path: str,
    source: str,
    offset: str | None,
    sub_offset: str | None,
    body: bytes,
    content: bytes,
    tail: str,
) -> None:
    fork = f"{path}/fork"
    answer = client.put(fork, content=body, headers=fork_of(source, offset, sub_offset))
    assert answer.status_code == 201
    assert answer.headers["content-type"] == "text/plain; x=y"
    assert place(answer.headers["stream-next-offset"]) == tail
    assert answer.headers["location"].endswith(fork)
    assert client.get(fork).content == content
    client.post(source, content=b"unseen", headers=TEXT)
    assert client.post(fork, content=b"!", headers=TEXT).status_code == 204
    read = client.get(fork)
    assert read.content == content + b"!"
    assert client.get(source).content == b"abcdefghunseen"
    for seen in (answer, read, client.head(fork)):
        assert not [name for name in seen.headers if "fork" in name.replace("forbid", "")]


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        ({}, {}, 200),
        ({"content-type": "TEXT/plain"}, {}, 200),
        ({}, {"stream-ttl": "60"}, 409),
        ({"stream-closed": "true"}, {"stream-closed": "TRUE"}, 200),
        ({"stream-fork-offset": AT[1]}, {"stream-fork-offset": AT[1]}, 200),
        ({"stream-fork-offset": AT[1]}, {"stream-fork-offset": AT[2]}, 409),
        (
            {"stream-fork-offset": AT[1], "stream-fork-sub-offset": "2"},
            {"stream-fork-sub-offset": "3"},
            409,
        ),
        ({}, {"stream-forked-from": "/v1/stream/another"}, 409),
    ],
)
def test_creating_the_same_fork_again_is_200(
    client: httpx.Client,
    path: str,
    source: str,
    first: dict[str, str],
    second: dict[str, str],
    status: int,
) -> None:
    fork = f"{path}/fork"
    created = client.put(fork, content=b"X", headers=fork_of(source) | first)
    client.post(source, content=b"more", headers=TEXT)
    again = client.put(fork, content=b"Y", headers=fork_of(source) | second)
    assert (created.status_code, again.status_code) == (201, status)
    if status == 200:
        assert again.headers["stream-next-offset"] == created.headers["stream-next-offset"]
        assert again.headers["content-type"] == created.headers["content-type"]
    assert client.get(fork).content.endswith(b"X")


@pytest.mark.parametrize(
    "expiry", [{"stream-ttl": "3600"}, {"stream-expires-at": "2040-01-01T00:00:00Z"}]
)
def test_inherited_properties_may_be_left_out_again(
    client: httpx.Client, path: str, expiry: dict[str, str]
) -> None:
    source, fork, other = (f"{path}/{name}" for name in ("source", "fork", "other"))
    client.put(source, content=b"1", headers=JSON | expiry)
    assert client.put(fork, headers=fork_of(source)).status_code == 201
    for headers in ({}, JSON, expiry, JSON | expiry):
        assert client.put(fork, headers=fork_of(source) | headers).status_code == 200
    assert client.put(fork, headers=fork_of(source) | {"stream-ttl": "7"}).status_code == 409
    [(name, _)] = expiry.items()
    assert client.head(fork).headers[name] == client.head(source).headers[name]
    # Properties of the request take precedence, and are not limited by the source.
    assert client.put(other, headers=fork_of(source) | {"stream-ttl": "99999"}).status_code == 201
    head = client.head(other)
    assert head.headers["stream-ttl"] == "99999"
    assert "stream-expires-at" not in head.headers


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        ({"stream-fork-offset": "now"}, b"", 400, "BAD_OFFSET"),
        ({"stream-fork-offset": BEYOND}, b"", 400, "FORK_OUT_OF_RANGE"),
        ({"stream-fork-offset": FOREIGN}, b"", 400, "FORK_OUT_OF_RANGE"),
        (
            {"stream-fork-offset": AT[1], "stream-fork-sub-offset": "05"},
            b"",
            400,
            "BAD_HEADER",
        ),
        (
            {"stream-fork-offset": AT[1], "stream-fork-sub-offset": "5"},
            b"",
            400,
            "FORK_OUT_OF_RANGE",
        ),
        (JSON, b"", 409, "CONTENT_TYPE_CONFLICT"),
        ({"stream-forked-from": "relative"}, b"", 400, "BAD_PATH"),
        ({"stream-forked-from": "/v1/stream/no/such"}, b"", 404, "STREAM_NOT_FOUND"),
        ({"stream-forked-from": "/ds/no", "stream-fork-offset": "x"}, b"", 400, "BAD_OFFSET"),
    ],
)
def test_a_refused_fork_creates_nothing(
    client: httpx.Client,
    path: str,
    source: str,
    headers: dict[str, str],
    body: bytes,
    status: int,
    code: str,
) -> None:
    fork = f"{path}/fork"
    answer = client.put(fork, content=body, headers=fork_of(source) | headers)
    assert (answer.status_code, error_of(answer)["code"]) == (status, code)
    assert client.head(fork).status_code == 404
    assert client.delete(source).status_code == 204
    assert client.head(source).status_code == 404, "and not 410: nothing refers to it"


@pytest.mark.parametrize("sub_offset", ["0", "x"])
def test_a_sub_offset_needs_a_fork(client: httpx.Client, path: str, sub_offset: str) -> None:
    answer = client.put(path, headers={"stream-fork-sub-offset": sub_offset})
    assert (answer.status_code, error_of(answer)["code"]) == (400, "BAD_HEADER")
    assert client.head(path).status_code == 404


def test_a_fork_with_a_body_that_is_not_json_creates_nothing(
    client: httpx.Client, path: str
) -> None:
    source, fork = f"{path}/source", f"{path}/fork"
    client.put(source, content=b"1", headers=JSON)
    assert client.put(fork, content=b"{", headers=fork_of(source)).status_code == 400
    assert client.head(fork).status_code == 404
    client.delete(source)
    assert client.head(source).status_code == 404


def test_a_sub_offset_counts_messages_of_a_json_batch(client: httpx.Client, path: str) -> None:
    client.put(path, content=b"[1,[2,3],4]", headers=JSON)
    fork = f"{path}/fork"
    answer = client.put(fork, content=b"[5,6]", headers=fork_of(path, START, "2"))
    assert place(answer.headers["stream-next-offset"]) == f"{2:016d}_{4:016d}"
    assert client.get(fork).json() == [1, [2, 3], 5, 6]
    assert client.put(f"{path}/all", headers=fork_of(path, START, "3")).status_code == 201
    assert client.put(f"{path}/more", headers=fork_of(path, START, "4")).status_code == 400
    client.put(f"{path}/empty", headers=JSON)
    empty = client.put(f"{path}/none", headers=fork_of(f"{path}/empty", START, "1"))
    assert empty.status_code == 400


def test_a_sub_offset_takes_a_part_of_a_large_body(client: httpx.Client, path: str) -> None:
    data = random.Random(7).randbytes(300_000)
    client.put(path, content=data)
    fork = f"{path}/fork"
    client.put(fork, headers=fork_of(path, START, "200001"))
    assert client.get(fork).content == data[:200_001]


def test_a_fork_and_its_source_are_closed_and_deleted_separately(
    client: httpx.Client, path: str
) -> None:
    fork, closed = f"{path}/fork", f"{path}/closed"
    client.put(path, content=b"x", headers=TEXT | CLOSE)
    created = client.put(fork, headers=fork_of(path))
    assert created.status_code == 201
    assert "stream-closed" not in created.headers
    assert client.post(fork, content=b"y", headers=TEXT).status_code == 204
    ended = client.put(closed, content=b"z", headers=fork_of(path) | CLOSE)
    assert (ended.status_code, ended.headers["stream-closed"]) == (201, "true")
    assert client.get(closed).headers["stream-closed"] == "true"
    assert client.delete(closed).status_code == 204
    assert client.delete(fork).status_code == 204
    assert client.get(path).content == b"x"
    assert client.delete(path).status_code == 204
    assert client.head(path).status_code == 404


@pytest.mark.parametrize("spelling", ["/ds/{}", "/v1/stream/{}", "/ds/%77{}"])
def test_the_source_may_be_given_in_any_encoding(
    client: httpx.Client, path: str, source: str, spelling: str
) -> None:
    assert source.startswith("w")
    name = spelling.format(source.removeprefix("w") if "%77" in spelling else source)
    answer = client.put(f"{path}/fork", headers={"stream-forked-from": name})
    assert answer.status_code == 201
    again = client.put(f"{path}/fork", headers=fork_of(source))
    assert again.status_code == 200


def test_concurrent_forks_and_deletes(client: httpx.Client, path: str) -> None:
    for n in range(4):
        source, fork = f"{path}/{n}/source", f"{path}/{n}/fork"
        client.put(source, content=b"data", headers=TEXT)
        with ThreadPoolExecutor(2) as pool:
            forked = pool.submit(client.put, fork, headers=fork_of(source))
            deleted = pool.submit(client.delete, source)
        assert deleted.result().status_code == 204
        if forked.result().status_code == 201:
            assert client.get(fork).content == b"data"
            assert client.head(source).status_code == 410
            client.delete(fork)
        else:
            assert forked.result().status_code in (404, 409)
        assert client.head(source).status_code == 404
