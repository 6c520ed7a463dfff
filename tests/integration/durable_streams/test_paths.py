"""Paths: encodings that name the same stream, different streams, or no stream."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from tests.support.wire import TEXT, Connection, target


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("~", "%7E"),
        ("-._0", "%2D%2E%5F%30"),
        ("a%2fb", "a%2Fb"),
        ("%c3%a9", "%C3%A9"),
        ("...", "%2e%2E."),
        ("a:@!$&'()*+,;=b", "a%3A%40%21%24%26%27%28%29%2A%2B%2C%3B%3Db"),
        ('a"<>^`{|}b', "a%22%3C%3E%5E%60%7B%7C%7Db"),
        ("a%20b", "a%20b"),
        ("%09%0d%0A%1F%7f%C2%80", "%09%0D%0a%1f%7F%c2%80"),
        ("%25", "%25"),
        ("x?offset=-1", "x"),
    ],
)
def test_paths_that_name_the_same_stream(wire: Connection, path: str, one: str, other: str) -> None:
    assert wire.ask("PUT", target(f"{path}/{one}"), TEXT, b"data").status == 201
    assert wire.ask("GET", target(f"{path}/{other}")).body == b"data"
    assert wire.ask("PUT", target(f"{path}/{other}"), TEXT).status == 200
    assert wire.ask("DELETE", target(f"{path}/{other}")).status == 204
    assert wire.ask("HEAD", target(f"{path}/{one}")).status == 404


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a/b", "a%2Fb"),
        ("a", "a/"),
        ("a/b", "a//b"),
        ("a", "A"),
        ("a%20b", "a+b"),
        ("%25%36%31", "%61"),
        ("e%CC%81", "%C3%A9"),
        ("x%3Fy", "x?y"),
        ("x%23y", "x"),
        ("a;v=1", "a"),
    ],
)
def test_paths_that_name_different_streams(
    wire: Connection, path: str, one: str, other: str
) -> None:
    assert wire.ask("PUT", target(f"{path}/{one}"), TEXT, b"one").status == 201
    assert wire.ask("GET", target(f"{path}/{other}")).status == 404
    assert wire.ask("PUT", target(f"{path}/{other}"), TEXT, b"other").status == 201
    assert wire.ask("GET", target(f"{path}/{one}")).body == b"one"
    assert wire.ask("GET", target(f"{path}/{other}")).body == b"other"


def test_both_prefixes_name_the_same_stream(wire: Connection, path: str) -> None:
    created = wire.ask("PUT", f"/ds/{path}", TEXT, b"data")
    assert (created.status, urlsplit(created.headers["location"]).path) == (201, f"/ds/{path}")
    read = wire.ask("GET", target(path))
    assert read.body == b"data"
    alias = wire.ask("GET", f"/ds/{path}?offset=-1")
    assert alias.headers["etag"] == read.headers["etag"]
    assert wire.ask("POST", f"/ds/{path}", TEXT, b"!").status == 204
    assert wire.ask("DELETE", target(path)).status == 204
    assert wire.ask("HEAD", target(path)).status == 404


@pytest.mark.parametrize(
    "path",
    [
        ".", "../x", "a/..", "a/./b", "%2E%2E", "a/%2e%2e/b", "..%00", "a%00b", "%FF", "%C3%28",
        "%ED%A0%80", "%C0%AF", "a%", "%2", "%2g", "",
    ],
)  # fmt: skip
def test_invalid_paths_are_refused(wire: Connection, path: str) -> None:
    for method in ("PUT", "GET"):
        answer = wire.ask(method, f"/v1/stream/{path}")
        assert (answer.status, answer.code) == (400, "BAD_PATH")


@pytest.mark.parametrize("path", ["\xc3\xa9", "\xff", "a\x00b", "a\x7fb", "a b"])
def test_bytes_outside_ascii_in_a_url_are_refused(wire: Connection, path: str) -> None:
    answer = wire.ask("PUT", target(path), TEXT)
    assert answer.status == 400
    assert answer.code == "BAD_REQUEST"


@pytest.mark.parametrize("path", ["...", "a..b", ".a/b."])
def test_dots_that_are_no_path_segments_are_accepted(wire: Connection, path: str) -> None:
    assert wire.ask("PUT", target(path), TEXT, b"dots").status == 201
    assert wire.ask("GET", target(path)).body == b"dots"


@pytest.mark.parametrize(
    "path",
    ["__ds", "__ds/other", "__d%73/x", "__ds?x=y"],
)
def test_reserved_paths_are_refused(wire: Connection, path: str) -> None:
    for prefix in ("/v1/stream/", "/ds/"):
        for method in ("PUT", "GET", "HEAD", "POST", "DELETE"):
            answer = wire.ask(method, prefix + path)
            assert answer.status == 404
            if method != "HEAD":
                assert answer.code == "NOT_FOUND"
    fork = {"stream-forked-from": "/v1/stream/__ds/x"}
    assert wire.ask("PUT", target(f"of-{len(path)}"), fork).status == 404


@pytest.mark.parametrize("path", ["__dsx", "x/__ds", "__DS"])
def test_paths_that_only_look_reserved_are_accepted(wire: Connection, path: str) -> None:
    assert wire.ask("PUT", target(path), TEXT).status == 201


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("L" * 1024, 201),
        ("M" * 1025, 414),
        ("%C3%A9" * 170, 201),
        ("%C3%A9" * 171, 414),
        ("q/" * 20_000, 414),
    ],
)
def test_the_length_of_a_path_is_limited(wire: Connection, path: str, status: int) -> None:
    answer = wire.ask("PUT", target(path), TEXT)
    assert answer.status == status
    if status == 414:
        assert answer.code == "PATH_TOO_LONG"
    # The connection can still be used.
    assert wire.ask("HEAD", target(path)).status == (200 if status == 201 else 414)
    assert wire.ask("POST", target(path), TEXT, b"x").status == (204 if status == 201 else 414)
    polled = wire.ask("GET", f"{target(path)}?offset=-1&live=long-poll")
    assert polled.status == (200 if status == 201 else 414)


@pytest.mark.parametrize("spelling", ["http://localhost/v1/stream/{}", "HTTP://other:1/ds/{}"])
def test_an_absolute_url_as_the_target(wire: Connection, path: str, spelling: str) -> None:
    wire.ask("PUT", target(path), TEXT, b"data")
    assert wire.ask("GET", spelling.format(path)).body == b"data"
    assert wire.ask("POST", spelling.format(path), TEXT, b"!").status == 204


@pytest.mark.parametrize(
    "prefix", ["/v1/stream", "/v1//stream/", "//v1/stream/", "/V1/stream/", "/DS/"]
)
def test_other_prefixes_are_refused(wire: Connection, path: str, prefix: str) -> None:
    answer = wire.ask("PUT", f"{prefix}/{path}" if prefix == "/v1//stream/" else prefix + path)
    assert answer.status in (400, 404, 405)
