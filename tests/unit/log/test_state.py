from __future__ import annotations

import pytest

from tailrace.log.content import Mode
from tailrace.log.state import Config, Producer, State


@pytest.mark.parametrize(
    ("state", "closed", "tail", "next_offset"),
    [
        (State(0, 0, 0, 0), False, 0, "0000000000000000_0000000000000000"),
        (State(3, 30, 33, 0), False, 3, "0000000000000003_0000000000000030"),
        # A slot that only says "closed" lies beyond the reader's offset.
        (State(4, 30, 33, 0, end=3), True, 3, "0000000000000003_0000000000000030"),
        # Closed together with the last data.
        (State(4, 30, 33, 0, end=4), True, 4, "0000000000000004_0000000000000030"),
        (State(1, 0, 0, 0, end=0), True, 0, "0000000000000000_0000000000000000"),
        (State(1, 0, 0, 0, end=0, closer=Producer("p", 0, 0)), True, 0, f"{0:016d}_{0:016d}"),
    ],
    ids=["empty", "open", "closed", "closed with data", "closed empty", "closed by a producer"],
)
def test_the_tail_is_where_a_reader_with_everything_goes_on(
    state: State, closed: bool, tail: int, next_offset: str
) -> None:
    assert state.closed is closed
    assert state.tail == tail
    assert state.next_offset(0) == next_offset
    assert state.next_offset(8999) == f"8999{next_offset[4:]}"


def test_a_new_stream_is_open_and_empty() -> None:
    state = Config("application/json", 1_234).initial_state()
    assert state == State(0, 0, 0, 1_234)
    assert not state.closed
    assert not state.deleted
    assert not state.producers


def test_a_fork_begins_where_it_left_its_source_without_the_writers_state() -> None:
    assert Config("text/plain", 9, base=(3, 30, 33)).initial_state() == State(3, 30, 33, 9)


def test_the_configuration_knows_its_mode() -> None:
    assert Config("application/json; charset=utf-8", 0).mode is Mode.JSON
    assert Config("text/plain", 0).mode is Mode.TEXT
    assert Config("image/png", 0).mode is Mode.BYTES


def test_a_producer_wrote_an_entry_only_if_the_entry_says_so() -> None:
    state = State(3, 30, 33, 0, producers={"q": (0, 4), "p": (5, 9)})
    assert state.author is None
    assert state._replace(produced=True).author == Producer("p", 5, 9)
