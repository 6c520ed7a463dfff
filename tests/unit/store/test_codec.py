"""Parts stored as JSON: it comes back as it was, and what older versions wrote is understood."""

from __future__ import annotations

import pytest

from tailrace.log.state import Ancestor, Config, Fork, Part, Producer, State, Stream
from tailrace.store.codec import (
    config_text,
    parts_of,
    parts_text,
    rest_of,
    state_of,
    stream_of,
)

PRODUCERS = {"q": (0, 4), "p": (5, 9)}


@pytest.mark.parametrize(
    ("state", "rest"),
    [
        (State(3, 30, 33, 9), None),
        (State(3, 30, 33, 9, seq="m"), b'{"q":"m"}'),
        (State(3, 30, 33, 9, producers=PRODUCERS), b'{"p":[["q",0,4],["p",5,9]]}'),
        (
            State(3, 30, 33, 9, producers=PRODUCERS, produced=True),
            b'{"p":[["q",0,4],["p",5,9]],"w":1}',
        ),
        (
            State(3, 30, 33, 9, 2, Producer("p", 5, 9), "m", PRODUCERS, 2, deleted=True),
            b'{"e":2,"c":["p",5,9],"q":"m","p":[["q",0,4],["p",5,9]],"s":2,"g":1}',
        ),
    ],
    ids=["plain", "Stream-Seq", "producers", "produced", "all there is"],
)
def test_the_rest_of_a_state_is_this_text(state: State, rest: bytes | None) -> None:
    assert rest_of(state) == rest
    assert state_of(2, 30, 33, 9, rest) == state


def test_an_entry_that_does_not_say_so_was_written_by_no_producer() -> None:
    """Nor do entries from before it was remembered."""
    assert state_of(2, 30, 33, 9, b'{"p":[["p",5,9]]}').author is None
    assert state_of(2, 30, 33, 9, b'{"p":[["q",0,4],["p",5,9]],"w":1}').author == Producer(
        "p", 5, 9
    )


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([], None),
        ([Part(3, 3), Part(5, 2)], b"[[3,3],[5,2]]"),
        (
            [Part(3, 3, Producer("p", 5, 9)), Part(5, 2, note="{}"), Part(1, 1, None, "")],
            b'[[3,3,["p",5,9]],[5,2,null,"{}"],[1,1,null,""]]',
        ),
        ([Part(3, 3, Producer("p", 5, 9), "n")], b'[[3,3,["p",5,9],"n"]]'),
    ],
    ids=["one append", "plain", "producer or note", "producer and note"],
)
def test_the_appends_of_an_entry_are_this_text(parts: list[Part], text: bytes | None) -> None:
    assert parts_text(parts) == text
    assert parts_of(text) == (parts or ())


def test_a_stream_comes_back_as_it_was() -> None:
    fork = Fork("source", 7, 3, 1, (Ancestor(5, 2), Ancestor(7, 3)))
    for config in (
        Config("text/plain", 9),
        Config("text/plain", 9, ttl=60),
        Config("text/plain", 9, None, 99, fork, own_expiry=False, base=(3, 30, 33), earliest=1),
        Config("text/plain", 9, fork=fork._replace(offset=32), base=(3, 30, 33), epoch=8999),
    ):
        assert stream_of(8, "path", config_text(config)) == Stream("path", 8, config)
