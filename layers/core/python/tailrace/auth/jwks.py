"""The public keys that bearer tokens are signed with: a JWK set behind a URL, or in a file.

It is read when the first token comes, every ten minutes, and when a token names a key that is not
in it, but not more than once a minute: strangers can name any key. While it cannot be read, the
keys of before count for a day.
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

KEEP: Final = 600_000
"""Milliseconds after which keys are read again: a retired one is gone after that."""

PAUSE: Final = 60_000
"""Least milliseconds between two looks because of a key that is not known."""

RETRY: Final = 10_000
"""Least milliseconds between two looks when the first one failed."""

STALE: Final = 86_400_000
"""Milliseconds that keys count while no newer ones can be read."""

RSA_BITS: Final = 2048
MOST_KEYS: Final = 64

KINDS: Final = {"RS256": ("RSA", None), "ES256": ("EC", "P-256"), "EdDSA": ("OKP", "Ed25519")}
"""The key type and curve of each algorithm."""

logger = logging.getLogger(__name__)


class NotRead(Exception):
    """Why a JWK set could not be read."""


class Key(NamedTuple):
    kid: str | None
    public: Any


class Jwks:
    def __init__(self, source: str, algorithm: str) -> None:
        self._source = source
        self._algorithm = algorithm
        self._keys: Sequence[Key] = ()
        self._read = 0
        self._tried: int | None = None
        self._failed = False
        self._turn = threading.Lock()

    def wants(self, jws: Jws, now: int) -> bool:
        """Whether the set has to be read before this token can be judged."""
        if self._tried is not None:
            pause = RETRY if self._failed else PAUSE
            # Requests overtake each other a little; a clock may be set back by much.
            if abs(now - self._tried) < pause:
                return False
        return not (self._candidates(jws) and abs(now - self._read) < KEEP)

    def read(self, jws: Jws, now: int) -> None:
        """Reads the set if that is still wanted; the keys of before stay when it cannot be read."""
        with self._turn:
            if not self.wants(jws, now):
                return
            try:
                found = _keys(_within_time(partial(_content, self._source)), self._algorithm)
            except NotRead as error:
                self._failed = True
                logger.warning("the keys of TAILRACE_JWKS cannot be read: %s", error)
            else:
                self._keys, self._read, self._failed = found, now, False
            self._tried = now

    def signed(self, jws: Jws, now: int) -> bool:
        """Whether one of the keys signed it."""
        if self.wants(jws, now):
            self.read(jws, now)
        if not self._keys or now - self._read >= STALE:
            raise KeysUnavailable("the keys to check the token with cannot be read; try again")
        return any(self._verifies(key, jws) for key in self._candidates(jws))

    def _candidates(self, jws: Jws) -> Sequence[Key]:
        kid = jws.header.get("kid")
        if kid is None:
            # Without a name there is no telling which of several was meant.
            return self._keys if len(self._keys) == 1 else ()
        return [key for key in self._keys if key.kid == kid]

    def _verifies(self, key: Key, jws: Jws) -> bool:
        import jwt

        with suppress(jwt.PyJWTError):
            jwt.PyJWS([self._algorithm]).decode_complete(jws.token, key.public, [self._algorithm])
            return True
        return False


def check_source(source: str) -> None:
    """A URL that nobody on the way can change the answer of, or a path."""
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
            "TAILRACE_JWKS must be an https URL without a user name (http only to this machine), or"
            " the path of a file"
        )


def _is_loopback(host: str | None) -> bool:
    from ipaddress import ip_address

    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


def _keys(content: bytes, algorithm: str) -> list[Key]:
    try:
        found = orjson.loads(content)["keys"]
        described = [each for each in found[:MOST_KEYS] if isinstance(each, dict)]
    except (ValueError, TypeError, KeyError):
        raise NotRead("what is there is not a JWK set") from None
    keys = [key for each in described if (key := _key(each, algorithm)) is not None]
    if not keys:
        raise NotRead(f"there is no key for {algorithm} in it")
    return keys


def _key(described: dict[str, Any], algorithm: str) -> Key | None:
    """None: a key for something else, or one that is not safe."""
    import jwt

    kind, curve = KINDS[algorithm]
    kid, uses = described.get("kid"), described.get("key_ops", ["verify"])
    fits = (
        described.get("kty") == kind
        and described.get("crv") == curve
        and described.get("use", "sig") == "sig"
        and described.get("alg", algorithm) in (algorithm, curve)
        and isinstance(uses, list)
        and "verify" in uses
        and "d" not in described
        and (kid is None or isinstance(kid, str))
    )
    if not fits:
        return None
    try:
        public = jwt.PyJWK(described, algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if kind == "RSA" and public.key_size < RSA_BITS:
        logger.warning("a key of TAILRACE_JWKS has less than %d bits and is left out", RSA_BITS)
        return None
    return Key(kid, public)


def _within_time(read: Callable[[], bytes]) -> bytes:
    """What it reads. Time-outs of sockets are for each packet, and none is for looking up a name;
    so the time is taken here, and a thread that comes too late is left to itself."""
    answers: list[bytes | NotRead] = []

    def answer() -> None:
        try:
            answers.append(read())
        except NotRead as error:
            answers.append(error)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    thread.join(JWKS_SECONDS)
    if not answers:
        raise NotRead(f"no answer within {JWKS_SECONDS} seconds")
    if isinstance(answers[0], NotRead):
        raise answers[0]
    return answers[0]


def _content(source: str) -> bytes:
    try:
        content = _fetched(source) if "://" in source else _from_file(source)
    except (OSError, ValueError) as error:
        raise NotRead(str(error)) from None
    if len(content) > JWKS_BYTES:
        raise NotRead(f"it has more than {JWKS_BYTES} bytes")
    return content


def _from_file(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(JWKS_BYTES + 1)


def _fetched(url: str) -> bytes:
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

    class NoRedirect(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            """Whoever redirects could choose the keys, and the address need not be a safe one."""

    # The machine itself is not reached through a proxy.
    direct = [ProxyHandler({})] if url.startswith("http:") else []
    opener = build_opener(NoRedirect, *direct)
    request = Request(url, headers={"Accept": "application/jwk-set+json, application/json"})  # noqa: S310
    try:
        with opener.open(request, timeout=JWKS_SECONDS) as response:
            content: bytes = response.read(JWKS_BYTES + 1)
            return content
    except HTTPError as error:
        error.close()
        raise NotRead(f"the answer is {error.code}") from None
    except HTTPException as error:
        raise NotRead(f"the answer is not HTTP: {error}") from None
