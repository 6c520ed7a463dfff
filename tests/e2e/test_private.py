"""Private streams through the whole path: who may read shares, and nobody else sees anything."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm

from devtools.load.audience import measure, table
from devtools.local_aws.stack import AwsLocal
from tailrace.auth.signed_names import sign
from tests.e2e.private import ACCESS, NEW, OLD, bearer, each_its_own
from tests.e2e.test_collapsing import assert_collapsed

TEXT = {"content-type": "text/plain"}
CHUNK = b"x" * (1 << 20)


@pytest.fixture
def viewer(guarded: httpx.Client) -> httpx.Client:
    return guarded


@pytest.fixture
def name() -> str:
    return f"private/{secrets.token_hex(6)}"


@pytest.fixture
def stream(viewer: httpx.Client, name: str) -> str:
    """A stream whose first chunk never changes, so that the edge keeps it."""
    path = f"/v1/stream/{name}"
    writer = {**TEXT, **bearer("write")}
    assert viewer.put(path, headers=writer).status_code == 201
    for body in (CHUNK, b"tail"):
        assert viewer.post(path, headers=writer, content=body).status_code == 204
    return path


def reads(stack: AwsLocal, path: str) -> int:
    """How often functions were asked to read it."""
    asked = stack.requests("http").items()
    return sum(
        times for (method, target), times in asked if method == "GET" and target.startswith(path)
    )


def test_readers_with_different_tokens_share_one_answer(
    closed_local: AwsLocal, viewer: httpx.Client, stream: str, name: str
) -> None:
    shown = [bearer("read", "private/*", sub=f"reader-{number}") for number in range(4)]
    shown += [{"x-signed": sign(name, OLD)}, {"x-signed": sign(name, NEW)}]
    for headers in shown:
        answer = viewer.get(stream, headers=headers)
        assert (answer.status_code, len(answer.content)) == (200, len(CHUNK))
    assert viewer.get(stream, params={"signed": sign(name, OLD)}).status_code == 200
    assert answer.headers["x-cache"].startswith("Hit")
    assert reads(closed_local, stream) == 1


def test_browsers_do_not_cache_responses_that_the_edge_shares(
    viewer: httpx.Client, stream: str
) -> None:
    caching = viewer.get(stream, headers=bearer("read")).headers["cache-control"]
    assert "max-age=0" in caching
    assert "s-maxage=60" in caching


def test_unauthorized_reads_are_refused_despite_a_cached_response(
    viewer: httpx.Client, stream: str, name: str
) -> None:
    assert viewer.get(stream, headers=bearer("read")).status_code == 200
    assert viewer.get(stream, headers=bearer("read")).headers["x-cache"].startswith("Hit")
    past = int(time.time()) - 1
    for headers, status in (
        ({}, 401),
        ({"x-signed": sign(f"{name}-other", OLD)}, 401),
        ({"x-signed": sign(name, "a-secret-that-nobody-knows")}, 401),
        (bearer("read", exp=past), 401),
        (bearer("read", secret="a-secret-that-nobody-knows"), 401),
        (bearer("read", "other/*"), 403),
        (bearer("write"), 403),
        ({"x-tailrace-edge-token": "0" * 64, "x-tailrace-origin": "guess"}, 401),
    ):
        for method in ("GET", "HEAD"):
            answer = viewer.request(method, stream, headers=headers)
            assert answer.status_code == status, headers
            assert b"xx" not in answer.content
    assert viewer.get(f"{stream}?signed=x&signed=y").status_code == 401


def test_the_function_judges_credentials_that_the_edge_cannot_verify(
    viewer: httpx.Client, closed_local: AwsLocal
) -> None:
    path = f"/v1/stream/private/caf%C3%A9-{secrets.token_hex(4)}"
    writer = {**TEXT, **bearer("write")}
    assert viewer.put(path, headers=writer, content=b"one").status_code == 201
    for _ in range(2):
        answer = viewer.get(path, headers=bearer("read"))
        assert (answer.status_code, answer.text) == (200, "one")
        assert answer.headers["cache-control"].startswith("private")
    assert viewer.get(path).status_code == 401
    assert reads(closed_local, path) == 3


def test_writers_need_a_token_that_writes(viewer: httpx.Client, stream: str, name: str) -> None:
    for headers in ({}, bearer("read"), {"x-signed": sign(name, OLD)}):
        for method in ("POST", "DELETE"):
            refused = viewer.request(method, stream, headers={**TEXT, **headers}, content=b"no")
            assert refused.status_code in (401, 403)
    assert viewer.post(stream, headers={**TEXT, **bearer("write")}, content=b"x").status_code == 204


def test_server_sent_events_require_read_access(
    viewer: httpx.Client, stream: str, name: str
) -> None:
    target = f"{stream}?offset=-1&live=sse"
    assert viewer.get(target).status_code == 401
    with viewer.stream("GET", target, headers={"x-signed": sign(name, OLD)}) as answer:
        assert answer.status_code == 200
        assert any("tail" in line for line in answer.iter_lines())


def test_a_public_stream_takes_nothing_to_read(viewer: httpx.Client) -> None:
    path = f"/v1/stream/public/{secrets.token_hex(6)}"
    writer = {**TEXT, **bearer("write")}
    assert viewer.put(path, headers=TEXT).status_code == 401
    assert viewer.put(path, headers=writer, content=b"all").status_code == 201
    assert viewer.get(path).text == "all"
    assert viewer.get(path, headers=bearer("read", exp=1)).status_code == 401


def test_a_removed_key_locks_its_tokens_out(
    viewer: httpx.Client, closed_local: AwsLocal, stream: str, name: str
) -> None:
    old, new = bearer("read", secret=OLD), bearer("read", secret=NEW)
    for headers in (old, new, {"x-signed": sign(name, OLD)}):
        assert viewer.get(stream, headers=headers).status_code == 200
    closed_local.change_access({**ACCESS, "secret": NEW})
    try:
        for headers in (old, {"x-signed": sign(name, OLD)}):
            assert viewer.get(stream, headers=headers).status_code == 401
        assert viewer.get(stream, headers=new).headers["x-cache"].startswith("Hit")
    finally:
        closed_local.change_access(ACCESS)
    assert viewer.get(stream, headers=old).status_code == 200


@pytest.fixture
def jwks(tmp_path: Path) -> Iterator[tuple[str, Ed25519PrivateKey]]:
    """The URL of a set with one public key, and the private one."""
    private = Ed25519PrivateKey.generate()
    key = OKPAlgorithm.to_jwk(private.public_key(), as_dict=True) | {"kid": "one"}
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [key]}))
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/jwks.json", private
        server.shutdown()


def test_tokens_of_an_identity_provider_are_judged_by_the_function(
    viewer: httpx.Client,
    closed_local: AwsLocal,
    stream: str,
    name: str,
    jwks: tuple[str, Ed25519PrivateKey],
) -> None:
    url, private = jwks

    def shown(key: Ed25519PrivateKey) -> dict[str, str]:
        claims = {"scope": "read", "streams": "private/*", "exp": int(time.time()) + 3600}
        token = jwt.encode(claims, key, "EdDSA", headers={"kid": "one"})
        return {"Authorization": f"Bearer {token}"}

    closed_local.change_access({**ACCESS, "jwt_algorithm": "EdDSA", "jwks": url})
    try:
        answer = viewer.get(stream, headers=shown(private))
        assert answer.status_code == 200
        assert answer.headers["cache-control"].startswith("private")
        forged = viewer.get(stream, headers=shown(Ed25519PrivateKey.generate()))
        assert forged.status_code == 401
        assert viewer.get(stream, headers=bearer("read")).status_code == 401
        assert viewer.get(stream, headers={"x-signed": sign(name, OLD)}).status_code == 200
    finally:
        closed_local.change_access(ACCESS)


async def test_long_polls_with_different_tokens_collapse(closed_local: AwsLocal) -> None:
    name = f"private/audience-{secrets.token_hex(4)}"
    result = await measure(
        closed_local,
        name,
        streams=1,
        clients=40,
        writes=4,
        idle=3,
        credentials=each_its_own,
    )
    print(table([result]))
    assert_collapsed(result)
