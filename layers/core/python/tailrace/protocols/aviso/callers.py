"""Authenticates callers and authorizes their use of event types.

| `auth` of the event type | callers that are allowed |
|---|---|
| not set | those that the authorizer allows to read, or to append to, its stream |
| `required: false` | everybody |
| `required: true`, read | the same as when it is not set, admins, and those with one of the |
| | `read_roles`; without `read_roles` everybody with a valid token |
| `required: true`, write | the same as when it is not set, admins, and those with one of the |
| | `write_roles` |

Admins are callers whose token allows them to administer all of `aviso/`, and callers with one of
the admin roles. A role counts within the `realm` of the token. An open server checks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tailrace.auth.authorizer import Authorizer, Operation, PolicyProvider
from tailrace.auth.credentials import Credentials, parse_credentials
from tailrace.clock import Clock
from tailrace.errors import (
    BadCredentials,
    CredentialsMissing,
    KeysUnavailable,
    NotAllowed,
    StoreUnavailable,
    TailraceError,
)
from tailrace.protocols.aviso.error_codes import AvisoError
from tailrace.protocols.aviso.event_types import EventType, Roles
from tailrace.web.messages import Request

PREFIX: Final = "aviso/"


class Authenticator:
    def __init__(self, provider: PolicyProvider, clock: Clock, admin_roles: Roles) -> None:
        self._provider = provider
        self._clock = clock
        self._admin_roles = admin_roles

    async def authenticate(self, request: Request) -> Caller:
        """Check the credentials of a request, if it has any, even when it needs none."""
        try:
            authorizer, now = await self._provider.current(), self._clock()
            credentials = parse_credentials(
                request.fields, request.parameters(), authorizer.jwt_param
            )
            await authorizer.prepare(credentials, now)
            claims = authorizer.verify_claims(credentials, now)
        except (BadCredentials, KeysUnavailable, StoreUnavailable) as error:
            raise to_aviso_error(error) from None
        return Caller(authorizer, credentials, claims, now, self._admin_roles)


class Caller:
    """The sender of a request; each method raises `AvisoError` for what it may not do."""

    def __init__(
        self,
        authorizer: Authorizer,
        credentials: Credentials,
        claims: Mapping[str, Any] | None,
        now: int,
        admin_roles: Roles,
    ) -> None:
        self._authorizer = authorizer
        self._credentials = credentials
        self._claims = claims
        self._now = now
        self._admin_roles = admin_roles

    @property
    def name(self) -> str | None:
        names = [(self._claims or {}).get(key) for key in ("username", "sub")]
        return next((name for name in names if isinstance(name, str) and name), None)

    def require_read(self, event: EventType) -> None:
        if event.auth is None or event.auth.required:
            roles = event.auth.read if event.auth else None
            any_token = event.auth is not None and roles is None
            self._require(Operation.READ, event, roles, any_token=any_token)

    def require_write(self, event: EventType) -> None:
        if event.auth is None or event.auth.required:
            roles = event.auth.write if event.auth else None
            self._require(Operation.APPEND, event, roles, any_token=False)

    def require_admin(self) -> None:
        try:
            self._authorizer.authorize(Operation.ADMIN, PREFIX, self._credentials, self._now)
        except (CredentialsMissing, NotAllowed, BadCredentials) as error:
            if not self._has_role(self._admin_roles):
                raise to_aviso_error(error) from None

    def _require(
        self, operation: Operation, event: EventType, roles: Roles | None, *, any_token: bool
    ) -> None:
        try:
            self._authorizer.authorize(operation, event.path, self._credentials, self._now)
        except (CredentialsMissing, NotAllowed) as error:
            if event.auth is not None and self._claims is not None:
                if self.name is None:
                    nameless = BadCredentials("the token has neither a username nor a sub claim")
                    raise to_aviso_error(nameless) from None
                if any_token or self._has_role(roles or {}) or self._has_role(self._admin_roles):
                    return
            raise to_aviso_error(error) from None
        except BadCredentials as error:
            raise to_aviso_error(error) from None

    def _has_role(self, allowed: Roles) -> bool:
        claims = self._claims or {}
        realm, roles = claims.get("realm"), claims.get("roles")
        if not isinstance(realm, str) or realm not in allowed or self.name is None:
            return False
        names = allowed[realm]
        return "*" in names or (isinstance(roles, list) and any(role in names for role in roles))


def to_aviso_error(error: TailraceError) -> AvisoError:
    match error:
        case CredentialsMissing() | BadCredentials():
            challenge = (b"www-authenticate", error.challenge.encode())
            return AvisoError(401, "UNAUTHORIZED", str(error), headers=[challenge])
        case NotAllowed():
            return AvisoError(403, "FORBIDDEN", str(error))
        case _:
            retry = (b"retry-after", b"1")
            return AvisoError(503, "SERVICE_UNAVAILABLE", str(error), headers=[retry])
