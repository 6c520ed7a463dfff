"""URLs of streams: the protocol's own mount, and a second one that settings may move or remove."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from tailrace.errors import BadPath, NotFound
from tailrace.log.paths import RESERVED, canonical

STREAMS: Final = "/v1/stream/"
"""The mount of streams as the protocol has them."""

MANY: Final = "/v1/read"
"""The path of reads of many streams by one request."""


class StreamUrls:
    """The mounts below which streams are found."""

    def __init__(self, ds_path: str) -> None:
        """`ds_path`: the second mount, where a stream that does not exist yet reads as empty."""
        self._second = f"{ds_path}/" if ds_path else ""
        self.prefixes: Final = (STREAMS, self._second) if ds_path else (STREAMS,)
        self.byte_prefixes: Final = tuple(prefix.encode() for prefix in self.prefixes)
        self.reserved: Final = tuple(f"{prefix}{RESERVED}/" for prefix in self.prefixes)
        """Beginnings of the paths of the protocol's own endpoints."""
        # Clients use few streams at a time, and parsing an encoded path takes microseconds.
        self.parse: Final = lru_cache(maxsize=4096)(self._parse)

    def reads_missing(self, raw: str) -> bool:
        """Whether a stream that does not exist yet reads as empty below this URL."""
        return bool(self._second) and raw.startswith(self._second)

    def _parse(self, raw: str) -> str:
        """Parse the raw path of a URL into the canonical path of the stream it names."""
        for prefix in self.prefixes:
            if raw.startswith(prefix):
                path = canonical(raw[len(prefix) :])
                if path.partition("/")[0] == RESERVED:
                    raise NotFound(f"'{path}' is reserved for the protocol's own endpoints")
                return path
        raise BadPath(f"a stream's path begins with one of {', '.join(self.prefixes)}")
