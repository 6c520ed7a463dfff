"""What `append` sends: lines, messages or bytes, cut into the bodies of requests."""

from __future__ import annotations

import os
import select
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from tailrace.cli.failures import Exit, Failure
from tailrace.errors import InvalidJson
from tailrace.log.content import Mode
from tailrace.log.json_mode import flatten

BLOCK: Final = 1 << 20
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Piece:
    """The body of one request; `size` is its share of the input, `last` when nothing follows."""

    body: bytes
    messages: int
    size: int
    last: bool


def whole(source: BinaryIO, mode: Mode, *, at_once: bool) -> Iterator[Piece]:
    """All of the input: JSON is one text, anything else may go in blocks."""
    size = -1 if at_once or mode is Mode.JSON else BLOCK
    block = source.read(size)
    while block:
        following = source.read(size)
        yield Piece(block, 1, len(block), last=not following)
        block = following


def given(messages: Iterable[bytes], mode: Mode, *, lines: bool) -> Iterator[Piece]:
    """Messages of the command line, in one request: none is sent when one of them is no JSON."""
    texts = list(messages)
    if lines or mode is Mode.JSON:
        yield _one_batch(texts, mode, "--message")
    else:
        body = b"".join(texts)
        yield Piece(body, len(texts), len(body), last=True)


def lines_at_once(source: BinaryIO, mode: Mode, name: str) -> Iterator[Piece]:
    """All lines in one request, for when there may be only one."""
    text = source.read().removesuffix(b"\n")
    yield _one_batch(text.split(b"\n") if text else [], mode, f"{name} line")


def lines(
    source: BinaryIO, mode: Mode, name: str, *, most_bytes: int, most_lines: int
) -> Iterator[Piece]:
    """The input's lines in batches: what is there, up to the limits, so that a pipe flows.

    A line that is no JSON ends the input; what came before it is sent first.
    """

    def full(waiting: deque[_Line], size: int) -> bool:
        """Whether a batch will leave something behind, and so is not the last."""
        return len(waiting) > 1 and (size > most_bytes or len(waiting) > most_lines)

    waiting: deque[_Line] = deque()
    size = number = 0
    rest = b""
    ended = False
    broken: Failure | None = None
    while True:
        while not ended and (not waiting or (not full(waiting, size) and _ready(source))):
            block = source.read1(BLOCK)  # type: ignore[attr-defined]
            ended = not block
            *texts, rest = (rest + block).split(b"\n")
            if ended and rest:
                texts.append(rest)
            try:
                for text in texts:
                    number += 1
                    line = _Line(text, number, mode, f"{name} line")
                    if line.item:
                        waiting.append(line)
                        size += len(line.item)
            except Failure as failure:
                ended, broken = True, failure
        batch: list[_Line] = []
        room = most_bytes
        while waiting and len(batch) < most_lines:
            if batch and len(waiting[0].item) > room:
                break
            batch.append(waiting.popleft())
            room -= len(batch[-1].item)
        size -= most_bytes - room
        if batch:
            yield _together(batch, mode, last=ended and not waiting and broken is None)
        if ended and not waiting:
            break
    if broken is not None:
        raise broken


class _Line:
    """A line as it goes into a body; blank ones are no JSON message, but part of a text."""

    __slots__ = ("item", "size")

    def __init__(self, text: bytes, number: int, mode: Mode, name: str) -> None:
        self.size = len(text) + 1
        if mode is not Mode.JSON:
            self.item = text + b"\n"
            return
        self.item = text.removeprefix(_BOM).strip()
        if not self.item:
            return
        try:
            flatten(self.item)
        except InvalidJson:
            shown = self.item[:60].decode(errors="replace")
            raise Failure(
                f"{name} {number} is not JSON: {shown}", Exit.USAGE, code=InvalidJson.code
            ) from None


def _one_batch(texts: Iterable[bytes], mode: Mode, name: str) -> Piece:
    batch = [_Line(text, number, mode, name) for number, text in enumerate(texts, 1)]
    return _together([line for line in batch if line.item], mode, last=True)


def _together(batch: list[_Line], mode: Mode, *, last: bool) -> Piece:
    items = [line.item for line in batch]
    if not items:
        body = b""
    else:
        body = b"[%b]" % b",".join(items) if mode is Mode.JSON else b"".join(items)
    return Piece(body, len(items), sum(line.size for line in batch), last)


def _ready(source: BinaryIO) -> bool:
    """Whether reading would not wait; what cannot be asked is a buffer, and always ready."""
    try:
        return bool(select.select([source], [], [], 0)[0])
    except (OSError, ValueError):
        return True


def regular_size(source: BinaryIO) -> int | None:
    """How many bytes a file has; None for a pipe or a terminal."""
    try:
        status = os.fstat(source.fileno())
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
