"""Stream paths: one spelling for each stream, however it was encoded."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from tailrace.errors import BadPath, PathTooLong
from tailrace.limits import PATH_BYTES
from tailrace.log.path_patterns import SAFE

RESERVED: Final = "__ds"
"""The first segment under which the protocol's own endpoints live."""

_PLAIN = re.compile(r"[A-Za-z0-9_~!$&'()*+,;=:@-]+(?:[./][A-Za-z0-9_~!$&'()*+,;=:@-]+)*")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def canonical(path: str) -> str:
    if len(path) > 3 * PATH_BYTES:
        raise PathTooLong(f"a stream's path has at most {PATH_BYTES} bytes")
    if not _PLAIN.fullmatch(path):
        path = "/".join(map(_canonical_segment, path.split("/")))
    if not path:
        raise BadPath("name the stream: its path is empty")
    if len(path) > PATH_BYTES:
        raise PathTooLong(f"a stream's path has at most {PATH_BYTES} bytes")
    return path


def _canonical_segment(segment: str) -> str:
    if _BROKEN_ESCAPE.search(segment):
        raise BadPath("the path has a '%' that is not followed by two hexadecimal digits")
    try:
        text = unquote_to_bytes(segment.encode("latin-1")).decode("utf-8")
    except UnicodeDecodeError:
        raise BadPath("the path is not UTF-8 when its percent-encoding is undone") from None
    if _CONTROL.search(text):
        raise BadPath("the path has a control character")
    if text in (".", ".."):
        raise BadPath("the path has a '.' or '..' segment, which proxies resolve differently")
    return quote(text, safe=SAFE)
