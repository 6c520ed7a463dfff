"""The checker of histories: right ones pass, and every rule catches what breaks it.

Most tests begin with `GOOD`, a history in which everything goes well, and spoil one thing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from devtools.linearizability.checker import (
    Acknowledged,
    Append,
    Close,
    Create,
    Delete,
    Duplicate,
    Event,
    Final,
    History,
    Incarnation,
    Missing,
    Outcome,
    Read,
    Rejected,
    Unknown,
    check,
)
from tailrace.log.offsets import START
from tailrace.log.state import Producer

E = TypeVar("E", bound=Event)

S = "s"
BODIES = (b"<a>", b"<p0>", b"<bb>", b"<p1>")
CONTENT = b"".join(BODIES)


def at(*bodies: bytes) -> str:
    """The offset after these bodies."""
    return f"{len(bodies):016d}_{len(b''.join(bodies)):016d}"


def append(body: bytes, times: tuple[float, float], outcome: Outcome, **more: Any) -> Append:
    return Append(stream=S, body=body, invoked=times[0], returned=times[1], outcome=outcome, **more)


def read(*bodies: bytes, times: tuple[float, float], before: int = 0, **more: Any) -> Read:
    """A read of bodies that come after the first few of `BODIES`."""
    known = BODIES[:before]
    return Read(
        stream=S,
        start=at(*known),
        bodies=bodies,
        next_offset=at(*known, *bodies),
        invoked=times[0],
        returned=times[1],
        **{"up_to_date": True} | more,
    )


def event(kind: Callable[..., E], times: tuple[float, float], **more: Any) -> E:
    return kind(stream=S, invoked=times[0], returned=times[1], **more)


CREATE = event(Create, (0, 1))
A = append(b"<a>", (2, 5), Acknowledged(at(b"<a>")))
P0_LOST = append(b"<p0>", (3, 6), Unknown(), producer=Producer("p", 0, 0))
P0 = append(b"<p0>", (7, 8), Duplicate(at(b"<a>", b"<p0>")), producer=Producer("p", 0, 0))
LOST = append(b"<lost>", (8, 9), Unknown())
EARLY = read(b"<a>", b"<p0>", times=(6, 10))
BB = append(b"<bb>", (11, 13), Unknown())
P1 = append(b"<p1>", (12, 15), Acknowledged(at(*BODIES)), producer=Producer("p", 0, 1))
NOT_YET = read(b"<a>", times=(14, 16), up_to_date=False)
CLOSE = event(Close, (16, 20), outcome=Acknowledged(at(*BODIES)))
TOO_LATE = append(b"<late>", (18, 22), Rejected("STREAM_CLOSED"))
LATE = read(*BODIES[2:], times=(21, 23), before=2, closed=True)

GOOD = (CREATE, A, P0_LOST, P0, LOST, EARLY, BB, P1, NOT_YET, CLOSE, TOO_LATE, LATE)
FINAL = Final(CONTENT, at(*BODIES), closed=True)


def spoil(
    changes: Mapping[Event, Event | None] | None = None,
    *more: Event,
    final: Final = FINAL,
    incarnations: Mapping[Incarnation, Final] | None = None,
) -> str:
    """The verdict on the good history with events replaced, left out and added."""
    changes = changes or {}
    events = [kept for e in GOOD if (kept := changes.get(e, e)) is not None]
    return complaint([*events, *more], incarnations or {Incarnation(S): final})


def complaint(events: list[Event], final: Mapping[Incarnation, Final]) -> str:
    with pytest.raises(AssertionError) as raised:
        check(History(events), final)
    return str(raised.value)


def content(*bodies: bytes, closed: bool = True) -> Final:
    return Final(b"".join(bodies), at(*bodies), closed)


# Right ones


def test_an_empty_history_is_valid() -> None:
    check(History(), {})


def test_a_correct_history_is_valid() -> None:
    check(History(GOOD), {Incarnation(S): FINAL})


def test_the_order_of_recording_does_not_matter() -> None:
    check(History(reversed(GOOD)), {Incarnation(S): FINAL})


def test_appends_with_unknown_outcome_may_be_stored_or_not() -> None:
    lost = replace(P1, outcome=Unknown())
    for bodies in (BODIES, (*BODIES, b"<lost>"), BODIES[:3], (*BODIES[:2], b"<lost>")):
        check(History([A, P0, LOST, BB, lost]), {Incarnation(S): content(*bodies, closed=False)})


def test_concurrent_appends_may_come_in_any_order() -> None:
    first = append(b"<a>", (1, 3), Acknowledged(at(b"<b>", b"<a>")))
    second = append(b"<b>", (2, 4), Acknowledged(at(b"<b>")))
    check(History([first, second]), {Incarnation(S): content(b"<b>", b"<a>", closed=False)})


def test_a_retry_that_is_rejected_may_have_been_stored_before() -> None:
    again = replace(P0, invoked=24, returned=25, outcome=Rejected("STREAM_CLOSED"))
    check(History([*GOOD, again]), {Incarnation(S): FINAL})


def test_an_append_may_close() -> None:
    closing = replace(P1, close=True)
    events = [closing if e is P1 else e for e in GOOD if e is not CLOSE]
    check(History(events), {Incarnation(S): FINAL})


def test_a_new_epoch_begins_at_zero() -> None:
    sent = [
        append(b"<%d>" % n, (n, n + 0.5), Unknown(), producer=Producer("p", *who))
        for n, who in enumerate([(0, 0), (0, 1), (2, 0), (2, 1), (3, 0)])
    ]
    final = content(*(s.body for s in sent), closed=False)
    check(History(sent), {Incarnation(S): final})


def test_a_deleted_stream_may_be_created_again() -> None:
    events = [
        *GOOD,
        event(Delete, (30, 33)),
        append(b"<x>", (31, 34), Rejected("STREAM_NOT_FOUND")),
        event(Missing, (34, 35)),
        event(Create, (36, 40), incarnation=1),
        event(Create, (37, 41), incarnation=1, new=False),
        append(b"<y>", (38, 42), Acknowledged(at(b"<y>")), producer=Producer("p", 0, 0)),
        read(b"<y>", times=(43, 44), incarnation=1),
    ]
    again = content(b"<y>", closed=False)
    check(History(events), {Incarnation(S): FINAL, Incarnation(S, 1): again})
    check(History(events), {Incarnation(S, 1): again})


def test_an_append_across_a_delete_and_a_create_belongs_where_it_is() -> None:
    across = append(b"<x>", (2, 9), Acknowledged(at(b"<x>")))
    events = [CREATE, event(Delete, (3, 5)), event(Create, (6, 8), incarnation=1), across]
    here, empty = content(b"<x>", closed=False), content(closed=False)
    check(History(events), {Incarnation(S): here, Incarnation(S, 1): empty})
    check(History(events), {Incarnation(S): empty, Incarnation(S, 1): here})
    check(History(events), {Incarnation(S, 1): empty})
    said = complaint(events, {Incarnation(S): empty, Incarnation(S, 1): empty})
    assert "acknowledged, but not in" in said


def test_a_retry_across_a_delete_and_a_create_may_be_stored_again() -> None:
    lost = append(b"<x>", (2, 3), Unknown(), producer=Producer("p", 0, 0))
    ended, begun = event(Delete, (4, 6)), event(Create, (7, 8), incarnation=1)
    retry = replace(lost, invoked=5, returned=10, outcome=Acknowledged(at(b"<yy>", b"<x>")))
    other = append(b"<yy>", (7, 9), Unknown())
    before, after = content(b"<x>", closed=False), content(b"<yy>", b"<x>", closed=False)
    final = {Incarnation(S): before, Incarnation(S, 1): after}
    check(History([CREATE, lost, ended, begun, retry, other]), final)
    wrong = replace(retry, outcome=Acknowledged(at(b"<zzz>", b"<x>")))
    assert str(wrong) in complaint([CREATE, lost, ended, begun, wrong, other], final)


def test_a_delete_that_is_not_done_may_be_at_any_time() -> None:
    events = [CREATE, A, event(Delete, (6, 7), done=False)]
    later = [append(b"<b>", (8, 9), Acknowledged(at(b"<a>", b"<b>"))), event(Missing, (10, 11))]
    check(History([*events, *later]), {})


# Every rule


def test_a_lost_append_is_detected() -> None:
    said = spoil(final=content(*BODIES[:3]))
    assert "acknowledged, but not in Incarnation(stream='s', id=0)" in said
    assert str(P1) in said


def test_a_lost_append_that_was_acknowledged_as_a_duplicate_is_detected() -> None:
    said = spoil({P0_LOST: None}, final=content(b"<a>", b"<bb>", b"<p1>"))
    assert f"acknowledged, but not in Incarnation(stream='s', id=0)\n    {P0}" in said


@pytest.mark.parametrize("body", [b"<a>", b"<lost>"])
def test_an_append_that_is_there_twice_is_detected(body: bytes) -> None:
    sent = A if body == b"<a>" else LOST
    said = spoil(final=content(*BODIES, body, body))
    assert "stored as appends" in said
    assert str(sent) in said


def test_a_body_that_was_never_sent_is_detected() -> None:
    said = spoil(final=content(*BODIES, b"<x>"))
    assert "append 4 of Incarnation(stream='s', id=0) holds what nobody sent to it: b'<x>'" in said


def test_a_torn_body_is_detected() -> None:
    assert "a part of an append: b'<la'" in spoil(final=Final(CONTENT + b"<la", at(*BODIES), True))


def test_an_end_that_is_not_the_contents_is_detected() -> None:
    assert "but says" in spoil(final=Final(CONTENT, at(*BODIES[:3]), True))


def test_a_rejected_append_that_was_stored_is_detected() -> None:
    said = spoil(final=content(*BODIES, b"<late>"))
    assert f"rejected, but stored as append 4\n    {TOO_LATE}" in said


def test_an_acknowledgement_with_a_wrong_offset_is_detected() -> None:
    for wrong in (at(), at(b"<p0>", b"<a>"), "0000000000000001_0000000000000004"):
        spoiled = replace(A, outcome=Acknowledged(wrong))
        assert f"the append ends at 3\n    {spoiled}" in spoil({A: spoiled})


def test_two_tokens_of_one_place_are_detected() -> None:
    other = "0000000000000001_0000000000000007"
    for right, wrong in (
        (P0, replace(P0, outcome=Duplicate(other))),
        (EARLY, replace(EARLY, next_offset=other)),
    ):
        said = spoil({right: wrong})
        assert "1 violations" in said
        assert "another token of that place is" in said


def test_tokens_that_do_not_grow_are_detected() -> None:
    back = replace(A, outcome=Acknowledged("0000000000000003_0000000000000003"))
    said = spoil({A: back, NOT_YET: None})
    assert f"has 0000000000000003_0000000000000003 before {at(*BODIES[:2])}" in said


@pytest.mark.parametrize("wrong", [at(b"<a>"), at(*BODIES, b"<x>")])
def test_a_duplicate_with_an_offset_that_never_was_is_detected(wrong: str) -> None:
    spoiled = replace(P0, outcome=Duplicate(wrong))
    assert f"the append ends at 7\n    {spoiled}" in spoil({P0: spoiled})


@pytest.mark.parametrize(
    "order",
    [
        [(0, 1)],
        [(0, 0), (0, 2)],
        [(0, 1), (0, 0)],
        [(0, 0), (0, 0)],
        [(1, 0), (0, 0)],
        [(0, 0), (1, 1)],
        [(0, 0), (1, 0), (0, 1)],
    ],
)
def test_a_producer_out_of_sequence_is_detected(order: list[tuple[int, int]]) -> None:
    sent: list[Event] = [
        append(b"<%d>" % n, (0, 9), Unknown(), producer=Producer("p", *who))
        for n, who in enumerate(order)
    ]
    final = content(*(b"<%d>" % n for n in range(len(order))), closed=False)
    said = complaint(sent, {Incarnation(S): final})
    assert "does not follow what its producer stored before" in said
    assert str(sent[-1]) in said


def test_an_order_against_time_is_detected() -> None:
    first = append(b"<1>", (1, 2), Acknowledged(at(b"<2>", b"<1>")))
    between = append(b"<u>", (1, 2), Unknown())
    second = append(b"<2>", (3, 4), Acknowledged(at(b"<2>")))
    final = content(b"<2>", b"<1>", b"<u>", closed=False)
    said = complaint([first, between, second], {Incarnation(S): final})
    why = "acknowledged before the other was sent, but stored after it"
    assert f"{why}\n    {first}\n    {second}" in said


@pytest.mark.parametrize(
    "bodies",
    [
        (b"<p0>", b"<a>"),
        (b"<a>", b"<bb>"),
        (b"<a>", b"<p"),
        (b"a>", b"<p0>"),
        (b"<a>", b"<a>", b"<p0>"),
        (b"<a>", b"<lost>"),
        (b"<p0>",),
    ],
)
def test_a_read_of_missing_content_is_detected(bodies: tuple[bytes, ...]) -> None:
    spoiled = read(*bodies, times=(6, 10), up_to_date=False)
    said = spoil({EARLY: spoiled})
    assert f"saw what is not there in Incarnation(stream='s', id=0)\n    {spoiled}" in said


def test_a_read_with_a_wrong_next_offset_is_detected() -> None:
    for wrong in (at(b"<a>"), at(*BODIES), "0000000000000002_0000000000000006"):
        spoiled = replace(EARLY, next_offset=wrong)
        assert f"what was seen ends at 7\n    {spoiled}" in spoil({EARLY: spoiled})


def test_a_read_that_skips_is_detected() -> None:
    spoiled = replace(NOT_YET, bodies=())
    assert f"went on without having seen anything\n    {spoiled}" in spoil({NOT_YET: spoiled})


def test_a_read_that_gets_nowhere_is_detected() -> None:
    spoiled = replace(NOT_YET, bodies=(), next_offset=START)
    said = spoil({NOT_YET: spoiled})
    assert f"saw nothing, but was told that there is more\n    {spoiled}" in said


def test_an_up_to_date_read_that_lacks_an_acknowledged_append_is_detected() -> None:
    stale = read(b"<a>", b"<p0>", b"<bb>", times=(15.5, 17))
    assert f"up to date, but lacks what was known\n    {stale}\n    {P1}" in spoil({}, stale)


def test_an_up_to_date_read_that_lacks_data_of_an_earlier_read_is_detected() -> None:
    seen = read(*BODIES[:3], times=(12, 13.5))
    stale = read(b"<a>", b"<p0>", times=(14, 15))
    said = spoil({}, seen, stale)
    assert f"up to date, but lacks what was known\n    {stale}\n    {seen}" in said


def test_an_append_after_a_close_is_detected() -> None:
    after = append(b"<x>", (21, 24), Unknown())
    said = spoil({LATE: None}, after, final=content(*BODIES, b"<x>"))
    assert f"stored after the close\n    {after}\n    {CLOSE}" in said


def test_an_append_after_an_append_that_closed_is_detected() -> None:
    closing = replace(P1, close=True)
    after = append(b"<x>", (16, 18), Unknown())
    said = spoil({P1: closing, CLOSE: None, LATE: None}, after, final=content(*BODIES, b"<x>"))
    assert f"stored after the close\n    {after}\n    {closing}" in said


def test_a_close_that_is_not_at_the_end_is_detected() -> None:
    said = spoil({LATE: None}, final=content(*BODIES, b"<lost>"))
    assert "closed, but Incarnation(stream='s', id=0) ends at" in said
    assert str(CLOSE) in said


def test_a_close_that_is_lost_is_detected() -> None:
    said = spoil({LATE: None, TOO_LATE: None}, final=content(*BODIES, closed=False))
    assert f"acknowledged, but Incarnation(stream='s', id=0) is open\n    {CLOSE}" in said


def test_a_close_that_was_never_sent_is_detected() -> None:
    said = spoil({CLOSE: None, LATE: None, TOO_LATE: None})
    assert "Incarnation(stream='s', id=0) is closed, but nobody closed it" in said


def test_a_read_that_reports_an_open_stream_as_closed_is_detected() -> None:
    lost = replace(CLOSE, outcome=Unknown())
    said = spoil({CLOSE: lost, TOO_LATE: None}, final=content(*BODIES, closed=False))
    assert f"said closed, but Incarnation(stream='s', id=0) is open\n    {LATE}" in said


@pytest.mark.parametrize(
    "early",
    [
        read(*BODIES[:2], times=(17, 18), closed=True),
        read(*BODIES, times=(17, 18), closed=True, up_to_date=False),
    ],
    ids=["offset", "up to date"],
)
def test_a_read_that_reports_a_close_before_the_end_is_detected(early: Read) -> None:
    said = spoil({}, early)
    assert "said closed, but Incarnation(stream='s', id=0) ends at 15" in said
    assert str(early) in said


def test_a_read_that_reports_a_close_before_any_close_is_detected() -> None:
    early = read(*BODIES, times=(14, 15), closed=True)
    assert f"said closed before anybody closed\n    {early}" in spoil({}, early)


def test_a_read_that_does_not_report_a_close_is_detected() -> None:
    spoiled = replace(LATE, closed=False)
    said = spoil({LATE: spoiled})
    assert f"at the end, but not told that it is closed\n    {spoiled}\n    {CLOSE}" in said


def test_a_rejection_as_closed_of_an_open_stream_is_detected() -> None:
    spoiled = replace(TOO_LATE, invoked=14, returned=15)
    said = spoil({TOO_LATE: spoiled})
    assert f"rejected as closed, but nobody closed\n    {spoiled}" in said


def test_a_rejection_for_a_gap_that_is_not_there_is_detected() -> None:
    spoiled = replace(P1, outcome=Rejected("PRODUCER_GAP"))
    said = spoil({P1: spoiled}, final=content(*BODIES[:3]))
    assert f"rejected for a gap that is not there\n    {spoiled}\n    {P0}" in said


def test_a_rejection_as_fenced_without_a_newer_epoch_is_detected() -> None:
    spoiled = replace(P1, outcome=Rejected("PRODUCER_FENCED"))
    newer = append(b"<n>", (16, 17), Unknown(), producer=Producer("p", 1, 0))
    said = spoil({P1: spoiled}, newer, final=content(*BODIES[:3]))
    assert f"rejected as fenced, but nobody took over\n    {spoiled}" in said


def test_a_rejection_as_missing_of_a_stream_that_is_there_is_detected() -> None:
    for told in (
        append(b"<x>", (14, 15), Rejected("STREAM_NOT_FOUND")),
        append(b"<x>", (14, 15), Rejected("STREAM_GONE")),
        event(Close, (14, 15), outcome=Rejected("STREAM_NOT_FOUND")),
        event(Missing, (14, 15)),
    ):
        said = spoil({}, told, event(Delete, (40, 41)))
        why = "told that there is no stream, but Incarnation(stream='s', id=0) was there"
        assert f"{why}\n    {told}" in said


def test_a_stream_that_vanished_without_a_delete_is_detected() -> None:
    said = complaint([CREATE], {})
    assert "Incarnation(stream='s', id=0) is not there in the end, but nobody deleted it" in said


def test_an_append_to_a_deleted_stream_is_detected() -> None:
    delete = event(Delete, (30, 31))
    after = append(b"<x>", (32, 33), Acknowledged(at(*BODIES, b"<x>")))
    said = spoil({}, delete, after)
    assert f"acknowledged, but there was no such stream\n    {after}\n    {delete}" in said


def test_an_append_to_a_deleted_stream_that_was_stored_is_detected() -> None:
    after = append(b"<x>", (32, 33), Unknown())
    said = spoil(
        {CLOSE: None, LATE: None, TOO_LATE: None},
        event(Delete, (30, 31)),
        after,
        final=content(*BODIES, b"<x>", closed=False),
    )
    assert "append 4 of Incarnation(stream='s', id=0) holds what nobody sent to it: b'<x>'" in said


def test_a_read_of_a_deleted_incarnation_is_detected() -> None:
    delete = event(Delete, (30, 31))
    after = read(*BODIES, times=(32, 33), closed=True)
    said = spoil({}, delete, after)
    assert f"saw what had been deleted\n    {after}\n    {delete}" in said


def test_data_of_the_incarnation_before_is_detected() -> None:
    more = (event(Delete, (30, 31)), event(Create, (32, 33), incarnation=1))
    said = spoil(
        {},
        *more,
        read(b"<a>", times=(34, 35), incarnation=1),
        incarnations={Incarnation(S): FINAL, Incarnation(S, 1): content(closed=False)},
    )
    assert "saw what is not there in Incarnation(stream='s', id=1)" in said
    said = spoil({}, *more, incarnations={Incarnation(S, 1): content(b"<a>", closed=False)})
    assert "append 0 of Incarnation(stream='s', id=1) holds what nobody sent to it: b'<a>'" in said


def test_two_creations_of_one_incarnation_are_detected() -> None:
    again = event(Create, (2, 3))
    said = spoil({}, again)
    assert f"Incarnation(stream='s', id=0) was created twice\n    {CREATE}\n    {again}" in said


def test_a_creation_while_another_incarnation_is_there_is_detected() -> None:
    again = event(Create, (2, 3), incarnation=1)
    said = spoil(
        {}, again, incarnations={Incarnation(S): FINAL, Incarnation(S, 1): content(closed=False)}
    )
    assert f"created anew while Incarnation(stream='s', id=0) was there\n    {again}" in said


# The checker itself


def test_streams_are_checked_independently() -> None:
    other = [replace(e, stream="t") for e in GOOD]
    finals = {Incarnation(S): FINAL, Incarnation("t"): content(*BODIES[:3])}
    said = complaint([*GOOD, *other], finals)
    assert "Incarnation(stream='t', id=0)" in said
    assert "stream='s'" not in said


def test_only_the_first_violations_are_listed() -> None:
    lost: list[Event] = [append(b"<%d>" % n, (1, 2), Acknowledged(START)) for n in range(100)]
    said = complaint(lost, {Incarnation(S): content(closed=False)})
    assert said.startswith("100 violations\n")
    assert said.endswith("... and 88 more")


def test_large_bodies_are_abbreviated() -> None:
    large = append(b"<%s>" % (b"x" * 10_000), (1, 2), Acknowledged(START))
    assert len(complaint([large], {Incarnation(S): content(closed=False)})) < 500
