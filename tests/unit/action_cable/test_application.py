"""The calls of an application, and the effects of its answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from tailrace.auth.authorizer import Authorizer
from tailrace.limits import CABLE_IDENTIFIER_BYTES, CABLE_SUBSCRIPTIONS
from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.application import (
    FAILED,
    Answer,
    ApplicationSession,
    Status,
    parse_answer,
)
from tailrace.protocols.action_cable.core.channels import Channels, Subscription
from tailrace.protocols.action_cable.core.commands import Command, MissedMessages
from tailrace.protocols.action_cable.core.effects import (
    ApplicationCall,
    Attach,
    Detach,
    Effect,
    End,
    Join,
    Leave,
    Register,
    Release,
    Replay,
    Send,
    Whisper,
)
from tailrace.protocols.action_cable.core.session import EarlierSession, Session
from tailrace.settings import Settings

CHAT = json.dumps({"channel": "ChatChannel", "room": 1})
ENV = {"url": "http://localhost/cable", "headers": {"cookie": "a=1"}}
CONFIRMED = frames.confirm_subscription(CHAT)
HISTORY = MissedMessages(1, {})


def session_of(identity: str | None = None, **settings: Any) -> Session:
    chosen = Settings(secret="s3Krit", **settings)
    application = ApplicationSession(str(ENV["url"]), {"cookie": "a=1"}, identity or "")
    return Session("sid-1", identity, Channels(Authorizer(chosen), chosen), application)


@pytest.fixture
def session() -> Session:
    session = session_of()
    answered(session.begin(), connected())
    return session


@pytest.fixture
def subscribed(session: Session) -> Session:
    state = {"$w": "room", "$p": "room", "n": "1"}
    answer = success(streams=["room"], transmissions=[CONFIRMED], istate=state)
    answered(session.receive(Command("subscribe", CHAT)), answer)
    return session


def success(**fields: Any) -> Answer:
    return Answer(Status.SUCCESS, **fields)


def connected(**fields: Any) -> Answer:
    welcome = {"transmissions": ['{"type":"welcome"}'], "identifiers": "ada"}
    return success(**{**welcome, "cstate": {"c": "1"}, **fields})


def only_call(effects: Sequence[Effect]) -> ApplicationCall:
    (call,) = effects
    assert isinstance(call, ApplicationCall)
    return call


def answered(effects: Sequence[Effect], answer: Answer) -> Sequence[Effect]:
    return only_call(effects).then(answer)


def request(effects: Sequence[Effect]) -> Any:
    return orjson.loads(only_call(effects).body)


def stream(name: str = "room") -> Subscription:
    return Subscription(CHAT, name, name, whispers=True, presence=True)


# Connecting


def test_a_client_without_a_token_is_connected_by_the_application() -> None:
    session = session_of()
    effects = session.begin()
    assert (only_call(effects).method, request(effects)) == ("connect", {"env": ENV})
    assert answered(effects, connected()) == [Register(), Send('{"type":"welcome"}')]
    assert session.identity == "ada"


def test_a_client_with_a_token_is_connected_without_a_call() -> None:
    session = session_of("ada")
    assert session.begin() == [Register(), Send(frames.welcome("sid-1"))]
    assert session.end() is None
    asked = request(session.receive(Command("subscribe", CHAT)))
    assert asked["connection_identifiers"] == "ada"


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (FAILED, End("server_restart", reconnect=True)),
        (Answer(Status.FAILURE), End("unauthorized", reconnect=False)),
        (
            Answer(Status.FAILURE, transmissions=['{"type":"disconnect","reason":"why"}']),
            End("why", reconnect=False),
        ),
        (
            Answer(Status.FAILURE, transmissions=["1", '{"type":"disconnect","reconnect":true}']),
            End("unauthorized", reconnect=True),
        ),
    ],
)
def test_a_refused_client_gets_one_disconnect_with_the_flag(answer: Answer, end: End) -> None:
    assert answered(session_of().begin(), answer) == [end]


def test_an_application_need_not_name_an_identity() -> None:
    session = session_of()
    found = []

    def find(identity: str | None) -> None:
        found.append(identity)

    answered(session.begin(find), connected(identifiers=""))
    assert session.identity == '{"sid":"sid-1"}'
    assert found == [None], "sessions of others must not be found"


def test_the_application_is_told_of_the_end_of_what_it_knows(subscribed: Session) -> None:
    call = subscribed.end()
    assert call is not None
    state = {"$w": "room", "$p": "room", "n": "1"}
    assert orjson.loads(call.body) == {
        "identifiers": "ada",
        "subscriptions": [CHAT],
        "env": {**ENV, "cstate": {"c": "1"}, "istate": {CHAT: orjson.dumps(state).decode()}},
    }


# Subscribing


def test_a_subscription_is_what_the_application_makes_it(session: Session) -> None:
    effects = session.receive(Command("subscribe", CHAT, history=HISTORY))
    assert request(effects) == {
        "command": "subscribe",
        "identifier": CHAT,
        "connection_identifiers": "ada",
        "data": "",
        "env": {**ENV, "cstate": {"c": "1"}, "istate": {}},
    }
    answer = success(streams=["a", "b", "a", "", "__ds/x"], transmissions=[CONFIRMED])
    a, b = stream("a"), stream("b")
    assert answered(effects, answer) == [
        Attach(a), Attach(b), Send(CONFIRMED), Replay(CHAT, (a, b), HISTORY),
    ]  # fmt: skip


def test_without_history_new_messages_follow_the_confirmation(session: Session) -> None:
    effects = session.receive(Command("subscribe", CHAT))
    answer = success(streams=["room"], transmissions=[CONFIRMED])
    assert answered(effects, answer) == [Attach(stream()), Send(CONFIRMED), Release(stream())]


def test_a_repeated_subscribe_is_confirmed_without_a_call(subscribed: Session) -> None:
    assert subscribed.receive(Command("subscribe", CHAT)) == [Send(CONFIRMED)]
    again = subscribed.receive(Command("subscribe", CHAT, history=HISTORY))
    assert again == [Send(CONFIRMED), Replay(CHAT, (stream(),), HISTORY)]


@pytest.mark.parametrize(
    ("answer", "frame"),
    [
        (FAILED, frames.reject_subscription(CHAT)),
        (Answer(Status.FAILURE), frames.reject_subscription(CHAT)),
        (Answer(Status.FAILURE, transmissions=['{"no":1}']), '{"no":1}'),
    ],
)
def test_a_subscription_is_rejected(session: Session, answer: Answer, frame: str) -> None:
    assert answered(session.receive(Command("subscribe", CHAT)), answer) == [Send(frame)]
    assert session.receive(Command("message", CHAT, "x")) == []


@pytest.mark.parametrize(
    "identifier",
    [
        "no JSON",
        "[]",
        '{"channel":"$pubsub"}',
        '{"channel":"Turbo::StreamsChannel"}',
        json.dumps({"channel": "ChatChannel", "x": "x" * CABLE_IDENTIFIER_BYTES}),
    ],
)
def test_other_identifiers_are_rejected_without_a_call(identifier: str) -> None:
    session = session_of(turbo_streams=True)
    answered(session.begin(), connected())
    effects = session.receive(Command("subscribe", identifier))
    assert effects == [Send(frames.reject_subscription(identifier))]


def test_a_disabled_channel_is_left_to_the_application(session: Session) -> None:
    for name in ("Turbo::StreamsChannel", "CableReady::Stream"):
        call = only_call(session.receive(Command("subscribe", json.dumps({"channel": name}))))
        assert call.method == "command"


def test_a_client_follows_so_many_streams_at_most(session: Session) -> None:
    streams = [str(number) for number in range(CABLE_SUBSCRIPTIONS + 9)]
    answered(session.receive(Command("subscribe", CHAT)), success(streams=streams))
    assert sum(1 for _ in session.followed()) == CABLE_SUBSCRIPTIONS


def test_a_client_has_so_many_channels_at_most(session: Session) -> None:
    for number in range(CABLE_SUBSCRIPTIONS):
        identifier = json.dumps({"channel": "ChatChannel", "room": f"r{number}"})
        answered(session.receive(Command("subscribe", identifier)), success())
    effects = session.receive(Command("subscribe", CHAT))
    assert effects == [Send(frames.reject_subscription(CHAT))]


# Other commands


def test_an_action_carries_the_state_and_changes_streams(subscribed: Session) -> None:
    effects = subscribed.receive(Command("message", CHAT, '{"action":"x"}'))
    asked = request(effects)
    assert (asked["command"], asked["data"]) == ("message", '{"action":"x"}')
    assert asked["env"]["istate"] == {"$w": "room", "$p": "room", "n": "1"}
    answer = success(
        streams=["b"],
        stopped_streams=["room", "never"],
        transmissions=["1"],
        istate={"n": "2"},
        cstate={"d": "4"},
        disconnects=True,
    )
    assert answered(effects, answer) == [
        Detach(stream()), Attach(stream("b")), Send("1"), Release(stream("b")),
        End("remote", reconnect=True),
    ]  # fmt: skip
    env = request(subscribed.receive(Command("message", CHAT, "")))["env"]
    assert env["istate"]["n"] == "2"
    assert env["cstate"] == {"c": "1", "d": "4"}


def test_all_streams_may_be_stopped(subscribed: Session) -> None:
    effects = subscribed.receive(Command("message", CHAT, "x"))
    answer = success(stops_streams=True, streams=["room"])
    assert answered(effects, answer) == [Detach(stream()), Attach(stream()), Release(stream())]


def test_a_failed_action_changes_nothing(subscribed: Session) -> None:
    assert answered(subscribed.receive(Command("message", CHAT, "x")), FAILED) == []
    assert subscribed.receive(Command("message", CHAT, {"no": "string"})) == []


@pytest.mark.parametrize("answer", [success(transmissions=["1"]), FAILED])
def test_unsubscribing_ends_all_streams(subscribed: Session, answer: Answer) -> None:
    effects = subscribed.receive(Command("unsubscribe", CHAT))
    assert request(effects)["command"] == "unsubscribe"
    ended = answered(effects, answer)
    assert ended == [Detach(stream()), *map(Send, answer.transmissions)]
    assert subscribed.receive(Command("unsubscribe", CHAT)) == []


def test_history_whispers_and_presence_need_no_call(subscribed: Session) -> None:
    replay = Replay(CHAT, (stream(),), HISTORY)
    assert subscribed.receive(Command("history", CHAT, history=HISTORY)) == [replay]
    rejected = [Send(frames.reject_history(CHAT))]
    assert subscribed.receive(Command("history", CHAT)) == rejected
    assert subscribed.receive(Command("whisper", CHAT, 1)) == [Whisper(stream(), "1")]
    join = Command("join", CHAT, presence={"id": "u1"})
    assert subscribed.receive(join) == [Join(stream(), "u1", None)]
    assert subscribed.receive(Command("leave", CHAT)) == [Leave(stream())]


def test_a_subscribe_may_include_a_join(session: Session) -> None:
    effects = session.receive(Command("subscribe", CHAT, presence={"id": "u1", "info": 1}))
    answer = success(streams=["room"], istate={"$p": "room"})
    assert answered(effects, answer)[-1] == Join(stream(), "u1", 1)


def test_whispers_and_presence_need_a_stream_of_the_channel(session: Session) -> None:
    answered(session.receive(Command("subscribe", CHAT)), success(istate={"$w": "another"}))
    for name in ("whisper", "join", "presence"):
        assert session.receive(Command(name, CHAT, 1, presence={"id": "u1"})) == []


@pytest.mark.parametrize(
    ("presence", "effects"),
    [
        ({"type": "join", "id": "u1", "info": '{"a":1}'}, [Join(stream(), "u1", {"a": 1})]),
        ({"type": "join", "id": "u1"}, [Join(stream(), "u1", None)]),
        ({"type": "join", "id": "u1", "info": "no JSON"}, []),
        ({"type": "leave", "id": "u1"}, [Leave(stream())]),
        ({"type": "info", "id": "u1"}, []),
        ({"type": "join", "id": 1}, []),
    ],
)
def test_the_application_lets_members_join_and_leave(
    subscribed: Session, presence: Any, effects: Sequence[Effect]
) -> None:
    performed = subscribed.receive(Command("message", CHAT, "x"))
    assert answered(performed, success(presence=presence)) == effects


# Resuming


def test_a_resumed_session_keeps_its_channels_and_state(subscribed: Session) -> None:
    earlier = subscribed.earlier()
    assert earlier.application is not None
    assert earlier.application.size > 500
    session = session_of()
    effects = answered(session.begin(lambda _: earlier), connected(cstate={"c": "2"}))
    welcome = Send(frames.welcome("sid-1", [CHAT]))
    assert effects == [Register(), Attach(stream()), welcome, Release(stream())]
    env = request(session.receive(Command("message", CHAT, "x")))["env"]
    assert (env["istate"]["n"], env["cstate"]) == ("1", {"c": "2"})
    # The earlier session may still be there.
    answered(session.receive(Command("unsubscribe", CHAT)), success())
    assert subscribed.receive(Command("subscribe", CHAT)) == [Send(CONFIRMED)]


def test_a_session_of_no_application_has_no_channels_to_resume(session: Session) -> None:
    effects = session.resume(EarlierSession([], asks_history=False))
    assert effects == [Send(frames.welcome("sid-1", []))]


def test_an_answer_may_leave_out_everything_but_its_status() -> None:
    assert parse_answer(b'{"status":1}') == success()
    assert parse_answer(b"{}") == FAILED
    nothing = {"env": None, "streams": None, "transmissions": None, "presence": None}
    assert parse_answer(orjson.dumps(nothing)) == FAILED
