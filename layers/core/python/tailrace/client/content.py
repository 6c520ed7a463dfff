"""Content types and bodies: how values are encoded, and what was read is decoded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

DEFAULT_TYPE: Final = "application/octet-stream"
JSON_TYPE: Final = "application/json"


class ContentKind(Enum):
    """The meaning of a content type for a stream's messages."""

    BYTES = "bytes"
    TEXT = "text"
    JSON = "json"

    @classmethod
    def of(cls, content_type: str) -> ContentKind:
        media_type = content_type.partition(";")[0].strip().lower()
        if media_type == JSON_TYPE:
            return cls.JSON
        return cls.TEXT if media_type.startswith("text/") else cls.BYTES


def encode_json(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode()
    except UnicodeEncodeError:  # An unpaired surrogate is JSON only when escaped.
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def encode_message(kind: ContentKind, value: Any) -> bytes:
    """One message: any value as JSON, or else bytes or text. Bytes are JSON text already."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if kind is ContentKind.JSON:
        return encode_json(value)
    if isinstance(value, str):
        return value.encode()
    raise TypeError(
        f"a stream that is not JSON takes bytes or str, and not {type(value).__name__};"
        " create it with content_type='application/json'"
    )


def join_messages(kind: ContentKind, messages: Sequence[bytes]) -> bytes:
    """The body of an append of encoded messages.

    In a JSON stream they are an array even if there is one, so that a list is one message.
    """
    if kind is ContentKind.JSON:
        return b"[%b]" % b",".join(messages)
    return messages[0] if len(messages) == 1 else b"".join(messages)


def encode_body(kind: ContentKind, value: Any) -> bytes:
    """The body of an append of one value; bytes are a body already."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return join_messages(kind, [encode_message(kind, value)])


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """Consecutive data of a stream, and where it goes on.

    `up_to_date` says that the stream ended here when it was read, `closed` that it ends here for
    good. A chunk without data tells one of both.
    """

    body: bytes
    content_type: str
    next_offset: str
    up_to_date: bool = False
    closed: bool = False
    cursor: str | None = None
    etag: str | None = None

    @property
    def kind(self) -> ContentKind:
        return ContentKind.of(self.content_type)

    @property
    def is_empty(self) -> bool:
        """Whether there is no data; a JSON stream sends an empty array then."""
        if self.kind is ContentKind.JSON:
            return self.body.strip() in (b"", b"[]")
        return not self.body

    def json(self) -> list[Any]:
        """The messages of a JSON stream."""
        if self.kind is not ContentKind.JSON:
            raise TypeError(f"the stream is not JSON but {self.content_type}")
        return list(json.loads(self.body)) if self.body else []

    def text(self) -> str:
        """The text; raises UnicodeDecodeError if the chunk ends inside a character."""
        return self.body.decode()


def join_chunks(chunks: Iterable[StreamChunk]) -> StreamChunk:
    """The content of consecutive chunks as one."""
    parts = list(chunks)
    last = parts[-1]
    if last.kind is not ContentKind.JSON:
        body = b"".join([each.body for each in parts])
    elif len(parts) == 1:
        body = last.body or b"[]"
    else:
        texts = [each.body.strip()[1:-1] for each in parts if not each.is_empty]
        body = b"[%b]" % b",".join(texts)
    return StreamChunk(
        body, last.content_type, last.next_offset, last.up_to_date, last.closed, last.cursor
    )
