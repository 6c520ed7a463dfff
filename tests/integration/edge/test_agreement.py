"""The edge and the origin judge alike: whom the edge lets pass, the origin would have let pass."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from devtools.node import find_node
from infra.viewer_request import code
from tailrace.auth.authorizer import Authorizer, Operation
from tailrace.auth.credentials import Credentials, parse_credentials
from tailrace.aws.edge import edge_token
from tailrace.aws.edge.key_document import build_entries
from tailrace.aws.edge.origin_guard import OriginGuard
from tailrace.aws.edge.origin_secret import StaticOriginSecret
from tailrace.errors import TailraceError
from tailrace.web.asgi import Message, Receive, Scope, Send
from tailrace.web.paths import stream_path
from tests.integration.edge.requests import AUTHORIZERS, requests
from tests.support.auth import NOW

ORIGIN_SECRET = "what CloudFront shows to the functions"
SEED, COUNT = 20_261_116, int(os.environ.get("TAILRACE_EDGE_CASES", "2500"))
LEAST_SHARED = 0.5
"""The part of what the origin allows that the edge has to be able to verify."""

WAYS = {"bearer", "signed", "public"}

Case = tuple[dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    """Requests, and what the viewer function made of each."""
    cases = [request.as_case() for request in requests(SEED, COUNT)]
    given = {
        "code": code(),
        "now": NOW,
        "stores": [build_entries(settings, ORIGIN_SECRET.encode()) for settings in AUTHORIZERS],
        "cases": cases,
    }
    file = tmp_path_factory.mktemp("agreement") / "cases.json"
    file.write_text(json.dumps(given))
    command: list[str | Path] = [find_node(), Path(__file__).parent / "judge.mjs", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return list(zip(cases, json.loads(done.stdout), strict=True))


def allowed(case: Mapping[str, Any]) -> str:
    """By what the origin lets a request pass, or the name of the error that it gets."""
    query: dict[str, list[str]] = {}
    for name, value in parse_qsl(case["query"], keep_blank_values=True):
        query.setdefault(name, []).append(value)
    headers = [(name.encode(), value.encode("latin-1")) for name, value in case["headers"]]
    credentials: Credentials = parse_credentials(
        headers, query, AUTHORIZERS[case["store"]].jwt_param
    )
    authorizer = Authorizer(AUTHORIZERS[case["store"]])
    try:
        return authorizer.authorize(
            Operation.READ, stream_path(case["path"]), credentials, NOW
        ).reason
    except TailraceError as error:
        return type(error).__name__


def test_the_edge_authorizes_no_request_that_the_origin_would_refuse(judged: list[Case]) -> None:
    outcomes: Counter[tuple[str, bool]] = Counter()
    for case, edge in judged:
        outcomes[allowed(case), edge["pass"] is not None] += 1
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
            "x-tailrace-edge-token",
            "x-tailrace-reader",
            "x-tailrace-viewer",
            "x-jid",
        }
        assert f"x-{param}" not in names
        assert edge["query"] in ("", "offset=-1", "offset=now&live=long-poll")
        key = edge_token.derive_key(ORIGIN_SECRET.encode())
        assert edge["pass"].encode() == edge_token.sign(key, edge["path"].encode())


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
        assert (allowed(inner) in WAYS) == (allowed(outer) in WAYS), case
        assert scope["tailrace.edge_verified"] is False


def as_a_function_url_has_them(fields: list[tuple[str, str]]) -> dict[bytes, bytes]:
    """Those of one name are joined."""
    found: dict[bytes, bytes] = {}
    for name, value in fields:
        before = found.get(name.encode())
        more = value.encode("latin-1")
        found[name.encode()] = more if before is None else before + b"," + more
    return found
