from __future__ import annotations

import click
import pytest

from tailrace.cli.address import address_of, locate

SERVER = "http://h:4437"


@pytest.mark.parametrize(
    ("argument", "path"),
    [
        ("chat/room-1", "chat/room-1"),
        ("/chat/room-1", "chat/room-1"),
        ("a b/c?d#e", "a%20b/c%3Fd%23e"),
        ("50%/100%25", "50%25/100%2525"),
        ("grüße", "gr%C3%BC%C3%9Fe"),
        ("a:b@c;d", "a:b@c;d"),
        ("a//b/", "a//b/"),
        ("\udcff", "%FF"),
    ],
)
def test_a_path_is_encoded_segment_by_segment(argument: str, path: str) -> None:
    assert locate(argument, SERVER).url == f"{SERVER}/v1/stream/{path}"


def test_the_server_may_have_a_path_and_a_final_slash() -> None:
    assert locate("s", "https://h/base/").url == "https://h/base/v1/stream/s"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("chat/room-1", "chat/room-1"),
        ("my%20room/%C3%BC", "my room/ü"),
        ("a%2525", "a%25"),
        ("a%2Fb", f"{SERVER}/v1/stream/a%2Fb"),
        ("%41", f"{SERVER}/v1/stream/%41"),
        ("a%09b", f"{SERVER}/v1/stream/a%09b"),
    ],
)
def test_listed_path_gets_a_name_that_locates_it(path: str, name: str) -> None:
    address = address_of(path, SERVER)
    assert address.name == name
    assert locate(name, SERVER).url == address.url == f"{SERVER}/v1/stream/{path}"


@pytest.mark.parametrize("url", ["http://h/v1/stream/a%2Fb%20c", "https://u:p@h:1/x?token=1"])
def test_a_full_url_is_unchanged(url: str) -> None:
    assert locate(url, SERVER).url == url


def test_origin_excludes_credentials() -> None:
    assert locate("https://u:p@h:1/x", SERVER).origin == "https://h:1"


@pytest.mark.parametrize(
    "argument", ["", "/", "a/../b", ".", "http://", "http://[x", "http://h:x/", "http://h/\x7f"]
)
def test_invalid_stream_names_are_usage_errors(argument: str) -> None:
    with pytest.raises(click.BadParameter):
        locate(argument, SERVER)
