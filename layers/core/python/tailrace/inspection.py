"""Answers about streams and clients for operators, and for callers about their own access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, Field

from tailrace.auth.authorizer import CallerAccess, Operation
from tailrace.limits import DETAIL_ROWS
from tailrace.log.expiry import format_instant
from tailrace.log.offsets import token
from tailrace.log.state import State, Stream
from tailrace.protocols.action_cable.core.publisher import ConnectionInfo
from tailrace.store.base import StoredDetails, Tail


class ListedStream(BaseModel):
    path: Annotated[str, Field(description="Percent-encoded, as it goes into a URL.")]
    content_type: Annotated[str, Field(description="As it was created.")]
    next_offset: Annotated[str, Field(description="Where the stream ends now.")]
    closed: Annotated[bool, Field(description="Whether it takes no more appends.")]
    created_at: Annotated[str, Field(description="When it was created, in RFC 3339.")]
    ttl: Annotated[int | None, Field(description="Seconds without use after which it expires.")]
    expires_at: Annotated[str | None, Field(description="When it expires, if at a fixed time.")]
    length: Annotated[int, Field(description="Messages so far; bytes if it is not JSON.")]
    bytes: Annotated[int, Field(description="Bytes so far, as they are stored.")]
    last_written_at: Annotated[str, Field(description="The last append, in RFC 3339.")]


class ProducerState(BaseModel):
    id: Annotated[str, Field(description="The Producer-Id.")]
    epoch: Annotated[int, Field(description="Its epoch.")]
    seq: Annotated[int, Field(description="The last sequence number that was accepted.")]


class ForkSource(BaseModel):
    path: Annotated[str, Field(description="The stream that was forked.")]
    offset: Annotated[str, Field(description="Where the fork left it.")]


class HotPart(BaseModel):
    first_slot: Annotated[int, Field(description="The first slot that is in no segment.")]
    slots: Annotated[int, Field(description="How many slots there are from there on.")]
    bytes: Annotated[int, Field(description="Their data.")]


class Segment(BaseModel):
    first_slot: Annotated[int, Field(description="Its first slot.")]
    stop_slot: Annotated[int, Field(description="The slot after its last.")]
    bytes: Annotated[int, Field(description="Its data.")]
    committed_at: Annotated[str, Field(description="When it was written, in RFC 3339.")]


class ColdPart(BaseModel):
    bytes: Annotated[int, Field(description="Data in segments.")]
    segments: Annotated[list[Segment], Field(description="The newest first, at most 200.")]


class StreamDetails(ListedStream):
    earliest_offset: Annotated[str, Field(description="Of the first data that is retained.")]
    last_access_at: Annotated[
        str, Field(description="The last read or write that counts for the TTL, in RFC 3339.")
    ]
    last_seq: Annotated[str | None, Field(description="The last Stream-Seq.")]
    forked_from: Annotated[ForkSource | None, Field(description="Its source, if it is a fork.")]
    forks: Annotated[int, Field(description="How many forks need its data.")]
    fork_paths: Annotated[
        list[str], Field(description="The forks, at most 200; none if the store is DynamoDB.")
    ]
    producers: Annotated[
        list[ProducerState], Field(description="The most recent first, at most 200 older ones.")
    ]
    hot: Annotated[HotPart, Field(description="Data in the table.")]
    cold: Annotated[ColdPart, Field(description="Data in segments.")]


class Access(BaseModel):
    kind: Annotated[
        str,
        Field(
            description="What was sent: bearer token, signed name, broadcast key, API key or none."
            " `open`: everyone may do everything."
        ),
    ]
    subject: Annotated[str | None, Field(description="The client that a token names.")]
    scopes: Annotated[list[str], Field(description="Those of a token.")]
    streams: Annotated[list[str], Field(description="The patterns of a token.")]
    expires_at: Annotated[str | None, Field(description="When a token expires, in RFC 3339.")]
    stream: Annotated[
        str | None, Field(description="The stream that `operations` are about; null: all streams.")
    ]
    operations: Annotated[
        dict[str, bool], Field(description="Operations, and whether they are allowed.")
    ]


class CableConnection(BaseModel):
    id: Annotated[str, Field(description="The session id; on AWS that of the connection.")]
    identity: Annotated[str, Field(description="That of its token, or an anonymous one.")]
    connected_at: Annotated[str, Field(description="In RFC 3339.")]
    streams: Annotated[list[str], Field(description="What it is subscribed to.")]


class CableConnections(BaseModel):
    connections: Annotated[list[CableConnection], Field(description="At most 200.")]
    complete: Annotated[bool, Field(description="Whether these are all.")]


class PresentMember(BaseModel):
    id: Annotated[str, Field(description="The id that it joined with.")]
    info: Annotated[Any, Field(description="What it joined with.")]


class CablePresence(BaseModel):
    total: Annotated[int, Field(description="How many members are present.")]
    members: Annotated[
        list[PresentMember], Field(description="Empty if the list is too long for AWS.")
    ]


def describe_stream(stream: Stream, state: State) -> ListedStream:
    return ListedStream(**_listed(stream, state))


def describe_details(
    tail: Tail, stored: StoredDetails, hot_bytes: int, earliest: str
) -> StreamDetails:
    stream, state = tail.stream, tail.committed
    fork = stream.config.fork
    recent = [(producer, *last) for producer, last in reversed(list(state.producers.items()))]
    first = max(stored.hot_from, tail.earliest, stream.config.base[0])
    return StreamDetails(
        **_listed(stream, state),
        earliest_offset=earliest,
        last_access_at=format_instant(tail.accessed),
        last_seq=state.seq,
        forked_from=None
        if fork is None
        else ForkSource(
            path=fork.source, offset=token(fork.slot, stream.config.base[1], stream.config.epoch)
        ),
        forks=stored.forks,
        fork_paths=list(stored.fork_paths),
        producers=[
            ProducerState(id=producer, epoch=epoch, seq=seq)
            for producer, epoch, seq in (*recent, *stored.producers)
        ],
        hot=HotPart(first_slot=first, slots=state.slot - first, bytes=hot_bytes),
        cold=ColdPart(
            bytes=stored.cold_bytes,
            segments=[
                Segment(
                    first_slot=each.first,
                    stop_slot=each.stop,
                    bytes=each.bytes,
                    committed_at=format_instant(each.committed_at),
                )
                for each in stored.segments
            ],
        ),
    )


def describe_access(path: str, caller: CallerAccess, allowed: Mapping[Operation, bool]) -> Access:
    return Access(
        kind=caller.kind,
        subject=caller.subject,
        scopes=list(caller.scopes),
        streams=list(caller.streams),
        expires_at=_instant(caller.expires_at),
        stream=path or caller.signed_name,
        operations={operation.name.lower(): may for operation, may in allowed.items()},
    )


def describe_connections(connected: Sequence[ConnectionInfo]) -> CableConnections:
    return CableConnections(
        connections=[
            CableConnection(
                id=each.id,
                identity=each.identity,
                connected_at=format_instant(each.connected_at),
                streams=list(each.streams),
            )
            for each in connected[:DETAIL_ROWS]
        ],
        complete=len(connected) <= DETAIL_ROWS,
    )


def describe_presence(message: str) -> CablePresence:
    """`message`: the presence message that lists the members."""
    info = orjson.loads(message)
    return CablePresence(
        total=info["total"], members=[PresentMember(**record) for record in info.get("records", ())]
    )


def _listed(stream: Stream, state: State) -> dict[str, Any]:
    config = stream.config
    return {
        "path": stream.path,
        "content_type": config.content_type,
        "next_offset": state.next_offset(config.epoch),
        "closed": state.closed,
        "created_at": format_instant(config.created),
        "ttl": config.ttl,
        "expires_at": _instant(config.expires_at),
        "length": state.offset,
        "bytes": state.size,
        "last_written_at": format_instant(state.written_at),
    }


def _instant(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else format_instant(milliseconds)
