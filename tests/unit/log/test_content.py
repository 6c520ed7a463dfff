from __future__ import annotations

import pytest

from tailrace.errors import BadHeader
from tailrace.limits import CONTENT_TYPE_BYTES
from tailrace.log.content import (
    DEFAULT_TYPE,
    Mode,
    check_type,
    join_bodies,
    length,
    media_type,
    mode,
)


@pytest.mark.parametrize(
    "same",
    [
        "text/plain",
        "TEXT/PLAIN",
        "Text/Plain",
        "text/plain;charset=utf-8",
        "text/plain; charset=utf-8",
        "text/plain ; charset=utf-8",
        "text/plain\t;charset=utf-8",
        "text/plain; charset=iso-8859-1; format=flowed",
        "text/plain;",
    ],
)
def test_types_are_equal_regardless_of_case_and_parameters(same: str) -> None:
    assert media_type(same) == media_type("text/plain")


@pytest.mark.parametrize(
    "other", ["text/html", "text/plain2", "text/plai", "application/json", "text/plain+json"]
)
def test_other_types_are_not_equal(other: str) -> None:
    assert media_type(other) != media_type("text/plain")


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("application/json", Mode.JSON),
        ("Application/JSON", Mode.JSON),
        ("application/json; charset=utf-8", Mode.JSON),
        ("application/ndjson", Mode.BYTES),
        ("application/json-seq", Mode.BYTES),
        ("application/vnd.api+json", Mode.BYTES),
        ("text/json", Mode.TEXT),
        ("text/plain", Mode.TEXT),
        ("TEXT/HTML; charset=utf-8", Mode.TEXT),
        ("application/octet-stream", Mode.BYTES),
        ("application/xml", Mode.BYTES),
        ("textual/plain", Mode.BYTES),
        ("image/png", Mode.BYTES),
    ],
)
def test_the_type_chooses_the_mode(content_type: str, expected: Mode) -> None:
    assert mode(content_type) is expected


def test_the_default_is_plain_bytes() -> None:
    assert DEFAULT_TYPE == "application/octet-stream"
    assert mode(DEFAULT_TYPE) is Mode.BYTES


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "TEXT/Plain",
        "application/vnd.api+json",
        "application/x-foo_bar.baz-1",
        "text/plain;charset=utf-8",
        'text/plain; charset="utf-8"; x="a b;c"',
        "multipart/mixed; boundary=----x",
        "x/y",
        "*/*",
    ],
)
def test_a_media_type_is_kept_unchanged(content_type: str) -> None:
    assert check_type(content_type) == content_type


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        " ",
        "text",
        "text/",
        "/plain",
        "/",
        "text//plain",
        "text/plain/x",
        "text /plain",
        "text/ plain",
        " text/plain",
        "text/plain ",
        "text/plain x",
        "text/plain, text/html",
        "text/plain\n",
        "text/plain\r\nX-Evil: 1",
        "text/plain;\r\nX-Evil: 1",
        "text/plain; a=\0",
        "text/plain; a=\x7f",
        "text/pläin",
        "text/plain; a=ä",
        "invalid",
        "(text)/plain",
    ],
)
def test_an_invalid_media_type_is_rejected(content_type: str) -> None:
    with pytest.raises(BadHeader):
        check_type(content_type)


def test_a_type_may_be_as_long_as_the_limit_and_no_longer() -> None:
    longest = "text/" + "x" * (CONTENT_TYPE_BYTES - 5)
    assert check_type(longest) == longest
    with pytest.raises(BadHeader):
        check_type(longest + "x")


@pytest.mark.parametrize(
    ("kind", "bodies", "expected"),
    [
        (Mode.JSON, [], b"[]"),
        (Mode.JSON, [b"1"], b"[1]"),
        (Mode.JSON, [b'1,{"a":[2]}', b"null"], b'[1,{"a":[2]},null]'),
        (Mode.BYTES, [], b""),
        (Mode.BYTES, [b"\x00\xff"], b"\x00\xff"),
        (Mode.BYTES, [b"a", b"b"], b"ab"),
        (Mode.TEXT, [], b""),
        (Mode.TEXT, [b"a"], b"a"),
        (Mode.TEXT, [b"a\n", b"b\n"], b"a\nb\n"),
    ],
)
def test_stored_bodies_join_into_one_response(
    kind: Mode, bodies: list[bytes], expected: bytes
) -> None:
    assert join_bodies(kind, bodies) == expected


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        (Mode.BYTES, b"\x00,\xff", 3),
        (Mode.TEXT, "ä,b".encode(), 4),
        (Mode.JSON, b"1", 1),
        (Mode.JSON, b'{"a":[1,2]}, "x,y" ,null', 3),
    ],
)
def test_a_stored_body_moves_the_offset_by_bytes_or_messages(
    kind: Mode, body: bytes, expected: int
) -> None:
    assert length(kind, body) == expected
