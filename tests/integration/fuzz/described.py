"""Requests generated from the OpenAPI document, and the checks that their responses match it."""

from __future__ import annotations

import copy
import itertools
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from devtools.server import Server
from tailrace import docs
from tailrace.configuration import load_settings

Case = schemathesis.Case[Any]

SETTINGS = {"TAILRACE_LONG_POLL_TIMEOUT": "0.1", "TAILRACE_SSE_LIFETIME": "0.2"}
SECONDS = 120.0
"""How long a response may take: a safety net, far longer than any live read here."""

JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain"}
STREAMS: dict[str, tuple[bytes, Mapping[str, str]]] = {
    "json": (b'[1,{"two":"three"}]', JSON),
    "text": (b"a line\n" * 500, TEXT),
    "bytes": (bytes(range(256)), {}),
    "empty": (b"", JSON),
    "closed": (b"end", TEXT | {"Stream-Closed": "true"}),
    "expiring": (b"soon", TEXT | {"Stream-TTL": "60"}),
    "fork": (b"", {"Stream-Forked-From": "/v1/stream/source"}),
    "deleted": (b"kept", TEXT),
}
"""Streams in every state, so that not all made-up requests are about streams that are not there."""

DOCUMENT = docs.describe(load_settings(SETTINGS))

PRODUCER = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}

unhurried = settings(
    deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def events_are_as_described(
    _: schemathesis.CheckContext, response: schemathesis.Response, __: Case
) -> None:
    """A rule that OpenAPI 3.1 cannot express: data, then where it ends; that at least once."""
    if response.headers.get("content-type") != ["text/event-stream"]:
        return
    assert "x-accel-buffering" in response.headers
    opening, *rest = response.text.split("\n\n")
    assert opening.startswith("retry: ")
    events = [event for event in rest if event and event[0] != ":"]
    kinds = [event.partition("\n")[0].removeprefix("event: ") for event in events]
    assert set(kinds) <= {"data", "control"}
    assert kinds[-1] == "control"
    for kind, following in itertools.pairwise(kinds):
        assert kind == "control" or following == "control"
    for kind, event in zip(kinds, events, strict=True):
        if kind == "control":
            fields, event_id = event.partition("\ndata:")[2].split("\nid:")
            control = json.loads(fields)
            assert control["streamNextOffset"] == event_id
            assert ("streamCursor" in control) is ("streamClosed" not in control)


def errors_are_as_described(
    _: schemathesis.CheckContext, response: schemathesis.Response, case: Case
) -> None:
    """An error is one of those that its operation's description of the status names."""
    if response.status_code < 400 or case.method == "HEAD":
        return
    operation = DOCUMENT["paths"][case.operation.path][case.method.lower()]
    described = operation["responses"][str(response.status_code)]["description"]
    assert f"`{response.json()['error']['code']}`" in described


CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    events_are_as_described,
    errors_are_as_described,
]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("fuzzed") / "data", SETTINGS) as server:
        yield server
        assert "Traceback" not in server.output()
        assert httpx.get(f"{server.url}/health", trust_env=False).is_success


@pytest.fixture(scope="module")
def session(fuzzed: Server) -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        session.put(f"{fuzzed.url}/v1/stream/source", '["shared"]', headers=JSON)
        for name in STREAMS:
            _make(session, fuzzed, name)
        yield session


def loaded(document: dict[str, Any], *, examples: int = 1) -> Any:
    """The document as Schemathesis uses it; this takes about a second."""
    generation = {"deterministic": True, "max-examples": examples, "database": "none"}
    # Schemathesis resolves references in place, and the description beside one would be lost.
    return schemathesis.openapi.from_dict(
        copy.deepcopy(document), config=schemathesis.Config.from_dict({"generation": generation})
    )


def assert_as_described(case: Case, fuzzed: Server, session: requests.Session) -> None:
    """Sends the request, most often to a stream that exists, and checks the response."""
    if "path" in case.path_parameters:
        name = _aimed(case)
        if name and case.method in ("PUT", "POST", "DELETE"):
            _make(session, fuzzed, name)
    case.call_and_validate(base_url=fuzzed.url, session=session, checks=CHECKS, timeout=SECONDS)


def assert_sequences_as_described(
    schema: Any, fuzzed: Server, session: requests.Session, *, sequences: int
) -> None:
    """Requests that follow each other along the links of the document."""
    runs = itertools.count()

    class Machine(schema.as_state_machine()):  # type: ignore[misc]
        def setup(self) -> None:
            # Hypothesis repeats runs, and takes it ill when the same requests have other answers.
            self.prefix = f"run-{next(runs)}-"
            for number, headers in enumerate((JSON, TEXT, {})):
                session.put(f"{fuzzed.url}/v1/stream/{self.prefix}{number}", headers=headers)

        def before_call(self, case: Case) -> None:
            # Names of streams go from one request to the next; but for them, runs are equal.
            die = _die(case, self.prefix)
            _made_plausible(case.headers, die)
            path = case.path_parameters.get("path", self.prefix)
            if not str(path).startswith(self.prefix):
                case.path_parameters["path"] = f"{self.prefix}{die % 5}"

        def get_call_kwargs(self, _: Case) -> dict[str, Any]:
            return {"base_url": fuzzed.url, "session": session, "timeout": SECONDS}

        def validate_response(self, response: schemathesis.Response, case: Case, **_: Any) -> None:
            case.validate_response(response, checks=CHECKS)

    Machine.run(settings=settings(unhurried, max_examples=sequences, stateful_step_count=8))


def _die(case: Case, prefix: str = "") -> int:
    """A number that is the same whenever the case is, whatever the prefix."""
    drawn = repr((case.path_parameters, case.query, case.headers, case.body))
    return zlib.crc32((drawn.replace(prefix, "") if prefix else drawn).encode())


def _aimed(case: Case) -> str | None:
    """Most requests at streams that are there; the name of the stream, if it is one of ours."""
    die = _die(case)
    _made_plausible(case.headers, die)
    name = [*STREAMS, None][die // 16 % (len(STREAMS) + 1)]
    if name:
        case.path_parameters["path"] = name
    return name


def _made_plausible(headers: Any, die: int) -> None:
    """Headers that contradict each other make for an answer that says so, and nothing else."""
    kind = headers.get("Content-Type")
    if kind is not None:
        # To the protocol these are bytes, to Schemathesis JSON, which is never empty.
        headers["Content-Type"] = kind.replace("+json", "")
    if die & 1 and "Stream-TTL" in headers:
        headers.pop("Stream-Expires-At", None)
    if die & 2 and any(name in headers for name in PRODUCER):
        for name, value in PRODUCER.items():
            headers.setdefault(name, value)
    elif die & 4:
        for name in PRODUCER:
            headers.pop(name, None)
    if die & 24 and "Stream-Forked-From" in headers:
        headers["Stream-Forked-From"] = "/v1/stream/source"


def _make(session: requests.Session, server: Server, name: str) -> None:
    """The stream as it is in the table; what was there before is gone."""
    url = f"{server.url}/v1/stream"
    body, headers = STREAMS[name]
    if name == "deleted":
        session.delete(f"{url}/provider")
    session.delete(f"{url}/{name}")
    answer = session.put(f"{url}/{name}", body, headers=headers)
    assert answer.status_code == 201, answer.text
    if name == "deleted":
        fork = {"Stream-Forked-From": f"/v1/stream/{name}"}
        assert session.put(f"{url}/provider", headers=fork).status_code == 201
        assert session.delete(f"{url}/{name}").status_code == 204
