"""The rules of POST. The order of the checks and the closing matrix are the protocol's."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import (
    BadHeader,
    ContentTypeConflict,
    EmptyBatch,
    EmptyBody,
    InvalidJson,
    NewEpochNotAtZero,
    ProducerFenced,
    ProducerGap,
    SequenceConflict,
    StreamClosed,
    TailraceError,
)
from tailrace.limits import PRODUCER_STATE_BYTES
from tailrace.log.append import Accepted, Append, decide, tombstone
from tailrace.log.state import Config, Entry, Producer, State

bounded = settings(max_examples=60, deadline=None, derandomize=True)

NOW = 1_000_000
TEXT = Config("text/plain", 0, epoch=7)
BYTES = Config("application/octet-stream", 0)
JSON = Config("application/json", 0)

OPEN = State(3, 30, 33, 900_000, seq="m", producers={"p": (5, 9)})
"""Three slots, 30 bytes, a Stream-Seq and a producer."""

CLOSED = OPEN._replace(slot=4, end=3)
CLOSED_BY_P = CLOSED._replace(closer=Producer("p", 5, 9))


def text(body: bytes = b"hello", **more: Any) -> Append:
    return Append(body, "text/plain")._replace(**more)


# A plain append


def test_an_append_fills_the_next_slot() -> None:
    accepted = decide(TEXT, State(0, 0, 0, 0), text(), NOW)
    after = State(1, 5, 5, NOW)
    assert accepted == Accepted(after, Entry(0, b"hello", after))


def test_an_append_moves_on_from_the_state_before() -> None:
    accepted = decide(TEXT, OPEN, text(), NOW)
    assert accepted.entry is not None
    assert accepted.entry.slot == 3
    assert accepted.state == OPEN._replace(slot=4, offset=35, size=38, written_at=NOW)


@pytest.mark.parametrize(
    ("config", "body", "stored", "moved"),
    [
        (BYTES, b"\x00\xff", b"\x00\xff", 2),
        (BYTES, b"[1,2,3]", b"[1,2,3]", 7),
        (TEXT, b" spaced \n", b" spaced \n", 9),
        (TEXT, "ä".encode(), b"\xc3\xa4", 2),
        (JSON, b'{"a":1}', b'{"a":1}', 1),
        (JSON, b"[1, 2 ,3]", b"1, 2 ,3", 3),
        (JSON, b"[[1,2]]", b"[1,2]", 1),
        (JSON, b" null ", b"null", 1),
        (JSON, b"0", b"0", 1),
    ],
)
def test_an_offset_counts_bytes_or_messages_and_the_size_what_is_stored(
    config: Config, body: bytes, stored: bytes, moved: int
) -> None:
    accepted = decide(config, OPEN, Append(body, config.content_type), NOW)
    assert accepted.entry is not None
    assert accepted.entry.body == stored
    assert accepted.state.offset == OPEN.offset + moved
    assert accepted.state.size == OPEN.size + len(stored)


@pytest.mark.parametrize(
    ("now", "at"), [(899_999, 900_000), (900_000, 900_000), (900_001, 900_001), (0, 900_000)]
)
def test_time_never_runs_backwards(now: int, at: int) -> None:
    assert decide(TEXT, OPEN, text(), now).state.written_at == at
    assert decide(TEXT, OPEN, Append(b"", close=True), now).state.written_at == at
    assert tombstone(OPEN, now).state.written_at == at


@pytest.mark.parametrize("content_type", ["text/plain", "TEXT/PLAIN", "text/plain; charset=x"])
def test_the_type_matches_regardless_of_case_and_parameters(content_type: str) -> None:
    assert decide(TEXT, OPEN, Append(b"x", content_type), NOW).entry is not None


def test_the_streams_own_parameters_do_not_matter_either() -> None:
    config = Config("Text/Plain; charset=utf-8", 0)
    assert decide(config, OPEN, text(), NOW).entry is not None


# Stream-Seq


@pytest.mark.parametrize(
    ("last", "sent", "accepted"),
    [
        (None, "", True),
        (None, "a", True),
        ("a", "b", True),
        ("a", "aa", True),
        ("a", "a", False),
        ("b", "a", False),
        ("a", "B", False),
        ("B", "a", True),
        ("09", "10", True),
        ("2", "10", False),
        ("10", "2", True),
        ("", "", False),
        ("", "0", True),
        ("z", "\xe4", True),
        ("\xe4", "z", False),
    ],
)
def test_a_stream_seq_must_sort_after_the_last_byte_by_byte(
    last: str | None, sent: str, accepted: bool
) -> None:
    state = OPEN._replace(seq=last)
    request = text(seq=sent)
    if accepted:
        assert decide(TEXT, state, request, NOW).state.seq == sent
    else:
        with pytest.raises(SequenceConflict):
            decide(TEXT, state, request, NOW)


def test_an_append_without_a_stream_seq_leaves_the_last_one() -> None:
    assert decide(TEXT, OPEN, text(), NOW).state.seq == "m"


@pytest.mark.parametrize(("sent", "fine"), [("n", True), ("m", False)])
def test_a_close_has_a_stream_seq_too(sent: str, fine: bool) -> None:
    request = Append(b"", close=True, seq=sent)
    if fine:
        assert decide(TEXT, OPEN, request, NOW).state.seq == sent
    else:
        with pytest.raises(SequenceConflict):
            decide(TEXT, OPEN, request, NOW)


# Producers


def test_the_next_request_of_a_producer_is_accepted() -> None:
    accepted = decide(TEXT, OPEN, text(producer=Producer("p", 5, 10)), NOW)
    assert accepted.entry is not None
    assert accepted.state.producers == {"p": (5, 10)}
    assert accepted.producer_seq == 10


def test_a_new_producer_and_a_new_epoch_begin_at_0() -> None:
    accepted = decide(TEXT, OPEN, text(producer=Producer("q", 2, 0)), NOW)
    assert accepted.state.producers == {"p": (5, 9), "q": (2, 0)}
    accepted = decide(TEXT, OPEN, text(producer=Producer("p", 6, 0)), NOW)
    assert accepted.state.producers == {"p": (6, 0)}
    assert accepted.producer_seq == 0


@pytest.mark.parametrize("seq", [0, 8, 9])
@pytest.mark.parametrize("body", [b"hello", b"something else"])
def test_a_duplicate_stores_nothing_and_names_the_highest_accepted(seq: int, body: bytes) -> None:
    request = text(body, producer=Producer("p", 5, seq))
    assert decide(TEXT, OPEN, request, NOW) == Accepted(OPEN, None, 9, is_end=False)


@pytest.mark.parametrize(
    ("producer", "error"),
    [
        (Producer("p", 4, 10), ProducerFenced),
        (Producer("p", 6, 1), NewEpochNotAtZero),
        (Producer("p", 5, 11), ProducerGap),
        (Producer("q", 0, 1), ProducerGap),
    ],
)
def test_any_other_place_in_its_order_is_refused(
    producer: Producer, error: type[TailraceError]
) -> None:
    with pytest.raises(error):
        decide(TEXT, OPEN, text(producer=producer), NOW)


def test_a_duplicate_knows_whether_it_is_the_last() -> None:
    request = text(producer=Producer("p", 5, 9))
    last = OPEN._replace(produced=True)
    assert decide(TEXT, last, request, NOW).is_end
    assert not decide(TEXT, last, text(producer=Producer("p", 5, 8)), NOW).is_end
    after = decide(TEXT, last, text(), NOW).state
    assert not decide(TEXT, after, request, NOW).is_end


def test_a_plain_append_has_no_producer_seq() -> None:
    assert decide(TEXT, OPEN, text(), NOW).producer_seq is None


@pytest.mark.parametrize(
    ("seq", "outcome"), [(4, "accepted"), (3, "duplicate"), (0, "duplicate"), (5, "gap")]
)
def test_a_spilled_producer_is_known(seq: int, outcome: str) -> None:
    state = OPEN._replace(spilled=1)
    request = text(producer=Producer("cold", 1, seq))
    if outcome == "gap":
        with pytest.raises(ProducerGap):
            decide(TEXT, state, request, NOW, spilled=(1, 3))
        return
    accepted = decide(TEXT, state, request, NOW, spilled=(1, 3))
    if outcome == "duplicate":
        assert accepted == Accepted(state, None, 3, is_end=False)
    else:
        assert accepted.state.producers == {"p": (5, 9), "cold": (1, 4)}
        assert accepted.state.spilled


def test_the_state_knows_better_than_what_was_spilled_before() -> None:
    state = OPEN._replace(spilled=1)
    request = text(producer=Producer("p", 5, 9))
    assert decide(TEXT, state, request, NOW, spilled=(5, 3)) == Accepted(
        state, None, 9, is_end=False
    )


def test_spilling_is_part_of_the_entry_and_marks_the_state() -> None:
    state = State(0, 0, 0, 0)
    sent = 0
    while not state.spilled:
        assert sent < 200
        before = state
        accepted = decide(TEXT, state, text(producer=Producer(f"{sent:080d}", 0, 0)), NOW)
        assert accepted.entry is not None
        state, sent = accepted.state, sent + 1
    assert accepted.entry is not None
    assert accepted.entry.spill
    assert {**accepted.entry.spill, **state.producers}.keys() == {
        *before.producers,
        f"{sent - 1:080d}",
    }
    assert not before.spilled
    assert sum(len(name) for name in state.producers) <= PRODUCER_STATE_BYTES
    # Later entries spill nothing, and the mark stays.
    later = decide(TEXT, state, text(), NOW)
    assert later.entry is not None
    assert not later.entry.spill
    assert later.state.spilled == 1


def test_every_spill_is_counted() -> None:
    """A caller that looked up a spilled producer can tell whether it may have changed meanwhile."""
    state = State(0, 0, 0, 0)
    spills = 0
    for number in range(300):
        accepted = decide(TEXT, state, text(producer=Producer(f"{number:080d}", 0, 0)), NOW)
        assert accepted.entry is not None
        spills += bool(accepted.entry.spill)
        state = accepted.state
        assert state.spilled == spills
    assert spills > 5


def test_an_entry_remembers_the_producer_that_wrote_it() -> None:
    state = State(0, 0, 0, 0)
    sent = [Producer("p", 0, 0), None, Producer("q", 3, 0), Producer("p", 0, 1), None]
    written = []
    for by in sent:
        accepted = decide(TEXT, state, text(producer=by), NOW)
        state = accepted.state
        written.append(state.author)
    assert written == sent
    assert state.producers == {"q": (3, 0), "p": (0, 1)}, "who wrote before is not forgotten"


def test_so_does_one_whose_producers_were_spilled_with_it() -> None:
    state = State(0, 0, 0, 0)
    for number in range(300):
        by = Producer(f"{number:080d}", 0, 0)
        state = decide(TEXT, state, text(producer=by), NOW).state
        assert state.author == by


@pytest.mark.parametrize("body", [b"", b"last"], ids=["bare", "with data"])
def test_a_close_remembers_its_producer_and_a_tombstone_has_none(body: bytes) -> None:
    by = Producer("p", 5, 10)
    state = decide(TEXT, OPEN, text(body, close=True, producer=by), NOW).state
    assert state.author == state.closer == by
    assert tombstone(state, NOW).state.author is None


# Closing: every cell of the matrix


class Cell(NamedTuple):
    body: bytes
    producer: Producer | None
    state: State
    outcome: object


NEXT, SAME, OTHER = Producer("p", 5, 10), Producer("p", 5, 9), Producer("q", 0, 0)

MATRIX: dict[str, Cell] = {
    # An open stream.
    "no body, open": Cell(b"", None, OPEN, "close"),
    "body, open": Cell(b"x", None, OPEN, "append and close"),
    "no body, producer, open": Cell(b"", NEXT, OPEN, "close"),
    "body, producer, open": Cell(b"x", NEXT, OPEN, "append and close"),
    "no body, new producer, open": Cell(b"", OTHER, OPEN, "close"),
    "no body, duplicate, open": Cell(b"", SAME, OPEN, "duplicate"),
    "body, duplicate, open": Cell(b"x", SAME, OPEN, "duplicate"),
    "no body, fenced, open": Cell(b"", Producer("p", 4, 0), OPEN, ProducerFenced),
    "no body, gap, open": Cell(b"", Producer("p", 5, 11), OPEN, ProducerGap),
    "no body, bad epoch, open": Cell(b"", Producer("p", 6, 1), OPEN, NewEpochNotAtZero),
    "body, fenced, open": Cell(b"x", Producer("p", 4, 0), OPEN, ProducerFenced),
    # A stream that was closed without a producer.
    "no body, closed": Cell(b"", None, CLOSED, "closed already"),
    "body, closed": Cell(b"x", None, CLOSED, StreamClosed),
    "no body, producer, closed": Cell(b"", NEXT, CLOSED, StreamClosed),
    "body, producer, closed": Cell(b"x", NEXT, CLOSED, StreamClosed),
    "no body, accepted before, closed": Cell(b"", SAME, CLOSED, StreamClosed),
    "body, accepted before, closed": Cell(b"x", SAME, CLOSED, StreamClosed),
    "body, new producer, closed": Cell(b"x", OTHER, CLOSED, StreamClosed),
    # A stream that a producer closed.
    "no body, closed by p": Cell(b"", None, CLOSED_BY_P, "closed already"),
    "body, closed by p": Cell(b"x", None, CLOSED_BY_P, StreamClosed),
    "no body, same, closed by p": Cell(b"", SAME, CLOSED_BY_P, "closed by this"),
    "body, same, closed by p": Cell(b"anything", SAME, CLOSED_BY_P, "closed by this"),
    "no body, next, closed by p": Cell(b"", NEXT, CLOSED_BY_P, StreamClosed),
    "body, next, closed by p": Cell(b"x", NEXT, CLOSED_BY_P, StreamClosed),
    "no body, earlier, closed by p": Cell(b"", Producer("p", 5, 8), CLOSED_BY_P, StreamClosed),
    "body, earlier, closed by p": Cell(b"x", Producer("p", 5, 8), CLOSED_BY_P, StreamClosed),
    "body, other epoch, closed by p": Cell(b"x", Producer("p", 6, 9), CLOSED_BY_P, StreamClosed),
    "body, old epoch, closed by p": Cell(b"x", Producer("p", 4, 9), CLOSED_BY_P, StreamClosed),
    "no body, other id, closed by p": Cell(b"", Producer("q", 5, 9), CLOSED_BY_P, StreamClosed),
    "body, other id, closed by p": Cell(b"x", Producer("q", 5, 9), CLOSED_BY_P, StreamClosed),
}


@pytest.mark.parametrize("cell", MATRIX.values(), ids=MATRIX.keys())
def test_the_closing_matrix(cell: Cell) -> None:
    request = Append(cell.body, "text/plain" if cell.body else None, True, None, cell.producer)
    state = cell.state
    if isinstance(cell.outcome, type):
        with pytest.raises(cell.outcome) as raised:
            decide(TEXT, state, request, NOW)
        if isinstance(raised.value, StreamClosed):
            assert raised.value.next_offset == state.next_offset(7)
        return
    accepted = decide(TEXT, state, request, NOW)
    seq = cell.producer.seq if cell.producer else None
    match cell.outcome:
        case "closed already":
            assert accepted == Accepted(state, None, None)
        case "closed by this" | "duplicate":
            assert accepted == Accepted(state, None, seq, cell.outcome == "closed by this")
        case "close":
            assert accepted.entry == Entry(3, None, accepted.state)
            assert accepted.state.end == 3
            assert accepted.state.next_offset(7) == state.next_offset(7)
            assert accepted.producer_seq == seq
        case "append and close":
            assert accepted.entry == Entry(3, cell.body, accepted.state)
            assert accepted.state.end == 4
            assert accepted.state.offset == state.offset + len(cell.body)
            assert accepted.producer_seq == seq
    if accepted.entry is not None:
        assert accepted.state.closed
        assert accepted.state.slot == 4
        assert accepted.state.closer == cell.producer
        if cell.producer is not None:
            assert accepted.state.producers[cell.producer.id] == cell.producer[1:]


@pytest.mark.parametrize("state", [CLOSED, CLOSED_BY_P], ids=["plain", "by a producer"])
@pytest.mark.parametrize("producer", [None, SAME, NEXT, OTHER])
def test_an_append_to_a_closed_stream_is_refused_unless_it_closed_it(
    state: State, producer: Producer | None
) -> None:
    """Without Stream-Closed: true the closing tuple is recognised all the same."""
    request = text(producer=producer)
    if state.closer is not None and producer == state.closer:
        assert decide(TEXT, state, request, NOW) == Accepted(state, None, producer.seq)
        return
    with pytest.raises(StreamClosed) as raised:
        decide(TEXT, state, request, NOW)
    assert raised.value.next_offset == state.next_offset(7)


@pytest.mark.parametrize("content_type", [None, "text/plain", "image/png", "garbage"])
@pytest.mark.parametrize("state", [OPEN, CLOSED], ids=["open", "closed"])
def test_a_bare_close_ignores_the_content_type(content_type: str | None, state: State) -> None:
    assert decide(TEXT, state, Append(b"", content_type, True), NOW).state.closed


def test_closing_a_json_stream_needs_no_json() -> None:
    closed = decide(JSON, OPEN, Append(b"", None, True), NOW).state
    assert closed.next_offset(0) == OPEN.next_offset(0)


def test_closing_an_empty_stream_leaves_its_reader_at_the_start() -> None:
    accepted = decide(TEXT, State(0, 0, 0, 0), Append(b"", close=True), NOW)
    assert accepted.state.closed
    assert accepted.state.tail == 0
    assert accepted.state.next_offset(0) == "0000000000000000_0000000000000000"


# The order of the checks: with two mistakes, the earlier one is named


class Mistake(NamedTuple):
    error: type[TailraceError]
    fields: dict[str, Any]
    closed: bool = False


MISTAKES: dict[str, Mistake] = {
    "empty body": Mistake(EmptyBody, {"body": b""}),
    "no content type": Mistake(BadHeader, {"content_type": None}),
    "closed": Mistake(StreamClosed, {}, closed=True),
    "other content type": Mistake(ContentTypeConflict, {"content_type": "text/plain"}),
    "fenced": Mistake(ProducerFenced, {"producer": Producer("p", 4, 0)}),
    "gap": Mistake(ProducerGap, {"producer": Producer("p", 5, 11)}),
    "new epoch not at 0": Mistake(NewEpochNotAtZero, {"producer": Producer("p", 6, 1)}),
    "Stream-Seq": Mistake(SequenceConflict, {"seq": "m"}),
    "invalid JSON": Mistake(InvalidJson, {"body": b"{"}),
    "empty batch": Mistake(EmptyBatch, {"body": b"[]"}),
}
RANKS = {
    name: rank
    for rank, names in enumerate(
        [
            ["empty body"],
            ["no content type"],
            ["closed"],
            ["other content type"],
            ["fenced", "gap", "new epoch not at 0"],
            ["Stream-Seq"],
            ["invalid JSON", "empty batch"],
        ]
    )
    for name in names
}
PAIRS = [
    (first, second)
    for first, second in product(MISTAKES, MISTAKES)
    if RANKS[first] < RANKS[second]
    and not MISTAKES[first].fields.keys() & MISTAKES[second].fields.keys()
]
GOOD = Append(b"[1,2]", "application/json", producer=Producer("p", 5, 10), seq="n")


def attempt(*mistakes: Mistake, close: bool = False) -> tuple[State, Append]:
    request = GOOD._replace(close=close)
    state = OPEN
    for mistake in mistakes:
        request = request._replace(**mistake.fields)
        if mistake.closed:
            state = CLOSED
    return state, request


def test_without_a_mistake_the_request_is_accepted() -> None:
    state, request = attempt()
    assert decide(JSON, state, request, NOW).entry is not None


@pytest.mark.parametrize(
    ("name", "close"),
    # A close without a body is no mistake.
    [pair for pair in product(MISTAKES, (False, True)) if pair != ("empty body", True)],
)
def test_each_mistake_is_named(name: str, close: bool) -> None:
    state, request = attempt(MISTAKES[name], close=close)
    with pytest.raises(MISTAKES[name].error):
        decide(JSON, state, request, NOW)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_of_two_mistakes_the_earlier_in_the_order_is_named(first: str, second: str) -> None:
    state, request = attempt(MISTAKES[first], MISTAKES[second])
    with pytest.raises(MISTAKES[first].error):
        decide(JSON, state, request, NOW)


@pytest.mark.parametrize("seq", ["m", "a"])
@pytest.mark.parametrize("body", [b"{", b"[]", b"[1]"])
def test_a_retry_is_a_duplicate_before_anything_else_is_wrong_with_it(
    seq: str, body: bytes
) -> None:
    request = Append(body, "application/json", seq=seq, producer=Producer("p", 5, 9))
    assert decide(JSON, OPEN, request, NOW) == Accepted(OPEN, None, 9, is_end=False)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_refused_request_changes_nothing(name: str) -> None:
    """The same request without the mistake is still the next one."""
    state, request = attempt(MISTAKES[name])
    before = state._replace(producers=dict(state.producers))
    with pytest.raises(MISTAKES[name].error):
        decide(JSON, state, request, NOW)
    assert state == before
    assert decide(JSON, OPEN, GOOD, NOW).entry is not None


# The tombstone


@pytest.mark.parametrize("state", [State(0, 0, 0, 0), OPEN, CLOSED, CLOSED_BY_P])
def test_a_tombstone_fills_the_next_slot_without_data(state: State) -> None:
    entry = tombstone(state, NOW)
    assert entry.slot == state.slot
    assert entry.body is None
    assert entry.state == state._replace(slot=state.slot + 1, written_at=NOW, deleted=True)


# What holds for any request


producers = st.none() | st.builds(
    Producer, st.sampled_from(["p", "q"]), st.integers(4, 6), st.integers(0, 11)
)
requests = st.builds(
    Append,
    st.sampled_from([b"", b"x", b"[1,2]", b"[]", b"{", b'{"a":1}']),
    st.sampled_from([None, "text/plain", "application/json"]),
    st.booleans(),
    st.sampled_from([None, "a", "m", "z"]),
    producers,
)
states = st.sampled_from([State(0, 0, 0, 0), OPEN, CLOSED, CLOSED_BY_P])


@bounded
@given(st.sampled_from([TEXT, JSON]), states, requests, st.integers(0, 2_000_000))
def test_an_accepted_request_moves_the_state_forward_by_one_slot(
    config: Config, state: State, request: Append, now: int
) -> None:
    try:
        accepted = decide(config, state, request, now)
    except TailraceError:
        return
    after, entry = accepted.state, accepted.entry
    if entry is None:
        assert after is state
        return
    assert not state.closed
    assert entry.slot == state.slot
    assert entry.state is after
    assert after.slot == state.slot + 1
    assert after.closed == request.close
    assert after.written_at >= state.written_at
    assert (after.offset > state.offset) == (entry.body is not None)
    assert after.size == state.size + len(entry.body or b"")
    assert after.next_offset(0) > state.next_offset(0) or entry.body is None
    assert entry.body != b""
