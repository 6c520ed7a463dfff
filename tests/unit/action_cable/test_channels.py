from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.auth.authorizer import Authorizer
from tailrace.auth.signed_names import sign
from tailrace.protocols.action_cable.core.channels import Channels, Subscription
from tailrace.settings import Settings

SECRET = "s3Krit"


def admitted(fields: Any, **settings: Any) -> Subscription | None:
    chosen = Settings(**{"secret": SECRET, **settings})
    identifier = fields if isinstance(fields, str) else json.dumps(fields)
    found = Channels(Authorizer(chosen), chosen).authorize(identifier)
    assert found is None or found.identifier == identifier
    return found


def signed(name: str, secret: str = SECRET, **more: Any) -> dict[str, Any]:
    return {"channel": "$pubsub", "signed_stream_name": sign(name, secret), **more}


def turbo(name: str, secret: str = SECRET) -> dict[str, Any]:
    return {"channel": "Turbo::StreamsChannel", "signed_stream_name": sign(name, secret)}


def cable_ready(name: str, secret: str = SECRET) -> dict[str, Any]:
    return {"channel": "CableReady::Stream", "identifier": sign(name, secret)}


def public(name: Any) -> dict[str, Any]:
    return {"channel": "$pubsub", "stream_name": name}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("chat/42", "chat/42"),
        ("chat:2021", "chat:2021"),
        ("Raum/é", "Raum/%C3%A9"),
        ("a\tb\n", "a%09b%0A"),
    ],
)
def test_a_signed_name_is_the_stream_at_its_path(name: str, path: str) -> None:
    found = admitted(signed(name))
    assert found is not None
    assert (found.stream, found.path) == (name, path)


def test_fields_that_nobody_asks_for_are_the_clients_own_affair() -> None:
    found = admitted(signed("chat/1", id=7, locale="de"))
    assert found is not None
    assert found.stream == "chat/1"


def test_signed_names_take_precedence() -> None:
    found = admitted({**public("open/1"), **signed("chat/1")}, public_streams="true")
    assert found is not None
    assert found.stream == "chat/1"
    forged = {**public("open/1"), "signed_stream_name": "x"}
    assert admitted(forged, public_streams="true") is None


@pytest.mark.parametrize(
    "fields",
    [
        signed("chat/1", "another"),
        {"channel": "$pubsub", "signed_stream_name": sign("chat/1", SECRET)[:-1]},
        {"channel": "$pubsub", "signed_stream_name": 7},
        {"channel": "$pubsub"},
        {"channel": ["$pubsub"], "signed_stream_name": sign("chat/1", SECRET)},
        {"channel": "ChatChannel", "signed_stream_name": sign("chat/1", SECRET)},
        {"signed_stream_name": sign("chat/1", SECRET)},
        signed("__ds/subscriptions"),
        signed("a/../b"),
        signed("a\0b"),
        signed("x" * 1025),
        "not JSON",
        "[]",
        "",
    ],
)
def test_anything_else_is_not_admitted(fields: Any) -> None:
    assert admitted(fields, public_streams="true") is None


# Public streams


def test_a_public_stream_is_named_as_it_is() -> None:
    assert admitted(public("open/1"), public_streams="open/*") is not None
    assert admitted(public("chat/1"), public_streams="open/*") is None
    assert admitted(public("chat/1")) is None


@pytest.mark.parametrize("name", ["", None, 7, ["open/1"], "\ud800"])
def test_invalid_names_are_not_public(name: Any) -> None:
    assert admitted(public(name), public_streams="true") is None


def test_on_an_open_server_every_stream_is_public() -> None:
    assert admitted(public("chat/1"), secret="") is not None


# Secrets


def test_without_a_secret_nothing_is_signed() -> None:
    from tailrace.auth.signed_names import _mac

    encoded = sign("chat/1", SECRET).partition("--")[0]
    token = f"{encoded}--{_mac(encoded.encode(), b'')}"
    fields = {"channel": "$pubsub", "signed_stream_name": token}
    assert admitted(fields, secret="") is None
    assert admitted(fields, secret="", public_streams="open/*") is None
    assert admitted({**fields, "channel": "Turbo::StreamsChannel"}, turbo_streams=True) is None


def test_turbo_and_cable_ready_are_on_by_their_switches() -> None:
    assert admitted(turbo("chat/1")) is None
    assert admitted(cable_ready("chat/1")) is None
    assert admitted(turbo("chat/1"), turbo_streams=True) is not None
    assert admitted(cable_ready("chat/1"), cable_ready=True) is not None
    assert admitted(turbo("chat/1"), cable_ready=True) is None


def test_each_channel_has_its_own_secret_or_that_of_signed_names() -> None:
    secrets = {
        "streams_secret": "streams",
        "turbo_streams_secret": "turbo",
        "cable_ready_secret": "ready",
        "turbo_streams": True,
        "cable_ready": True,
    }
    for fields in (signed("a", "streams"), turbo("a", "turbo"), cable_ready("a", "ready")):
        assert admitted(fields, **secrets) is not None
    for fields in (signed("a"), turbo("a", "streams"), cable_ready("a", "turbo")):
        assert admitted(fields, **secrets) is None
    inherited = {"streams_secret": "streams", "turbo_streams": True}
    assert admitted(turbo("a", "streams"), **inherited) is not None
    cleared = {"turbo_streams_secret": "none", "turbo_streams": True}
    assert admitted(turbo("a"), **cleared) is None


# What else may be done there


@pytest.mark.parametrize(
    ("fields", "settings", "whispers", "presence"),
    [
        (public("open/1"), {"public_streams": "true"}, True, True),
        (signed("chat/1"), {}, False, True),
        (signed("chat/1"), {"streams_whisper": True}, True, True),
        (signed("chat/1"), {"streams_presence": False}, False, False),
        (turbo("chat/1"), {"turbo_streams": True, "streams_whisper": True}, False, False),
        (cable_ready("chat/1"), {"cable_ready": True, "streams_whisper": True}, False, False),
    ],
)
def test_permissions_for_whispers_and_presence(
    fields: Any, settings: dict[str, Any], whispers: bool, presence: bool
) -> None:
    found = admitted(fields, **settings)
    assert found is not None
    assert (found.whispers, found.presence) == (whispers, presence)
