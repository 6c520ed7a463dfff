"""Public keys for bearer tokens: a JWK set at a URL, or in a file.

The set is read for the first token, every ten minutes, and when a token names an unknown key, but
then at most once a minute: anyone can name any key. While it cannot be read, the previous keys stay
valid for a day.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import orjson

from tailrace.auth.jws import Jws
from tailrace.errors import BadSetting, KeysUnavailable
from tailrace.limits import JWKS_BYTES, JWKS_SECONDS

REFRESH_INTERVAL: Final = 600_000
"""Milliseconds after which keys are read again, so that a retired key is no longer accepted."""

UNKNOWN_KEY_INTERVAL: Final = 60_000
"""Minimum milliseconds between two reads because of unknown keys."""

RETRY_INTERVAL: Final = 10_000
"""Minimum milliseconds between a failed read and the next."""

MAX_STALENESS: Final = 86_400_000
"""Milliseconds that keys stay valid while no newer ones can be read."""

MIN_RSA_BITS: Final = 2048
MAX_KEYS: Final = 64

KINDS: Final = {"RS256": ("RSA", None), "ES256": ("EC", "P-256"), "EdDSA": ("OKP", "Ed25519")}
"""The key type and curve of each algorithm."""

logger = logging.getLogger(__name__)


class JwksUnreadable(Exception):
    """A JWK set could not be read; the message says why."""


class PublicKey(NamedTuple):
    kid: str | None
    public: Any


class Jwks:
    """A JWK set that is read again when necessary; thread-safe."""

    def __init__(self, source: str, algorithm: str) -> None:
        self._source = source
        self._algorithm = algorithm
        self._keys: Sequence[PublicKey] = ()
        self._read_at = 0
        self._attempted_at: int | None = None
        self._failed = False
        self._lock = threading.Lock()

    def needs_refresh(self, jws: Jws, now: int) -> bool:
        """Whether the set has to be read before this token can be verified."""
        if self._attempted_at is not None:
            interval = RETRY_INTERVAL if self._failed else UNKNOWN_KEY_INTERVAL
            # Absolute: requests may arrive slightly out of order, and a clock may be set back.
            if abs(now - self._attempted_at) < interval:
                return False
        return not (self._candidates(jws) and abs(now - self._read_at) < REFRESH_INTERVAL)

    def refresh(self, jws: Jws, now: int) -> None:
        """Read the set if still necessary; if that fails, the previous keys stay."""
        with self._lock:
            if not self.needs_refresh(jws, now):
                return
            try:
                content = _run_with_timeout(partial(_read_source, self._source))
                keys = _parse_keys(content, self._algorithm)
            except JwksUnreadable as error:
                self._failed = True
                logger.warning("the public keys of TAILRACE_JWKS cannot be read: %s", error)
            else:
                self._keys, self._read_at, self._failed = keys, now, False
            self._attempted_at = now

    def verify(self, jws: Jws, now: int) -> bool:
        """Whether one of the keys signed the token."""
        if self.needs_refresh(jws, now):
            self.refresh(jws, now)
        if not self._keys or now - self._read_at >= MAX_STALENESS:
            raise KeysUnavailable(
                "the public keys to verify the token with cannot be read at the moment; try again"
            )
        return any(self._verifies(key, jws) for key in self._candidates(jws))

    def _candidates(self, jws: Jws) -> Sequence[PublicKey]:
        kid = jws.header.get("kid")
        if kid is None:
            # A token without a key id is ambiguous unless there is only one key.
            return self._keys if len(self._keys) == 1 else ()
        return [key for key in self._keys if key.kid == kid]

    def _verifies(self, key: PublicKey, jws: Jws) -> bool:
        import jwt

        with suppress(jwt.PyJWTError):
            jwt.PyJWS([self._algorithm]).decode_complete(jws.token, key.public, [self._algorithm])
            return True
        return False


def check_source(source: str) -> None:
    """Raise BadSetting unless it is a path, or a URL whose response cannot be tampered with."""
    if "://" not in source:
        return
    try:
        parts = urlsplit(source)
        safe = parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts.hostname))
        usable = bool(safe and parts.hostname and parts.username is None and parts.port != 0)
    except ValueError:
        usable = False
    if not (usable and source.isascii() and source.isprintable() and " " not in source):
        raise BadSetting(
            "TAILRACE_JWKS must be an https URL without a user name (http only for this machine),"
            " or the path of a file"
        )


def _is_loopback(host: str | None) -> bool:
    from ipaddress import ip_address

    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


def _parse_keys(content: bytes, algorithm: str) -> list[PublicKey]:
    try:
        items = orjson.loads(content)["keys"]
        jwks = [item for item in items[:MAX_KEYS] if isinstance(item, dict)]
    except (ValueError, TypeError, KeyError):
        raise JwksUnreadable("the content is not a JWK set") from None
    keys = [key for jwk in jwks if (key := _parse_key(jwk, algorithm)) is not None]
    if not keys:
        raise JwksUnreadable(f"it contains no usable key for {algorithm}")
    return keys


def _parse_key(jwk: dict[str, Any], algorithm: str) -> PublicKey | None:
    """Parse one key; None if it is for something else, or not safe."""
    import jwt

    kind, curve = KINDS[algorithm]
    kid, operations = jwk.get("kid"), jwk.get("key_ops", ["verify"])
    usable = (
        jwk.get("kty") == kind
        and jwk.get("crv") == curve
        and jwk.get("use", "sig") == "sig"
        and jwk.get("alg", algorithm) in (algorithm, curve)
        and isinstance(operations, list)
        and "verify" in operations
        and "d" not in jwk
        and (kid is None or isinstance(kid, str))
    )
    if not usable:
        return None
    try:
        public = jwt.PyJWK(jwk, algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if kind == "RSA" and public.key_size < MIN_RSA_BITS:
        logger.warning(
            "ignoring a key of TAILRACE_JWKS with less than %d bits; publish a longer one",
            MIN_RSA_BITS,
        )
        return None
    return PublicKey(kid, public)


def _run_with_timeout(read: Callable[[], bytes]) -> bytes:
    """Read in a thread, and give up after a while.

    Socket timeouts apply to each packet, and name resolution has none, so a thread that takes too
    long is abandoned."""
    results: list[bytes | JwksUnreadable] = []

    def run() -> None:
        try:
            results.append(read())
        except JwksUnreadable as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(JWKS_SECONDS)
    if not results:
        raise JwksUnreadable(f"no response within {JWKS_SECONDS} seconds")
    if isinstance(results[0], JwksUnreadable):
        raise results[0]
    return results[0]


def _read_source(source: str) -> bytes:
    try:
        content = _fetch(source) if "://" in source else _read_file(source)
    except (OSError, ValueError) as error:
        raise JwksUnreadable(str(error)) from None
    if len(content) > JWKS_BYTES:
        raise JwksUnreadable(f"the content has more than {JWKS_BYTES} bytes")
    return content


def _read_file(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(JWKS_BYTES + 1)


def _fetch(url: str) -> bytes:
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

    class NoRedirect(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            """Refuse: a redirect could choose the keys, and lead to an unsafe address."""

    # A proxy cannot reach the loopback of this machine.
    direct = [ProxyHandler({})] if url.startswith("http:") else []
    opener = build_opener(NoRedirect, *direct)
    request = Request(url, headers={"Accept": "application/jwk-set+json, application/json"})  # noqa: S310
    try:
        with opener.open(request, timeout=JWKS_SECONDS) as response:
            content: bytes = response.read(JWKS_BYTES + 1)
            return content
    except HTTPError as error:
        error.close()
        raise JwksUnreadable(f"the response is {error.code}") from None
    except HTTPException as error:
        raise JwksUnreadable(f"the response is not HTTP: {error}") from None
