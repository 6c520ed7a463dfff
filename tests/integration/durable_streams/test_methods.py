"""Methods of streams, and 405 for all others."""

from __future__ import annotations

import pytest

from tests.support.wire import TEXT, Connection, target

ALLOWED = {"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"}


@pytest.mark.parametrize(
    "method",
    ["PATCH", "TRACE", "PROPFIND", "PURGE"],
)
@pytest.mark.parametrize("where", ["exists", "missing"])
def test_other_methods_are_405(wire: Connection, path: str, method: str, where: str) -> None:
    if where == "exists":
        wire.ask("PUT", target(path), TEXT, b"x")
    answer = wire.ask(method, target(path), TEXT, b"body")
    assert (answer.status, answer.code) == (405, "METHOD_NOT_ALLOWED")
    allowed = {name.strip() for name in answer.headers["allow"].split(",")}
    assert allowed == ALLOWED
    assert wire.ask("HEAD", target(path)).status == (200 if where == "exists" else 404)


@pytest.mark.parametrize("method", ["get", "FOO", "G ET", "", "CONNECT"])
def test_malformed_methods_are_refused(wire: Connection, path: str, method: str) -> None:
    answer = wire.ask(method, target(path))
    assert answer.status in (400, 405, 501)
    assert answer.body


def test_options_lists_the_allowed_methods(wire: Connection, path: str) -> None:
    answer = wire.ask("OPTIONS", target(path))
    methods = {name.strip() for name in answer.headers["access-control-allow-methods"].split(",")}
    assert methods == ALLOWED
    assert wire.ask("OPTIONS", "*").status < 500
