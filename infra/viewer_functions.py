"""The CloudFront functions as they are deployed: the files of `edge` without comments, indentation
and empty lines, which would count towards CloudFront's size limit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from infra.names import CONTAINERS
from tailrace import docs

EDGE: Final = Path(__file__).parent / "edge"

MAX_BYTES: Final = 10_240
"""CloudFront's limit, for each function."""

STREAMED: Final = r"/^(POST \/api\/v1\/(watch|replay)|(GET|POST) \/events)$/"
STREAMED_BY_CONTAINERS: Final = (
    r"/^(POST \/api\/v1\/(watch|replay)|(GET|POST) \/events|GET \/v1\/read)$/"
)
SERVED_BY_CONTAINERS: Final = r"/^(GET \/(events|v1\/read)$|(PUT|POST|PATCH|DELETE) )/"
"""The requests for the origin of streamed responses: those that are streamed, those and reads of
many streams, those and all writes."""

_DROPPED: Final = re.compile(r"^ *//.*\n|^ *\n|^ +", re.MULTILINE)


def request_code(
    access: str = "closed",
    ds_path: str = "/ds",
    wait: int = 20,
    sse: str = "held",
    live: str = "functions",
    writes: str = "functions",
) -> str:
    """The viewer-request function for `closed` access, or for `open` access, which needs no keys;
    for the second mount of streams, if there is one; for long-polls of `wait` seconds; for
    server-sent events that are `held` or `shared`; and for live reads and writes that `functions`
    or `containers` serve."""
    source = (EDGE / "viewer_request.js").read_text()
    source = _replace(source, "const ACCESS = 'closed';", f"const ACCESS = '{access}';")
    second = f"{ds_path}/" if ds_path else ""
    source = _replace(source, "const SECOND = '/ds/';", f"const SECOND = '{second}';")
    source = _replace(source, "const WAIT = 20;", f"const WAIT = {wait};")
    shared = ", 'sse'" if sse == "shared" else ""
    source = _replace(
        source, "const SHARED = ['long-poll'];", f"const SHARED = ['long-poll'{shared}];"
    )
    if live == CONTAINERS:
        for origin in ("live", "wait"):
            source = _replace(source, _selection(origin), _selection(CONTAINERS))
        source = _replace(source, _routes(STREAMED), _routes(STREAMED_BY_CONTAINERS))
    if writes == CONTAINERS:
        source = _replace(source, _routes(STREAMED_BY_CONTAINERS), _routes(SERVED_BY_CONTAINERS))
    return _DROPPED.sub("", source)


def _selection(origin: str) -> str:
    return f"cf.selectRequestOriginById('{origin}');"


def _routes(pattern: str) -> str:
    return f"const STREAMED = {pattern};"


def response_code() -> str:
    """The viewer-response function."""
    return _DROPPED.sub("", (EDGE / "viewer_response.js").read_text())


def console_code() -> str:
    """The viewer-request function of `/`, where the console is."""
    source = (EDGE / "console_request.js").read_text()
    text = json.dumps(docs.page("landing.txt").decode())
    return _DROPPED.sub("", _replace(source, "const TEXT = '';", f"const TEXT = {text};"))


def _replace(source: str, line: str, other: str) -> str:
    assert source.count(line) == 1
    return source.replace(line, other)
