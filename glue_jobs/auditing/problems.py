"""Findings of an audit: what is wrong, in which slot, and what to do about it."""

from __future__ import annotations

from typing import Final, NamedTuple

RESTORE: Final = "Copy what is missing or wrong from a point-in-time restore of the table."
BACKUP: Final = "Bring the object back from a backup of the bucket."
UNREACHED: Final = "Remove the item: no reader reaches it."
MISTAKEN: Final = "Remove the item: it is taken for the last entry of the stream."
POINTERS: Final = (
    "Correct archived_to, trimmed_to, exported_to or retained_from of the name item, after a look"
    " at the chain's segments."
)
LATE: Final = "Append what it holds once more and remove the item: a segment has the slot."
FORGOTTEN: Final = "Remove the name item: the stream takes no entry any more."
UNCLAIM: Final = "Remove the claim before it is due: the sweep would remove the object."
COUNT: Final = "Set fork_count of the name item to the number of edges."
CONNECT: Final = "Put the edge, and count it in fork_count of the source's name item."
LOOSE: Final = "Remove the edge, and take it from fork_count of the source's name item."
PART: Final = "Remove the name item that is wrong; to delete its stream would delete the other's."
SWEEP: Final = "Nothing: `tailrace glue sweep --dry-run false` removes it."


class Problem(NamedTuple):
    slot: int | None
    what: str
    fix: str
