"""Which secret is used for which purpose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tailrace.auth.keys import Keys, is_key
from tailrace.settings import Settings
from tests.support.auth import hex_mac

BROADCAST_KEYS = json.loads((Path(__file__).parent / "vectors.json").read_text())["broadcast_keys"]


def keys(**overrides: Any) -> Keys:
    return Keys.from_settings(Settings(**overrides))


def test_without_secrets_there_are_no_keys() -> None:
    assert keys() == Keys((), (), (), (), (), (), (), ())


def test_one_secret_is_enough_for_everything() -> None:
    ours = keys(secret="s")
    assert ours.streams == ours.turbo == ours.cable_ready == ours.jwt == (b"s",)
    assert ours.broadcast == (hex_mac("s", "broadcast-cable").encode(),)


@pytest.mark.parametrize(
    ("overrides", "streams", "turbo", "cable_ready"),
    [
        ({"streams_secret": "b"}, b"b", b"b", b"b"),
        ({"turbo_streams_secret": "c"}, b"a", b"c", b"a"),
        ({"cable_ready_secret": "d"}, b"a", b"a", b"d"),
        ({"streams_secret": "b", "turbo_streams_secret": "c"}, b"b", b"c", b"b"),
        ({"streams_secret": "b", "cable_ready_secret": "d"}, b"b", b"b", b"d"),
    ],
)
def test_specific_secrets_override_general_ones(
    overrides: dict[str, str], streams: bytes, turbo: bytes, cable_ready: bytes
) -> None:
    ours = keys(secret="a", **overrides)
    assert (ours.streams, ours.turbo, ours.cable_ready) == ((streams,), (turbo,), (cable_ready,))
    assert ours.jwt == (b"a",)


def test_secrets_of_streams_and_tokens_are_independent() -> None:
    assert keys(streams_secret="b").jwt == ()
    assert keys(jwt_secret="b").streams == ()
    assert keys(turbo_streams_secret="b").streams == ()
    assert keys(streams_secret="b", jwt_secret="c").broadcast == ()


def test_none_disables_a_secret_without_fallback() -> None:
    assert keys(secret="none") == Keys((), (), (), (), (), (), (), ())
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
    assert keys(secret=" ") == Keys((), (), (), (), (), (), (), ())


def test_a_secret_may_have_any_bytes() -> None:
    assert keys(secret="é").streams == ("é".encode(),)
    assert keys(secret=b"\xff".decode(errors="surrogateescape")).streams == (b"\xff",)


@pytest.mark.parametrize("vector", BROADCAST_KEYS, ids=lambda vector: str(vector["secret"]))
def test_broadcast_key_is_derived_as_in_anycable(vector: dict[str, str]) -> None:
    ours = keys(secret=vector["secret"])
    assert is_key(vector["key"], ours.broadcast)
    for other in (vector["secret"], "", vector["key"].upper(), vector["key"] + " ", "é"):
        assert not is_key(other, ours.broadcast)


def test_configured_broadcast_key_replaces_the_derived_one() -> None:
    ours = keys(secret="s3Krit", broadcast_key="k e")
    assert is_key("k", ours.broadcast)
    assert is_key("e", ours.broadcast)
    assert not is_key(BROADCAST_KEYS[0]["key"], ours.broadcast)
    assert not is_key("", keys().broadcast)


def test_api_key_is_derived_as_in_anycable() -> None:
    assert keys(secret="s3Krit").api == (
        b"1db397202b5bd68b12665b638515c3aeac9100f721fd7c4fcb6f29c69f32c886",
    )
    assert keys(secret="s3Krit", api_secret="k").api == (b"k",)
    assert keys(secret="s3Krit", api_secret="none").api == ()


def test_key_of_calls_is_derived_as_in_anycable() -> None:
    assert keys(secret="s3Krit").rpc == (
        b"08ac56f1562c6377ddd5d2d55cee2e35e117a55959d6a6ea3a63548ef0a7e559",
    )
    assert keys(secret="s3Krit", http_rpc_secret="k").rpc == (b"k",)


def test_repr_hides_keys() -> None:
    shown = f"{keys(secret='s3Krit')} {keys(secret='s3Krit')!r}"
    assert "s3Krit" not in shown
    assert BROADCAST_KEYS[0]["key"] not in shown
