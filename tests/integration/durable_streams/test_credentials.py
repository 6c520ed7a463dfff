"""Credentials over HTTP: authorization, caching of private answers, origins, ids and logs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import jwt
import pytest

from devtools.server import Server
from tailrace import __version__
from tailrace.auth.signed_names import sign
from tests.conftest import StoreSettings
from tests.integration.durable_streams.conftest import Connect
from tests.support.wire import CLOSE, TEXT, Answer, Connection, error_of, target

SECRET = "a-secret-of-more-than-32-bytes-as-it-should-be"
ORIGIN = "https://app.example"


@pytest.fixture(scope="module")
def closed(
    store_settings: StoreSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    settings = {
        **store_settings(),
        "TAILRACE_SECRET": SECRET,
        "TAILRACE_PUBLIC_STREAMS": "news/**",
        "TAILRACE_ALLOWED_ORIGINS": f"{ORIGIN}, *.staff.example",
        "TAILRACE_LONG_POLL_TIMEOUT": "0.3",
        "TAILRACE_SSE_LIFETIME": "0.3",
        "TAILRACE_LOG_LEVEL": "debug",
    }
    with Server(tmp_path_factory.mktemp("closed") / "data", settings) as server:
        yield server


@pytest.fixture
def wire(closed: Server, connect: Connect) -> Connection:
    return connect(closed)


def token(scope: str = "read write", streams: Any = "**", **claims: Any) -> str:
    expires = claims.pop("exp", time.time() + 60)
    return jwt.encode({"scope": scope, "streams": streams, "exp": expires, **claims}, SECRET)


def bearer(*args: Any, **claims: Any) -> dict[str, str]:
    return {"authorization": f"Bearer {token(*args, **claims)}"}


def create(wire: Connection, path: str, body: bytes = b"hello") -> str:
    assert wire.ask("PUT", target(path), TEXT | bearer(), body).status == 201
    return path


# Authorization


@pytest.mark.parametrize(
    ("method", "headers", "body"),
    [
        ("PUT", TEXT, b"x"),
        ("POST", TEXT, b"x"),
        ("POST", CLOSE, b""),
        ("DELETE", {}, None),
        ("GET", {}, None),
        ("HEAD", {}, None),
    ],
)
def test_requests_without_credentials_are_refused(
    wire: Connection, path: str, method: str, headers: Mapping[str, str], body: bytes | None
) -> None:
    create(wire, path)
    for name in (path, f"{path}/that-is-not-there"):
        answer = wire.ask(method, target(name), headers, body)
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="tailrace"'
        assert answer.headers["cache-control"] == "no-store"
        assert method == "HEAD" or answer.code == "CREDENTIALS_MISSING"
    assert wire.ask("GET", target(path), bearer()).body == b"hello"


def test_refused_credentials_do_not_reveal_which_streams_exist(wire: Connection, path: str) -> None:
    create(wire, path)
    errors = set()
    for name in (path, f"{path}/that-is-not-there"):
        answer = wire.ask("POST", target(name), TEXT | bearer("read"), b"x")
        assert answer.status == 403
        assert "insufficient_scope" in answer.headers["www-authenticate"]
        errors.add((answer.code, error_of(answer)["message"]))
    assert len(errors) == 1


def test_a_token_is_for_its_streams_alone(wire: Connection, path: str) -> None:
    create(wire, f"{path}/mine")
    create(wire, f"{path}/theirs")
    mine = bearer("read write", f"{path}/mine")
    assert wire.ask("GET", target(f"{path}/mine"), mine).status == 200
    assert wire.ask("POST", target(f"{path}/mine"), TEXT | mine, b"!").status == 204
    for method in ("GET", "HEAD", "POST", "DELETE", "PUT"):
        assert wire.ask(method, target(f"{path}/theirs"), TEXT | mine, b"!").status == 403


def test_an_expired_token_is_named_as_the_reason(wire: Connection, path: str) -> None:
    answer = wire.ask("GET", target(path), bearer(exp=time.time() - 1))
    assert answer.status == 401
    assert answer.code == "TOKEN_EXPIRED"
    assert "token_expired" in answer.headers["www-authenticate"]


@pytest.mark.parametrize("where", ["query", "header"])
def test_a_signed_name_authorizes_reads_of_its_stream(
    wire: Connection, path: str, where: str
) -> None:
    create(wire, path)
    signed = sign(path, SECRET)
    query, headers = ({"signed": signed}, {}) if where == "query" else ({}, {"x-signed": signed})
    assert wire.ask("GET", target(path, **query), headers).body == b"hello"
    assert wire.ask("HEAD", target(path, **query), headers).status == 200
    assert wire.ask("POST", target(path, **query), TEXT | headers, b"x").status == 403
    assert wire.ask("GET", target(f"{path}/other", **query), headers).status == 401


def test_a_forged_name_is_refused_for_public_streams_too(wire: Connection) -> None:
    create(wire, "news/today")
    assert wire.ask("GET", target("news/today")).status == 200
    answer = wire.ask("GET", target("news/today", signed=sign("news/today", "another")))
    assert (answer.status, answer.code) == (401, "BAD_CREDENTIALS")


def test_a_fork_needs_permission_to_read_its_source(wire: Connection, path: str) -> None:
    create(wire, f"{path}/source")
    fork = {"stream-forked-from": target(f"{path}/source")}
    blind = bearer("write", f"{path}/**")
    assert wire.ask("PUT", target(f"{path}/fork"), fork | blind).status == 403
    elsewhere = bearer("read write", f"{path}/fork")
    assert wire.ask("PUT", target(f"{path}/fork"), fork | elsewhere).status == 403
    assert wire.ask("PUT", target(f"{path}/fork"), fork | bearer()).status == 201


def test_a_listing_needs_permission_to_read_all_of_it(wire: Connection, path: str) -> None:
    create(wire, f"{path}/a")
    url = f"/v1/streams?prefix={path}/"
    assert wire.ask("GET", url).status == 401
    assert wire.ask("GET", url, bearer("read", f"{path}/a")).status == 403
    answer = wire.ask("GET", url, bearer("read", f"{path}/**"))
    assert [each["path"] for each in json.loads(answer.body)["streams"]] == [f"{path}/a"]


def test_health_and_documents_need_no_credentials(wire: Connection) -> None:
    for path in ("/health", "/", "/docs", "/openapi.json"):
        assert wire.ask("GET", path).status == 200


# Caching


def caching(answer: Answer) -> str:
    return answer.headers["cache-control"]


def test_private_answers_are_not_shared_by_caches(wire: Connection, path: str) -> None:
    create(wire, path)
    offset = wire.ask("HEAD", target(path), bearer()).offset
    for read in (
        target(path),
        target(path, offset="-1"),
        target(path, offset=offset, live="long-poll"),
        target(path, offset=offset, live="sse"),
    ):
        assert caching(wire.ask("GET", read, bearer())) == "private, no-cache"
    assert caching(wire.ask("GET", target(path, offset="now"), bearer())) == "no-store"
    wire.ask("POST", target(path), CLOSE | bearer(), b"")
    assert caching(wire.ask("GET", target(path), bearer())) == "private, no-cache"
    held = wire.ask("GET", target(path), bearer()).headers["etag"]
    again = wire.ask("GET", target(path), bearer() | {"if-none-match": held})
    assert (again.status, caching(again)) == (304, "private, no-cache")
    assert wire.ask("GET", target(path), {"if-none-match": held}).status == 401


def test_public_answers_are_cached_with_and_without_a_token(wire: Connection) -> None:
    create(wire, "news/closed")
    wire.ask("POST", target("news/closed"), CLOSE | bearer(), b"")
    for headers in ({}, bearer("read", "news/*")):
        answer = wire.ask("GET", target("news/closed"), headers)
        assert caching(answer).startswith("public, max-age=60")


# Pages


@pytest.mark.parametrize("origin", [ORIGIN, "http://a.staff.example", "https://b.a.staff.example"])
def test_a_page_of_an_allowed_origin_may_send_credentials(
    wire: Connection, path: str, origin: str
) -> None:
    for answer in (
        wire.ask("OPTIONS", target(path), {"origin": origin}),
        wire.ask("GET", target(path), {"origin": origin}),
        wire.ask("GET", "/health", {"origin": origin}),
    ):
        assert answer.headers["access-control-allow-origin"] == origin
        assert answer.headers["access-control-allow-credentials"] == "true"
        assert "origin" in answer.headers["vary"].lower()
        assert "Stream-Next-Offset" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "https://staff.example", "https://evilstaff.example", "null",
     "https://app.example.evil.example", "http://app.example", "https://app.example:8443", ""],
)  # fmt: skip
def test_a_page_of_another_origin_cannot_read_answers(
    wire: Connection, path: str, origin: str
) -> None:
    for headers in ({"origin": origin}, {}):
        answer = wire.ask("GET", target(path), headers)
        assert "access-control-allow-origin" not in answer.headers
        assert "access-control-allow-credentials" not in answer.headers
        assert "origin" in answer.headers["vary"].lower()


def test_a_preflight_needs_no_credentials_and_lists_those_headers(
    wire: Connection, path: str
) -> None:
    answer = wire.ask("OPTIONS", target(path), {"origin": ORIGIN})
    assert answer.status == 204
    listed = answer.headers["access-control-allow-headers"]
    for name in ("Authorization", "X-Signed", "X-JID", "X-Request-ID", "Producer-Id"):
        assert name in listed
    assert answer.headers["access-control-max-age"] == "86400"


# Request ids


def test_the_clients_request_id_is_used(wire: Connection, path: str) -> None:
    answer = wire.ask("GET", target(path), {"x-request-id": "checkout-7"})
    assert answer.headers["x-request-id"] == "checkout-7"
    assert error_of(answer)["request_id"] == "checkout-7"


@pytest.mark.parametrize("request_id", ["", "a b", "x" * 65, "line%0a", "ü"])
def test_a_request_id_that_is_unfit_for_logs_is_replaced(
    wire: Connection, path: str, request_id: str
) -> None:
    answer = wire.ask("GET", target(path), {"x-request-id": request_id})
    assert answer.headers["x-request-id"] not in (request_id, "")
    assert error_of(answer)["request_id"] == answer.headers["x-request-id"]


def test_every_answer_has_an_id_and_the_version(wire: Connection, path: str) -> None:
    create(wire, path)
    answers = [
        wire.ask(method, url, bearer())
        for method, url in (
            ("GET", target(path)), ("HEAD", target(path)), ("OPTIONS", target(path)),
            ("PATCH", target(path)), ("GET", "/health"), ("GET", "/nowhere"), ("GET", "/ready"),
            ("POST", "/api/v1/watch"), ("GET", "/api/v1/schema"), ("POST", "/_broadcast"),
        )
    ]  # fmt: skip
    ids = {UUID(answer.headers["x-request-id"]) for answer in answers}
    assert len(ids) == len(answers)
    assert {each.version for each in ids} == {4}
    assert {answer.headers["x-tailrace-version"] for answer in answers} == {__version__}


# The log


def test_the_log_has_no_secrets(closed: Server, wire: Connection, path: str) -> None:
    create(wire, path, b"a body that is private")
    signed, good = sign(path, SECRET), token()
    bad = good[:-4] + "AAAA"
    wire.ask("GET", target(path, signed=signed))
    wire.ask("GET", target(path, signed=signed[:-4] + "0000"))
    wire.ask("GET", target(path, jid=good), {"authorization": f"Bearer {bad}"})
    wire.ask("GET", f"/v1/streams?prefix=&jid={good}", {"authorization": f"Bearer {good}"})
    wire.ask("GET", "/nowhere?signed=" + signed, {"x-jid": good})
    wire.send(b"GET " + target(path, signed=signed).encode() + b" HTTP/9.9\r\n\r\n")
    log = closed.output()
    for secret in (SECRET, signed, good, bad, "a body that is private"):
        assert secret not in log
        assert secret[-20:] not in log
