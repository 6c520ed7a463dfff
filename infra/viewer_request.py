"""The viewer-request function as it is deployed: `edge/viewer_request.js` without its comments
and its indentation, which would count towards CloudFront's size limit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parent / "edge" / "viewer_request.js"

MAX_BYTES: Final = 10_240
"""CloudFront's limit."""

_DROPPED: Final = re.compile(r"^ *//.*\n|^ +", re.MULTILINE)


def code(access: str = "closed", ds_path: str = "/ds") -> str:
    """The function's code for `closed` access, or for `open` access, which needs no keys, and for
    the second mount of streams, if there is one."""
    source = _replace(SOURCE.read_text(), "const ACCESS = 'closed';", f"const ACCESS = '{access}';")
    second = f"{ds_path}/" if ds_path else ""
    source = _replace(source, "const SECOND = '/ds/';", f"const SECOND = '{second}';")
    return _DROPPED.sub("", source)


def _replace(source: str, line: str, other: str) -> str:
    assert source.count(line) == 1
    return source.replace(line, other)
