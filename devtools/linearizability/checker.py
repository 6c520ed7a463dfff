"""Checker of recorded histories: can these answers of a stream all be true?

`History` records events with the times at which they were invoked and returned. `check` compares
them with what the streams hold in the end and lists what should not have happened. The rules are
the functions in `STREAM_RULES` and `CONTENT_RULES`: the definition of correctness under faults.

Every append has a body of its own in angle brackets, such as `b"<w3.17>"` in a text stream, so
that content can be taken apart into appends. The same body sent again is a retry of its append.

The offset of a token says how much data lies before. Its slot has to be the same in all tokens of a
place, and to grow with the offset: appends that share a slot have the same one.
"""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import Final as Constant
from typing import NamedTuple, TypeVar

from tailrace.errors import ProducerFenced, ProducerGap, StreamClosed, StreamGone, StreamNotFound
from tailrace.log.offsets import parse
from tailrace.log.state import Producer

SHOWN: Constant = 12
"""Violations that a failure lists."""

BODY: Constant = re.compile(rb"<[^<>]*>")


# How a call ends


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Done now; `next_offset` is where the stream ends after it."""

    next_offset: str


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Done before, by an earlier attempt; `next_offset` is where the stream ends by now."""

    next_offset: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """Not done, and never will be; `code` is the error's."""

    code: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Done, not done, or done at any time from now on."""


Outcome = Acknowledged | Duplicate | Rejected | Unknown


# What happens


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    stream: str
    invoked: float
    returned: float

    def __str__(self) -> str:
        shown = (f"{f.name}={_short(getattr(self, f.name))}" for f in fields(self))
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Create(Event):
    """A call, with all its attempts, that made this incarnation, or found it if it is not `new`."""

    incarnation: int = 0
    new: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(Event):
    """A call, with all its attempts; if it is not `done` the incarnation may go at any time."""

    incarnation: int = 0
    done: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Append(Event):
    body: bytes
    outcome: Outcome
    producer: Producer | None = None
    close: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Close(Event):
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(Event):
    start: str
    bodies: Sequence[bytes]
    next_offset: str
    up_to_date: bool
    closed: bool = False
    incarnation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing(Event):
    """A read that was told that there is no such stream."""


class History:
    """Events, and a clock for them that never shows a time twice.

    The clock only counts: within one process that is all that order needs."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events = list(events)
        self._ticks = itertools.count(1)

    def now(self) -> int:
        return next(self._ticks)

    def record(self, event: Event) -> None:
        self.events.append(event)


# What is there in the end


class Incarnation(NamedTuple):
    stream: str
    id: int = 0


class Final(NamedTuple):
    """All that an incarnation holds, read when nothing was under way any more."""

    content: bytes
    next_offset: str
    closed: bool = False


# The check


