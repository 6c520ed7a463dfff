"""Authorization: one table of rules, and the authorizer that applies it.

| operation | a bearer token's scope | for | a signed name | public | a key |
|---|---|---|---|---|---|
| CREATE | write | the path | no | no | no |
| APPEND | write | the path | no | no | no |
| CLOSE | write | the path | no | no | no |
| DELETE | write | the path | no | no | no |
| READ | read | the path | yes | yes | no |
| HEAD | read | the path | yes | yes | no |
| LIST | read | all below the prefix | no | no | no |
| BROADCAST | write | the path | no | no | broadcast |
| SUBSCRIBE | read | the streams and the pattern | no | no | no |
| API | admin | all below the prefix | no | no | API |
| ADMIN | admin | all below the prefix | no | no | no |

A fork needs CREATE for its path and READ for its source: otherwise a client could copy a stream
that it may not read. With `enforce_jwt`, reading also requires an identification token or a bearer
token.

Every credential in a request must be valid, needed or not: a client whose forged credential were
ignored would never notice. Whether a stream exists plays no part in the decision, so a refusal does
not reveal it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final, NamedTuple, Protocol

from tailrace.auth.credentials import Credentials
from tailrace.auth.keys import Keys, is_key
from tailrace.auth.signed_names import verify_name
from tailrace.auth.tokens import Grant, Identity, TokenVerifier
from tailrace.errors import BadCredentials, BadSetting, CredentialsMissing, NotAllowed
from tailrace.log.paths import EVERYTHING, NOTHING, Patterns, encode_name
from tailrace.settings import Settings


class Operation(Enum):
    CREATE = auto()
    APPEND = auto()
    CLOSE = auto()
    DELETE = auto()
    READ = auto()
    HEAD = auto()
    LIST = auto()
    BROADCAST = auto()
    SUBSCRIBE = auto()
    API = auto()
    ADMIN = auto()


class AccessRule(NamedTuple):
    scope: str
    """The scope that a bearer token must have."""
    below: bool = False
    """The path is a prefix, and a bearer token must cover everything below it."""
    follows: bool = False
    """The path may be a pattern, and a bearer token must be for all that it matches."""
    signed: bool = False
    """A signed name is sufficient."""
    public: bool = False
    """Public streams need no credentials."""
    key: str = ""
    """The key that is sufficient: broadcast or API; empty: none."""

    def allows(self, grant: Grant, path: str) -> bool:
        if self.scope not in grant.scopes:
            return False
        if self.follows:
            return grant.streams.includes(path)
        return grant.streams.covers(path) if self.below else grant.streams.matches(path)


_WRITE: Final = AccessRule("write")
_READ: Final = AccessRule("read", signed=True, public=True)

TABLE: Final = {
    Operation.CREATE: _WRITE,
    Operation.APPEND: _WRITE,
    Operation.CLOSE: _WRITE,
    Operation.DELETE: _WRITE,
    Operation.READ: _READ,
    Operation.HEAD: _READ,
    Operation.LIST: AccessRule("read", below=True),
    Operation.BROADCAST: AccessRule("write", key="broadcast"),
    Operation.SUBSCRIBE: AccessRule("read", follows=True),
    Operation.API: AccessRule("admin", below=True, key="API"),
    Operation.ADMIN: AccessRule("admin", below=True),
}

CLOSING: Final = (
    "secret", "streams_secret", "turbo_streams_secret", "cable_ready_secret", "broadcast_key",
    "api_secret", "public_streams", "jwt_secret", "jwt_algorithm", "jwks", "jwt_audience",
    "jwt_issuer", "jwt_max_age", "jwt_param", "enforce_jwt",
)  # fmt: skip
"""Settings that require credentials, with `access=auto`, as soon as one of them is set."""

_SWITCH: Final = {"true": EVERYTHING, "1": EVERYTHING, "yes": EVERYTHING, "": NOTHING,
                  "false": NOTHING, "0": NOTHING, "no": NOTHING}  # fmt: skip


class Decision(NamedTuple):
    private: bool
    """Whether a shared cache must not serve the response to others."""
    subject: str | None
    """The client, if a token names it."""
    reason: str
    """The basis of the decision: open, public, bearer, signed, broadcast key or API key."""


class CallerAccess(NamedTuple):
    """The contents of the credentials of a request."""

    kind: str
    """Open, none, bearer token, signed name, broadcast key or API key."""
    subject: str | None = None
    scopes: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    """Patterns of paths."""
    expires_at: int | None = None
    """When the token expires, in milliseconds."""
    signed_name: str | None = None
    """The name of the stream that was signed."""


class Authorizer:
    """Authorizes requests by their credentials, without I/O except reading public keys."""

    def __init__(self, settings: Settings) -> None:
        self.keys: Final = Keys.from_settings(settings)
        self.open: Final = is_open(settings)
        """Whether everyone may do everything; credentials are then ignored."""
        self.jwt_param: Final = settings.jwt_param
        """The query parameter of identification tokens."""
        self._tokens = TokenVerifier(settings, self.keys)
        self._public = parse_public_streams(settings)
        self._identifies = not settings.skip_auth
        self._enforced = settings.enforce_jwt and self._identifies
        self._reading: asyncio.Task[None] | None = None
        if self._enforced and not self._tokens.usable:
            raise BadSetting(
                "TAILRACE_ENFORCE_JWT needs a key to verify tokens with: set TAILRACE_JWT_SECRET,"
                " TAILRACE_SECRET or TAILRACE_JWKS"
            )

    def authorize(
        self, operation: Operation, path: str, credentials: Credentials, now: int
    ) -> Decision:
        """Authorize an operation, or raise CredentialsMissing, BadCredentials, TokenExpired,
        NotAllowed, or KeysUnavailable if the token cannot be verified at the moment.

        `path` is in its canonical form, a prefix for LIST and ADMIN; `now` is in milliseconds.
        Blocks while it reads public keys, unless `prepare` was called just before."""
        if self.open:
            return Decision(False, None, "open")
        if credentials.fault is not None:
            raise BadCredentials(credentials.fault)
        rule = TABLE[operation]
        has_signed_name = credentials.signed is not None
        if credentials.signed is not None:
            self._verify_signed_name(credentials.signed, path)
        subject = None
        if credentials.jid is not None and self._identifies:
            subject = self._tokens.verify_identity(credentials.jid, now).name
        identified = subject is not None or credentials.bearer is not None
        grant = None
        if credentials.bearer is not None:
            keys = {"broadcast": self.keys.broadcast, "API": self.keys.api}.get(rule.key, ())
            if is_key(credentials.bearer, keys):
                return Decision(True, subject, f"{rule.key} key")
            grant = self._tokens.verify_bearer(credentials.bearer, now)
            subject = subject if grant.subject is None else grant.subject
        if rule.public and self._enforced and not identified:
            raise CredentialsMissing("reading requires an identification token or a bearer token")
        if rule.public and self._public.matches(path):
            return Decision(self._enforced, subject, "public")
        if grant is not None and rule.allows(grant, path):
            return Decision(True, subject, "bearer")
        if has_signed_name and rule.signed:
            return Decision(True, subject, "signed")
        if grant is None and not has_signed_name:
            raise CredentialsMissing(f"this requires {_describe(rule)}")
        raise NotAllowed(f"this requires {_describe(rule)}")

    def grant(self, credentials: Credentials, now: int) -> Grant:
        """Return what the bearer token permits; the server is not open. Raises the same errors as
        `authorize`."""
        if credentials.fault is not None:
            raise BadCredentials(credentials.fault)
        if credentials.bearer is None:
            raise CredentialsMissing("this requires a bearer token")
        return self._tokens.verify_bearer(credentials.bearer, now)

    def identify(self, credentials: Credentials, now: int) -> Identity | None:
        """Verify the identification token; None if there is none and none is required.

        Raises CredentialsMissing, BadCredentials or TokenExpired. An identity permits nothing by
        itself."""
        if self.open or not self._identifies:
            return None
        if credentials.fault is not None:
            raise BadCredentials(credentials.fault)
        if credentials.jid is not None:
            return self._tokens.verify_identity(credentials.jid, now)
        if self._enforced:
            raise CredentialsMissing("connecting requires an identification token")
        return None

    def is_public(self, path: str) -> bool:
        """Whether anyone may read the stream at a path."""
        return self.open or self._public.matches(path)

    def verify_claims(self, credentials: Credentials, now: int) -> Mapping[str, Any] | None:
        """All claims of the bearer token, verified; None if there is none or the server is open.

        For protocols with roles. Raises the same errors as `authorize`."""
        if self.open:
            return None
        if credentials.fault is not None:
            raise BadCredentials(credentials.fault)
        if credentials.bearer is None:
            return None
        return self._tokens.verify_bearer_claims(credentials.bearer, now)[1]

    def describe(self, credentials: Credentials, now: int) -> CallerAccess:
        """Verify credentials, and return what they say.

        Raises the errors of `authorize`, except NotAllowed and CredentialsMissing."""
        if self.open:
            return CallerAccess("open")
        if credentials.fault is not None:
            raise BadCredentials(credentials.fault)
        if credentials.bearer is not None:
            for key, keys in (("broadcast key", self.keys.broadcast), ("API key", self.keys.api)):
                if is_key(credentials.bearer, keys):
                    return CallerAccess(key)
            grant, claims = self._tokens.verify_bearer_claims(credentials.bearer, now)
            streams = claims.get("streams", ())
            return CallerAccess(
                "bearer token",
                grant.subject,
                tuple(sorted(grant.scopes)),
                (streams,) if isinstance(streams, str) else tuple(streams),
                int(claims["exp"]) * 1000,
            )
        if credentials.signed is not None:
            return CallerAccess("signed name", signed_name=self.name_of(credentials.signed))
        return CallerAccess("none")

    def allows(self, operation: Operation, path: str, credentials: Credentials, now: int) -> bool:
        """Whether `authorize` would permit an operation."""
        try:
            self.authorize(operation, path, credentials, now)
        except (BadCredentials, CredentialsMissing, NotAllowed):
            return False
        return True

    async def prepare(self, credentials: Credentials, now: int) -> None:
        """Read public keys off the event loop if authorizing the credentials needs them."""
        if self.open or credentials.bearer is None:
            return
        outdated = self._tokens.outdated_keys(credentials.bearer, now)
        if outdated is None:
            return
        if self._reading is None:
            jwks, jws = outdated
            self._reading = asyncio.create_task(asyncio.to_thread(jwks.refresh, jws, now))
            self._reading.add_done_callback(self._clear_reading)
        # One read serves all waiting requests, and continues if one of them is cancelled.
        await asyncio.shield(self._reading)

    def _clear_reading(self, _: asyncio.Task[None]) -> None:
        self._reading = None

    def name_of(self, signed: str) -> str:
        """Return the name of a stream that was signed; raises BadCredentials."""
        name = verify_name(signed, self.keys.streams)
        if name is None:
            raise BadCredentials("the signature of the signed name is not valid")
        return name

    def _verify_signed_name(self, signed: str, path: str) -> None:
        name = self.name_of(signed)
        # Encode the name instead of decoding the path: two paths may decode to the same name.
        if encode_name(name) != path:
            raise BadCredentials("the signed name is that of another stream")


class PolicyProvider(Protocol):
    """Provides the current authorizer, which is replaced when keys change."""

    async def current(self) -> Authorizer: ...


class StaticPolicy:
    """Provides one authorizer that never changes."""

    def __init__(self, authorizer: Authorizer) -> None:
        self.authorizer: Final = authorizer

    async def current(self) -> Authorizer:
        return self.authorizer


def is_open(settings: Settings) -> bool:
    """Whether everyone may do everything under these settings."""
    if settings.access != "auto":
        return settings.access == "open"
    default = type(settings)()
    return all(getattr(settings, name) == getattr(default, name) for name in CLOSING)


def parse_public_streams(settings: Settings) -> Patterns:
    """The patterns of public streams; a switch stands for all streams or none."""
    text = settings.public_streams
    patterns = _SWITCH.get(text.strip().lower())
    return Patterns.parse(text) if patterns is None else patterns


def _describe(rule: AccessRule) -> str:
    target = "everything below the prefix" if rule.below else "the stream"
    if rule.follows:
        target = "all streams that are followed"
    token = f"a bearer token with the scope {rule.scope} for {target}"
    if rule.key:
        return f"{token}, or the {rule.key} key"
    return f"{token}, or its signed name" if rule.signed else token
