from __future__ import annotations

import json

import pytest

from tailrace.limits import CABLE_MEMBER_BYTES
from tailrace.protocols.action_cable.core import presence
from tailrace.protocols.action_cable.core.presence import Members


@pytest.fixture
def members() -> Members:
    return Members()


def test_the_first_session_of_a_member_is_news(members: Members) -> None:
    assert members.join("s1", "u1", {"name": "Ada"}) == (
        '{"id":"u1","info":{"name":"Ada"},"type":"join"}'
    )
    assert members.join("s2", "u1", {"name": "Ada"}) is None
    assert members.join("s1", "u1", {"name": "Ada"}) is None


def test_the_last_session_of_a_member_is_news_when_it_leaves(members: Members) -> None:
    members.join("s1", "u1", 1)
    members.join("s2", "u1", 1)
    assert members.leave("s1") is None
    assert members.leave("s1") is None
    assert members.leave("s2") == '{"id":"u1","type":"leave"}'
    assert not members


def test_a_session_cannot_change_its_member(members: Members) -> None:
    members.join("s1", "u1", 1)
    assert members.join("s1", "u2", 1) is None
    assert json.loads(members.info())["total"] == 1


def test_info_lists_and_counts_members(members: Members) -> None:
    assert members.info() == '{"type":"info","total":0,"records":[]}'
    members.join("s1", "u1", {"a": 1})
    members.join("s2", "u2", None)
    assert members.info() == (
        '{"type":"info","total":2,"records":[{"info":{"a":1},"id":"u1"},{"info":null,"id":"u2"}]}'
    )
    assert members.info(records=False) == '{"type":"info","total":2}'


def test_a_session_that_left_may_join_as_another_member(members: Members) -> None:
    members.join("s1", "u1", 1)
    members.leave("s1")
    assert members.join("s1", "u2", 2) is not None


def test_a_member_has_so_many_bytes_at_most(members: Members) -> None:
    assert members.join("s1", "u1", "x" * CABLE_MEMBER_BYTES) is None
    assert members.join("s1", "u1", "é" * (CABLE_MEMBER_BYTES // 2)) is None
    assert not members
    assert members.join("s1", "u1", "x" * (CABLE_MEMBER_BYTES - 50)) is not None


def test_the_size_of_presence_is_limited(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "CABLE_PRESENCE_BYTES", 100)
    assert members.join("s1", "u1", "x" * 20) is not None
    assert members.join("s2", "u2", "x" * 60) is None
    assert members.leave("s2") is None
    assert members.join("s3", "u3", 1) is not None
    # Another session of a member takes no memory, and a leave frees some.
    assert members.join("s4", "u1", "x" * 90) is None
    assert json.loads(members.info())["total"] == 2
    members.leave("s1")
    members.leave("s4")
    members.leave("s3")
    assert members.join("s2", "u2", "x" * 60) is not None
