from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import BadOffset
from tailrace.log.offsets import (
    BEGINNING,
    EPOCHS,
    NOW,
    START,
    Position,
    epoch_of,
    parse,
    parse_position,
    token,
)

LAST = Position(10**12 - 1, 10**16 - 1, EPOCHS)

bounded = settings(max_examples=40, deadline=None, derandomize=True)
positions = st.builds(
    Position, st.integers(0, LAST.slot), st.integers(0, LAST.offset), st.integers(0, LAST.epoch)
)


@pytest.mark.parametrize(
    ("position", "text"),
    [
        (Position(0), "0000000000000000_0000000000000000"),
        (Position(1, 5), "0000000000000001_0000000000000005"),
        (Position(42, 1 << 40, 1234), "1234000000000042_0001099511627776"),
        (LAST, "8999999999999999_9999999999999999"),
    ],
)
def test_a_token_is_epoch_slot_and_offset_in_padded_numbers(position: Position, text: str) -> None:
    assert token(*position) == text
    assert parse(text) == position


def test_the_start_of_every_stream_is_the_token_the_protocol_suite_knows() -> None:
    assert token(0, 0) == START
    assert parse(START) == Position(0, 0, 0)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("-1", Position(BEGINNING)),
        ("now", Position(NOW)),
        (START, Position(0)),
        (token(7, 99, 5), Position(7, 99, 5)),
    ],
)
def test_a_reader_names_a_position_by_sentinel_or_token(text: str, position: Position) -> None:
    assert parse_position(text) == position


@pytest.mark.parametrize("sentinel", ["-1", "now"])
def test_a_sentinel_is_no_token(sentinel: str) -> None:
    with pytest.raises(BadOffset):
        parse(sentinel)


def test_no_token_looks_like_a_sentinel() -> None:
    assert {START, token(*LAST)}.isdisjoint({"-1", "now"})


VALID = token(1, 5)

INVALID = {
    "empty": "",
    "space": " ",
    "zero": "0",
    "short numbers": "0_0",
    "one number": "0000000000000001",
    "15 digits": VALID[1:],
    "17 digits": "0" + VALID,
    "15 digits in the second": VALID[:-1],
    "17 digits in the second": VALID + "0",
    "three numbers": VALID + "_0000000000000000",
    "other separator": VALID.replace("_", "-"),
    "comma": VALID.replace("_", ","),
    "slash": VALID.replace("_", "/"),
    "negative": "-000000000000001_0000000000000005",
    "signed": "+000000000000001_0000000000000005",
    "letters": "000000000000000a_0000000000000005",
    "underscores as int() takes them": "0000000000000_01_0000000000000005",
    "arabic digits": VALID.translate(str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")),
    "fullwidth digit": VALID[:-1] + "\uff15",
    "superscript digit": VALID[:-1] + "\u00b2",
    "trailing LF": VALID + "\n",
    "trailing CRLF": VALID + "\r\n",
    "trailing NUL": VALID + "\0",
    "leading LF": "\n" + VALID,
    "leading space": " " + VALID,
    "trailing space": VALID + " ",
    "dots": VALID + "/..",
    "dots before": "../" + VALID,
    "minus two": "-2",
    "minus zero": "-0",
    "minus one and LF": "-1\n",
    "NOW": "NOW",
    "Now": "Now",
    "now and LF": "now\n",
    "now and space": "now ",
    "the other sentinel's name": "start",
}


@pytest.mark.parametrize("text", INVALID.values(), ids=INVALID.keys())
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadOffset):
        parse(text)
    with pytest.raises(BadOffset):
        parse_position(text)


@bounded
@given(positions)
def test_a_token_gives_its_position_back(position: Position) -> None:
    assert parse(token(*position)) == position


@bounded
@given(st.lists(positions, min_size=2, unique=True))
def test_tokens_of_a_stream_sort_as_text_in_the_order_of_the_log(
    positions: list[Position],
) -> None:
    ordered = [token(slot, offset, 7) for slot, offset, _ in sorted(positions)]
    assert all(before <= after for before, after in pairwise(ordered))
    assert len(set(ordered)) == len({position[:2] for position in positions})


@bounded
@given(positions)
def test_a_token_needs_no_escaping_in_a_url(position: Position) -> None:
    text = token(*position)
    assert set(text) <= set("0123456789_")
    assert len(text) < 256


@bounded
@given(st.integers(0, 2**62 - 1))
def test_an_epoch_has_four_digits_and_is_not_that_of_any_stream(incarnation: int) -> None:
    assert 1 <= epoch_of(incarnation) <= EPOCHS < 9000


def test_every_epoch_is_as_likely_as_another() -> None:
    assert Counter(map(epoch_of, range(3 * EPOCHS))) == dict.fromkeys(range(1, EPOCHS + 1), 3)


@bounded
@given(st.text(max_size=40))
def test_arbitrary_text_is_a_position_or_refused(text: str) -> None:
    try:
        position = parse(text)
    except BadOffset:
        return
    assert text == token(*position)
