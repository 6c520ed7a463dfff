"""The stock JavaScript client against the server, over either store."""

from __future__ import annotations

import time
from pathlib import Path

import jwt
import pytest

from devtools.node import run_vitest
from devtools.server import Server
from tailrace.auth.signed_names import sign
from tests.conftest import fail_with


@pytest.mark.parametrize("store", ["sqlite", "dynamodb"])
def test_javascript_client(request: pytest.FixtureRequest, tmp_path: Path, store: str) -> None:
    name = "server" if store == "sqlite" else "dynamodb_server"
    server: Server = request.getfixturevalue(name)
    tests = run_vitest(Path(__file__).parent, tmp_path / "report.json", {"SERVER_URL": server.url})
    fail_with(test for test in tests if test.status != "passed")
    assert tests


def test_javascript_client_with_credentials(tmp_path: Path) -> None:
    secret = "a-secret-of-more-than-32-bytes-as-it-should-be"
    claims = {"scope": "read write", "streams": "chat/*", "exp": time.time() + 60}
    with Server(tmp_path / "data", {"TAILRACE_SECRET": secret}) as server:
        env = {
            "SERVER_URL": server.url,
            "TOKEN": jwt.encode(claims, secret),
            "STREAM": "chat/room-1",
            "SIGNED": sign("chat/room-1", secret),
        }
        folder = Path(__file__).parent / "credentials"
        tests = run_vitest(folder, tmp_path / "report.json", env)
    fail_with(test for test in tests if test.status != "passed")
    assert tests


def test_javascript_client_with_shared_events(tmp_path: Path) -> None:
    """It takes three short SSE responses in a row for a broken proxy, and goes on by long-poll."""
    env = {"TAILRACE_SSE_SHARED": "true", "TAILRACE_LONG_POLL_TIMEOUT": "1"}
    with Server(tmp_path / "data", env) as server:
        folder = Path(__file__).parent
        tests = run_vitest(folder, tmp_path / "report.json", {"SERVER_URL": server.url})
    fail_with(test for test in tests if test.status != "passed")
    assert tests
