"""The rules of PUT: the equality of configurations, and the rules of forks."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tailrace.errors import ContentTypeConflict, ForkOutOfRange, InvalidJson, StreamConflict
from tailrace.limits import FORK_DEPTH
from tailrace.log.content import Mode
from tailrace.log.create import (
    Create,
    ForkFrom,
    ForkPoint,
    first_entries,
    fork_config,
    fork_lineage,
    fork_point,
    fork_slot,
    new_config,
    require_same,
)
from tailrace.log.state import Ancestor, Config, Entry, Fork, Part, State, Stream

NOW = 1_000_000
EARLIER = 900_000
OPEN = State(2, 20, 20, 0)
CLOSED = State(3, 20, 20, 0, end=2)
PLAIN = Config("text/plain", 0)


# A stream that is not a fork


def test_a_new_stream_has_the_epoch_it_is_given() -> None:
    assert new_config(Create(), NOW, 7) == Config("application/octet-stream", NOW, epoch=7)


def test_missing_fields_get_their_defaults() -> None:
    assert new_config(Create(), NOW) == Config("application/octet-stream", NOW)


def test_the_configuration_is_that_of_the_request() -> None:
    assert new_config(Create(content_type="Text/Plain; a=b", ttl=60), NOW) == Config(
        "Text/Plain; a=b", NOW, ttl=60
    )
    assert new_config(Create(expires_at=5), NOW) == Config(
        "application/octet-stream", NOW, expires_at=5
    )


def entries(content_type: str, body: bytes, *, closed: bool = False) -> list[Entry]:
    request = Create(body, content_type, closed=closed)
    return first_entries(new_config(request, NOW), request, None)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [("text/plain", b""), ("application/json", b""), ("application/json", b"[]"),
     ("application/json", b" [ ] ")],
)  # fmt: skip
def test_without_content_a_stream_begins_empty(content_type: str, body: bytes) -> None:
    assert entries(content_type, body) == []


@pytest.mark.parametrize(
    ("content_type", "body", "stored", "length"),
    [
        ("text/plain", b"hello", b"hello", 5),
        ("text/plain", b"[]", b"[]", 2),
        ("application/octet-stream", b"\x00", b"\x00", 1),
        ("application/json", b"[1, 2]", b"1, 2", 2),
        ("application/json", b'{"a":1}', b'{"a":1}', 1),
        ("application/json", b"[[]]", b"[]", 1),
    ],
)
def test_a_body_is_the_first_entry(
    content_type: str, body: bytes, stored: bytes, length: int
) -> None:
    after = State(1, length, len(stored), NOW)
    assert entries(content_type, body) == [Entry(0, stored, after)]


def test_closed_with_a_body_is_one_entry() -> None:
    assert entries("text/plain", b"all", closed=True) == [
        Entry(0, b"all", State(1, 3, 3, NOW, end=1))
    ]


@pytest.mark.parametrize(
    ("content_type", "body"), [("text/plain", b""), ("application/json", b"[]")]
)
def test_closed_and_empty_is_a_closing_mark(content_type: str, body: bytes) -> None:
    (entry,) = entries(content_type, body, closed=True)
    assert entry == Entry(0, None, State(1, 0, 0, NOW, end=0))
    assert entry.state.next_offset(0) == "0000000000000000_0000000000000000"


@pytest.mark.parametrize("body", [b"{", b" ", b"NaN", b'["\xff"]'])
def test_a_json_stream_begins_with_json_or_not_at_all(body: bytes) -> None:
    with pytest.raises(InvalidJson):
        entries("application/json", body)


# Creating again what exists


def same(config: Config, request: Create, state: State = OPEN) -> bool:
    try:
        require_same(config, state, request)
    except (StreamConflict, ContentTypeConflict):
        return False
    return True


TYPES = ["text/plain", "TEXT/plain; charset=utf-8", "text/html", "application/octet-stream", None]


@pytest.mark.parametrize(("existing", "asked"), list(product(TYPES[:-1], TYPES)))
def test_types_are_compared_normalised_and_a_missing_one_is_the_default(
    existing: str, asked: str | None
) -> None:
    kinds = {
        "text/plain": "plain",
        "TEXT/plain; charset=utf-8": "plain",
        "text/html": "html",
        "application/octet-stream": "bytes",
        None: "bytes",
    }
    config = new_config(Create(content_type=existing), 0)
    assert same(config, Create(content_type=asked)) is (kinds[existing] == kinds[asked])


EXPIRIES: list[dict[str, Any]] = [
    {}, {"ttl": 0}, {"ttl": 60}, {"ttl": 61}, {"expires_at": 0}, {"expires_at": 60_000},
    {"expires_at": 61_000},
]  # fmt: skip


@pytest.mark.parametrize(("existing", "asked"), list(product(EXPIRIES, EXPIRIES)))
def test_expiries_are_compared_as_given(existing: dict[str, Any], asked: dict[str, Any]) -> None:
    config = new_config(Create(content_type="text/plain", **existing), 0)
    request = Create(content_type="text/plain", **asked)
    assert same(config, request) is (existing == asked)


@pytest.mark.parametrize(
    ("asked", "state", "expected"),
    [(False, OPEN, True), (False, CLOSED, False), (True, CLOSED, True), (True, OPEN, False)],
    ids=["open-open", "open-closed", "closed-closed", "closed-open"],
)
def test_closure_is_compared_with_what_the_stream_is_now(
    asked: bool, state: State, expected: bool
) -> None:
    assert same(PLAIN, Create(content_type="text/plain", closed=asked), state) is expected


@pytest.mark.parametrize("body", [b"", b"other", b"\xff"])
def test_the_body_is_not_compared(body: bytes) -> None:
    assert same(PLAIN, Create(body, "text/plain"))


def test_a_conflict_of_types_has_its_own_error() -> None:
    with pytest.raises(ContentTypeConflict):
        require_same(PLAIN, OPEN, Create(content_type="text/html"))


# Creating a fork again


FORK = Fork("source", 77, 5, 2, (Ancestor(77, 5),))
FORKED = Config("text/plain", 0, fork=FORK, own_expiry=False, base=(5, 50, 50), epoch=7)
INSIDE = FORKED._replace(fork=FORK._replace(offset=53))
"""Forked where the first appends of slot 5, up to offset 53, belong to the fork."""
AGAIN = Create(content_type="text/plain", fork=ForkFrom("source", 5, 2))


@pytest.mark.parametrize(
    ("fork", "expected"),
    [
        (ForkFrom("source", 5, 2), True),
        (ForkFrom("source", None, 2), True),  # the offset is compared only when it is given
        (ForkFrom("source", 4, 2), False),
        (ForkFrom("source", 6, 2), False),
        (ForkFrom("source", 5, 1), False),
        (ForkFrom("source", 5, 0), False),
        (ForkFrom("source", None, 0), False),
        (ForkFrom("other", 5, 2), False),
        (None, False),
    ],
)
def test_the_place_of_a_fork_is_compared(fork: ForkFrom | None, expected: bool) -> None:
    assert same(FORKED, AGAIN._replace(fork=fork)) is expected


@pytest.mark.parametrize(
    ("config", "offset", "epoch", "expected"),
    [
        (FORKED, 50, 7, True),
        (FORKED, 50, 0, True),  # a token of any stream
        (FORKED, 50, 8, False),
        (FORKED, 51, 7, False),
        (INSIDE, 53, 7, True),
        (INSIDE, 53, 8, False),
        (INSIDE, 50, 7, False),
        (INSIDE, 52, 7, False),
        (INSIDE, 54, 7, False),
    ],
)
def test_the_place_of_a_fork_in_its_slot_is_compared(
    config: Config, offset: int, epoch: int, expected: bool
) -> None:
    wanted = ForkFrom("source", 5, 2, offset, epoch)
    assert same(config, AGAIN._replace(fork=wanted)) is expected


def test_a_plain_stream_is_no_fork() -> None:
    assert not same(PLAIN, AGAIN)


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [(None, True), ("text/plain", True), ("Text/Plain; a=b", True), ("text/html", False),
     ("application/octet-stream", False)],
)  # fmt: skip
def test_a_fork_created_again_without_a_type_means_the_inherited_one(
    content_type: str | None, expected: bool
) -> None:
    assert same(FORKED, AGAIN._replace(content_type=content_type)) is expected


INHERITED, OWN = False, True


@pytest.mark.parametrize(
    ("stored", "own", "asked", "expected"),
    [
        # Inherited: leaving it out means to inherit again, naming the same value is the same.
        ({"ttl": 60}, INHERITED, {}, True),
        ({"ttl": 60}, INHERITED, {"ttl": 60}, True),
        ({"ttl": 60}, INHERITED, {"ttl": 61}, False),
        ({"ttl": 60}, INHERITED, {"expires_at": 60_000}, False),
        ({"expires_at": 60_000}, INHERITED, {}, True),
        ({"expires_at": 60_000}, INHERITED, {"expires_at": 60_000}, True),
        ({"expires_at": 60_000}, INHERITED, {"expires_at": 60_001}, False),
        ({}, INHERITED, {}, True),
        ({}, INHERITED, {"ttl": 60}, False),
        # Its own: leaving it out asks for another stream.
        ({"ttl": 60}, OWN, {}, False),
        ({"ttl": 60}, OWN, {"ttl": 60}, True),
        ({"ttl": 60}, OWN, {"ttl": 61}, False),
        ({"ttl": 60}, OWN, {"expires_at": 60_000}, False),
        ({"expires_at": 60_000}, OWN, {}, False),
        ({"expires_at": 60_000}, OWN, {"expires_at": 60_000}, True),
        ({"ttl": 0}, OWN, {}, False),
        ({"ttl": 0}, OWN, {"ttl": 0}, True),
    ],
)
def test_a_fork_created_again_without_an_expiry_means_the_inherited_one(
    stored: dict[str, Any], own: bool, asked: dict[str, Any], expected: bool
) -> None:
    config = FORKED._replace(own_expiry=own, **stored)
    assert same(config, AGAIN._replace(**asked)) is expected


@pytest.mark.parametrize(
    ("asked", "state", "expected"),
    [(False, OPEN, True), (False, CLOSED, False), (True, CLOSED, True), (True, OPEN, False)],
    ids=["open-open", "open-closed", "closed-closed", "closed-open"],
)
def test_a_forks_closure_is_compared_too(asked: bool, state: State, expected: bool) -> None:
    assert same(FORKED, AGAIN._replace(closed=asked), state) is expected


# Where a fork may begin


@pytest.mark.parametrize(
    ("state", "at", "slot"),
    [
        (OPEN, None, 2),
        (OPEN, 0, 0),
        (OPEN, 1, 1),
        (OPEN, 2, 2),
        (CLOSED, None, 2),  # not in the slot that only says "closed"
        (CLOSED, 2, 2),
        (CLOSED._replace(end=3), None, 3),
        (State(0, 0, 0, 0), None, 0),
        (State(0, 0, 0, 0), 0, 0),
    ],
)
def test_a_fork_begins_at_the_tail_or_before(state: State, at: int | None, slot: int) -> None:
    assert fork_slot(PLAIN, state, ForkFrom("source", at)) == slot


@pytest.mark.parametrize(
    ("state", "at"), [(OPEN, 3), (CLOSED, 3), (State(0, 0, 0, 0), 1), (OPEN, 9999999999999999)]
)
def test_a_fork_never_begins_beyond_the_tail(state: State, at: int) -> None:
    with pytest.raises(ForkOutOfRange):
        fork_slot(PLAIN, state, ForkFrom("source", at))


@pytest.mark.parametrize(("epoch", "accepted"), [(7, True), (0, True), (8, False)])
def test_a_fork_begins_at_an_offset_of_its_source(epoch: int, accepted: bool) -> None:
    source = PLAIN._replace(epoch=7)
    if accepted:
        assert fork_slot(source, OPEN, ForkFrom("source", 2, epoch=epoch)) == 2
    else:
        with pytest.raises(ForkOutOfRange, match="another stream"):
            fork_slot(source, OPEN, ForkFrom("source", 2, epoch=epoch))


APPENDS = [b"abc", b"de", b"fghi"]
"""Of slot 5, which begins at offset 50 and size 55."""


@pytest.mark.parametrize(
    ("inside", "point"),
    [
        (0, ForkPoint(5, 50, 55, [], b"abc")),
        (50, ForkPoint(5, 50, 55, [], b"abc")),
        (53, ForkPoint(5, 50, 55, [b"abc"], b"de")),
        (55, ForkPoint(5, 50, 55, [b"abc", b"de"], b"fghi")),
        # A place inside of an append is where that begins.
        (51, ForkPoint(5, 50, 55, [], b"abc")),
        (54, ForkPoint(5, 50, 55, [b"abc"], b"de")),
        # With all appends of the slot, the fork begins at the next one.
        (59, ForkPoint(6, 59, 64)),
        (99, ForkPoint(6, 59, 64)),
    ],
)
def test_a_fork_has_the_appends_of_its_slot_that_end_before_it(
    inside: int, point: ForkPoint
) -> None:
    assert fork_point(Mode.TEXT, 5, (50, 55), APPENDS, inside) == point


def test_messages_say_where_the_appends_of_a_json_stream_end() -> None:
    bodies = [b"1,2", b"[3]", b"4"]
    assert fork_point(Mode.JSON, 5, (50, 55), bodies, 53) == ForkPoint(
        5, 50, 55, [b"1,2", b"[3]"], b"4"
    )


# Which chains hold a fork's data


def stream(chain: int, base: int = 0, *lineage: Ancestor) -> Stream:
    fork = Fork("source", lineage[-1].id, base, 0, lineage) if lineage else None
    return Stream(f"s{chain}", chain, Config("text/plain", 0, fork=fork, base=(base, base, base)))


ROOT = stream(1)
CHILD = stream(2, 5, Ancestor(1, 5))
GRANDCHILD = stream(3, 8, Ancestor(1, 5), Ancestor(2, 8))
SIBLING = stream(4, 5, Ancestor(1, 5), Ancestor(2, 5))
"""Forked from a fork where that fork itself begins: nothing of it is inherited."""


@pytest.mark.parametrize(
    ("source", "slot", "lineage"),
    [
        (ROOT, 0, []),
        (ROOT, 1, [(1, 1)]),
        (ROOT, 9, [(1, 9)]),
        # Beyond its own beginning: its ancestors, and itself.
        (CHILD, 6, [(1, 5), (2, 6)]),
        (CHILD, 9, [(1, 5), (2, 9)]),
        # At its beginning or before: only its ancestors, cut there.
        (CHILD, 5, [(1, 5)]),
        (CHILD, 4, [(1, 4)]),
        (CHILD, 1, [(1, 1)]),
        (GRANDCHILD, 12, [(1, 5), (2, 8), (3, 12)]),
        (GRANDCHILD, 9, [(1, 5), (2, 8), (3, 9)]),
        (GRANDCHILD, 8, [(1, 5), (2, 8)]),
        (GRANDCHILD, 7, [(1, 5), (2, 7)]),
        (GRANDCHILD, 6, [(1, 5), (2, 6)]),
        (GRANDCHILD, 5, [(1, 5)]),
        (GRANDCHILD, 3, [(1, 3)]),
        (SIBLING, 7, [(1, 5), (2, 5), (4, 7)]),
        (SIBLING, 5, [(1, 5)]),
    ],
)
def test_a_lineage_ends_where_the_fork_begins(
    source: Stream, slot: int, lineage: list[tuple[int, int]]
) -> None:
    found = fork_lineage(source, slot)
    assert found == tuple(Ancestor(*ancestor) for ancestor in lineage)


@pytest.mark.parametrize("source", [ROOT, CHILD, GRANDCHILD, SIBLING])
@pytest.mark.parametrize("slot", range(13))
def test_every_inherited_slot_has_exactly_the_chain_its_source_reads_it_from(
    source: Stream, slot: int
) -> None:
    def holder(lineage: tuple[Ancestor, ...], n: int) -> int | None:
        return next((ancestor.id for ancestor in lineage if n < ancestor.until), None)

    forked = fork_lineage(source, slot)
    own = source.config.fork.lineage if source.config.fork else ()
    for n in range(slot):
        assert holder(forked, n) == (holder(own, n) or source.id)
    assert holder(forked, slot) is None


# The configuration of a fork


SOURCE = Stream("source", 77, Config("text/plain; charset=utf-8", 0, ttl=60))
POINT = ForkPoint(5, 50, 55, body=b"abcdef", written_at=EARLIER)


def forked(request: Create, source: Stream = SOURCE, point: ForkPoint = POINT) -> Config:
    return fork_config(request._replace(fork=ForkFrom(source.path, 5)), source, point, NOW)


def test_a_fork_continues_its_sources_offsets() -> None:
    config = forked(Create())
    assert config.base == (5, 50, 55)
    assert config.initial_state() == State(5, 50, 55, NOW)
    assert config.fork == Fork("source", 77, 5, 0, (Ancestor(77, 5),))
    assert config.created == NOW


def test_a_forks_tokens_are_its_sources() -> None:
    source = SOURCE._replace(config=SOURCE.config._replace(epoch=7))
    assert forked(Create(), source).epoch == 7


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, "text/plain; charset=utf-8"),
        ("text/plain", "text/plain"),
        ("TEXT/PLAIN", "TEXT/PLAIN"),
    ],
)
def test_a_fork_has_its_sources_type(asked: str | None, expected: str) -> None:
    assert forked(Create(content_type=asked)).content_type == expected


@pytest.mark.parametrize("asked", ["text/html", "application/json", "application/octet-stream"])
def test_a_fork_of_another_type_is_refused(asked: str) -> None:
    with pytest.raises(ContentTypeConflict):
        forked(Create(content_type=asked))


@pytest.mark.parametrize(
    ("source", "asked", "expected"),
    [
        # (ttl, expires_at) of the source, of the request, of the fork and whether it is its own.
        ((None, None), (None, None), (None, None, False)),
        ((60, None), (None, None), (60, None, False)),
        ((None, 9_000), (None, None), (None, 9_000, False)),
        ((60, None), (5, None), (5, None, True)),
        ((60, None), (600, None), (600, None, True)),  # never capped by the source
        ((60, None), (0, None), (0, None, True)),
        ((60, None), (None, 9_000), (None, 9_000, True)),
        ((None, 9_000), (5, None), (5, None, True)),
        ((None, 9_000), (None, 99_000), (None, 99_000, True)),
        ((None, None), (5, None), (5, None, True)),
        ((None, None), (None, 9_000), (None, 9_000, True)),
    ],
)
def test_a_fork_inherits_the_expiry_it_does_not_name(
    source: tuple[int | None, int | None],
    asked: tuple[int | None, int | None],
    expected: tuple[int | None, int | None, bool],
) -> None:
    origin = SOURCE._replace(config=Config("text/plain", 0, *source))
    config = forked(Create(ttl=asked[0], expires_at=asked[1]), origin)
    assert (config.ttl, config.expires_at, config.own_expiry) == expected


def test_creating_a_fork_twice_is_the_same_request() -> None:
    """A repeated request matches the stream it created, whatever it left open."""
    for content_type, ttl, expires_at, closed in product(
        (None, "text/plain"), (None, 60, 61), (None, 9_000), (False, True)
    ):
        if ttl is not None and expires_at is not None:
            continue
        for source in (SOURCE, SOURCE._replace(config=Config("text/plain", 0, None, 9_000))):
            fork = ForkFrom("source", 5, 2)
            request = Create(b"", content_type, ttl, expires_at, closed, fork)
            config = fork_config(request, source, POINT, NOW)
            after = first_entries(config, request, POINT)[-1].state
            require_same(config, after, request)


@pytest.mark.parametrize("inside", range(50, 61))
def test_creating_a_fork_twice_inside_of_a_slot_is_the_same_request(inside: int) -> None:
    point = fork_point(Mode.TEXT, 5, (50, 55), APPENDS, inside)
    request = Create(fork=ForkFrom("source", 5, 0, inside))
    config = fork_config(request, SOURCE, point, NOW)
    require_same(config, config.initial_state(), request)


def deep(ancestors: int) -> Stream:
    """A fork of a fork, and so on; each ancestor holds one slot."""
    return stream(999, ancestors, *(Ancestor(n, n) for n in range(1, ancestors + 1)))


def test_forks_of_forks_have_a_limit() -> None:
    beyond = ForkPoint(FORK_DEPTH + 5, 0, 0)
    config = forked(Create(), deep(FORK_DEPTH - 1), beyond)
    assert config.fork is not None
    assert len(config.fork.lineage) == FORK_DEPTH
    with pytest.raises(StreamConflict):
        forked(Create(), deep(FORK_DEPTH), beyond)


def test_the_limit_counts_only_the_chains_that_are_read() -> None:
    config = forked(Create(), deep(FORK_DEPTH), ForkPoint(3, 0, 0))
    assert config.fork is not None
    assert config.fork.lineage == (Ancestor(1, 1), Ancestor(2, 2), Ancestor(3, 3))


# What a fork begins with


def fork_entries(
    point: ForkPoint, sub_offset: int, *, body: bytes = b"", kind: Mode = Mode.TEXT,
    closed: bool = False,
) -> list[Entry]:  # fmt: skip
    content_type = "application/json" if kind is Mode.JSON else "text/plain"
    origin = Stream("source", 77, Config(content_type, 0))
    request = Create(body, closed=closed, fork=ForkFrom("source", 5, sub_offset))
    return first_entries(fork_config(request, origin, point, NOW), request, point)


def test_a_fork_begins_empty_and_open() -> None:
    assert fork_entries(POINT, 0) == []


def test_a_forks_body_comes_after_the_inherited_data() -> None:
    assert fork_entries(POINT, 0, body=b"XY") == [Entry(5, b"XY", State(6, 52, 57, NOW))]


@pytest.mark.parametrize(("sub_offset", "prefix"), [(1, b"a"), (3, b"abc"), (6, b"abcdef")])
def test_a_sub_offset_takes_the_first_bytes_of_the_next_append(
    sub_offset: int, prefix: bytes
) -> None:
    size = len(prefix)
    assert fork_entries(POINT, sub_offset) == [
        Entry(5, prefix, State(6, 50 + size, 55 + size, EARLIER))
    ]


def test_a_body_comes_after_the_part_of_the_next_append() -> None:
    assert fork_entries(POINT, 3, body=b"XY") == [
        Entry(5, b"abc", State(6, 53, 58, EARLIER)),
        Entry(6, b"XY", State(7, 55, 60, NOW)),
    ]


@pytest.mark.parametrize(
    ("sub_offset", "body", "expected"),
    [
        (0, b"", [Entry(5, None, State(6, 50, 55, NOW, end=5))]),
        (0, b"X", [Entry(5, b"X", State(6, 51, 56, NOW, end=6))]),
        (
            2,
            b"",
            [
                Entry(5, b"ab", State(6, 52, 57, EARLIER)),
                Entry(6, None, State(7, 52, 57, NOW, end=6)),
            ],
        ),
        (
            2,
            b"X",
            [
                Entry(5, b"ab", State(6, 52, 57, EARLIER)),
                Entry(6, b"X", State(7, 53, 58, NOW, end=7)),
            ],
        ),
    ],
    ids=["nothing", "body", "part", "part and body"],
)
def test_a_fork_may_be_created_closed(sub_offset: int, body: bytes, expected: list[Entry]) -> None:
    assert fork_entries(POINT, sub_offset, body=body, closed=True) == expected


def test_appends_of_the_slot_share_the_forks_first_slot() -> None:
    kept = POINT._replace(kept=[b"12", b"345"])
    parts = [Part(2, 2), Part(3, 3)]
    assert fork_entries(kept, 0) == [Entry(5, b"12345", State(6, 55, 60, EARLIER), parts=parts)]
    assert fork_entries(kept, 4, body=b"XY", closed=True) == [
        Entry(5, b"12345abcd", State(6, 59, 64, EARLIER), parts=[*parts, Part(4, 4)]),
        Entry(6, b"XY", State(7, 61, 66, NOW, end=7)),
    ]
    assert fork_entries(POINT._replace(kept=[b"12"]), 0, closed=True) == [
        Entry(5, b"12", State(6, 52, 57, EARLIER)),
        Entry(6, None, State(7, 52, 57, NOW, end=6)),
    ]


MESSAGES = ForkPoint(5, 50, 55, body=b'{"a":[1,2]} , "x,y",[3,4],null')


@pytest.mark.parametrize(
    ("sub_offset", "prefix"),
    [
        (1, b'{"a":[1,2]}'),
        (2, b'{"a":[1,2]},"x,y"'),
        (3, b'{"a":[1,2]},"x,y",[3,4]'),
        (4, b'{"a":[1,2]},"x,y",[3,4],null'),
    ],
)
def test_a_sub_offset_counts_messages_in_json(sub_offset: int, prefix: bytes) -> None:
    (entry,) = fork_entries(MESSAGES, sub_offset, kind=Mode.JSON)
    assert entry.body == prefix
    assert entry.state.offset == 50 + sub_offset
    assert entry.state.size == 55 + len(prefix)


@pytest.mark.parametrize(
    ("point", "kind", "sub_offset"),
    [
        (POINT, Mode.TEXT, 7),
        (POINT, Mode.TEXT, 2**53 - 1),
        (MESSAGES, Mode.JSON, 5),
        (POINT._replace(body=None), Mode.TEXT, 1),
        (MESSAGES._replace(body=None), Mode.JSON, 1),
    ],
    ids=["too many bytes", "far too many", "too many messages", "no append", "no JSON append"],
)
def test_a_sub_offset_reaches_no_further_than_the_next_append(
    point: ForkPoint, kind: Mode, sub_offset: int
) -> None:
    with pytest.raises(ForkOutOfRange):
        fork_entries(point, sub_offset, kind=kind)


def test_sub_offsets_compose() -> None:
    """A fork's part of an append is the next append for a fork of that fork."""
    (first,) = fork_entries(POINT, 4)
    assert first.body == b"abcd"
    (second,) = fork_entries(POINT._replace(body=first.body), 2)
    assert second.body == b"ab"
    with pytest.raises(ForkOutOfRange):
        fork_entries(POINT._replace(body=second.body), 3)
