"""The items of subscriptions: what is written is read back, under the keys that are documented."""

from __future__ import annotations

import re

import pytest

from tailrace.log.offsets import token
from tailrace.protocols.subscriptions import items
from tailrace.protocols.subscriptions.core.records import Link, Phase
from tailrace.protocols.subscriptions.store import IndexedLink
from tests.unit.subscriptions.test_wakes import PULL, WEBHOOK, held, waiting

DOCUMENT = items.__doc__ or ""


@pytest.mark.parametrize("record", [PULL, WEBHOOK, waiting(), held()])
def test_a_record_is_read_back(record: object) -> None:
    assert isinstance(record, type(PULL))
    assert items.subscription_of(items.subscription_item(record, "attempt")) == record


def test_only_what_is_due_is_in_the_index() -> None:
    def marks(record: type(PULL)) -> dict[str, str]:  # type: ignore[valid-type]
        item = items.subscription_item(record, "a")
        return {name: next(iter(item[name].values())) for name in ("todo", "d") if name in item}

    assert marks(PULL) == {}
    assert marks(waiting()) == {"todo": Phase.WAITING, "d": str(waiting().due_at)}
    assert marks(held()) == {"d": str(held().due_at)}


@pytest.mark.parametrize(
    "link",
    [
        Link("a/1"),
        Link("a/1", explicit=True),
        Link("a/1", 7, 3, glob=True, acked=token(1, 5, 3), tail=token(2, 9, 3)),
        Link("a/1", 2**62 - 1, 8999, explicit=True, glob=True),
    ],
)
def test_a_link_is_read_back(link: Link) -> None:
    assert items.link_of(items.link_item("uid", link)) == link


def test_the_index_is_read_back() -> None:
    follower = IndexedLink("s", "uid", "a/1")
    assert items.follower_of(items.follower_item(7, follower)) == follower
    pattern = items.pattern_of(items.pattern_item(PULL))
    assert pattern == items.Pattern("s", "a/*", "wakes")
    assert items.pattern_item(PULL)["p"] == {"S": "YGa"}


def test_every_attribute_is_documented() -> None:
    written = [
        items.subscription_item(held(), "a") | items.subscription_item(waiting(), "a"),
        items.link_item("uid", Link("a/1", 7)),
        items.news_item("uid", "a/1"),
        items.follower_item(7, IndexedLink("s", "uid", "a/1")),
        items.interest_item("a/1", PULL),
        items.pattern_item(PULL),
        {"timer_owner": {}, "held_until": {}},
    ]
    names = {name for item in written for name in item} - {"p", "s"}
    table = DOCUMENT.partition("| attribute")[2]
    cells = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    documented = re.findall(r"`(\w+)`", "".join(cells))
    assert sorted(documented) == sorted(names)
