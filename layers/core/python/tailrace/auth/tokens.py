"""JSON Web Tokens: what bearer tokens allow, and whom identification tokens name.

| claim | bearer token | identification token |
|---|---|---|
| `scope` | `read`, `write`, `admin` with spaces between them; `admin` is all three | |
| `streams` | a pattern of paths, or a list of them; left out: none, for `admin` all | |
| `sub` | who it is, for logs and limits | |
| `ext` | | who it is, any text; needed |
| `exp` | needed; at most `jwt_max_age` ahead | may be left out |
| `nbf` | not before | not before |
| `iat` | not in the future | |
| `aud`, `iss` | exactly as in the settings: both there and the same, or on neither side | |

Identification tokens are AnyCable's. They are always of the HMAC family.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tailrace.auth.jwks import KINDS, Jwks
from tailrace.auth.jws import HASHES, Jws
from tailrace.auth.keys import Keys
from tailrace.errors import BadCredentials, BadSetting, TokenExpired
from tailrace.limits import MAX_INTEGER
from tailrace.log.path_patterns import EVERYTHING, NOTHING, Patterns
from tailrace.settings import Settings

SCOPES: Final = frozenset(("read", "write", "admin"))

SKEW: Final = 30
"""Seconds that the clock of whoever made a bearer token may be ahead of ours. It never makes a
token last longer."""


class Grant(NamedTuple):
    """What a bearer token allows."""

    subject: str | None
    scopes: frozenset[str]
    streams: Patterns


class Identity(NamedTuple):
    """What an identification token says."""

    name: str
    """The claim `ext`, as it is."""
    expires: int | None = None
    """When the token ends, in milliseconds; None: never."""


class Tokens:
    def __init__(self, settings: Settings, keys: Keys) -> None:
        self._settings = settings
        self._secrets = keys.jwt
        self._algorithm = settings.jwt_algorithm
        self._jwks = _jwks(settings)

    @property
    def usable(self) -> bool:
        """Whether there is anything to check a token with."""
        return bool(self._jwks or self._secrets)

    def unread_keys(self, bearer: str, now: int) -> tuple[Jwks, Jws] | None:
        """The keys that have to be read before the token can be judged, if there are such."""
        if self._jwks is None:
            return None
        try:
            jws = Jws.parse(bearer, (self._algorithm,))
        except BadCredentials:
            return None
        return (self._jwks, jws) if self._jwks.wants(jws, now) else None

    def grant(self, bearer: str, now: int) -> Grant:
        """What a bearer token allows at a time, in milliseconds."""
        return self.judged(bearer, now)[0]

    def judged(self, bearer: str, now: int) -> tuple[Grant, Mapping[str, Any]]:
        """What a bearer token allows, and all that it says."""
        jws = Jws.parse(bearer, (self._algorithm,))
        jwks = self._jwks
        good = jws.signed_with(self._secrets) if jwks is None else jwks.signed(jws, now)
        _require(good, "signature does not verify")
        claims, seconds = jws.claims(), now / 1000
        _require_ours(claims, self._settings.jwt_audience, self._settings.jwt_issuer)
        expires = _instant(claims, "exp")
        if expires is None:
            raise BadCredentials("the token's exp is missing")
        _require(expires <= seconds + self._settings.jwt_max_age, "exp is too far ahead")
        for name in ("nbf", "iat"):
            _require((_instant(claims, name) or 0) <= seconds + SKEW, f"{name} is in the future")
        granted = _granted(claims)
        _check_expiry(expires, seconds)
        return granted, claims

    def identity(self, token: str, now: int) -> Identity:
        """Whom an identification token names, and until when."""
        jws = Jws.parse(token, HASHES)
        _require(jws.signed_with(self._secrets), "signature does not verify")
        claims, seconds = jws.claims(), now / 1000
        expires, begins = _instant(claims, "exp"), _instant(claims, "nbf")
        _require(begins is None or begins <= seconds, "nbf is in the future")
        _check_expiry(expires, seconds)
        who = claims.get("ext")
        if not isinstance(who, str):
            raise BadCredentials("the token's ext is missing or no text")
        return Identity(who, None if expires is None else int(min(expires * 1000, MAX_INTEGER)))


def _jwks(settings: Settings) -> Jwks | None:
    public = settings.jwt_algorithm in KINDS
    if public and not settings.jwks:
        raise BadSetting(
            f"TAILRACE_JWT_ALGORITHM {settings.jwt_algorithm} needs TAILRACE_JWKS: the URL or the"
            " file of the public keys"
        )
    if settings.jwks and not public:
        raise BadSetting(
            f"TAILRACE_JWKS is of no use with TAILRACE_JWT_ALGORITHM {settings.jwt_algorithm}; set"
            f" that to one of {', '.join(KINDS)}"
        )
    return Jwks(settings.jwks, settings.jwt_algorithm) if public else None


def _granted(claims: Mapping[str, Any]) -> Grant:
    subject, scope = claims.get("sub"), claims.get("scope", "")
    _require(subject is None or isinstance(subject, str), "sub is no text")
    _require(isinstance(scope, str), "scope is no text")
    scopes = SCOPES.intersection(scope.split())
    if "admin" in scopes:
        scopes = SCOPES
    if "streams" not in claims:
        return Grant(subject, scopes, EVERYTHING if "admin" in scopes else NOTHING)
    streams = claims["streams"]
    # A text is one pattern, never several: a part of it may be the name of a user.
    patterns = [streams] if isinstance(streams, str) else streams
    _require(_are_texts(patterns), "streams is neither a pattern nor a list of patterns")
    return Grant(subject, scopes, Patterns(tuple(patterns)))


def _require_ours(claims: Mapping[str, Any], audience: str, issuer: str) -> None:
    named = claims.get("aud", [])
    audiences = [named] if isinstance(named, str) else named
    _require(_are_texts(audiences), "aud is neither text nor a list of texts")
    ours = audience in audiences if audience else not audiences
    _require(ours, "aud is not TAILRACE_JWT_AUDIENCE")
    _require(claims.get("iss", "") == issuer, "iss is not TAILRACE_JWT_ISSUER")


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(each, str) for each in values)


def _instant(claims: Mapping[str, Any], name: str) -> float | None:
    """Seconds since 1970; None: there is no such claim."""
    if name not in claims:
        return None
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadCredentials(f"the token's {name} is no number")
    return value


def _check_expiry(expires: float | None, seconds: float) -> None:
    if expires is not None and expires <= seconds:
        raise TokenExpired("the token has expired; get a new one")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise BadCredentials(f"the token's {what}")
