"""Where a read begins, by its query and the id of the last event."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import BadOffset, BadParameter
from tailrace.limits import MAX_INTEGER
from tailrace.log.offsets import BEGINNING, NOW, Position
from tailrace.protocols.durable_streams.read_start import Last, Since, parse_live, parse_start

TOKEN = "0042000000000007_0000000000000009"
NOON = 1_900_584_000_000


@pytest.mark.parametrize(
    ("query", "start"),
    [
        ({}, Position(BEGINNING)),
        ({"offset": ["-1"]}, Position(BEGINNING)),
        ({"offset": ["now"]}, Position(NOW)),
        ({"offset": [TOKEN]}, Position(7, 9, 42)),
        ({"last": ["0"]}, Last(0)),
        ({"last": ["100"]}, Last(100)),
        ({"since": ["2030-03-24T12:00:00Z"]}, Since(NOON)),
        ({"since": ["2030-03-24T14:00:00.5+02:00"]}, Since(NOON + 500)),
        ({"since": ["2030-03-24T14:00:00 02:00"]}, Since(NOON)),
        ({"since": ["1900584000"]}, Since(NOON)),
        ({"since": ["1900584000.25"]}, Since(NOON + 250)),
        ({"since": ["1900584000000"]}, Since(NOON)),
        ({"since": ["99999999999"]}, Since(99_999_999_999_000)),
        ({"since": ["100000000000"]}, Since(100_000_000_000)),
        ({"since": ["9999999999999999"]}, Since(MAX_INTEGER)),
        ({"since": ["0"]}, Since(0)),
    ],
)
def test_a_query_says_where_to_begin(query: Any, start: Any) -> None:
    assert parse_start(query, None, live=False) == start


@pytest.mark.parametrize("text", ["", "0"])
def test_zero_and_an_empty_offset_are_the_beginning_where_that_is_wanted(text: str) -> None:
    query = {"offset": [text]}
    assert parse_start(query, None, live=True, lenient=True) == Position(BEGINNING)
    with pytest.raises(BadOffset):
        parse_start(query, None, live=True)


@pytest.mark.parametrize("query", [{"offset": ["-1"]}, {"last": ["5"]}, {"since": ["bad"]}, {}])
def test_the_id_of_the_last_event_wins(query: Any) -> None:
    assert parse_start(query, TOKEN, live=True) == Position(7, 9, 42)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ({}, BadOffset),
        ({"offset": ["x"]}, BadOffset),
        ({"offset": ["-1", "-1"]}, BadOffset),
        ({"offset": ["-1"], "last": ["5"]}, BadParameter),
        ({"last": ["5"], "since": ["5"]}, BadParameter),
        ({"last": ["5", "5"]}, BadParameter),
        ({"last": [""]}, BadParameter),
        ({"last": ["-5"]}, BadParameter),
        ({"last": ["5.0"]}, BadParameter),
        ({"last": [str(MAX_INTEGER + 1)]}, BadParameter),
        ({"since": [""]}, BadParameter),
        ({"since": ["yesterday"]}, BadParameter),
        ({"since": ["-5"]}, BadParameter),
        ({"since": ["2030-03-24"]}, BadParameter),
    ],
)
def test_bad_starts_are_refused(query: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        parse_start(query, None, live=True)


def test_a_mode_is_one_of_four() -> None:
    assert [parse_live({"live": [text]}) for text in ("", "false", "long-poll", "sse")] == [
        "", "", "long-poll", "sse",
    ]  # fmt: skip
    assert parse_live({}) == ""
    with pytest.raises(BadParameter):
        parse_live({"live": ["yes"]})
