"""JSON mode: a body is one JSON text; a top-level array is a batch of messages.

What is stored is the text between the brackets, byte for byte, so that serving a range is joining
texts and never a parse. Only their number has to be known, for the offset.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import orjson

from tailrace.errors import InvalidJson
from tailrace.limits import JSON_DEPTH

_SPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_STRUCTURE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]', re.DOTALL)


def flatten(body: bytes) -> tuple[bytes, int]:
    """The text of the messages in a body, separated by commas, and how many there are."""
    text = body.removeprefix(_BOM).strip(_SPACE)
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = _parsed_leniently(text)
    # Brackets inside strings only make this count too high, and then the exact one decides.
    if text.count(b"[") + text.count(b"{") > JSON_DEPTH and _depth(text) > JSON_DEPTH:
        raise InvalidJson(f"the body is nested deeper than {JSON_DEPTH} levels")
    if isinstance(value, list):
        return text[1:-1].strip(_SPACE), len(value)
    return text, 1


def split(text: bytes) -> list[bytes]:
    """The original text of each message in a flattened text."""
    messages: list[bytes] = []
    depth = start = 0
    for match in _STRUCTURE.finditer(text):
        mark = match[0]
        if mark in b"[{":
            depth += 1
        elif mark in b"]}":
            depth -= 1
        elif mark == b"," and depth == 0:
            messages.append(text[start : match.start()].strip(_SPACE))
            start = match.end()
    last = text[start:].strip(_SPACE)
    return [*messages, last] if last else messages


def _parsed_leniently(text: bytes) -> Any:
    """Numbers beyond a double and unpaired surrogates are JSON, but more than orjson takes."""
    try:
        return json.loads(
            text.decode("utf-8"), parse_constant=_refuse, parse_float=str, parse_int=str
        )
    except RecursionError:
        raise InvalidJson(f"the body is nested deeper than {JSON_DEPTH} levels") from None
    except ValueError as error:
        raise InvalidJson(f"the body is not valid JSON: {error}") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")


def _depth(text: bytes) -> int:
    depth = deepest = 0
    for match in _STRUCTURE.finditer(text):
        mark = match[0]
        if mark in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif mark in b"]}":
            depth -= 1
    return deepest
