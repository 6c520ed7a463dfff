"""Quotas: rules from text, and what is counted when a stream is created."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tailrace.app import choose_store
from tailrace.clock import system_clock
from tailrace.configuration import load_settings
from tailrace.errors import BadSetting, TooManyStreams
from tailrace.limits import LIST_PAGE_STREAMS, QUOTA_STREAMS
from tailrace.log.create import Create
from tailrace.log.quota import Quota
from tailrace.log.state import Listed
from tailrace.settings import Settings
from tailrace.streams import Streams
from tailrace.web.statuses import error_response

CREATE = Create(b"", "text/plain", None, None, False, None)


@pytest.mark.parametrize(
    ("rules", "path", "limit"),
    [
        ("", "a/b", None),
        (" ; ", "a/b", None),
        ("chat/=50", "chat/a", ("chat/", 50)),
        ("chat/=50", "chat/a/b", ("chat/", 50)),
        ("chat/=50", "chat", None),
        ("chat/=50", "chatter/a", None),
        ("chat/=50", "x/chat/a", None),
        ("users/*/=7", "users/ada/a", ("users/ada/", 7)),
        ("users/*/=7", "users/ada/a/b", ("users/ada/", 7)),
        ("users/*/=7", "users/ada", None),
        ("*/*/=7", "a/b/c", ("a/b/", 7)),
        ("team-*/=7", "team-1/a", ("team-1/", 7)),
        ("a.c/=7", "abc/x", None),
        ("grüße/=7", "gr%C3%BC%C3%9Fe/x", ("gr%C3%BC%C3%9Fe/", 7)),
        ("a=b/=7", "a=b/x", ("a=b/", 7)),
        (" users/ada/ = 9 ; users/*/ = 1 ;", "users/ada/a", ("users/ada/", 9)),
        (" users/ada/ = 9 ; users/*/ = 1 ;", "users/bob/a", ("users/bob/", 1)),
    ],
)
def test_the_first_rule_that_a_path_is_below_decides(
    rules: str, path: str, limit: tuple[str, int] | None
) -> None:
    assert Quota.parse(rules).of(path) == limit


@pytest.mark.parametrize(
    "rule",
    ["chat", "chat/", "chat=5", "=5", "chat/=", "chat/=0", "chat/=-1", "chat/=1.5", "chat/=many",
     "**/=5", "a/**/=5", "chat/=٣", f"chat/={QUOTA_STREAMS + 1}", "chat/=99999999999"],
)  # fmt: skip
def test_an_invalid_rule_is_rejected(rule: str) -> None:
    with pytest.raises(BadSetting, match=r"^TAILRACE_STREAMS_PER_PREFIX .* such as users/\*/=100$"):
        load_settings({"TAILRACE_STREAMS_PER_PREFIX": f"ok/=1;{rule}"})


@pytest.fixture
async def streams(tmp_path: Path) -> AsyncIterator[Streams]:
    settings = Settings(data=str(tmp_path / "data"))
    store = choose_store(settings, system_clock)
    await store.open()
    yield Streams(store, settings, system_clock)
    await store.close()


async def test_no_more_streams_than_there_may_be(streams: Streams) -> None:
    quota = Quota.parse("users/*/=3")
    for name in "abc":
        await quota.check(f"users/ada/{name}", streams.list)
        await streams.create(f"users/ada/{name}", CREATE)
    with pytest.raises(TooManyStreams, match="there are 3 streams below 'users/ada/'") as refused:
        await quota.check("users/ada/d", streams.list)
    assert error_response(refused.value).status == 403
    await quota.check("users/bob/d", streams.list)
    await quota.check("news", streams.list)


async def test_an_existing_stream_may_be_created_again(streams: Streams) -> None:
    quota = Quota.parse("a/=2")
    for path in ("a/b", "a/bc"):
        await streams.create(path, CREATE)
    await quota.check("a/b", streams.list)
    await quota.check("a/bc", streams.list)
    with pytest.raises(TooManyStreams):
        await quota.check("a/bb", streams.list)


async def test_a_deleted_stream_makes_room(streams: Streams) -> None:
    quota = Quota.parse("a/=1")
    await streams.create("a/b", CREATE)
    await streams.delete("a/b")
    await quota.check("a/c", streams.list)


async def test_counting_goes_page_by_page_and_no_further_than_it_has_to(streams: Streams) -> None:
    asked: list[tuple[str, str, int]] = []

    async def listed(prefix: str, after: str, limit: int) -> list[Listed]:
        asked.append((prefix, after, limit))
        first = int(after.rpartition("/")[2] or 0) + 1
        return [entry._replace(stream=entry.stream._replace(path=f"a/{first + n}"))
                for n in range(limit)]  # fmt: skip

    await streams.create("x", CREATE)
    (entry,) = await streams.list("x", "", 1)
    with pytest.raises(TooManyStreams):
        await Quota.parse(f"a/={LIST_PAGE_STREAMS + 10}").check("a/new", listed)
    assert asked == [
        ("a/", "", LIST_PAGE_STREAMS),
        ("a/", f"a/{LIST_PAGE_STREAMS}", 10),
        ("a/new", "", 1),
    ]


async def test_without_a_rule_nothing_is_counted() -> None:
    async def never(prefix: str, after: str, limit: int) -> list[Listed]:
        raise AssertionError((prefix, after, limit))

    await Quota.parse("a/=1").check("b/c", never)
