"""Names of cable streams: `chat/42` is the stream at the path that spells it."""

from __future__ import annotations

from tailrace.errors import BadPath
from tailrace.log.path_patterns import spelled
from tailrace.log.paths import RESERVED, canonical


def path_of(name: str) -> str:
    """The path of the stream that a name stands for; raises BadPath or PathTooLong for none."""
    if not name:
        raise BadPath("the name of a stream must not be empty")
    try:
        path = canonical(spelled(name))
    except UnicodeEncodeError:
        raise BadPath("the name of a stream must be text that UTF-8 can encode") from None
    if path.partition("/")[0] == RESERVED:
        raise BadPath(f"names that begin with '{RESERVED}' are the protocol's own")
    return path


def epoch_of(chain: int) -> str:
    """An incarnation as clients see it: offsets count from its beginning."""
    return f"{chain:x}"
