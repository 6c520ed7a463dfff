"""Which secrets apply to what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tailrace.auth.keys import Keys
from tailrace.settings import Settings
from tests.support.auth import hex_mac

BROADCAST_KEYS = json.loads((Path(__file__).parent / "vectors.json").read_text())["broadcast_keys"]


def keys(**given: Any) -> Keys:
    return Keys.of(Settings(**given))


def test_without_secrets_there_are_no_keys() -> None:
    assert keys() == Keys((), (), (), (), ())


def test_one_secret_is_enough_for_everything() -> None:
    ours = keys(secret="s")
    assert ours.streams == ours.turbo == ours.cable_ready == ours.jwt == (b"s",)
    assert ours.broadcast == (hex_mac("s", "broadcast-cable").encode(),)


@pytest.mark.parametrize(
    ("given", "streams", "turbo", "cable_ready"),
    [
        ({"streams_secret": "b"}, b"b", b"b", b"b"),
        ({"turbo_streams_secret": "c"}, b"a", b"c", b"a"),
        ({"cable_ready_secret": "d"}, b"a", b"a", b"d"),
        ({"streams_secret": "b", "turbo_streams_secret": "c"}, b"b", b"c", b"b"),
        ({"streams_secret": "b", "cable_ready_secret": "d"}, b"b", b"b", b"d"),
    ],
)
def test_special_secrets_come_before_general_ones(
    given: dict[str, str], streams: bytes, turbo: bytes, cable_ready: bytes
) -> None:
    ours = keys(secret="a", **given)
    assert (ours.streams, ours.turbo, ours.cable_ready) == ((streams,), (turbo,), (cable_ready,))
    assert ours.jwt == (b"a",)


def test_the_secrets_of_streams_and_tokens_do_not_stand_in_for_each_other() -> None:
    assert keys(streams_secret="b").jwt == ()
    assert keys(jwt_secret="b").streams == ()
    assert keys(turbo_streams_secret="b").streams == ()
    assert keys(streams_secret="b", jwt_secret="c").broadcast == ()


def test_none_is_no_secret_and_nothing_stands_in_for_it() -> None:
    assert keys(secret="none") == Keys((), (), (), (), ())
    assert keys(secret="a", streams_secret="none").streams == ()
    assert keys(secret="a", streams_secret="none").turbo == ()
    assert keys(secret="a", turbo_streams_secret="none").turbo == ()
    assert keys(secret="a", turbo_streams_secret="none").streams == (b"a",)
    assert keys(secret="a", jwt_secret=" none ").jwt == ()
    assert keys(secret="a", broadcast_key="none").broadcast == ()


def test_a_setting_may_hold_several() -> None:
    assert keys(secret=" a\tb\n c ").streams == (b"a", b"b", b"c")
    derived = tuple(hex_mac(each, "broadcast-cable").encode() for each in "ab")
    assert keys(secret="a b").broadcast == derived


def test_white_space_is_no_secret() -> None:
    assert keys(secret="a", streams_secret=" \n").streams == (b"a",)
    assert keys(secret=" ") == Keys((), (), (), (), ())


def test_a_secret_may_have_any_bytes() -> None:
    assert keys(secret="é").streams == ("é".encode(),)
    assert keys(secret=b"\xff".decode(errors="surrogateescape")).streams == (b"\xff",)


@pytest.mark.parametrize("vector", BROADCAST_KEYS, ids=lambda vector: str(vector["secret"]))
def test_the_key_of_broadcasts_is_derived_as_anycable_does(vector: dict[str, str]) -> None:
    ours = keys(secret=vector["secret"])
    assert ours.broadcasts(vector["key"])
    for other in (vector["secret"], "", vector["key"].upper(), vector["key"] + " ", "é"):
        assert not ours.broadcasts(other)


def test_a_key_of_broadcasts_that_is_given_counts_alone() -> None:
    ours = keys(secret="s3Krit", broadcast_key="k e")
    assert ours.broadcasts("k")
    assert ours.broadcasts("e")
    assert not ours.broadcasts(BROADCAST_KEYS[0]["key"])
    assert not keys().broadcasts("")


def test_keys_are_not_shown() -> None:
    shown = f"{keys(secret='s3Krit')} {keys(secret='s3Krit')!r}"
    assert "s3Krit" not in shown
    assert BROADCAST_KEYS[0]["key"] not in shown
