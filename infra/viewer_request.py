"""The viewer-request function as it is deployed: `edge/viewer_request.js` without its comments,
which would count towards CloudFront's size limit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parent / "edge" / "viewer_request.js"

MAX_BYTES: Final = 10_240
"""CloudFront's limit."""

_COMMENT: Final = re.compile(r"^ *//.*\n", re.MULTILINE)
_CLOSED: Final = "const ACCESS = 'closed';"


def code(access: str = "closed") -> str:
    """The function's code for `closed` access, or for `open` access, which needs no keys."""
    source = SOURCE.read_text()
    assert source.count(_CLOSED) == 1
    return _COMMENT.sub("", source.replace(_CLOSED, f"const ACCESS = '{access}';"))
