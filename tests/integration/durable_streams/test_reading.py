"""GET and HEAD: headers, exact bytes, and concurrent readers."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support.wire import CLOSE, START, TEXT, Connection, place, target

UNWANTED = ("stream-forked-from", "stream-fork-offset", "stream-fork-sub-offset", "server")


def test_a_read_returns_the_data_and_its_offset(client: httpx.Client, path: str) -> None:
    client.put(path, content=b"hello", headers={"content-type": "text/plain; charset=utf-8"})
    read = client.get(path)
    assert (read.status_code, read.content) == (200, b"hello")
    assert read.headers["content-type"] == "text/plain; charset=utf-8"
    assert read.headers["content-length"] == "5"
    assert place(read.headers["stream-next-offset"]) == f"{1:016d}_{5:016d}"
    assert read.headers["stream-up-to-date"] == "true"
    assert read.headers["etag"]
    assert "date" in read.headers
    assert "stream-closed" not in read.headers
    assert not [name for name in UNWANTED if name in read.headers]


def test_only_stream_closed_marks_the_end(client: httpx.Client, path: str) -> None:
    client.put(path, content=b"hello", headers=TEXT)
    assert "stream-closed" not in client.get(path).headers
    client.post(path, headers=CLOSE)
    for offset in (START, f"{1:016d}_{5:016d}", "now"):
        read = client.get(path, params={"offset": offset})
        assert read.headers["stream-closed"] == read.headers["stream-up-to-date"] == "true"


@pytest.mark.parametrize(
    ("headers", "seen"),
    [
        (TEXT, {}),
        (TEXT | {"stream-ttl": "3600"}, {"stream-ttl": "3600"}),
        (
            TEXT | {"stream-expires-at": "2040-01-01T00:00:00Z"},
            {"stream-expires-at": "2040-01-01T00:00:00.000Z"},
        ),
        (TEXT | CLOSE, {"stream-closed": "true"}),
    ],
)
def test_head_describes_the_stream(
    wire: Connection, path: str, headers: dict[str, str], seen: dict[str, str]
) -> None:
    wire.ask("PUT", target(path), headers, b"hello")
    answer = wire.ask("HEAD", target(path))
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain"
    assert place(answer.offset) == f"{1:016d}_{5:016d}"
    assert answer.headers["cache-control"] == "no-store"
    properties = ("stream-ttl", "stream-expires-at", "stream-closed")
    assert {name: answer.headers[name] for name in properties if name in answer.headers} == seen
    # There is no body, although Content-Length may say so: the next answer follows at once.
    assert wire.ask("GET", target(path)).body == b"hello"


def test_head_of_a_missing_stream_has_no_body(wire: Connection, path: str) -> None:
    for method in ("HEAD", "HEAD", "GET"):
        assert wire.ask(method, target(path)).status == 404


@pytest.mark.parametrize("size", [1, 65_537, (5 << 20) + 3], ids="{} bytes".format)
def test_bodies_of_every_size_are_returned_unchanged(
    client: httpx.Client, path: str, size: int
) -> None:
    data = random.Random(size).randbytes(size)
    client.put(path, content=data)
    client.post(path, content=data[::-1], headers={"content-type": "application/octet-stream"})
    whole, offset = b"", START
    while offset != client.head(path).headers["stream-next-offset"]:
        read = client.get(path, params={"offset": offset})
        whole, offset = whole + read.content, read.headers["stream-next-offset"]
    assert whole == data + data[::-1]


def test_concurrent_readers_see_a_prefix(client: httpx.Client, path: str) -> None:
    client.put(path, headers=TEXT)
    random_ = random.Random(5)
    bodies = [b"<%d %b>" % (n, b"." * random_.randrange(2000)) for n in range(60)]
    expected = b"".join(bodies)
    ends = {len(b"".join(bodies[: n + 1])) for n in range(len(bodies))} | {0}
    written = threading.Event()

    def read() -> int:
        reads = 0
        while not written.is_set():
            answer = client.get(path)
            reads += 1
            assert expected.startswith(answer.content)
            assert len(answer.content) in ends
            assert int(answer.headers["stream-next-offset"][17:]) == len(answer.content)
        return reads

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read) for _ in range(4)]
        try:
            for body in bodies:
                assert client.post(path, content=body, headers=TEXT).status_code == 204
        finally:
            written.set()
        assert all(reader.result() for reader in readers)
    assert client.get(path).content == expected
