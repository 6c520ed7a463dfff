"""The Python client of Durable Streams, for any server of the protocol.

    from tailrace.client import Client

    with Client("http://127.0.0.1:4437") as client:
        room = client.stream("chat/room-1")
        room.create(content_type="application/json")
        room.append({"user": "ada", "text": "hello"})
        for message in room.items():
            print(message)

`AsyncClient` is the same with coroutines. It needs httpx, and nothing of the server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.client.asynchronous import (
        AsyncChunkIterator,
        AsyncClient,
        AsyncProducer,
        AsyncStream,
        AsyncSubscription,
    )
    from tailrace.client.batching import BatchLimits
    from tailrace.client.blocking import ChunkIterator, Client, Producer, Stream, Subscription
    from tailrace.client.content import ContentKind, StreamChunk
    from tailrace.client.errors import (
        BadRequestError,
        ClosedError,
        ConflictError,
        ContentTypeError,
        ExistsError,
        FencedError,
        ForbiddenError,
        GoneError,
        MismatchError,
        NotFoundError,
        ProducerGapError,
        ProtocolError,
        RateLimitedError,
        SequenceError,
        ServerError,
        StaleCacheError,
        StreamError,
        TooLargeError,
        UnauthorizedError,
        UnclearError,
        UnreachableError,
        UnsupportedError,
    )
    from tailrace.client.exchange import RetryPolicy
    from tailrace.client.operations import (
        AppendResult,
        CreateResult,
        ProducerPlace,
        StreamInfo,
    )
    from tailrace.client.subscriptions import LeaseLostError, WorkItem

_MODULES = (
    "errors",
    "exchange",
    "content",
    "operations",
    "subscriptions",
    "batching",
    "blocking",
    "asynchronous",
)

__all__ = [
    "AppendResult",
    "AsyncChunkIterator",
    "AsyncClient",
    "AsyncProducer",
    "AsyncStream",
    "AsyncSubscription",
    "BadRequestError",
    "BatchLimits",
    "ChunkIterator",
    "Client",
    "ClosedError",
    "ConflictError",
    "ContentKind",
    "ContentTypeError",
    "CreateResult",
    "ExistsError",
    "FencedError",
    "ForbiddenError",
    "GoneError",
    "LeaseLostError",
    "MismatchError",
    "NotFoundError",
    "Producer",
    "ProducerGapError",
    "ProducerPlace",
    "ProtocolError",
    "RateLimitedError",
    "RetryPolicy",
    "SequenceError",
    "ServerError",
    "StaleCacheError",
    "Stream",
    "StreamChunk",
    "StreamError",
    "StreamInfo",
    "Subscription",
    "TooLargeError",
    "UnauthorizedError",
    "UnclearError",
    "UnreachableError",
    "UnsupportedError",
    "WorkItem",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is used: the command line starts without httpx."""
    if name in __all__:
        for module in _MODULES:
            value = getattr(import_module(f"{__name__}.{module}"), name, None)
            if value is not None:
                globals()[name] = value
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
