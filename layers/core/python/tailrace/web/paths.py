"""URLs of streams."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from tailrace.errors import BadPath, NotFound
from tailrace.log.paths import RESERVED, canonical

PREFIXES: Final = ("/v1/stream/", "/ds/")


@lru_cache(maxsize=4096)
def stream_path(raw: str) -> str:
    """Parse the raw path of a URL into the canonical path of the stream it names."""
    for prefix in PREFIXES:
        if raw.startswith(prefix):
            path = canonical(raw[len(prefix) :])
            if path.partition("/")[0] == RESERVED:
                raise NotFound(f"'{path}' is reserved for the protocol's own endpoints")
            return path
    raise BadPath(f"a stream's path begins with one of {', '.join(PREFIXES)}")
