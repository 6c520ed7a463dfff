"""The ledger accepts what is right, and detects what is not."""

from __future__ import annotations

import pytest

from devtools.chaos.ledger import LARGE_BYTES, Ledger, message, name_of, names_in, render_message

CONTENT = ["a.0", "b.0", "a.1", "b.1"]


def ledger() -> Ledger:
    """A ledger in which everything went well: one append was not acknowledged, one is not there."""
    made = Ledger("s")
    made.sent = {*CONTENT, "a.2"}
    made.acknowledged = ["a.0", "b.0", "a.1"]
    made.sighting("follower", follows=True).names = [*CONTENT]
    made.sighting("visitor", 1).names = ["b.0", "a.1"]
    return made


def problems(made: Ledger, *content: str) -> list[str]:
    return list(made.problems(content or CONTENT))


def test_a_good_ledger_has_no_problems() -> None:
    assert problems(ledger()) == []


def test_a_lost_message_is_detected() -> None:
    made = ledger()
    made.sightings.clear()
    assert problems(made, "a.0", "b.0", "b.1") == ["s: a.1 was acknowledged, but is not stored"]


def test_an_invented_message_is_detected() -> None:
    assert problems(ledger(), *CONTENT[:2], "x.0", *CONTENT[2:])[0] == (
        "s: x.0 is stored, but nobody sent it"
    )


def test_a_repeated_message_is_detected() -> None:
    assert problems(ledger(), *CONTENT, "a.0")[0] == "s: a.0 is stored twice, at 0 and 4"


def test_messages_of_a_writer_in_another_order_are_detected() -> None:
    made = ledger()
    made.sightings.clear()
    assert problems(made, "a.1", "b.0", "a.0", "b.1") == [
        "s: a.0 was acknowledged before a.1, but stored after it"
    ]


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (CONTENT[:3], "s: follower never got the last 1 messages"),
        ([*CONTENT, "a.2"], "s: follower saw more than there is"),
        (["a.0", "a.1", "b.1"], "s: follower saw a.1 at position 1, where b.0 is"),
        (["a.0", "b.0", "b.0", "a.1"], "s: follower saw b.0 at position 2, where a.1 is"),
    ],
)
def test_a_reader_that_saw_something_else_is_detected(names: list[str], problem: str) -> None:
    made = ledger()
    made.sightings[0].names = names
    assert problems(made) == [problem]


def test_a_visitor_need_not_see_the_end() -> None:
    made = ledger()
    made.sightings[1].names = ["b.0"]
    assert problems(made) == []


def test_messages_are_recognized_as_they_were_sent() -> None:
    names = [f"w.{number}" for number in range(200)]
    body = f"[{','.join(map(render_message, names))}]"
    assert names_in(body.encode()) == names
    sizes = [len(render_message(name)) for name in names]
    assert min(sizes) < 200
    assert 4096 < max(sizes) < LARGE_BYTES + 100


@pytest.mark.parametrize(
    "received",
    [
        None,
        [],
        {},
        {"name": "w.0"},
        {**message("w.0"), "padding": "0"},
        message("w.0") | {"x": "y"},
    ],
)
def test_another_message_is_not_recognized(received: object) -> None:
    with pytest.raises(ValueError, match="nobody sent this message"):
        name_of(received)
