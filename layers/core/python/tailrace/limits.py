"""Every fixed limit, each with its reason. What an operator may change is in `settings`.

`docs/limits.md` lists them all, and a test fails when it does not.
"""

from __future__ import annotations

from typing import Final

MAX_INTEGER: Final = 2**53 - 1
"""Largest epoch, sequence, TTL and sub-offset: what every client language holds exactly."""

PATH_BYTES: Final = 1024
"""Longest stream path, percent-encoded: it has to fit a database key together with a prefix."""

PRODUCER_ID_BYTES: Final = 256
"""Longest Producer-Id: it is stored with every entry while the producer is active."""

STREAM_SEQ_BYTES: Final = 256
"""Longest Stream-Seq: it is stored with every entry."""

CONTENT_TYPE_BYTES: Final = 256
"""Longest Content-Type: it is stored with the stream and echoed with every read."""

PRODUCER_BUDGET: Final = 4096
"""Bytes of producer state an entry carries before the coldest producers move to their own rows."""

JSON_DEPTH: Final = 512
"""Deepest nesting of a JSON body: every client's parser reads that much."""

FORK_DEPTH: Final = 256
"""Longest chain of forks of forks: a read may have to look at each of them."""

HEADER_COUNT: Final = 128
"""Most header fields of a request: parsing more is work without use."""

HEADER_BYTES: Final = 64 << 10
"""Largest request line and header fields together, as most proxies allow at most."""

LIST_PAGE: Final = 1000
"""Most streams one page of the listing holds."""

CURSOR_DIGITS: Final = 18
"""Longest cursor that is taken for a number; a longer one was not made by this server."""
