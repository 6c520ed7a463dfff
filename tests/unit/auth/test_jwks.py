"""Public keys: from a file or over HTTP, which ones are used, and how often they are read."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

from tailrace.auth import jwks as module
from tailrace.auth.authorizer import Authorizer, Operation
from tailrace.auth.credentials import Credentials
from tailrace.auth.jwks import MAX_STALENESS, REFRESH_INTERVAL, RETRY_INTERVAL, UNKNOWN_KEY_INTERVAL
from tailrace.auth.keys import Keys
from tailrace.auth.tokens import TokenVerifier
from tailrace.errors import BadCredentials, KeysUnavailable, TokenExpired
from tailrace.limits import JWKS_BYTES
from tailrace.settings import Settings
from tests.support.auth import CLAIMS, NOW, SECONDS, by_hand

MAKERS: dict[str, Callable[[], Any]] = {
    "RS256": lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


@pytest.fixture(scope="module")
def private() -> dict[str, Any]:
    return {algorithm: make() for algorithm, make in MAKERS.items()}


@pytest.fixture(scope="module")
def other() -> dict[str, Any]:
    return {algorithm: make() for algorithm, make in MAKERS.items()}


def public(private: Any, algorithm: str = "EdDSA", **more: Any) -> dict[str, Any]:
    kind: Any = jwt.get_algorithm_by_name(algorithm)
    return {**json.loads(kind.to_jwk(private.public_key())), "kid": "1", **more}


def signed(private: Any, algorithm: str = "EdDSA", kid: str | None = "1", **claims: Any) -> str:
    # Far ahead, so that the keys and not the token grow old here.
    lasting = CLAIMS | {"exp": SECONDS + 100 * 86_400} | claims
    return jwt.encode(lasting, private, algorithm, None if kid is None else {"kid": kid})


@dataclass
class Endpoint:
    """Where keys are published, on loopback."""

    url: str
    keys: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    answers: threading.Event = field(default_factory=threading.Event)
    """Nothing is answered while this is not set."""
    requests: int = 0


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            here.requests += 1
            body = json.dumps({"keys": here.keys}).encode() if here.body is None else here.body
            here.answers.wait()
            self.send_response(here.status)
            for name, value in here.headers.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(ConnectionError):  # the client has given up
                self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    here = Endpoint(f"http://127.0.0.1:{server.server_port}/keys")
    here.answers.set()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield here
    here.answers.set()
    server.shutdown()
    thread.join()
    server.server_close()


def tokens(source: object, algorithm: str = "EdDSA") -> TokenVerifier:
    settings = Settings(jwt_algorithm=algorithm, jwks=str(source), jwt_max_age=315_360_000)
    return TokenVerifier(settings, Keys.from_settings(settings))


def of(tmp_path: Path, *keys: dict[str, Any], algorithm: str = "EdDSA") -> TokenVerifier:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": keys}))
    return tokens(file, algorithm)


# What verifies


@pytest.mark.parametrize("algorithm", MAKERS)
def test_token_of_a_published_key_is_accepted(
    private: dict[str, Any], other: dict[str, Any], tmp_path: Path, algorithm: str
) -> None:
    ours = of(tmp_path, public(private[algorithm], algorithm), algorithm=algorithm)
    assert ours.verify_bearer(signed(private[algorithm], algorithm), NOW).subject == "ada"
    with pytest.raises(BadCredentials, match="signature"):
        ours.verify_bearer(signed(other[algorithm], algorithm), NOW)


@pytest.mark.parametrize("algorithm", MAKERS)
def test_changed_token_is_refused(private: dict[str, Any], tmp_path: Path, algorithm: str) -> None:
    ours = of(tmp_path, public(private[algorithm], algorithm), algorithm=algorithm)
    token = signed(private[algorithm], algorithm)
    header, claims, signature = token.split(".")
    forged = signed(MAKERS[algorithm](), algorithm, scope="admin").split(".")[1]
    for changed in (
        f"{header}.{forged}.{signature}",
        f"{header}.{claims}.{signature[:-4]}",
        f"{header}.{claims}.{signature[::-1]}",
        f"{header}.{claims}.AAAA",
    ):
        with pytest.raises(BadCredentials):
            ours.verify_bearer(changed, NOW)


@pytest.mark.parametrize("algorithm", MAKERS)
def test_claims_are_checked_with_public_keys_too(
    private: dict[str, Any], tmp_path: Path, algorithm: str
) -> None:
    ours = of(tmp_path, public(private[algorithm], algorithm), algorithm=algorithm)
    with pytest.raises(TokenExpired):
        ours.verify_bearer(signed(private[algorithm], algorithm, exp=SECONDS), NOW)
    with pytest.raises(BadCredentials, match="aud"):
        ours.verify_bearer(signed(private[algorithm], algorithm, aud="other"), NOW)


def test_the_key_is_the_one_that_the_token_names(
    private: dict[str, Any], other: dict[str, Any], tmp_path: Path
) -> None:
    a, b = private["EdDSA"], other["EdDSA"]
    ours = of(tmp_path, public(a, kid="a"), public(b, kid="b"))
    assert ours.verify_bearer(signed(a, kid="a"), NOW)
    assert ours.verify_bearer(signed(b, kid="b"), NOW)
    for token in (signed(a, kid="b"), signed(a, kid="c"), signed(a, kid=None)):
        with pytest.raises(BadCredentials, match="signature"):
            ours.verify_bearer(token, NOW)


def test_a_token_need_not_name_the_only_key(private: dict[str, Any], tmp_path: Path) -> None:
    ours = of(tmp_path, public(private["EdDSA"]))
    assert ours.verify_bearer(signed(private["EdDSA"], kid=None), NOW)


def test_the_only_key_need_not_have_a_name(private: dict[str, Any], tmp_path: Path) -> None:
    key = public(private["EdDSA"])
    del key["kid"]
    ours = of(tmp_path, key)
    assert ours.verify_bearer(signed(private["EdDSA"], kid=None), NOW)
    with pytest.raises(BadCredentials):
        ours.verify_bearer(signed(private["EdDSA"], kid="1"), NOW)


@pytest.mark.parametrize("kid", [1, ["1"], {"1": "1"}, True])
def test_the_name_of_a_key_is_text(private: dict[str, Any], tmp_path: Path, kid: object) -> None:
    ours = of(tmp_path, public(private["EdDSA"]))
    with pytest.raises(BadCredentials):
        ours.verify_bearer(by_hand({"alg": "EdDSA", "kid": kid}, CLAIMS), NOW)


# Which keys are used


@pytest.mark.parametrize(
    "more",
    [{"use": "enc"}, {"alg": "HS256"}, {"alg": "RS256"}, {"key_ops": ["sign"]}, {"key_ops": 5},
     {"kty": "oct"}, {"crv": "Ed448"}, {"kid": 1}, {"x": "AAAA"}, {"x": 1}],
)  # fmt: skip
def test_keys_for_other_uses_are_ignored(
    private: dict[str, Any], other: dict[str, Any], tmp_path: Path, more: dict[str, Any]
) -> None:
    good, odd = private["EdDSA"], other["EdDSA"]
    ours = of(tmp_path, public(good, kid="good"), public(odd, **({"kid": "odd"} | more)))
    assert ours.verify_bearer(signed(good, kid="good"), NOW)
    with pytest.raises(BadCredentials, match="signature"):
        ours.verify_bearer(signed(odd, kid="odd"), NOW)


@pytest.mark.parametrize(
    "more", [{"use": "sig"}, {"alg": "EdDSA"}, {"alg": "Ed25519"}, {"key_ops": ["verify"]}]
)
def test_key_may_declare_its_use(
    private: dict[str, Any], tmp_path: Path, more: dict[str, Any]
) -> None:
    assert of(tmp_path, public(private["EdDSA"], **more)).verify_bearer(
        signed(private["EdDSA"]), NOW
    )


def test_symmetric_key_in_a_jwk_set_is_ignored(tmp_path: Path) -> None:
    """Every reader of the set could create tokens with it."""
    oct_key = {"kty": "oct", "kid": "1", "k": "c2VjcmV0", "alg": "EdDSA"}
    with pytest.raises(KeysUnavailable):
        of(tmp_path, oct_key).verify_bearer(signed(MAKERS["EdDSA"]()), NOW)


def test_private_key_in_a_jwk_set_is_ignored(private: dict[str, Any], tmp_path: Path) -> None:
    """Every reader of the set could create tokens with it."""
    kind: Any = jwt.get_algorithm_by_name("EdDSA")
    leaked = {**json.loads(kind.to_jwk(private["EdDSA"])), "kid": "1"}
    assert "d" in leaked
    with pytest.raises(KeysUnavailable):
        of(tmp_path, leaked).verify_bearer(signed(private["EdDSA"]), NOW)


def test_short_rsa_key_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = signed(short, "RS256")
    with pytest.raises(KeysUnavailable):
        of(tmp_path, public(short, "RS256"), algorithm="RS256").verify_bearer(token, NOW)
    assert "less than 2048 bits" in caplog.text


def test_key_of_another_curve_is_ignored(tmp_path: Path) -> None:
    wide = ec.generate_private_key(ec.SECP384R1())
    with pytest.raises(KeysUnavailable):
        of(tmp_path, public(wide, "ES384"), algorithm="ES256").verify_bearer(
            signed(MAKERS["ES256"](), "ES256"), NOW
        )
    larger = ed448.Ed448PrivateKey.generate()
    with pytest.raises(KeysUnavailable):
        of(tmp_path, public(larger)).verify_bearer(signed(larger), NOW)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '"keys"', "{}", '{"keys":null}', '{"keys":{}}', '{"keys":1}',
                '{"keys":[]}', '{"keys":[1,null,[]]}', '{"keys":"abc"}', "<html>"],
)  # fmt: skip
def test_malformed_jwk_set_is_unavailable(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys.json"
    file.write_text(content)
    with pytest.raises(KeysUnavailable, match="try again"):
        tokens(file).verify_bearer(signed(MAKERS["EdDSA"]()), NOW)
    assert "TAILRACE_JWKS cannot be read" in caplog.text


def test_missing_file_is_unavailable(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeysUnavailable):
        tokens(tmp_path / "none.json").verify_bearer(signed(MAKERS["EdDSA"]()), NOW)
    assert "No such file" in caplog.text


# Over HTTP


def test_keys_come_over_http(private: dict[str, Any], endpoint: Endpoint) -> None:
    endpoint.keys = [public(private["EdDSA"])]
    ours = tokens(endpoint.url)
    for _ in range(3):
        assert ours.verify_bearer(signed(private["EdDSA"]), NOW)
    assert endpoint.requests == 1


@pytest.mark.parametrize("status", [201, 204, 400, 401, 404, 500, 503])
def test_error_response_is_unavailable(endpoint: Endpoint, status: int) -> None:
    endpoint.status, endpoint.body = status, b""
    with pytest.raises(KeysUnavailable):
        tokens(endpoint.url).verify_bearer(signed(MAKERS["EdDSA"]()), NOW)
    assert endpoint.requests == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(
    private: dict[str, Any], endpoint: Endpoint, tmp_path: Path, status: int
) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [public(private["EdDSA"])]}))
    for place in (endpoint.url + "?again", f"file://{file}"):
        endpoint.status, endpoint.headers, endpoint.requests = status, {"Location": place}, 0
        with pytest.raises(KeysUnavailable):
            tokens(endpoint.url).verify_bearer(signed(private["EdDSA"]), NOW)
        assert endpoint.requests == 1


def test_a_set_that_is_too_large_is_not_read(
    private: dict[str, Any], endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    content = json.dumps({"keys": [public(private["EdDSA"])]}).encode()
    endpoint.body = content.ljust(JWKS_BYTES)
    assert tokens(endpoint.url).verify_bearer(signed(private["EdDSA"]), NOW)
    endpoint.body = content.ljust(JWKS_BYTES + 1)
    with pytest.raises(KeysUnavailable):
        tokens(endpoint.url).verify_bearer(signed(private["EdDSA"]), NOW)
    assert f"more than {JWKS_BYTES} bytes" in caplog.text


def test_slow_response_times_out(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "JWKS_SECONDS", 0.1)
    endpoint.answers.clear()
    with pytest.raises(KeysUnavailable):
        tokens(endpoint.url).verify_bearer(signed(MAKERS["EdDSA"]()), NOW)
    assert "cannot be read" in caplog.text


def test_refused_connection_is_unavailable(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeysUnavailable):
        tokens("http://127.0.0.1:1/").verify_bearer(signed(MAKERS["EdDSA"]()), NOW)
    assert "refused" in caplog.text


# How often keys are read


def test_unknown_keys_cause_one_read_per_minute(
    private: dict[str, Any], other: dict[str, Any], endpoint: Endpoint
) -> None:
    a, b = private["EdDSA"], other["EdDSA"]
    endpoint.keys = [public(a, kid="a")]
    ours = tokens(endpoint.url)
    assert ours.verify_bearer(signed(a, kid="a"), NOW)
    endpoint.keys.append(public(b, kid="b"))
    for strange in range(20):
        with pytest.raises(BadCredentials):
            ours.verify_bearer(signed(b, kid=f"b{strange}"), NOW + UNKNOWN_KEY_INTERVAL - 1)
    assert endpoint.requests == 1
    assert ours.verify_bearer(signed(b, kid="b"), NOW + UNKNOWN_KEY_INTERVAL)
    assert ours.verify_bearer(signed(a, kid="a"), NOW + UNKNOWN_KEY_INTERVAL)
    assert endpoint.requests == 2


def test_retired_key_is_refused_after_ten_minutes(
    private: dict[str, Any], other: dict[str, Any], endpoint: Endpoint
) -> None:
    a, b = private["EdDSA"], other["EdDSA"]
    endpoint.keys = [public(a, kid="a")]
    ours = tokens(endpoint.url)
    assert ours.verify_bearer(signed(a, kid="a"), NOW)
    endpoint.keys = [public(b, kid="b")]
    assert ours.verify_bearer(signed(a, kid="a"), NOW + REFRESH_INTERVAL - 1)
    with pytest.raises(BadCredentials):
        ours.verify_bearer(signed(a, kid="a"), NOW + REFRESH_INTERVAL)
    assert endpoint.requests == 2


def test_keys_stay_valid_for_a_day_while_they_cannot_be_read(
    private: dict[str, Any], endpoint: Endpoint
) -> None:
    key = private["EdDSA"]
    endpoint.keys = [public(key)]
    ours = tokens(endpoint.url)
    assert ours.verify_bearer(signed(key), NOW)
    endpoint.status = 500
    assert ours.verify_bearer(signed(key), NOW + REFRESH_INTERVAL)
    assert ours.verify_bearer(signed(key), NOW + REFRESH_INTERVAL + RETRY_INTERVAL - 1)
    assert endpoint.requests == 2
    assert ours.verify_bearer(signed(key), NOW + MAX_STALENESS - 1)
    with pytest.raises(KeysUnavailable):
        ours.verify_bearer(signed(key), NOW + MAX_STALENESS)
    endpoint.status = 200
    assert ours.verify_bearer(signed(key), NOW + MAX_STALENESS + RETRY_INTERVAL)


def test_failed_read_is_retried_after_ten_seconds(
    private: dict[str, Any], endpoint: Endpoint
) -> None:
    endpoint.keys, endpoint.status = [public(private["EdDSA"])], 503
    ours = tokens(endpoint.url)
    for later in (0, RETRY_INTERVAL - 1):
        with pytest.raises(KeysUnavailable):
            ours.verify_bearer(signed(private["EdDSA"]), NOW + later)
    assert endpoint.requests == 1
    endpoint.status = 200
    assert ours.verify_bearer(signed(private["EdDSA"]), NOW + RETRY_INTERVAL)


def test_keys_are_read_again_after_the_clock_was_set_back(
    private: dict[str, Any], endpoint: Endpoint
) -> None:
    endpoint.keys = [public(private["EdDSA"])]
    ours = tokens(endpoint.url)
    assert ours.verify_bearer(signed(private["EdDSA"]), NOW)
    assert ours.verify_bearer(signed(private["EdDSA"]), NOW - 1)
    assert endpoint.requests == 1
    assert ours.verify_bearer(signed(private["EdDSA"]), NOW - REFRESH_INTERVAL)
    assert endpoint.requests == 2


def test_malformed_token_does_not_cause_a_read(endpoint: Endpoint) -> None:
    for token in ("x", "a.b.c", jwt.encode(CLAIMS, "s" * 32, "HS256")):
        with pytest.raises(BadCredentials):
            tokens(endpoint.url).verify_bearer(token, NOW)
    assert endpoint.requests == 0


# Concurrent requests


def authorizer(endpoint: Endpoint) -> Authorizer:
    return Authorizer(Settings(jwt_algorithm="EdDSA", jwks=endpoint.url, jwt_max_age=315_360_000))


async def test_concurrent_requests_share_one_read_off_the_event_loop(
    private: dict[str, Any], endpoint: Endpoint
) -> None:
    endpoint.keys = [public(private["EdDSA"])]
    endpoint.answers.clear()
    ours, credentials = authorizer(endpoint), Credentials(bearer=signed(private["EdDSA"]))
    impatient = asyncio.create_task(ours.prepare(credentials, NOW))
    others = [asyncio.create_task(ours.prepare(credentials, NOW)) for _ in range(50)]
    # The event loop keeps running while the response is pending.
    while not endpoint.requests:  # noqa: ASYNC110 - a thread counts
        await asyncio.sleep(0.001)
    impatient.cancel()
    await asyncio.sleep(0)
    assert not any(each.done() for each in others)
    endpoint.answers.set()
    await asyncio.gather(*others)
    assert endpoint.requests == 1
    endpoint.status = 500
    assert ours.authorize(Operation.READ, "chat/1", credentials, NOW - 1).reason == "bearer"
    await ours.prepare(credentials, NOW)
    assert endpoint.requests == 1


async def test_keys_are_not_read_unless_needed(private: dict[str, Any], endpoint: Endpoint) -> None:
    ours = authorizer(endpoint)
    for credentials in (Credentials(), Credentials(bearer="x"), Credentials(signed="x", jid="y")):
        await ours.prepare(credentials, NOW)
    await Authorizer(Settings(secret="s")).prepare(Credentials(bearer="a.b.c"), NOW)
    opened = Settings(jwt_algorithm="EdDSA", jwks=endpoint.url, access="open")
    await Authorizer(opened).prepare(Credentials(bearer=signed(private["EdDSA"])), NOW)
    assert endpoint.requests == 0


async def test_authorize_reports_unavailable_keys(
    private: dict[str, Any], endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.status = 500
    ours, credentials = authorizer(endpoint), Credentials(bearer=signed(private["EdDSA"]))
    with caplog.at_level(logging.WARNING):
        await ours.prepare(credentials, NOW)
    with pytest.raises(KeysUnavailable):
        ours.authorize(Operation.READ, "chat/1", credentials, NOW)
    assert endpoint.requests == 1
    assert credentials.bearer is not None
    assert credentials.bearer not in caplog.text
