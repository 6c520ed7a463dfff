from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import BadOffset
from tailrace.log.offsets import BEGINNING, NOW, START, parse, parse_position, token

LARGEST = 10**16 - 1

bounded = settings(max_examples=40, deadline=None, derandomize=True)
numbers = st.integers(0, LARGEST)


@pytest.mark.parametrize(
    ("slot", "offset", "text"),
    [
        (0, 0, "0000000000000000_0000000000000000"),
        (1, 5, "0000000000000001_0000000000000005"),
        (42, 1 << 40, "0000000000000042_0001099511627776"),
        (LARGEST, LARGEST, "9999999999999999_9999999999999999"),
    ],
)
def test_a_token_is_two_padded_numbers(slot: int, offset: int, text: str) -> None:
    assert token(slot, offset) == text
    assert parse(text) == slot


def test_the_start_of_every_stream_is_the_token_the_protocol_suite_knows() -> None:
    assert token(0, 0) == START
    assert parse(START) == 0


@pytest.mark.parametrize(
    ("text", "position"), [("-1", BEGINNING), ("now", NOW), (START, 0), (token(7, 99), 7)]
)
def test_a_reader_names_a_position_by_sentinel_or_token(text: str, position: int) -> None:
    assert parse_position(text) == position


@pytest.mark.parametrize("sentinel", ["-1", "now"])
def test_a_sentinel_is_no_token(sentinel: str) -> None:
    with pytest.raises(BadOffset):
        parse(sentinel)


def test_no_token_looks_like_a_sentinel() -> None:
    assert {token(0, 0), token(LARGEST, LARGEST)}.isdisjoint({"-1", "now"})


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
@given(numbers, numbers)
def test_a_token_gives_its_slot_back(slot: int, offset: int) -> None:
    assert parse(token(slot, offset)) == slot


@bounded
@given(st.lists(st.tuples(numbers, numbers), min_size=2, unique=True))
def test_tokens_sort_as_text_in_the_order_of_the_log(positions: list[tuple[int, int]]) -> None:
    ordered = [token(*position) for position in sorted(positions)]
    assert all(before < after for before, after in pairwise(ordered))


@bounded
@given(numbers, numbers)
def test_a_token_needs_no_escaping_in_a_url(slot: int, offset: int) -> None:
    text = token(slot, offset)
    assert set(text) <= set("0123456789_")
    assert len(text) < 256


@bounded
@given(st.text(max_size=40))
def test_arbitrary_text_is_a_position_or_refused(text: str) -> None:
    try:
        slot = parse(text)
    except BadOffset:
        return
    assert text.startswith(f"{slot:016d}_")
