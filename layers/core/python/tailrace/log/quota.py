"""Quotas: how many streams there may be below a prefix.

The setting has rules, `users/*/=100; chat/=5000`; the first whose prefix a path is below decides.
A prefix ends with `/`. A `*` is anything within one segment, and each match has a quota of its own:
`users/7/inbox` counts for `users/7/`. A path that no rule matches has no limit.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from tailrace.errors import BadSetting, TooManyStreams
from tailrace.limits import LIST_PAGE_STREAMS, QUOTA_STREAMS
from tailrace.log.paths import Rule, compile_pattern, parse_rules
from tailrace.log.state import Listed

List = Callable[[str, str, int], Awaitable[Sequence[Listed]]]
"""`Streams.list`: prefix, the path after which the page begins, and the length of the page."""

_COUNT: Final = re.compile(r"[1-9][0-9]{0,6}")


class Limit(NamedTuple):
    prefix: re.Pattern[str]
    streams: int
    """Most streams below what the prefix matches."""


class Quota(NamedTuple):
    limits: Sequence[Limit]

    @classmethod
    def parse(cls, text: str) -> Quota:
        return cls([_limit(rule) for rule in parse_rules(text)])

    def of(self, path: str) -> tuple[str, int] | None:
        """Return the prefix that a path is below and how many streams may be there, or None."""
        for limit in self.limits:
            prefix = limit.prefix.match(path)
            if prefix is not None:
                return prefix[0], limit.streams
        return None

    async def check(self, path: str, streams: List) -> None:
        """Raise `TooManyStreams` if a new stream at a path would exceed its quota.

        The streams are counted each time, so a creation costs a listing of the prefix; and
        concurrent creations may all take the last place."""
        limit = self.of(path)
        if limit is None:
            return
        prefix, most = limit
        if await _count(prefix, most, streams) < most:
            return
        # A repeated PUT creates nothing: it must succeed even where the quota is used up.
        same = await streams(path, "", 1)
        if not any(listed.stream.path == path for listed in same):
            raise TooManyStreams(
                f"there are {most} streams below '{prefix}', as many as there may be;"
                " delete one of them first"
            )


async def _count(prefix: str, most: int, streams: List) -> int:
    """Count the streams below a prefix, up to `most`."""
    count, after = 0, ""
    while count < most:
        limit = min(LIST_PAGE_STREAMS, most - count)
        page = await streams(prefix, after, limit)
        count += len(page)
        if len(page) < limit:
            break
        after = page[-1].stream.path
    return count


def _limit(rule: Rule) -> Limit:
    is_prefix = rule.pattern.endswith("/") and "**" not in rule.pattern
    if not is_prefix or not _COUNT.fullmatch(rule.value) or int(rule.value) > QUOTA_STREAMS:
        raise BadSetting(
            f"TAILRACE_STREAMS_PER_PREFIX has the rule '{rule.text}', but a rule is PREFIX/=N, with"
            f" * for one segment and N from 1 to {QUOTA_STREAMS}; such as users/*/=100"
        )
    return Limit(compile_pattern(rule.pattern), int(rule.value))
