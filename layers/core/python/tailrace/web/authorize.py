"""Authorization of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tailrace.auth.authorizer import Decision, Operation, PolicyProvider
from tailrace.auth.credentials import parse_credentials
from tailrace.clock import Clock
from tailrace.web.messages import RawHeaders, Request
from tailrace.web.paths import stream_path

OPERATIONS: Final = {
    "PUT": Operation.CREATE,
    "POST": Operation.APPEND,
    "DELETE": Operation.DELETE,
    "GET": Operation.READ,
    "HEAD": Operation.HEAD,
}

_OPEN: Final = Decision(private=False, subject=None, reason="open")
_EDGE_VERIFIED: Final = Decision(private=False, subject=None, reason="edge")


class RequestAuthorizer:
    def __init__(self, provider: PolicyProvider, clock: Clock) -> None:
        self._provider = provider
        self._clock = clock

    async def stream(self, request: Request, path: str) -> Decision:
        """Authorize a request for the stream at a path, with the errors of `Authorizer`."""
        authorizer = await self._provider.current()
        if authorizer.open:
            return _OPEN
        operation, now = OPERATIONS[request.method], self._clock()
        if request.edge_verified and operation in (Operation.READ, Operation.HEAD):
            return _EDGE_VERIFIED
        credentials = parse_credentials(request.fields, request.parameters(), authorizer.jwt_param)
        await authorizer.prepare(credentials, now)
        decision = authorizer.authorize(operation, path, credentials, now)
        source = request.header(b"stream-forked-from") if request.method == "PUT" else None
        if source is not None:
            # A fork copies its source: the permission to create is not enough.
            authorizer.authorize(Operation.READ, stream_path(source), credentials, now)
        return decision

    async def listing(
        self, prefix: str, fields: RawHeaders, query: Mapping[str, Sequence[str]]
    ) -> None:
        """Authorize a listing of the streams below a prefix; raises as `Authorizer.decide` does."""
        authorizer, now = await self._provider.current(), self._clock()
        credentials = parse_credentials(fields, query, authorizer.jwt_param)
        await authorizer.prepare(credentials, now)
        authorizer.authorize(Operation.LIST, prefix, credentials, now)
