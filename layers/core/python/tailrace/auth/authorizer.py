"""Who may do what: one table, and the authorizer that reads it.

| operation | a bearer token's scope | for | a signed name | public | the broadcast key |
|---|---|---|---|---|---|
| CREATE | write | the path | no | no | no |
| APPEND | write | the path | no | no | no |
| CLOSE | write | the path | no | no | no |
| DELETE | write | the path | no | no | no |
| READ | read | the path | yes | yes | no |
| HEAD | read | the path | yes | yes | no |
| LIST | read | all below the prefix | no | no | no |
| BROADCAST | write | the path | no | no | yes |
| ADMIN | admin | all below the prefix | no | no | no |

A fork takes CREATE of its path and READ of its source: whoever may create must not copy what they
may not read. Who reads has to be identified, too, where `enforce_jwt` says so: by an identification
token or by a bearer token.

Every credential that is shown must be good, needed or not: who gets through with a forged one would
not notice that it is. Whether a stream exists is never asked here, so who may not know does not
learn it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final, NamedTuple, Protocol

from tailrace.auth.credentials import Credentials
from tailrace.auth.keys import Keys
from tailrace.auth.signed_names import verified
from tailrace.auth.tokens import Grant, Identity, Tokens
from tailrace.errors import BadCredentials, BadSetting, CredentialsMissing, NotAllowed
from tailrace.log.path_patterns import EVERYTHING, NOTHING, Patterns, spelled
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
    ADMIN = auto()


class Rule(NamedTuple):
    scope: str
    """What a bearer token needs."""
    below: bool = False
    """The path is a prefix, and a bearer token must be for everything below it."""
    signed: bool = False
    """A signed name is enough."""
    public: bool = False
    """Nothing is needed where streams are public."""
    key: bool = False
    """The broadcast key is enough."""

    def admits(self, grant: Grant, path: str) -> bool:
        if self.scope not in grant.scopes:
            return False
        return grant.streams.covers(path) if self.below else grant.streams.matches(path)


_WRITE: Final = Rule("write")
_READ: Final = Rule("read", signed=True, public=True)

TABLE: Final = {
    Operation.CREATE: _WRITE,
    Operation.APPEND: _WRITE,
    Operation.CLOSE: _WRITE,
    Operation.DELETE: _WRITE,
    Operation.READ: _READ,
    Operation.HEAD: _READ,
    Operation.LIST: Rule("read", below=True),
    Operation.BROADCAST: Rule("write", key=True),
    Operation.ADMIN: Rule("admin", below=True),
}

CLOSING: Final = (
    "secret", "streams_secret", "turbo_streams_secret", "cable_ready_secret", "broadcast_key",
    "public_streams", "jwt_secret", "jwt_algorithm", "jwks", "jwt_audience", "jwt_issuer",
    "jwt_max_age", "jwt_param", "enforce_jwt",
)  # fmt: skip
"""The settings that close the authorizer as soon as one of them is given."""

_SWITCH: Final = {"true": EVERYTHING, "1": EVERYTHING, "yes": EVERYTHING, "": NOTHING,
                  "false": NOTHING, "0": NOTHING, "no": NOTHING}  # fmt: skip


class Decision(NamedTuple):
    private: bool
    """Whether a shared cache would show the answer to others who may not see it."""
    subject: str | None
    """Who it is, if a token says so."""
    reason: str
    """What was enough: open, public, bearer, signed or broadcast key."""


class Authorizer:
    def __init__(self, settings: Settings) -> None:
        self.keys: Final = Keys.of(settings)
        self.open: Final = is_open(settings)
        """Whether everybody may do everything. Then credentials are not even looked at."""
        self.jwt_param: Final = settings.jwt_param
        """Where a request shows who it is from."""
        self._tokens = Tokens(settings, self.keys)
        self._public = public_streams(settings)
        self._identifies = not settings.skip_auth
        self._enforced = settings.enforce_jwt and self._identifies
        self._reading: asyncio.Task[None] | None = None
        if self._enforced and not self._tokens.usable:
            raise BadSetting(
                "TAILRACE_ENFORCE_JWT needs something to check tokens with: TAILRACE_JWT_SECRET,"
                " TAILRACE_SECRET or TAILRACE_JWKS"
            )

    def decide(
        self, operation: Operation, path: str, credentials: Credentials, now: int
    ) -> Decision:
        """Lets pass, or raises CredentialsMissing, BadCredentials, TokenExpired or NotAllowed;
        KeysUnavailable while nobody can tell.

        `path` is in its canonical spelling, of LIST and ADMIN a prefix; `now` is in milliseconds.
        May have to read public keys and wait for it, unless `prepare` was called just before."""
        if self.open:
            return Decision(False, None, "open")
        if credentials.fault is not None:
            raise BadCredentials(credentials.fault)
        rule = TABLE[operation]
        named = credentials.signed is not None and self._names(credentials.signed, path)
        subject = None
        if credentials.jid is not None and self._identifies:
            subject = self._tokens.identity(credentials.jid, now).name
        identified = subject is not None or credentials.bearer is not None
        grant = None
        if credentials.bearer is not None:
            if rule.key and self.keys.broadcasts(credentials.bearer):
                return Decision(True, subject, "broadcast key")
            grant = self._tokens.grant(credentials.bearer, now)
            subject = subject if grant.subject is None else grant.subject
        if rule.public and self._enforced and not identified:
            raise CredentialsMissing("reading takes a token that says who you are")
        if rule.public and self._public.matches(path):
            return Decision(self._enforced, subject, "public")
        if grant is not None and rule.admits(grant, path):
            return Decision(True, subject, "bearer")
        if named and rule.signed:
            return Decision(True, subject, "signed")
        if grant is None and not named:
            raise CredentialsMissing(f"this takes {_wanted(rule)}")
        raise NotAllowed(f"this takes {_wanted(rule)}")

    def identify(self, credentials: Credentials, now: int) -> Identity | None:
        """Whom an identification token names; None: there is none, and none is needed.

        Raises CredentialsMissing, BadCredentials or TokenExpired. It allows nothing by itself."""
        if self.open or not self._identifies:
            return None
        if credentials.fault is not None:
            raise BadCredentials(credentials.fault)
        if credentials.jid is not None:
            return self._tokens.identity(credentials.jid, now)
        if self._enforced:
            raise CredentialsMissing("connecting takes a token that says who you are")
        return None

    def is_public(self, path: str) -> bool:
        """Whether everybody may read the stream at a path."""
        return self.open or self._public.matches(path)

    def claims(self, credentials: Credentials, now: int) -> Mapping[str, Any] | None:
        """All that the bearer token says, once it is verified; None: there is none to look at.

        For protocols that know roles. Raises as `decide` does."""
        if self.open:
            return None
        if credentials.fault is not None:
            raise BadCredentials(credentials.fault)
        if credentials.bearer is None:
            return None
        return self._tokens.judged(credentials.bearer, now)[1]

    async def prepare(self, credentials: Credentials, now: int) -> None:
        """Reads public keys off the event loop, if a decision about the credentials needs them."""
        if self.open or credentials.bearer is None:
            return
        unread = self._tokens.unread_keys(credentials.bearer, now)
        if unread is None:
            return
        if self._reading is None:
            jwks, jws = unread
            self._reading = asyncio.create_task(asyncio.to_thread(jwks.read, jws, now))
            self._reading.add_done_callback(self._have_read)
        # One reads for all who wait, and goes on when one of them leaves.
        await asyncio.shield(self._reading)

    def _have_read(self, _: asyncio.Task[None]) -> None:
        self._reading = None

    def _names(self, signed: str, path: str) -> bool:
        name = verified(signed, self.keys.streams)
        if name is None:
            raise BadCredentials("the signed name does not verify")
        # Not the other way round: two paths may decode to the same name, but a name has one path.
        if spelled(name) != path:
            raise BadCredentials("the signed name is another stream's")
        return True


class PolicyProvider(Protocol):
    """Who knows the authorizer, which may be another one after its keys have changed."""

    async def current(self) -> Authorizer: ...


class StaticPolicy:
    """The authorizer that the settings say."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def current(self) -> Authorizer:
        return self._authorizer


def is_open(settings: Settings) -> bool:
    if settings.access != "auto":
        return settings.access == "open"
    default = type(settings)()
    return all(getattr(settings, name) == getattr(default, name) for name in CLOSING)


def public_streams(settings: Settings) -> Patterns:
    text = settings.public_streams
    switched = _SWITCH.get(text.strip().lower())
    return Patterns.parse(text) if switched is None else switched


def _wanted(rule: Rule) -> str:
    reach = "everything below the prefix" if rule.below else "the stream"
    token = f"a bearer token with the scope {rule.scope} for {reach}"
    return f"{token}, or its signed name" if rule.signed else token
