"""The rule that says which slots of a chain may be removed.

Filling a slot is conditional on its being empty, and a slot that was filled and later removed is
empty again: a writer with an outdated tail would succeed, and its entry would be lost. So

- the last entry of a chain stays, for it is the stream's state;
- a slot goes no earlier than a grace period after it was archived (or its stream deleted), and
  a remembered tail is trusted for far less than that.
"""

from __future__ import annotations

from tailrace.limits import TAIL_CACHE_SECONDS
from tailrace.log.state import State


def first_kept(state: State, archived: int, archived_at: int, now: int, grace: int) -> int:
    """The first slot that has to stay, of a chain whose slots below `archived` were archived then.

    Times are in milliseconds, `grace` is in seconds.
    """
    assert grace > TAIL_CACHE_SECONDS, "a trusted tail must not outlive the slots it knows"
    if now < archived_at + grace * 1000:
        return 0
    return min(archived, state.slot - 1)
