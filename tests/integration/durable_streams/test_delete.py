"""DELETE, deleted sources of forks, and data that retention has deleted."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tailrace.settings import Settings
from tests.integration.durable_streams.conftest import SECONDS, local
from tests.support.wire import (
    CLOSE,
    JSON,
    START,
    TEXT,
    error_of,
    eventually,
    place,
    producer,
    target,
)

Ask = Callable[[httpx.Client, str], httpx.Response]


def test_deleting(client: httpx.Client, path: str) -> None:
    client.put(path, content=b"old", headers=TEXT)
    client.post(path, content=b"x", headers=TEXT | producer("p", 0, 0) | {"stream-seq": "z"})
    deleted = client.delete(path)
    assert (deleted.status_code, deleted.content) == (204, b"")
    for answer in (
        client.get(path),
        client.head(path),
        client.post(path, content=b"x", headers=TEXT),
        client.post(path, headers=CLOSE),
        client.delete(path),
    ):
        assert answer.status_code == 404


def test_a_new_stream_at_the_path_has_nothing_of_the_deleted_one(
    client: httpx.Client, path: str
) -> None:
    client.put(path, content=b"old", headers=TEXT | {"stream-ttl": "60"})
    client.post(path, content=b"x", headers=TEXT | producer("p", 9, 0) | {"stream-seq": "z"})
    client.post(path, headers=CLOSE)
    client.delete(path)
    created = client.put(path, headers=JSON)
    assert (created.status_code, place(created.headers["stream-next-offset"])) == (201, START)
    assert client.get(path).content == b"[]"
    fresh = JSON | producer("p", 0, 0) | {"stream-seq": "a"}
    assert client.post(path, content=b"1", headers=fresh).status_code == 200
    head = client.head(path)
    assert "stream-ttl" not in head.headers
    assert "stream-closed" not in head.headers


def test_one_of_many_concurrent_deletes_succeeds(client: httpx.Client, path: str) -> None:
    client.put(path, headers=TEXT)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.delete(path), range(8)))
    assert sorted(answer.status_code for answer in answers) == [204] + [404] * 7


def test_appending_while_deleting(client: httpx.Client, path: str) -> None:
    for n in range(3):
        stream = f"{path}/{n}"
        client.put(stream, headers=TEXT)

        def append(name: str = stream) -> int:
            return client.post(name, content=b"x", headers=TEXT).status_code

        with ThreadPoolExecutor(6) as pool:
            appends = [pool.submit(append) for _ in range(8)]
            deleted = pool.submit(client.delete, stream)
            appends += [pool.submit(append) for _ in range(8)]
        assert deleted.result().status_code == 204
        assert {append.result() for append in appends} <= {204, 404}
        assert client.head(stream).status_code == 404


SOFT: dict[str, tuple[Ask, int, str]] = {
    "GET": (lambda client, path: client.get(path), 410, "STREAM_GONE"),
    "long-poll": (
        lambda client, path: client.get(path, params={"live": "long-poll", "offset": "now"}),
        410,
        "STREAM_GONE",
    ),
    "SSE": (
        lambda client, path: client.get(path, params={"live": "sse", "offset": "now"}),
        410,
        "STREAM_GONE",
    ),
    "POST": (
        lambda client, path: client.post(path, content=b"x", headers=TEXT),
        410,
        "STREAM_GONE",
    ),
    "POST nothing": (lambda client, path: client.post(path), 410, "STREAM_GONE"),
    "close": (lambda client, path: client.post(path, headers=CLOSE), 410, "STREAM_GONE"),
    "close by a producer": (
        lambda client, path: client.post(path, headers=CLOSE | producer("p", 0, 0)),
        410,
        "STREAM_GONE",
    ),
    "DELETE": (lambda client, path: client.delete(path), 410, "STREAM_GONE"),
    "PUT": (lambda client, path: client.put(path, headers=TEXT), 409, "STREAM_CONFLICT"),
    "fork": (
        lambda client, path: client.put(
            f"{path}/2", headers={"stream-forked-from": f"/v1/stream/{path}"}
        ),
        409,
        "STREAM_CONFLICT",
    ),
    "fork again": (
        lambda client, path: client.put(
            f"{path}/fork", headers={"stream-forked-from": f"/v1/stream/{path}"}
        ),
        200,
        "",
    ),
}


@pytest.mark.parametrize(("ask", "status", "code"), SOFT.values(), ids=SOFT)
def test_a_deleted_stream_with_forks(
    client: httpx.Client, path: str, ask: Ask, status: int, code: str
) -> None:
    client.put(path, headers=TEXT)
    client.post(path, content=b"x", headers=TEXT | producer("w", 0, 0))
    client.put(f"{path}/fork", headers={"stream-forked-from": f"/v1/stream/{path}"})
    assert client.delete(path).status_code == 204
    assert client.head(path).status_code == 410
    answer = ask(client, path)
    assert answer.status_code == status
    if code:
        assert error_of(answer)["code"] == code
    assert client.get(f"{path}/fork").content == b"x"


def test_deleting_the_last_fork_deletes_its_deleted_ancestors(
    client: httpx.Client, path: str
) -> None:
    line = [f"{path}/{n}" for n in range(4)]
    client.put(line[0], content=b"0", headers=TEXT)
    for n in range(1, 4):
        client.put(
            line[n],
            content=b"%d" % n,
            headers={"stream-forked-from": f"/v1/stream/{line[n - 1]}"},
        )
    other = f"{path}/other"
    client.put(other, headers={"stream-forked-from": f"/v1/stream/{line[0]}"})
    for name in line[:3]:
        assert client.delete(name).status_code == 204
    assert [client.head(name).status_code for name in line] == [410, 410, 410, 200]
    assert client.get(line[3]).content == b"0123"
    assert client.delete(line[3]).status_code == 204
    assert client.head(line[3]).status_code == 404
    eventually(
        lambda: [client.head(name).status_code for name in line[:3]] == [410, 404, 404],
        seconds=SECONDS,
    )
    assert client.get(other).content == b"0"
    client.delete(other)
    eventually(lambda: client.head(line[0]).status_code == 404, seconds=SECONDS)
    assert client.put(line[0], headers=JSON).status_code == 201


def test_a_source_survives_its_forks(client: httpx.Client, path: str) -> None:
    client.put(path, content=b"x", headers=TEXT)
    for n in range(3):
        client.put(f"{path}/{n}", headers={"stream-forked-from": f"/v1/stream/{path}"})
    for n in range(3):
        assert client.delete(f"{path}/{n}").status_code == 204
    assert client.get(path).content == b"x"
    assert client.delete(path).status_code == 204
    assert client.head(path).status_code == 404


async def test_data_before_the_retention_limit_is_410(tmp_path: Path) -> None:
    """Retention is simulated by deleting the first two entries from the database."""
    settings = Settings(data=str(tmp_path / "data"))
    path = target("trimmed")
    async with local(settings) as client:
        await client.put(path, content=b"one", headers=TEXT)
        offsets = [START, f"{1:016d}_{3:016d}"]
        for body in (b"two", b"three", b"four"):
            appended = await client.post(path, content=body, headers=TEXT)
            offsets.append(appended.headers["stream-next-offset"])
    database = sqlite3.connect(tmp_path / "data" / "tailrace.db")
    with database:
        assert database.execute("DELETE FROM entries WHERE n < 2").rowcount == 2
    database.close()

    async with local(settings) as client:
        for query in ({}, {"live": "long-poll"}, {"live": "sse"}):
            for offset in offsets[:2]:
                answer = await client.get(path, params={**query, "offset": offset})
                assert answer.status_code == 410, query
                error = error_of(answer)
                assert error["code"] == "OFFSET_TRIMMED"
                assert offsets[2] in error["message"], "it says from where on there is data"
                assert answer.headers["cache-control"] == "no-store"
        # The beginning of the retained data, and not the offset of the first entry.
        for offset in ("-1", offsets[2], place(offsets[2])):
            assert (await client.get(path, params={"offset": offset})).content == b"threefour"
        stale = await client.get(path, params={"offset": f"9999{START[4:]}"})
        assert error_of(stale)["code"] == "STALE_OFFSET", "it is of another stream"
        assert (await client.get(path, params={"offset": offsets[4]})).content == b""
        assert (await client.head(path)).headers["stream-next-offset"] == offsets[4]
        assert (await client.post(path, content=b"five", headers=TEXT)).status_code == 204
        at = {"stream-forked-from": path, "stream-fork-offset": offsets[3]}
        fork = target("fork")
        assert (await client.put(fork, headers=at)).status_code == 201
        for offset in ("-1", offsets[2]):
            assert (await client.get(fork, params={"offset": offset})).content == b"three"
        assert (await client.get(fork, params={"offset": offsets[1]})).status_code == 410
