"""The input of `append`: lines, messages or bytes, batched into request bodies."""

from __future__ import annotations

import os
import select
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from tailrace.cli.exit_codes import Exit, Failure
from tailrace.errors import InvalidJson
from tailrace.log.content import Mode
from tailrace.log.json_mode import flatten

BLOCK: Final = 1 << 20
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class InputBatch:
    """The body of one request; `size` is its share of the input, `last` if no other follows."""

    body: bytes
    messages: int
    size: int
    last: bool


def read_blocks(source: BinaryIO, mode: Mode, *, at_once: bool) -> Iterator[InputBatch]:
    """Read the whole input: JSON as one text, anything else in blocks unless `at_once`."""
    size = -1 if at_once or mode is Mode.JSON else BLOCK
    block = source.read(size)
    while block:
        following = source.read(size)
        yield InputBatch(block, 1, len(block), last=not following)
        block = following


def batch_messages(messages: Iterable[bytes], mode: Mode, *, lines: bool) -> Iterator[InputBatch]:
    """Batch messages of the command line into one request; fails if one of them is not JSON."""
    texts = list(messages)
    if lines or mode is Mode.JSON:
        yield _join_texts(texts, mode, "--message")
    else:
        body = b"".join(texts)
        yield InputBatch(body, len(texts), len(body), last=True)


def batch_all_lines(source: BinaryIO, mode: Mode, name: str) -> Iterator[InputBatch]:
    """Batch all lines into one request."""
    text = source.read().removesuffix(b"\n")
    yield _join_texts(text.split(b"\n") if text else [], mode, f"{name} line")


def batch_lines(
    source: BinaryIO, mode: Mode, name: str, *, most_bytes: int, most_lines: int
) -> Iterator[InputBatch]:
    """Batch lines as they arrive, up to the limits, so that a pipe is not delayed.

    A line that is not JSON ends the input, after the lines before it.
    """

    def is_full(waiting: deque[_Line], size: int) -> bool:
        """Whether the next batch leaves some lines behind, and so is not the last one."""
        return len(waiting) > 1 and (size > most_bytes or len(waiting) > most_lines)

    waiting: deque[_Line] = deque()
    size = number = 0
    rest = b""
    ended = False
    failure: Failure | None = None
    while True:
        while not ended and (not waiting or (not is_full(waiting, size) and _is_ready(source))):
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
            except Failure as error:
                ended, failure = True, error
        batch: list[_Line] = []
        capacity = most_bytes
        while waiting and len(batch) < most_lines:
            if batch and len(waiting[0].item) > capacity:
                break
            batch.append(waiting.popleft())
            capacity -= len(batch[-1].item)
        size -= most_bytes - capacity
        if batch:
            yield _join_lines(batch, mode, last=ended and not waiting and failure is None)
        if ended and not waiting:
            break
    if failure is not None:
        raise failure


class _Line:
    """One line of a body; a blank line is part of a text, but not a JSON message."""

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
            excerpt = self.item[:60].decode(errors="replace")
            raise Failure(
                f"{name} {number} is not JSON: {excerpt}", Exit.USAGE, code=InvalidJson.code
            ) from None


def _join_texts(texts: Iterable[bytes], mode: Mode, name: str) -> InputBatch:
    batch = [_Line(text, number, mode, name) for number, text in enumerate(texts, 1)]
    return _join_lines([line for line in batch if line.item], mode, last=True)


def _join_lines(batch: list[_Line], mode: Mode, *, last: bool) -> InputBatch:
    items = [line.item for line in batch]
    if not items:
        body = b""
    else:
        body = b"[%b]" % b",".join(items) if mode is Mode.JSON else b"".join(items)
    return InputBatch(body, len(items), sum(line.size for line in batch), last)


def _is_ready(source: BinaryIO) -> bool:
    """Whether reading would not block; a source that select does not support is a buffer."""
    try:
        return bool(select.select([source], [], [], 0)[0])
    except (OSError, ValueError):
        return True


def regular_size(source: BinaryIO) -> int | None:
    """The size of a file in bytes; None for a pipe or a terminal."""
    try:
        status = os.fstat(source.fileno())
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
