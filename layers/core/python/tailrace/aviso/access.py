"""Who may use an event type.

| the event type's `auth` | who may |
|---|---|
| none | whom the door lets read, or append to, its stream |
| `required: false` | everybody |
| `required: true`, reading | the same as with none, admins, and who has a role of `read_roles`; |
| | without such roles everybody who has a good token |
| `required: true`, writing | the same as with none, admins, and who has a role of `write_roles` |

Admins are those whom the door lets administer all of `aviso/`, and those with an admin role. A role
is that of the token's `realm`. An open server asks nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tailrace.auth.credentials import Credentials, shown
from tailrace.auth.policy import Door, Operation
from tailrace.aviso.errors import Refused
from tailrace.aviso.schema import EventType, Roles
from tailrace.clock import Clock
from tailrace.errors import (
    BadCredentials,
    CredentialsMissing,
    KeysUnavailable,
    NotAllowed,
    StoreUnavailable,
    TailraceError,
)
from tailrace.http.gate import Keeper
from tailrace.http.wire import Request

PREFIX: Final = "aviso/"


class Access:
    def __init__(self, keeper: Keeper, clock: Clock, admin_roles: Roles) -> None:
        self._keeper = keeper
        self._clock = clock
        self._admin_roles = admin_roles

    async def caller(self, request: Request) -> Caller:
        """Whose request it is. What is shown must be good, needed or not."""
        try:
            door, now = await self._keeper.current(), self._clock()
            credentials = shown(request.fields, request.parameters(), door.jwt_param)
            await door.prepare(credentials, now)
            claims = door.claims(credentials, now)
        except (BadCredentials, KeysUnavailable, StoreUnavailable) as error:
            raise refusal(error) from None
        return Caller(door, credentials, claims, now, self._admin_roles)


class Caller:
    def __init__(
        self,
        door: Door,
        credentials: Credentials,
        claims: Mapping[str, Any] | None,
        now: int,
        admin_roles: Roles,
    ) -> None:
        self._door = door
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
            self._door.decide(Operation.ADMIN, PREFIX, self._credentials, self._now)
        except (CredentialsMissing, NotAllowed, BadCredentials) as error:
            if not self._has(self._admin_roles):
                raise refusal(error) from None

    def _require(
        self, operation: Operation, event: EventType, roles: Roles | None, *, anyone: bool
    ) -> None:
        try:
            self._door.decide(operation, event.path, self._credentials, self._now)
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
