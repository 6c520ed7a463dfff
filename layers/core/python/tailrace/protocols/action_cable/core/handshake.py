"""Who comes in on a WebSocket: the same wherever it is connected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from tailrace.auth.authorizer import Authorizer
from tailrace.auth.credentials import Credentials, parse_credentials
from tailrace.auth.origins import Origins
from tailrace.errors import NotAllowed, TailraceError, TokenExpired
from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.session import anonymous
from tailrace.web.messages import Request

RESTORE_HEADER: Final = b"x-anycable-restore-sid"


class Guest(NamedTuple):
    identity: str | None
    """Whom the token names, if there is one."""
    expires: int | None = None
    """When that token ends, and the connection with it, in milliseconds."""
    refusal: str | None = None
    """The reason why it must not come in. It is told on the connection: a failed handshake shows a
    client no reason, and it would try again and again."""


def check_origin(request: Request, origins: Origins) -> None:
    """Raises NotAllowed for pages that may not connect at all."""
    origin = request.header(b"origin")
    if origin is not None and not origins.allow(origin):
        raise NotAllowed("pages of this origin may not connect: TAILRACE_ALLOWED_ORIGINS")


def guest(request: Request, authorizer: Authorizer, protocols: Sequence[str], now: int) -> Guest:
    try:
        identity = authorizer.identify(credentials(request, authorizer, protocols), now)
    except TailraceError as error:
        reason = "token_expired" if isinstance(error, TokenExpired) else "unauthorized"
        return Guest(None, refusal=reason)
    return Guest(None) if identity is None else Guest(*identity)


def resumed(
    request: Request, authorizer: Authorizer, identity: str | None
) -> tuple[str, str] | None:
    """The session that a client wants to resume, and who it has to be.

    Only one that the token names, too: who knows no more than the name of a session would else be
    shown what somebody else had to be allowed. Others subscribe again, and miss nothing either."""
    sid = request.parameters().get("sid", [""])[-1] or request.header(RESTORE_HEADER)
    if not sid:
        return None
    owner = anonymous(sid) if authorizer.open else identity
    return None if owner is None else (sid, owner)


def credentials(
    request: Request, authorizer: Authorizer, protocols: Sequence[str] = ()
) -> Credentials:
    found = parse_credentials(request.fields, request.parameters(), authorizer.jwt_param)
    start = len(frames.TOKEN_PROTOCOL)
    tokens = {each[start:] for each in protocols if each.startswith(frames.TOKEN_PROTOCOL)}
    if not tokens:
        return found
    if len(tokens | {found.jid or next(iter(tokens))}) > 1:
        return Credentials(fault="more than one identification token is shown")
    return replace(found, jid=tokens.pop())
