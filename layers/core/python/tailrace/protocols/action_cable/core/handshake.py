"""The handshake: whether a client may connect, its identity, and the session to restore."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from tailrace.auth.authorizer import Authorizer
from tailrace.auth.credentials import Credentials, parse_credentials
from tailrace.auth.origins import Origins
from tailrace.errors import NotAllowed, TailraceError, TokenExpired
from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.session import anonymous_identity
from tailrace.web.messages import Request

RESTORE_HEADER: Final = b"x-anycable-restore-sid"


class ConnectRequest(NamedTuple):
    """A client that wants to connect."""

    identity: str | None
    """The identity that its token names; None without a token."""
    expires_at: int | None = None
    """When the token expires, and the connection with it, in milliseconds."""
    reject_reason: str | None = None
    """Why the client is rejected. It is sent over the connection, which is accepted for that: a
    client cannot see why a handshake fails, and would repeat it forever."""


def check_origin(request: Request, origins: Origins) -> None:
    """Raises NotAllowed for pages that may not connect at all."""
    origin = request.header(b"origin")
    if origin is not None and not origins.allows(origin):
        raise NotAllowed("pages of this origin may not connect: see TAILRACE_ALLOWED_ORIGINS")


def check_same_site(request: Request) -> None:
    """Raises NotAllowed for a page of another host: with its visitor's cookies an application
    would take it for the visitor."""
    origin, host = request.header(b"origin"), request.header(b"host")
    if origin is not None and origin.partition("://")[2].lower() != (host or "").lower():
        raise NotAllowed(
            "pages of other hosts may not connect unless TAILRACE_ALLOWED_ORIGINS names them:"
            " cookies are passed on to TAILRACE_RPC_URL"
        )


def authenticate(
    request: Request, authorizer: Authorizer, protocols: Sequence[str], now: int
) -> ConnectRequest:
    """Verify the identification token of a client."""
    try:
        token = authorizer.identify(credentials_of(request, authorizer, protocols), now)
    except TailraceError as error:
        reason = "token_expired" if isinstance(error, TokenExpired) else "unauthorized"
        return ConnectRequest(None, reject_reason=reason)
    return ConnectRequest(None) if token is None else ConnectRequest(*token)


def sid_to_restore(request: Request) -> str | None:
    """The id of the session that a client wants to restore."""
    return request.parameters().get("sid", [""])[-1] or request.header(RESTORE_HEADER)


def session_to_restore(
    sid: str | None, authorizer: Authorizer, identity: str | None
) -> tuple[str, str] | None:
    """The session that a client may restore, and the identity that it must have.

    Session ids are no secret, so only a client with a token may restore a session: any other
    could get subscriptions that another client was authorized for. Clients without a token
    subscribe again, and miss nothing either."""
    if not sid:
        return None
    owner = anonymous_identity(sid) if identity is None and authorizer.open else identity
    return None if owner is None else (sid, owner)


def credentials_of(
    request: Request, authorizer: Authorizer, protocols: Sequence[str] = ()
) -> Credentials:
    """The credentials of a request, with the token among its subprotocols, if there is one."""
    credentials = parse_credentials(request.fields, request.parameters(), authorizer.jwt_param)
    prefix = frames.TOKEN_PROTOCOL
    tokens = {each.removeprefix(prefix) for each in protocols if each.startswith(prefix)}
    if not tokens:
        return credentials
    if len(tokens | {credentials.jid or next(iter(tokens))}) > 1:
        return Credentials(fault="more than one identification token is shown")
    return replace(credentials, jid=tokens.pop())
