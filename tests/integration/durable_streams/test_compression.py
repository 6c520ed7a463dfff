"""Content-Encoding: the choice of the encoding, which answers are compressed, and their ETags."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard

from tests.integration.durable_streams.conftest import Connect
from tests.support.events import EventStream
from tests.support.wire import CLOSE, JSON, TEXT, Answer, Connection, target

DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "br": lambda body: bytes(brotli.decompress(body)),
    "deflate": zlib.decompress,
    "zstd": lambda body: zstandard.ZstdDecompressor().decompressobj().decompress(body),
}
ANY = tuple(DECODERS)
NONE = (None,)
DATA = b"all work and no play makes jack a dull boy\n" * 50


def get(wire: Connection, path: str, accept: str | None, **query: str) -> Answer:
    headers = {} if accept is None else {"accept-encoding": accept}
    return wire.ask("GET", target(path, **query), headers)


def decoded(answer: Answer) -> bytes:
    encoding = answer.headers.get("content-encoding")
    assert int(answer.headers["content-length"]) == len(answer.body)
    return answer.body if encoding is None else DECODERS[encoding](answer.body)


@pytest.mark.parametrize(
    ("accept", "encodings"),
    [
        (None, NONE),
        ("", NONE),
        ("identity", NONE),
        ("gzip", ("gzip",)),
        ("br", ("br",)),
        ("zstd", ("zstd",)),
        ("GZip", ("gzip",)),
        ("gzip, deflate, br, zstd", ANY),
        ("*", ANY),
        ("gzip;q=0", NONE),
        ("*;q=0", NONE),
        ("gzip;q=0, *", ("br", "deflate", "zstd")),
        ("gzip;q=0.5, br;q=0.9", ("br",)),
        ("br;q=0.5,gzip;q=0.9,zstd;q=0.1", ("gzip",)),
        ("gzip;Q=0, br;Q=1", ("br",)),
        ("identity, gzip;q=0.5", NONE),
        ("identity;q=0.5, gzip;q=1.0", ("gzip",)),
    ],
)
def test_the_client_chooses_the_encoding(
    wire: Connection, path: str, accept: str | None, encodings: tuple[str | None, ...]
) -> None:
    wire.ask("PUT", target(path), TEXT, DATA)
    answer = get(wire, path, accept)
    assert answer.status == 200
    assert answer.headers.get("content-encoding") in encodings
    assert decoded(answer) == DATA
    assert answer.headers["vary"].lower() == "accept-encoding"
    if answer.headers.get("content-encoding"):
        assert len(answer.body) < len(DATA)


@pytest.mark.parametrize(
    "accept", ["gzip;q=x", "gzip;q=nan", ";", ",,,", "gzip;;q=1", "q=1", "\xff"]
)
def test_a_malformed_accept_encoding_is_no_error(wire: Connection, path: str, accept: str) -> None:
    wire.ask("PUT", target(path), TEXT, DATA)
    answer = get(wire, path, accept)
    assert (answer.status, decoded(answer)) == (200, DATA)


@pytest.mark.parametrize(
    ("kind", "body", "compressed"),
    [
        ("text/plain", b"x" * 1023, False),
        ("text/plain", b"x" * 1024, True),
        ("application/octet-stream", b"x" * 1024, True),
        ("application/json", b'"' + b"x" * 1019 + b'"', False),
        ("application/json", b'"' + b"x" * 1020 + b'"', True),
        ("image/svg+xml", b"x" * 2000, True),
        ("image/png", b"x" * 2000, False),
        ("application/zip", b"x" * 2000, False),
    ],
)
def test_compressible_bodies_above_the_limit_are_compressed(
    wire: Connection, path: str, kind: str, body: bytes, compressed: bool
) -> None:
    wire.ask("PUT", target(path), {"content-type": kind}, body)
    answer = get(wire, path, "gzip")
    assert ("content-encoding" in answer.headers) == compressed
    assert decoded(answer).strip(b"[]") == body


@pytest.mark.parametrize("size", [2_000, 300_000])
def test_every_encoding_has_its_own_etag(wire: Connection, path: str, size: int) -> None:
    data = (DATA * (size // len(DATA) + 1))[:size]
    wire.ask("PUT", target(path), TEXT, data)
    tags = dict[str, str]()
    for accept in ("identity", *ANY):
        for _ in range(2):
            answer = get(wire, path, accept)
            assert decoded(answer) == data
            assert tags.setdefault(accept, answer.headers["etag"]) == answer.headers["etag"]
    assert len(set(tags.values())) == 5
    for accept, held in tags.items():
        for other in tags:
            headers = {"accept-encoding": other, "if-none-match": held}
            answer = wire.ask("GET", target(path), headers)
            assert answer.status == (304 if other == accept else 200)
            assert answer.headers["vary"].lower() == "accept-encoding"
            if answer.status == 304:
                assert "content-encoding" not in answer.headers


def test_closing_gives_compressed_bytes_a_new_etag(wire: Connection, path: str) -> None:
    wire.ask("PUT", target(path), JSON, b"[" + b",".join([b'"abc"'] * 900) + b"]")
    before = get(wire, path, "zstd")
    wire.ask("POST", target(path), CLOSE)
    after = get(wire, path, "zstd")
    assert decoded(before) == decoded(after)
    assert before.headers["etag"] != after.headers["etag"]


def test_a_long_poll_is_compressed_too(wire: Connection, path: str) -> None:
    wire.ask("PUT", target(path), TEXT, DATA)
    answer = get(wire, path, "br", live="long-poll", offset="-1")
    assert (answer.headers["content-encoding"], decoded(answer)) == ("br", DATA)


def test_other_answers_are_not_compressed(connect: Connect, wire: Connection, path: str) -> None:
    wire.ask("PUT", target(path), TEXT, DATA)
    gzip_please = {"accept-encoding": "gzip"}
    for method, where in (
        ("HEAD", target(path)),
        ("GET", target(path, offset="now")),
        ("GET", target(path, offset="x")),
        ("GET", target("x" * 3000)),
    ):
        assert "content-encoding" not in wire.ask(method, where, gzip_please).headers
    events = EventStream(connect(), path, headers=gzip_please)
    assert "content-encoding" not in events.headers
    assert events.pair()[0] == DATA.decode()
