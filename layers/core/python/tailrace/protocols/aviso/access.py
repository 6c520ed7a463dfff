"""Who may use an event type.

| the event type's `auth` | who may |
|---|---|
| none | whom the authorizer lets read, or append to, its stream |
| `required: false` | everybody |
| `required: true`, reading | the same as with none, admins, and who has a role of `read_roles`; |
| | without such roles everybody who has a good token |
| `required: true`, writing | the same as with none, admins, and who has a role of `write_roles` |

Admins are callers who may administer all of `aviso/`, and those with an admin role. A role is that
of the token's `realm`. An open server checks nothing.
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
from tailrace.protocols.aviso.errors import Refused
from tailrace.protocols.aviso.schema import EventType, Roles
from tailrace.web.messages import Request

PREFIX: Final = "aviso/"


class Access:
    def __init__(self, provider: PolicyProvider, clock: Clock, admin_roles: Roles) -> None:
        self._provider = provider
        self._clock = clock
        self._admin_roles = admin_roles

    async def caller(self, request: Request) -> Caller:
        """Whose request it is. What is shown must be good, needed or not."""
        try:
            authorizer, now = await self._provider.current(), self._clock()
            credentials = parse_credentials(
                request.fields, request.parameters(), authorizer.jwt_param
            )
            await authorizer.prepare(credentials, now)
            claims = authorizer.claims(credentials, now)
        except (BadCredentials, KeysUnavailable, StoreUnavailable) as error:
            raise refusal(error) from None
        return Caller(authorizer, credentials, claims, now, self._admin_roles)


class Caller:
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

    def read(self, event: EventType) -> None:
        if event.auth is None or event.auth.required:
            roles = event.auth.read if event.auth else None
            anyone = event.auth is not None and roles is None
            self._require(Operation.READ, event, roles, anyone=anyone)

    def write(self, event: EventType) -> None:
        if event.auth is None or event.auth.required:
            roles = event.auth.write if event.auth else None
            self._require(Operation.APPEND, event, roles, anyone=False)

    def administer(self) -> None:
        try:
            self._authorizer.decide(Operation.ADMIN, PREFIX, self._credentials, self._now)
        except (CredentialsMissing, NotAllowed, BadCredentials) as error:
            if not self._has(self._admin_roles):
                raise refusal(error) from None

    def _require(
        self, operation: Operation, event: EventType, roles: Roles | None, *, anyone: bool
    ) -> None:
        try:
            self._authorizer.decide(operation, event.path, self._credentials, self._now)
        except (CredentialsMissing, NotAllowed) as error:
            if event.auth is not None and self._claims is not None:
                if self.name is None:
                    raise refusal(BadCredentials("the token has no username and no sub")) from None
                if anyone or self._has(roles or {}) or self._has(self._admin_roles):
                    return
            raise refusal(error) from None
        except BadCredentials as error:
            raise refusal(error) from None

    def _has(self, roles: Roles) -> bool:
        claims = self._claims or {}
        realm, given = claims.get("realm"), claims.get("roles")
        if not isinstance(realm, str) or realm not in roles or self.name is None:
            return False
        wanted = roles[realm]
        return "*" in wanted or (isinstance(given, list) and any(each in wanted for each in given))


def refusal(error: TailraceError) -> Refused:
    match error:
        case CredentialsMissing() | BadCredentials():
            challenge = (b"www-authenticate", error.challenge.encode())
            return Refused(401, "UNAUTHORIZED", str(error), headers=[challenge])
        case NotAllowed():
            return Refused(403, "FORBIDDEN", str(error))
        case _:
            retry = (b"retry-after", b"1")
            return Refused(503, "SERVICE_UNAVAILABLE", str(error), headers=[retry])
