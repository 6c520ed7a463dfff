"""The effects of commands on a session."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tailrace.auth.authorizer import Authorizer
from tailrace.auth.signed_names import sign
from tailrace.limits import (
    CABLE_IDENTIFIER_BYTES,
    CABLE_IDENTIFIERS_BYTES,
    CABLE_SUBSCRIPTIONS,
    TOKEN_BYTES,
)
from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.channels import Channels, Subscription
from tailrace.protocols.action_cable.core.commands import Command, HistoryPosition, MissedMessages
from tailrace.protocols.action_cable.core.effects import (
    Attach,
    Detach,
    Effect,
    Join,
    Leave,
    PresenceInfo,
    Register,
    Release,
    Replay,
    Send,
    Whisper,
)
from tailrace.protocols.action_cable.core.session import EarlierSession, Session, new_sid
from tailrace.settings import Settings

SECRET = "s3Krit"
CHAT = json.dumps({"channel": "$pubsub", "stream_name": "chat/1"})
SUBSCRIPTION = Subscription(CHAT, "chat/1", "chat/1", whispers=True, presence=True)
UNKNOWN = json.dumps({"channel": "ChatChannel"})
HISTORY = MissedMessages(0, {"chat/1": HistoryPosition("e", 3)})


@pytest.fixture
def session() -> Session:
    return session_of(public_streams="chat/*")


@pytest.fixture
def subscribed(session: Session) -> Session:
    session.receive(Command("subscribe", CHAT))
    return session


def session_of(identity: str | None = None, **settings: Any) -> Session:
    chosen = Settings(secret=SECRET, **settings)
    return Session("sid-1", identity, Channels(Authorizer(chosen), chosen))


def rejected(identifier: str) -> Effect:
    return Send(frames.reject_subscription(identifier))


def confirmed(identifier: str = CHAT) -> Effect:
    return Send(frames.confirm_subscription(identifier))


def test_a_session_begins_with_a_welcome(session: Session) -> None:
    assert session.begin() == [Register(), Send(frames.welcome("sid-1"))]


def test_the_name_of_a_session_cannot_be_guessed() -> None:
    names = {new_sid() for _ in range(100)}
    assert len(names) == 100
    assert all(len(name) == 21 for name in names)


def test_a_session_without_a_token_is_called_by_its_name(session: Session) -> None:
    assert session.identity == '{"sid":"sid-1"}'
    assert session_of('{"user":1}').identity == '{"user":1}'


# Subscribing


def test_a_subscription_is_confirmed_before_its_messages(session: Session) -> None:
    effects = session.receive(Command("subscribe", CHAT))
    assert effects == [Attach(SUBSCRIPTION), confirmed(), Release(SUBSCRIPTION)]


def test_history_comes_between_confirmation_and_new_messages(session: Session) -> None:
    effects = session.receive(Command("subscribe", CHAT, history=HISTORY))
    assert effects == [Attach(SUBSCRIPTION), confirmed(), Replay(CHAT, (SUBSCRIPTION,), HISTORY)]


def test_a_subscribe_may_include_a_join(session: Session) -> None:
    effects = session.receive(Command("subscribe", CHAT, presence={"id": "ada", "info": 1}))
    assert effects[-1] == Join(SUBSCRIPTION, "ada", 1)


def test_a_repeated_subscribe_is_only_confirmed(subscribed: Session) -> None:
    assert subscribed.receive(Command("subscribe", CHAT)) == [confirmed()]
    again = subscribed.receive(Command("subscribe", CHAT, history=HISTORY))
    assert again == [confirmed(), Replay(CHAT, (SUBSCRIPTION,), HISTORY)]


@pytest.mark.parametrize("identifier", [UNKNOWN, "", "x", "[]", '{"channel":"$pubsub"}'])
def test_forbidden_subscriptions_are_rejected(session: Session, identifier: str) -> None:
    effects = session.receive(Command("subscribe", identifier))
    assert effects == [Send(frames.reject_subscription(identifier))]
    assert not session.subscriptions


def test_a_client_has_so_many_subscriptions_at_most(session: Session) -> None:
    for i in range(CABLE_SUBSCRIPTIONS):
        identifier = json.dumps({"channel": "$pubsub", "stream_name": "chat/1", "i": i})
        session.receive(Command("subscribe", identifier))
    effects = session.receive(Command("subscribe", CHAT))
    assert effects == [Send(frames.reject_subscription(CHAT))]


def padded(stream: str, size: int) -> str:
    """An identifier of a number of bytes."""
    bare = json.dumps({"channel": "$pubsub", "stream_name": stream, "x": ""})
    return json.dumps({"channel": "$pubsub", "stream_name": stream, "x": "x" * (size - len(bare))})


def test_an_identifier_has_so_many_bytes_at_most(session: Session) -> None:
    longest, longer = (padded("chat/1", CABLE_IDENTIFIER_BYTES + more) for more in (0, 1))
    assert session.receive(Command("subscribe", longest))[0] != rejected(longest)
    assert session.receive(Command("subscribe", longer)) == [rejected(longer)]


def test_an_identifier_may_hold_the_longest_signed_name() -> None:
    name = "é" * 170
    signed = sign(name, SECRET)
    identifier = json.dumps({"channel": "$pubsub", "signed_stream_name": signed, "x": "x" * 2000})
    assert session_of().receive(Command("subscribe", identifier))[0] != rejected(identifier)
    assert TOKEN_BYTES + 2000 < CABLE_IDENTIFIER_BYTES


def test_the_identifiers_of_a_client_have_so_many_bytes_in_sum(session: Session) -> None:
    identifiers = [padded(f"chat/{i}", CABLE_IDENTIFIER_BYTES) for i in range(110)]
    taken = [
        each
        for each in identifiers
        if session.receive(Command("subscribe", each)) != [rejected(each)]
    ]
    assert sum(map(len, taken)) < CABLE_IDENTIFIERS_BYTES
    assert len(taken) > 100
    # Unsubscribing makes room for another subscription.
    refused = identifiers[-1]
    session.receive(Command("unsubscribe", taken[0]))
    assert session.receive(Command("subscribe", refused)) != [rejected(refused)]


def test_unsubscribe_is_not_answered(subscribed: Session) -> None:
    assert subscribed.receive(Command("unsubscribe", CHAT)) == [Detach(SUBSCRIPTION)]
    assert subscribed.receive(Command("unsubscribe", CHAT)) == []


# Everything else


@pytest.mark.parametrize(
    ("command", "effects"),
    [
        (Command("ping"), [Send(frames.PONG)]),
        (Command("pong"), []),
        (Command("message", CHAT, '{"action":"speak"}'), []),
        (Command("nonsense", CHAT), []),
        (Command("history", CHAT, history=HISTORY), [Replay(CHAT, (SUBSCRIPTION,), HISTORY)]),
        (Command("history", CHAT), [Release(SUBSCRIPTION)]),
        (Command("whisper", CHAT, {"typing": True}), [Whisper(SUBSCRIPTION, '{"typing":true}')]),
        (Command("whisper", CHAT, None), [Whisper(SUBSCRIPTION, "null")]),
        (Command("join", CHAT, presence={"id": "ada"}), [Join(SUBSCRIPTION, "ada", None)]),
        (Command("join", CHAT, presence={"id": ""}), []),
        (Command("join", CHAT, presence={"id": 7}), []),
        (Command("join", CHAT), []),
        (Command("leave", CHAT), [Leave(SUBSCRIPTION)]),
        (Command("presence", CHAT), [PresenceInfo(SUBSCRIPTION, records=True)]),
        (Command("presence", CHAT, {}), [PresenceInfo(SUBSCRIPTION, records=True)]),
        (
            Command("presence", CHAT, {"return_records": False}),
            [PresenceInfo(SUBSCRIPTION, records=False)],
        ),
        (
            Command("presence", CHAT, presence={"return_records": False}),
            [PresenceInfo(SUBSCRIPTION, records=False)],
        ),
    ],
)
def test_effects_of_commands(
    subscribed: Session, command: Command, effects: Sequence[Effect]
) -> None:
    assert subscribed.receive(command) == effects


@pytest.mark.parametrize("name", ["whisper", "join", "leave", "presence", "message", "unsubscribe"])
def test_without_a_subscription_there_is_nothing_to_do(session: Session, name: str) -> None:
    assert session.receive(Command(name, CHAT, presence={"id": "ada"})) == []


def test_without_a_subscription_there_is_no_history(session: Session) -> None:
    effects = session.receive(Command("history", CHAT, history=HISTORY))
    assert effects == [Send(frames.reject_history(CHAT))]


def test_whispers_and_joins_need_permission() -> None:
    session = session_of(streams_presence=False)
    identifier = json.dumps({"channel": "$pubsub", "signed_stream_name": sign("a", SECRET)})
    session.receive(Command("subscribe", identifier, presence={"id": "ada"}))
    assert session.receive(Command("whisper", identifier, 1)) == []
    assert session.receive(Command("join", identifier, presence={"id": "ada"})) == []
    assert session.receive(Command("leave", identifier)) == []
    refused = session.receive(Command("presence", identifier))
    assert refused == [Send(frames.presence(identifier, '{"type":"error","total":0}'))]


@pytest.mark.parametrize(
    ("identity", "member", "allowed"),
    [
        (None, "alice", True),
        ("alice", "alice", True),
        ("alice", "bob", False),
        ('{"user_id":42}', "42", True),
        ('{"user_id":42}', '{"user_id":42}', True),
        ('{"user_id":42}', "4", False),
        ('{"user_id":42}', "user_id", False),
        ('{"user":"gid://app/User/1","tab":"a"}', "gid://app/User/1", True),
        ('{"user":"alice","admin":true}', "True", False),
        ('{"user":null,"of":["alice"]}', "alice", False),
        ('"alice"', "alice", True),
        ("", "alice", False),
    ],
)
def test_a_token_says_under_which_ids_its_client_may_join(
    identity: str | None, member: str, allowed: bool
) -> None:
    session = session_of(identity, public_streams="chat/*")
    given = {"id": member, "info": 1}
    refusal = {"id": member, "type": "reject", "reason": "the token does not name this id"}
    answer = Send(frames.presence(CHAT, json.dumps(refusal, separators=(",", ":"))))
    expected = Join(SUBSCRIPTION, member, 1) if allowed else answer
    assert session.receive(Command("subscribe", CHAT, presence=given))[-1] == expected
    assert session.receive(Command("join", CHAT, presence=given)) == [expected]


# Resuming


def test_subscriptions_are_restored_before_the_welcome(session: Session) -> None:
    effects = session.resume(EarlierSession([CHAT], asks_history=True))
    assert effects == [Attach(SUBSCRIPTION), Send(frames.welcome("sid-1", [CHAT]))]
    # The client asks for missed messages only after that.
    assert session.receive(Command("history", CHAT, history=HISTORY)) == [
        Replay(CHAT, (SUBSCRIPTION,), HISTORY)
    ]


def test_a_client_that_never_asked_for_history_gets_new_messages_at_once(session: Session) -> None:
    effects = session.resume(EarlierSession([CHAT], asks_history=False))
    assert effects[1:] == [Send(frames.welcome("sid-1", [CHAT])), Release(SUBSCRIPTION)]


def test_a_session_knows_whether_its_client_asks_for_history(subscribed: Session) -> None:
    assert not subscribed.asks_history
    subscribed.receive(Command("history", CHAT, history=HISTORY))
    assert subscribed.asks_history


def test_forbidden_subscriptions_are_not_restored() -> None:
    session = session_of(public_streams="news/*")
    earlier = EarlierSession([CHAT, UNKNOWN], asks_history=False)
    assert session.resume(earlier) == [Send(frames.welcome("sid-1", []))]
    assert not session.subscriptions