def check(history: History, final: Mapping[Incarnation, Final]) -> None:
    """Raises an AssertionError that lists what should not have happened.

    The content of an incarnation that was deleted may be left out of `final`; what needs it is not
    checked then. A stream that nobody created was there from the start."""
    found: list[str] = []
    for stream in _streams(history, final):
        for rule in STREAM_RULES:
            found += rule(stream)
        for life in stream.lives:
            if life.final is not None:
                for content_rule in CONTENT_RULES:
                    found += content_rule(life, life.final)
    if found:
        more = [f"... and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
        raise AssertionError("\n".join([f"{len(found)} violations", *found[:SHOWN], *more]))


class Sent:
    """One body, and every attempt to append it to the same incarnation."""

    def __init__(self) -> None:
        self.attempts: list[Append] = []

    @cached_property
    def first(self) -> Append:
        """The earliest attempt that may have stored it."""
        able = [attempt for attempt in self.attempts if not _rejected(attempt)]
        return min(able or self.attempts, key=attrgetter("invoked"))

    @cached_property
    def acknowledged(self) -> Append | None:
        return _first_done(self.attempts)


class Life:
    """An incarnation of a stream: what it holds, and all that happened to it."""

    def __init__(self, name: Incarnation, final: Final | None) -> None:
        self.name = name
        self.final = final
        self.creates: list[Create] = []
        self.deletes: list[Delete] = []
        self.reads: list[Read] = []
        self.closes: list[Close | Append] = []
        self.sent = defaultdict[bytes, Sent](Sent)
        self.content: list[bytes] = BODY.findall(final.content) if final else []
        """The body of each append."""
        self.places = {body: place for place, body in reversed([*enumerate(self.content)])}
        """The first place of each body."""
        self.offsets = [*itertools.accumulate(map(len, self.content), initial=0)]
        """Where each append begins, and where the last one ends."""

    @cached_property
    def may_begin(self) -> float:
        return min((create.invoked for create in self.creates if create.new), default=-math.inf)

    @cached_property
    def begun(self) -> float:
        return min((create.returned for create in self.creates), default=-math.inf)

    @cached_property
    def may_end(self) -> float:
        return min((delete.invoked for delete in self.deletes), default=math.inf)

    @cached_property
    def ended(self) -> float:
        return min((delete.returned for delete in self.deletes if delete.done), default=math.inf)

    @cached_property
    def may_close(self) -> float:
        tried = (close.invoked for close in self.closes if not _rejected(close))
        return min(tried, default=math.inf)

    @cached_property
    def closed(self) -> Close | Append | None:
        """The earliest acknowledgement of a close."""
        return _first_done(self.closes)

    @cached_property
    def stored(self) -> list[Sent]:
        """The content as far as somebody sent it."""
        return [self.sent[body] for body in self.content if body in self.sent]

    @cached_property
    def attempts(self) -> list[Append]:
        return [attempt for sent in self.sent.values() for attempt in sent.attempts]

    def may_take(self, event: Append | Close) -> bool:
        """Whether the event may have happened to this incarnation."""
        until = math.inf if isinstance(event.outcome, Unknown) else event.returned
        return self.may_begin <= until and event.invoked <= self.ended

    def was_there(self, event: Event) -> bool:
        """Whether the stream was this incarnation all the time that the event took."""
        return self.begun < event.invoked and event.returned < self.may_end


class Stream:
    """All incarnations of a stream, each with its events."""

    def __init__(self, lives: Sequence[Life]) -> None:
        self.lives = lives
        self.missing: list[Event] = []
        """Operations that were told that there is no such stream."""
        self.strays: list[Event] = []
        """Operations that were acknowledged although there was no such stream."""


# The rules for the incarnations of a stream


def incarnations_follow_one_another(stream: Stream) -> Iterator[str]:
    made = [create for life in stream.lives for create in life.creates if create.new]
    for life in stream.lives:
        mine = [create for create in life.creates if create.new]
        if len(mine) > 1:
            yield _violation(f"{life.name} was created twice", *mine)
        for create in made:
            if create not in mine and life.was_there(create):
                yield _violation(f"created anew while {life.name} was there", create)


def a_stream_is_missing_only_before_and_after_its_life(stream: Stream) -> Iterator[str]:
    for life in stream.lives:
        if life.final is None and life.may_end == math.inf:
            yield f"- {life.name} is not there in the end, but nobody deleted it"
        for event in filter(life.was_there, stream.missing):
            yield _violation(f"told that there is no stream, but {life.name} was there", event)


def nothing_happens_to_what_was_deleted(stream: Stream) -> Iterator[str]:
    deletes = [delete for life in stream.lives for delete in life.deletes]
    for event in stream.strays:
        yield _violation("acknowledged, but there was no such stream", event, *deletes)
    for life in stream.lives:
        for read in life.reads:
            if life.ended < read.invoked:
                yield _violation("saw what had been deleted", read, *life.deletes)


# The rules for the content of an incarnation


def content_is_made_of_what_was_sent(life: Life, final: Final) -> Iterator[str]:
    torn = BODY.sub(b"", final.content)
    if torn:
        yield f"- {life.name} holds a part of an append: {_short(torn)}"
    if offset_of(final.next_offset) != life.offsets[-1]:
        yield f"- {life.name} ends at {life.offsets[-1]}, but says {final.next_offset}"
    for place, body in enumerate(life.content):
        if body not in life.sent:
            yield f"- append {place} of {life.name} holds what nobody sent to it: {_short(body)}"
        elif all(map(_rejected, life.sent[body].attempts)):
            yield _violation(f"rejected, but stored as append {place}", *life.sent[body].attempts)


def nothing_is_stored_twice(life: Life, _: Final) -> Iterator[str]:
    for place, body in enumerate(life.content):
        first = life.places[body]
        if first != place and body in life.sent:
            yield _violation(f"stored as appends {first} and {place}", *life.sent[body].attempts)


def what_is_acknowledged_is_stored(life: Life, _: Final) -> Iterator[str]:
    for body, sent in life.sent.items():
        if sent.acknowledged and body not in life.places:
            yield _violation(f"acknowledged, but not in {life.name}", sent.acknowledged)


def an_acknowledgement_says_where_the_append_ends(life: Life, _: Final) -> Iterator[str]:
    """Of a duplicate: where the stream ended then, not before the append."""
    for append in life.attempts:
        if append.body in life.places and not _place_agrees(life, append):
            end = life.offsets[life.places[append.body] + 1]
            yield _violation(f"the append ends at {end}", append)


def an_offset_has_one_token(life: Life, final: Final) -> Iterator[str]:
    """A reader that goes on at another slot than the next data is in would miss it."""
    tokens: dict[int, str] = {offset_of(final.next_offset): final.next_offset}
    for event in (*life.attempts, *life.closes, *life.reads):
        said = _token_of(event)
        if said is not None and tokens.setdefault(offset_of(said), said) != said:
            yield _violation(f"another token of that place is {tokens[offset_of(said)]}", event)
    ordered = [tokens[offset] for offset in sorted(tokens)]
    for before, after in pairwise(ordered):
        if before > after:
            yield f"- {life.name} has {before} before {after}"


def _token_of(event: Append | Close | Read) -> str | None:
    match event:
        case Read(next_offset=said):
            return said
        case Append(outcome=Acknowledged(said) | Duplicate(said)):
            return said
        case Close(outcome=Acknowledged(said) | Duplicate(said)):
            return said
    return None


def producers_are_in_sequence(life: Life, _: Final) -> Iterator[str]:
    """Each epoch counts from 0 without a gap, and none comes after a later one."""
    last: dict[str, Append] = {}
    for append in (sent.first for sent in life.stored):
        if append.producer is None:
            continue
        name, epoch, seq = append.producer
        before = last.get(name)
        known = before.producer if before else None
        begins = seq == 0 and (known is None or known.epoch < epoch)
        if not begins and known != (name, epoch, seq - 1):
            events = (append, before) if before else (append,)
            yield _violation("does not follow what its producer stored before", *events)
        last[name] = append


def order_respects_time(life: Life, _: Final) -> Iterator[str]:
    """An operation acknowledged before another was sent comes before it."""
    earliest: Append | None = None
    for sent in reversed(life.stored):
        if earliest and earliest.returned < sent.first.invoked:
            why = "acknowledged before the other was sent, but stored after it"
            yield _violation(why, earliest, sent.first)
        earliest = _first_done(filter(None, (earliest, sent.acknowledged)))


def a_read_is_a_piece_of_the_content(life: Life, _: Final) -> Iterator[str]:
    for read in life.reads:
        start, end = offset_of(read.start), offset_of(read.next_offset)
        seen = b"".join(read.bodies)
        first = bisect_left(life.offsets, start)
        last = first + len(BODY.findall(seen))
        if life.offsets[first : first + 1] != [start] and seen:
            yield _violation("began inside of an append", read)
        elif seen != b"".join(life.content[first:last]):
            yield _violation(f"saw what is not there in {life.name}", read)
        elif seen and end != life.offsets[last]:
            yield _violation(f"what was seen ends at {life.offsets[last]}", read)
        elif not seen and (end not in life.offsets or end > start):
            yield _violation("went on without having seen anything", read)
        elif not seen and not read.up_to_date:
            yield _violation("saw nothing, but was told that there is more", read)


def a_read_up_to_date_lacks_nothing(life: Life, _: Final) -> Iterator[str]:
    """It has all that was acknowledged, or seen by another read, before it was invoked."""
    acknowledged = [sent.acknowledged for sent in life.stored if sent.acknowledged]
    known = sorted(
        [
            *(
                _Known(done.returned, life.offsets[life.places[done.body] + 1], done)
                for done in acknowledged
            ),
            *(_Known(read.returned, offset_of(read.next_offset), read) for read in life.reads),
        ],
        key=attrgetter("since"),
    )
    furthest = [*itertools.accumulate(known, _further)]
    for read in filter(attrgetter("up_to_date"), life.reads):
        before = bisect_left(known, read.invoked, key=attrgetter("since"))
        if before and furthest[before - 1].offset > offset_of(read.next_offset):
            yield _violation("up to date, but lacks what was known", read, furthest[before - 1].by)


class _Known(NamedTuple):
    since: float
    offset: int
    by: Event


def _further(a: _Known, b: _Known) -> _Known:
    return b if b.offset > a.offset else a


def nothing_follows_a_close(life: Life, final: Final) -> Iterator[str]:
    if final.closed and life.may_close == math.inf:
        yield f"- {life.name} is closed, but nobody closed it"
    for close in filter(_done, life.closes):
        match close.outcome:
            case Acknowledged(said) | Duplicate(said) if offset_of(said) != life.offsets[-1]:
                yield _violation(f"closed, but {life.name} ends at {life.offsets[-1]}", close)
        if not final.closed:
            yield _violation(f"acknowledged, but {life.name} is open", close)
    for sent in life.stored:
        if life.closed and life.closed.returned < sent.first.invoked:
            yield _violation("stored after the close", sent.first, life.closed)


def readers_agree_on_the_close(life: Life, final: Final) -> Iterator[str]:
    for read in life.reads:
        if read.closed and not final.closed:
            yield _violation(f"said closed, but {life.name} is open", read)
        at_end = offset_of(read.next_offset) == life.offsets[-1]
        if read.closed and not (at_end and read.up_to_date):
            yield _violation(f"said closed, but {life.name} ends at {life.offsets[-1]}", read)
        if read.closed and read.returned < life.may_close:
            yield _violation("said closed before anybody closed", read)
        told = read.closed or not read.up_to_date
        if not told and life.closed and life.closed.returned < read.invoked:
            yield _violation("at the end, but not told that it is closed", read, life.closed)


def rejections_have_a_reason(life: Life, _: Final) -> Iterator[str]:
    accepted: dict[Producer, Append] = {}
    epochs = defaultdict[str, list[tuple[int, float]]](list)
    for append in life.attempts:
        if append.producer:
            epochs[append.producer.id].append((append.producer.epoch, append.invoked))
            if _done(append):
                accepted[append.producer] = append
    for append in filter(life.was_there, life.attempts):
        match append.outcome, append.producer:
            case Rejected(StreamClosed.code), _ if append.returned < life.may_close:
                yield _violation("rejected as closed, but nobody closed", append)
            case Rejected(ProducerGap.code), Producer(name, epoch, seq):
                before = accepted.get(Producer(name, epoch, seq - 1))
                if before and before.returned < append.invoked:
                    yield _violation("rejected for a gap that is not there", append, before)
            case Rejected(ProducerFenced.code), Producer(name, epoch, _):
                if not any(e > epoch and t < append.returned for e, t in epochs[name]):
                    yield _violation("rejected as fenced, but nobody took over", append)


STREAM_RULES: Constant[tuple[Callable[[Stream], Iterator[str]], ...]] = (
    incarnations_follow_one_another,
    a_stream_is_missing_only_before_and_after_its_life,
    nothing_happens_to_what_was_deleted,
)

CONTENT_RULES: Constant[tuple[Callable[[Life, Final], Iterator[str]], ...]] = (
    content_is_made_of_what_was_sent,
    nothing_is_stored_twice,
    what_is_acknowledged_is_stored,
    an_acknowledgement_says_where_the_append_ends,
    an_offset_has_one_token,
    producers_are_in_sequence,
    order_respects_time,
    a_read_is_a_piece_of_the_content,
    a_read_up_to_date_lacks_nothing,
    nothing_follows_a_close,
    readers_agree_on_the_close,
    rejections_have_a_reason,
)


def offset_of(token: str) -> int:
    """Return how much data lies before the place of a token."""
    return parse(token).offset


# Which events belong to which incarnation


def _streams(history: History, final: Mapping[Incarnation, Final]) -> Iterator[Stream]:
    events = defaultdict[str, list[Event]](list)
    names = dict.fromkeys(final)
    for event in history.events:
        events[event.stream].append(event)
        if isinstance(event, Create | Delete | Read):
            names[Incarnation(event.stream, event.incarnation)] = None
    lives = defaultdict[str, dict[int, Life]](dict)
    for name in names:
        lives[name.stream][name.id] = Life(name, final.get(name))
    for stream in dict.fromkeys([*events, *lives]):
        yield _stream(lives[stream], events[stream])


def _stream(lives: Mapping[int, Life], events: Sequence[Event]) -> Stream:
    stream = Stream([*lives.values()])
    for event in events:
        match event:
            case Create():
                lives[event.incarnation].creates.append(event)
            case Delete():
                lives[event.incarnation].deletes.append(event)
            case Read():
                lives[event.incarnation].reads.append(event)
            case Missing():
                stream.missing.append(event)
    # Appends and closes do not know their incarnation; it follows from when the others lived.
    for event in events:
        if isinstance(event, Append | Close):
            _attribute(stream, event)
    return stream


def _attribute(stream: Stream, event: Append | Close) -> None:
    if isinstance(event.outcome, Rejected) and event.outcome.code in _NOT_THERE:
        stream.missing.append(event)
        return
    taking = [life for life in stream.lives if life.may_take(event)]
    if _done(event):
        if not taking:
            stream.strays.append(event)
        taking = _most_likely(taking, event)
    for life in taking:
        if isinstance(event, Append):
            life.sent[event.body].attempts.append(event)
        if isinstance(event, Close) or event.close:
            life.closes.append(event)


def _most_likely(lives: list[Life], event: Append | Close) -> list[Life]:
    """The one incarnation to which it happened: where it is, else where it may be."""
    if len(lives) <= 1:
        return lives
    if isinstance(event, Close):
        return []
    holding = [life for life in lives if event.body in life.places]
    # A retry may have been stored again, in the next incarnation: the offset tells them apart.
    agreeing = [life for life in holding if _place_agrees(life, event)]
    unread = [life for life in lives if life.final is None]
    return (agreeing or unread or holding or lives)[:1]


def _place_agrees(life: Life, append: Append) -> bool:
    end = life.offsets[life.places[append.body] + 1]
    match append.outcome:
        case Acknowledged(said):
            return offset_of(said) == end
        case Duplicate(said):
            return offset_of(said) >= end and offset_of(said) in life.offsets
        case _:
            return True


_NOT_THERE: Constant = (StreamNotFound.code, StreamGone.code)

_Call = TypeVar("_Call", Append, Close, Append | Close)


def _done(event: Append | Close) -> bool:
    return isinstance(event.outcome, Acknowledged | Duplicate)


def _rejected(event: Append | Close) -> bool:
    return isinstance(event.outcome, Rejected)


def _first_done(events: Iterable[_Call]) -> _Call | None:
    return min(filter(_done, events), key=attrgetter("returned"), default=None)


def _violation(why: str, *events: Event) -> str:
    return "\n    ".join([f"- {why}", *map(str, events)])


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 100 else f"{shown[:60]} ... {shown[-20:]}"
