"""The viewer-request function as it is deployed: `edge/viewer_request.js` without its comments, for
CloudFront counts those, too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parent / "edge" / "viewer_request.js"

MAX_BYTES: Final = 10_240
"""CloudFront takes no more."""

_COMMENT: Final = re.compile(r"^ *//.*\n", re.MULTILINE)
_CLOSED: Final = "const ACCESS = 'closed';"


def code(access: str = "closed") -> str:
    """For a authorizer that is `closed`, or one that is `open` and needs no keys."""
    source = SOURCE.read_text()
    assert source.count(_CLOSED) == 1
    return _COMMENT.sub("", source.replace(_CLOSED, f"const ACCESS = '{access}';"))
