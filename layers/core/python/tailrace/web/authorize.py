"""Authorization of requests, by their method, path and credentials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from tailrace.auth.authorizer import TABLE, CallerAccess, Decision, Operation, PolicyProvider
from tailrace.auth.credentials import parse_credentials
from tailrace.auth.signed_names import is_signed
from tailrace.clock import Clock
from tailrace.errors import BadCredentials, CredentialsMissing, NotAllowed
from tailrace.log.paths import canonical, encode, encode_name, prefix_of
from tailrace.web.messages import RawHeaders, Request
from tailrace.web.urls import StreamUrls

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
    def __init__(self, provider: PolicyProvider, clock: Clock, urls: StreamUrls) -> None:
        self._provider = provider
        self._urls = urls
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
            authorizer.authorize(Operation.READ, self._urls.parse(source), credentials, now)
        return decision

    async def streams(
        self, request: Request, names: Sequence[str], patterns: Sequence[str]
    ) -> tuple[Sequence[str], str | None]:
        """Authorize a read of each stream, by its path or its signed name, and of all that match a
        pattern; returns the paths, and the subject. Errors name what may not be read."""
        authorizer, now = await self._provider.current(), self._clock()
        credentials = parse_credentials(request.fields, request.parameters(), authorizer.jwt_param)
        await authorizer.prepare(credentials, now)
        paths: list[str] = []
        subject = None
        for name in names:
            signed = is_signed(name)
            path = canonical(encode_name(authorizer.name_of(name)) if signed else encode(name))
            own = replace(credentials, signed=name) if signed else credentials
            with _naming(f"the stream '{path}'"):
                subject = authorizer.authorize(Operation.READ, path, own, now).subject
            paths.append(path)
        for pattern in patterns:
            with _naming(f"the pattern '{pattern}'"):
                subject = authorizer.authorize(
                    Operation.LIST, prefix_of(pattern), credentials, now
                ).subject
        return paths, subject

    async def listing(
        self, prefix: str, fields: RawHeaders, query: Mapping[str, Sequence[str]]
    ) -> None:
        """Authorize a listing of the streams below a prefix; with the errors of `Authorizer`."""
        authorizer, now = await self._provider.current(), self._clock()
        credentials = parse_credentials(fields, query, authorizer.jwt_param)
        await authorizer.prepare(credentials, now)
        authorizer.authorize(Operation.LIST, prefix, credentials, now)

    async def administration(
        self, prefix: str, fields: RawHeaders, query: Mapping[str, Sequence[str]]
    ) -> None:
        """Authorize the administration of all below a prefix; with the errors of `Authorizer`."""
        authorizer, now = await self._provider.current(), self._clock()
        credentials = parse_credentials(fields, query, authorizer.jwt_param)
        await authorizer.prepare(credentials, now)
        authorizer.authorize(Operation.ADMIN, prefix, credentials, now)

    async def describe(
        self, path: str, fields: RawHeaders, query: Mapping[str, Sequence[str]]
    ) -> tuple[CallerAccess, Mapping[Operation, bool]]:
        """Return what the credentials of a request say, and the operations that they permit: on the
        stream at a path, or without one those on all streams."""
        authorizer, now = await self._provider.current(), self._clock()
        credentials = parse_credentials(fields, query, authorizer.jwt_param)
        await authorizer.prepare(credentials, now)
        access = authorizer.describe(credentials, now)
        if access.signed_name is not None and not path:
            path = encode_name(access.signed_name)
        return access, {
            operation: authorizer.allows(operation, path, credentials, now)
            for operation in Operation
            if path or TABLE[operation].below
        }


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Name what was refused in the message of a refusal."""
    try:
        yield
    except (CredentialsMissing, BadCredentials, NotAllowed) as error:
        raise type(error)(f"{what}: {error}") from None
