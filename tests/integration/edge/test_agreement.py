"""The edge and the origin judge alike: whom the edge lets pass, the origin would have let pass, and
what the edge asks for is what the client asked for."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import pytest

from devtools.viewer_function.agreement import (
    ORIGIN_SECRET,
    URLS,
    WAYS,
    Case,
    ask_origin,
    run_viewer_function,
)
from devtools.viewer_function.requests import AUTHORIZERS, reads, requests
from infra.distribution_policies import QUERY
from infra.viewer_functions import request_code
from tailrace.aws.edge.origin_guard import OriginGuard
from tailrace.aws.edge.origin_secret import StaticOriginSecret, derive_key, sign_edge_token
from tailrace.errors import BadRequest
from tailrace.log.offsets import NOW as NOW_SLOT
from tailrace.log.offsets import Position
from tailrace.protocols.durable_streams.caching import EPOCH_MS, next_cursor
from tailrace.protocols.durable_streams.read_start import ReadStart, parse_live, parse_start
from tailrace.web.asgi import Message, Receive, Scope, Send
from tailrace.web.messages import Request

SEED, COUNT = 20_261_116, int(os.environ.get("TEST_EDGE_CASES", "2500"))
LEAST_SHARED = 0.5
"""The part of what the origin allows that the edge has to be able to verify."""


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    """Requests, and what the viewer function made of each."""
    return run_viewer_function(
        request_code(), requests(SEED, COUNT), tmp_path_factory.mktemp("judged")
    )


def test_the_edge_authorizes_no_request_that_the_origin_would_refuse(judged: list[Case]) -> None:
    outcomes: Counter[tuple[str, bool]] = Counter()
    for case, edge in judged:
        outcomes[ask_origin(case), edge["pass"] is not None] += 1
    for (outcome, passed), times in sorted(outcomes.items()):
        print(f"{outcome:20} {'passed' if passed else 'to the origin':14} {times:6}")
    assert {outcome for outcome, passed in outcomes if passed} == WAYS
    good = sum(times for (outcome, _), times in outcomes.items() if outcome in WAYS)
    shared = sum(times for (_, passed), times in outcomes.items() if passed)
    print(
        f"the origin allows {good} of {len(judged)}, the edge verifies {shared / good:.0%} of them"
    )
    assert len(judged) - good > len(judged) * 0.3
    assert shared >= good * LEAST_SHARED


def test_verified_reads_carry_no_credentials(judged: list[Case]) -> None:
    for case, edge in judged:
        if edge["pass"] is None:
            continue
        param = AUTHORIZERS[case["store"]].jwt_param
        names = {name for name, _ in edge["headers"]}
        assert names <= {
            "host",
            "x-forwarded-host",
            "x-tailrace-cursor",
            "x-tailrace-edge-token",
            "x-tailrace-reader",
            "x-tailrace-viewer",
            "x-jid",
        }
        assert f"x-{param}" not in names
        assert {name for name, _ in parse_qsl(edge["query"])} <= {*QUERY}
        key = derive_key(ORIGIN_SECRET.encode())
        assert edge["pass"].encode() == sign_edge_token(key, edge["path"].encode())


def test_unverified_reads_are_not_shared(judged: list[Case]) -> None:
    assert all(edge["alone"] for _, edge in judged if edge["pass"] is None)


async def test_the_origin_judges_other_requests_as_without_an_edge(judged: list[Case]) -> None:
    seen: list[Scope] = []

    async def inside(scope: Scope, _: Receive, __: Send) -> None:
        seen.append(scope)

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        raise AssertionError(message)

    authorizer = OriginGuard(inside, StaticOriginSecret(ORIGIN_SECRET))
    rest = [(case, edge) for case, edge in judged if edge["pass"] is None]
    for case, edge in rest:
        headers = as_a_function_url_has_them(edge["headers"])
        headers[b"x-tailrace-origin"] = ORIGIN_SECRET.encode()
        await authorizer(
            {
                "type": "http",
                "method": case["method"],
                "raw_path": edge["path"].encode(),
                "query_string": edge["query"].encode(),
                "headers": list(headers.items()),
            },
            receive,
            send,
        )
        scope = seen.pop()
        fields = [(name.decode(), value.decode("latin-1")) for name, value in scope["headers"]]
        query = scope["query_string"].decode()
        inner = case | {"path": edge["path"], "headers": fields, "query": query}
        joined = as_a_function_url_has_them(case["headers"]).items()
        plain = [(name.decode(), value.decode("latin-1")) for name, value in joined]
        outer = case | {"headers": plain}
        assert (ask_origin(inner) in WAYS) == (ask_origin(outer) in WAYS), case
        assert scope["tailrace.edge_verified"] is False


class Meaning(NamedTuple):
    """A read as the application understands it."""

    live: str
    start: ReadStart
    cursor: int
    """Of server-sent events. Those of long-polls become one of two."""


def meaning(case: Mapping[str, Any]) -> Meaning | str:
    """The meaning of a read, or the name of the error that it gets."""
    headers = [(name.encode(), value.encode()) for name, value in case["headers"]]
    request = Request("GET", case["path"], case["query"], headers, b"")
    parameters = request.parameters()
    lenient = URLS.reads_missing(request.raw_path)
    try:
        live = parse_live(parameters)
        event_id = request.header(b"last-event-id") if live == "sse" else None
        start = parse_start(parameters, event_id, live=bool(live), lenient=lenient)
    except BadRequest as error:
        return type(error).__name__
    given = parameters.get("cursor", [""])[-1]
    cursor = next_cursor(given, EPOCH_MS) if live == "sse" else 0
    return Meaning(live, start, cursor)


def test_the_edge_asks_for_what_the_client_asked_for(tmp_path: Path) -> None:
    # Of shared reads.
    keys: dict[tuple[str, Meaning], str] = {}
    meanings: dict[tuple[str, str], Meaning] = {}
    for case, edge in run_viewer_function(request_code("open"), reads(), tmp_path):
        read = meaning(case)
        assert read == meaning(edge), case
        assert edge["path"] == case["path"]
        if isinstance(read, str):
            continue
        assert edge["alone"] == (read.live == "sse" or not is_shared(read)), case
        if not edge["alone"]:
            assert keys.setdefault((edge["path"], read), edge["query"]) == edge["query"], case
            assert meanings.setdefault((edge["path"], edge["query"]), read) == read, case


def is_shared(read: Meaning) -> bool:
    """Whether the application lets caches give its answer to others."""
    is_now = isinstance(read.start, Position) and read.start.slot == NOW_SLOT
    return isinstance(read.start, Position) and (read.live == "long-poll" or not is_now)


def as_a_function_url_has_them(fields: list[tuple[str, str]]) -> dict[bytes, bytes]:
    """Those of one name are joined."""
    found: dict[bytes, bytes] = {}
    for name, value in fields:
        before = found.get(name.encode())
        more = value.encode("latin-1")
        found[name.encode()] = more if before is None else before + b"," + more
    return found
