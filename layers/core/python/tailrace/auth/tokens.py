"""JSON Web Tokens: what bearer tokens permit, and whom identification tokens name.

| claim | bearer token | identification token |
|---|---|---|
| `scope` | `read`, `write`, `admin`, separated by spaces; `admin` includes the others | |
| `streams` | a pattern of paths, or a list of them; if absent: none, for `admin` all | |
| `sub` | the client, for logs and limits | |
| `ext` | | the client, any text; required |
| `exp` | required; at most `jwt_max_age` ahead | optional |
| `nbf` | not before | not before |
| `iat` | not in the future | |
| `aud`, `iss` | must match the settings; must be absent if the setting is empty | |

Identification tokens are those of AnyCable, and always signed with an HMAC.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tailrace.auth.jwks import KINDS, Jwks
from tailrace.auth.jws import HASHES, Jws
from tailrace.auth.keys import Keys
from tailrace.errors import BadCredentials, BadSetting, TokenExpired
from tailrace.limits import MAX_INTEGER
from tailrace.log.paths import EVERYTHING, NOTHING, Patterns
from tailrace.settings import Settings

SCOPES: Final = frozenset(("read", "write", "admin"))

SKEW: Final = 30
"""Seconds that the issuer's clock may be ahead of ours. It never extends the life of a token."""


class Grant(NamedTuple):
    """The permissions of a bearer token."""

    subject: str | None
    scopes: frozenset[str]
    streams: Patterns


class Identity(NamedTuple):
    """The client that an identification token names."""

    name: str
    """The claim `ext`, unchanged."""
    expires: int | None = None
    """When the token expires, in milliseconds; None: never."""


class TokenVerifier:
    """Verifies bearer tokens and identification tokens."""

    def __init__(self, settings: Settings, keys: Keys) -> None:
        self._settings = settings
        self._secrets = keys.jwt
        self._algorithm = settings.jwt_algorithm
        self._jwks = _create_jwks(settings)

    @property
    def usable(self) -> bool:
        """Whether there is any key to verify a token with."""
        return bool(self._jwks or self._secrets)

    def outdated_keys(self, bearer: str, now: int) -> tuple[Jwks, Jws] | None:
        """The keys to read before the token can be verified, or None if none have to be."""
        if self._jwks is None:
            return None
        try:
            jws = Jws.parse(bearer, (self._algorithm,))
        except BadCredentials:
            return None
        return (self._jwks, jws) if self._jwks.needs_refresh(jws, now) else None

    def verify_bearer(self, bearer: str, now: int) -> Grant:
        """Verify a bearer token at a time in milliseconds, and return what it permits."""
        return self.verify_bearer_claims(bearer, now)[0]

    def verify_bearer_claims(self, bearer: str, now: int) -> tuple[Grant, Mapping[str, Any]]:
        """Verify a bearer token, and return what it permits and all its claims."""
        jws = Jws.parse(bearer, (self._algorithm,))
        jwks = self._jwks
        valid = jws.signed_with(self._secrets) if jwks is None else jwks.verify(jws, now)
        _require(valid, "signature is not valid")
        claims, seconds = jws.parse_claims(), now / 1000
        _require_audience_and_issuer(claims, self._settings.jwt_audience, self._settings.jwt_issuer)
        expires = _parse_time(claims, "exp")
        if expires is None:
            raise BadCredentials("the token has no exp")
        max_age = self._settings.jwt_max_age
        _require(expires <= seconds + max_age, f"exp is too far ahead: at most {max_age} seconds")
        for name in ("nbf", "iat"):
            _require((_parse_time(claims, name) or 0) <= seconds + SKEW, f"{name} is in the future")
        grant = _parse_grant(claims)
        _check_expiry(expires, seconds)
        return grant, claims

    def verify_identity(self, token: str, now: int) -> Identity:
        """Verify an identification token, and return whom it names and until when."""
        jws = Jws.parse(token, HASHES)
        _require(jws.signed_with(self._secrets), "signature is not valid")
        claims, seconds = jws.parse_claims(), now / 1000
        expires, begins = _parse_time(claims, "exp"), _parse_time(claims, "nbf")
        _require(begins is None or begins <= seconds, "nbf is in the future")
        _check_expiry(expires, seconds)
        name = claims.get("ext")
        if not isinstance(name, str):
            raise BadCredentials("the token's ext is missing or not a string")
        return Identity(name, None if expires is None else int(min(expires * 1000, MAX_INTEGER)))


def _create_jwks(settings: Settings) -> Jwks | None:
    public = settings.jwt_algorithm in KINDS
    if public and not settings.jwks:
        raise BadSetting(
            f"TAILRACE_JWT_ALGORITHM {settings.jwt_algorithm} needs TAILRACE_JWKS: set it to the"
            " URL or the file of the public keys"
        )
    if settings.jwks and not public:
        raise BadSetting(
            f"TAILRACE_JWKS is not used with TAILRACE_JWT_ALGORITHM {settings.jwt_algorithm}; set"
            f" the algorithm to one of {', '.join(KINDS)}"
        )
    return Jwks(settings.jwks, settings.jwt_algorithm) if public else None


def _parse_grant(claims: Mapping[str, Any]) -> Grant:
    subject, scope = claims.get("sub"), claims.get("scope", "")
    _require(subject is None or isinstance(subject, str), "sub is not a string")
    _require(isinstance(scope, str), "scope is not a string")
    scopes = SCOPES.intersection(scope.split())
    if "admin" in scopes:
        scopes = SCOPES
    if "streams" not in claims:
        return Grant(subject, scopes, EVERYTHING if "admin" in scopes else NOTHING)
    streams = claims["streams"]
    # Never split a string into several patterns: part of it may be a name chosen by a user.
    patterns = [streams] if isinstance(streams, str) else streams
    _require(_is_list_of_strings(patterns), "streams is neither a pattern nor a list of patterns")
    return Grant(subject, scopes, Patterns(tuple(patterns)))


def _require_audience_and_issuer(claims: Mapping[str, Any], audience: str, issuer: str) -> None:
    claim = claims.get("aud", [])
    audiences = [claim] if isinstance(claim, str) else claim
    _require(_is_list_of_strings(audiences), "aud is neither a string nor a list of strings")
    matches = audience in audiences if audience else not audiences
    _require(matches, "aud does not match TAILRACE_JWT_AUDIENCE")
    _require(claims.get("iss", "") == issuer, "iss does not match TAILRACE_JWT_ISSUER")


def _is_list_of_strings(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(each, str) for each in values)


def _parse_time(claims: Mapping[str, Any], name: str) -> float | None:
    """A claim in seconds since 1970, or None if it is absent."""
    if name not in claims:
        return None
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadCredentials(f"the token's {name} is not a number")
    return value


def _check_expiry(expires: float | None, seconds: float) -> None:
    if expires is not None and expires <= seconds:
        raise TokenExpired("the token has expired; request a new one")


def _require(condition: bool, fault: str) -> None:
    if not condition:
        raise BadCredentials(f"the token's {fault}")
