"""JSON mode: a body is one JSON text; a top-level array is a batch of messages.

What is stored is the text between the brackets, byte for byte, so that serving a range is joining
texts and never a parse. Only their number has to be known, for the offset.

A large body is checked in pieces, which are cut at commas outside of strings. Each is made a
complete text by the brackets that are open at its ends, so the parser sees all of the grammar and
never has more than a piece in memory: 32 MB of `[],[],…` would be a gigabyte of lists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, NoReturn

import orjson

from tailrace.errors import InvalidJson
from tailrace.limits import (
    JSON_CHECK_STEP_BYTES,
    JSON_DEPTH,
    JSON_EVENT_LOOP_BYTES,
    JSON_SPLIT_BYTES,
)

_SPACE: Final = b" \t\r\n"
_BOM: Final = b"\xef\xbb\xbf"
_OPENS: Final = b"[{"
_QUOTE, _COMMA, _ARRAY = b'",['
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_CLOSES: Final = {_OPENS[0]: b"]", _OPENS[1]: b"}"}
_OPEN: Final = {_OPENS[0]: b"[", _OPENS[1]: b'{"":'}
_RESUMED: Final = {_OPENS[0]: b"[0,", _OPENS[1]: b'{"":0,'}
_SUSPENDED: Final = {_OPENS[0]: b",0]", _OPENS[1]: b',"":0}'}
_RUNS: Final = re.compile(rb"[\[{]+|[\]}]+")
_MOST_HIDDEN: Final = 8
"""Levels of nesting that are taken out together before the others are counted one by one."""

_MOST_PARTS: Final = 4 * JSON_DEPTH
"""The parts into which quotes may divide a text without commas: no value follows another."""

_STRING: Final = rb'"(?:[^"\\]++|\\.)*+"'
_FLAT: Final = rb'(?:[^\[\]{}"]++|' + _STRING + rb")*+"
_SKIP: Final = _STRING + rb"|\[" + _FLAT + rb"\]|\{" + _FLAT + rb"\}"
_IN_STRING: Final = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_IN_MESSAGE: Final = re.compile(rb'(?:[^\[\]{}"]++|' + _SKIP + rb")*+", re.DOTALL)
_BETWEEN: Final = re.compile(rb'(?:[^\[\]{}",]++|' + _SKIP + rb")*+", re.DOTALL)


Flat = tuple[bytes, int]
"""The text of messages, separated by commas, and how many there are."""


class Span(NamedTuple):
    """Where the text of the messages is in a body, and how many there are."""

    start: int
    stop: int
    messages: int


def flatten(body: bytes) -> Flat:
    """The messages of a body as they are stored; `InvalidJson` when it is not JSON."""
    if len(body) > JSON_EVENT_LOOP_BYTES:
        start, stop, count = check(body)
        return body[start:stop], count
    # As `check` does it, written out: most bodies are small.
    text = body.removeprefix(_BOM).strip(_SPACE)
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = _parse_leniently(text)
    if text.count(b"[") + text.count(b"{") > JSON_DEPTH and is_deeper(text, JSON_DEPTH):
        raise _too_deep()
    if isinstance(value, list):
        return text[1:-1].strip(_SPACE), len(value)
    return text, 1


def check(body: bytes) -> Span:
    """The messages of a body; `InvalidJson` when it is not JSON, or nested too deeply."""
    text = body.removeprefix(_BOM).lstrip(_SPACE)
    start = len(body) - len(text)
    text = text.rstrip(_SPACE)
    stop = start + len(text)
    count = _check_pieces(text)
    if text[0] != _ARRAY:
        return Span(start, stop, 1)
    inner = text[1:-1].lstrip(_SPACE)
    start = stop - 1 - len(inner)
    return Span(start, start + len(inner.rstrip(_SPACE)), count)


def split(text: bytes) -> list[bytes]:
    """The original text of each message in a flattened text."""
    return [message for some in batches(text) for message in some]


def batches(text: bytes) -> Iterator[list[bytes]]:
    """The messages of a flattened text, in steps of bounded work, of which some bring none."""
    start = 0
    for commas in _commas(text):
        messages: list[bytes] = []
        for comma in commas:
            messages.append(text[start:comma].strip(_SPACE))
            start = comma + 1
        yield messages
    last = text[start:].strip(_SPACE)
    if last:
        yield [last]


def count(text: bytes) -> int:
    """How many messages a flattened text has."""
    return sum(counts(text))


def counts(text: bytes) -> Iterator[int]:
    """How many messages a flattened text has, in steps of bounded work: the sum of all."""
    yield int(bool(text))
    yield from map(len, _commas(text))


def take(text: bytes, most: int) -> tuple[bytes, int]:
    """The text of the first messages of a flattened text, and how many these are."""
    taken: list[bytes] = []
    seen = 0
    for some in batches(text):
        if some:
            taken.append(b",".join(some[: most - seen]))
            seen = min(seen + len(some), most)
        if seen == most:
            break
    return b",".join(taken), seen


def _commas(text: bytes) -> Iterator[list[int]]:
    """Where messages end, but for the last one; a list for each block of text.

    Regular expressions match to the end of a block at most: a match holds up the whole process."""
    place = depth = 0
    quoted = False
    while place < len(text):
        stop = min(place + JSON_SPLIT_BYTES, len(text))
        commas: list[int] = []
        while place < stop:
            skip = _IN_STRING if quoted else _IN_MESSAGE if depth else _BETWEEN
            match = skip.match(text, place, stop)
            assert match is not None, "each may match nothing"
            place = match.end()
            if place == stop:
                break
            mark = text[place]
            if mark == _QUOTE:
                quoted = not quoted
            elif quoted:
                # An escape that the end of the block cuts: the next block begins with it.
                if stop == len(text):
                    place = stop
                break
            elif mark == _COMMA:
                commas.append(place)
            else:
                depth += 1 if mark in _OPENS else -1
            place += 1
        yield commas


# Checking


def is_deeper(text: bytes, most: int) -> bool:
    """Whether valid JSON is nested deeper than some levels."""
    # Brackets inside strings only make this count too high, and then the exact one decides.
    if text.count(b"[") + text.count(b"{") <= most:
        return False
    try:
        _walk(b"", b"".join(_parts(text)[::2]), most)
    except InvalidJson:
        return True
    return False


def _check_pieces(text: bytes) -> int:
    count = place = 0
    before = b""
    while True:
        piece, outside = _next_piece(text, place)
        after = _walk(before, outside)
        last = place + len(piece) == len(text)
        if not last and not after:
            raise _invalid("a second value", place)
        tail = b"" if last else _closing(after)
        try:
            value = _parse(_opening(before) + piece + tail)
        except InvalidJson as error:
            raise InvalidJson(f"{error}, in what follows byte {place}") from None
        if isinstance(value, list):
            # One element goes on from the piece before, or stands for those, and so at the end.
            count += len(value) - bool(before) - (len(after) == 1 and not last)
        if last:
            return count
        place += len(piece) + 1
        before = after


def _next_piece(text: bytes, start: int) -> tuple[bytes, bytes]:
    """The text up to a comma or the end, and what of it is outside of strings."""
    size = JSON_CHECK_STEP_BYTES
    while True:
        piece = text[start : start + size]
        parts = _parts(piece)
        if start + size >= len(text):
            return piece, b"".join(parts[::2])
        end = len(piece)
        for i in range(len(parts) - 1, -1, -1):
            end -= len(parts[i])
            comma = -1 if i % 2 else parts[i].rfind(b",")
            if comma >= 0:
                outside = b"".join(parts[:i:2]) + parts[i][:comma]
                return piece[: end + comma], outside
            end -= 1
        if len(parts) > _MOST_PARTS:
            _walk(b"", b"".join(parts[::2]))
            raise _invalid("no comma between values", start)
        size *= 2


def _parts(text: bytes) -> list[bytes]:
    """The parts of a text, outside and inside of strings in turns; lengths are as in the text."""
    return text.replace(rb"\\", b"__").replace(rb"\"", b"__").split(b'"')


def _walk(stack: bytes, outside: bytes, most: int = JSON_DEPTH) -> bytes:
    """The brackets that are open after some text, of which `outside` is no string."""
    marks = outside.translate(None, _NO_BRACKETS)
    brief, hidden = marks, 0
    while hidden < _MOST_HIDDEN:
        # The innermost pairs, of both kinds: two levels at most.
        length = len(brief)
        brief, hidden = brief.replace(b"[]", b"").replace(b"{}", b""), hidden + 2
        if len(brief) > length // 2:
            break
    try:
        return _push_and_pop(stack, brief, most - hidden)
    except InvalidJson:
        return _push_and_pop(stack, marks, most)


def _push_and_pop(stack: bytes, marks: bytes, most: int) -> bytes:
    opened = bytearray(stack)
    for run in _RUNS.findall(marks):
        if run[0] in _OPENS:
            opened += run
            if len(opened) > most:
                raise _too_deep()
        elif len(run) > len(opened):
            raise InvalidJson("the body is not valid JSON: a bracket is closed that is not open")
        else:
            del opened[-len(run) :]
    return bytes(opened)


def _opening(stack: bytes) -> bytes:
    """A text that goes on after a comma inside of some brackets."""
    if not stack:
        return b""
    return b"".join([_OPEN[mark] for mark in stack[:-1]]) + _RESUMED[stack[-1]]


def _closing(stack: bytes) -> bytes:
    """The brackets that complete a text before a comma inside of some brackets."""
    return _SUSPENDED[stack[-1]] + b"".join([_CLOSES[mark] for mark in stack[-2::-1]])


def _parse(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return _parse_leniently(text)


def _parse_leniently(text: bytes) -> Any:
    """Numbers beyond a double and unpaired surrogates are JSON, but more than orjson takes."""
    try:
        return json.loads(
            text.decode("utf-8"), parse_constant=_refuse, parse_float=str, parse_int=str
        )
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise InvalidJson(f"the body is not valid JSON: {error}") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")


def _too_deep() -> InvalidJson:
    return InvalidJson(f"the body is nested deeper than {JSON_DEPTH} levels")


def _invalid(why: str, place: int) -> InvalidJson:
    return InvalidJson(f"the body is not valid JSON: {why}, in what follows byte {place}")
