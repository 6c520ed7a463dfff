"""Quotas: how many streams there may be below a prefix.

The setting has rules, `users/*/=100; chat/=5000`, of which the first that a path is below decides.
A prefix ends with `/`; a `*` is anything within one segment, and what it stands for has a quota of
its own: `users/7/inbox` counts for `users/7/`. Where no rule matches there is no limit.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from tailrace.errors import BadSetting, TooManyStreams
from tailrace.limits import LIST_PAGE, QUOTA_STREAMS
from tailrace.log.path_patterns import compiled
from tailrace.log.state import Listed

List = Callable[[str, str, int], Awaitable[Sequence[Listed]]]
"""`Streams.list`: a prefix, the path to go on after, and how many."""

_COUNT: Final = re.compile(r"[1-9][0-9]{0,6}")


class Rule(NamedTuple):
    prefix: re.Pattern[str]
    most: int


class Quota(NamedTuple):
    rules: Sequence[Rule]

    @classmethod
    def parse(cls, text: str) -> Quota:
        return cls([_rule(each.strip()) for each in text.split(";") if each.strip()])

    def of(self, path: str) -> tuple[str, int] | None:
        """The prefix that a path is below and how many streams may be there, or no limit."""
        for rule in self.rules:
            above = rule.prefix.match(path)
            if above is not None:
                return above[0], rule.most
        return None

    async def check(self, path: str, streams: List) -> None:
        """Raises `TooManyStreams` unless there is room for a stream at a path, or it is there.

        What is there is counted each time, so a creation costs a listing of the prefix; and who
        create at the same moment may all find the last place free."""
        limit = self.of(path)
        if limit is None:
            return
        prefix, most = limit
        if await _count(prefix, most, streams) < most:
            return
        # A repeated PUT creates nothing, and is answered as ever.
        there = await streams(path, "", 1)
        if not any(listed.stream.path == path for listed in there):
            raise TooManyStreams(
                f"there are {most} streams below '{prefix}', as many as there may be;"
                " delete one of them first"
            )


async def _count(prefix: str, most: int, streams: List) -> int:
    """How many streams are below a prefix; of more than `most` no more are looked at."""
    count, after = 0, ""
    while count < most:
        asked = min(LIST_PAGE, most - count)
        page = await streams(prefix, after, asked)
        count += len(page)
        if len(page) < asked:
            break
        after = page[-1].stream.path
    return count


def _rule(text: str) -> Rule:
    prefix, _, most = (part.strip() for part in text.rpartition("="))
    known = prefix.endswith("/") and "**" not in prefix and _COUNT.fullmatch(most)
    if not known or int(most) > QUOTA_STREAMS:
        raise _bad(text)
    return Rule(compiled(prefix), int(most))


def _bad(rule: str) -> BadSetting:
    return BadSetting(
        f"TAILRACE_STREAMS_PER_PREFIX has the rule '{rule}', but a rule is PREFIX/=N, with * for"
        f" one segment and N from 1 to {QUOTA_STREAMS}; such as users/*/=100"
    )
