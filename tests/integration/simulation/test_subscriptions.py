"""Subscriptions in any schedule: every message is processed, cursors never go back, and a
generation has one holder.

A seed is a story. TEST_SEED is the first one, TEST_SEEDS how many are tried in all; tests/slow has
thousands.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from devtools.dynamodb_simulator.loop import run
from devtools.dynamodb_simulator.network import Faults
from tailrace.protocols.subscriptions import items, runner
from tailrace.protocols.subscriptions.core.records import DurableSubscription, Link, offset_of
from tests.integration.simulation.subscriptions import FunctionWorld, SubscriptionWorld, Trouble

FIRST = int(os.environ.get("TEST_SEED", "0"))
SEEDS = int(os.environ.get("TEST_SEEDS", "14"))
STEPS = 1_500_000

TROUBLES = {
    "calm": Trouble(),
    "workers": Trouble(deaths=0.3, failures=0.2),
    "servers": Trouble(kills=0.15, deaths=0.1, failures=0.2, faults=Faults.some(0.01)),
    "clocks": Trouble(jumps=0.3, deaths=0.2, failures=0.3),
    "functions": Trouble(kills=0.3, deaths=0.1, failures=0.2, faults=Faults.some(0.005)),
    "functions and streams": Trouble(kills=0.1, deletions=0.1, failures=0.1, jumps=0.1),
    "streams": Trouble(deletions=0.15, deaths=0.1, failures=0.1, kills=0.05),
}
STORIES = range(FIRST, FIRST + max(1, SEEDS // len(TROUBLES)))


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Only the errors of the log, which `Bugs` looks through."""
    caplog.set_level(logging.ERROR, "tailrace")


class Bugs(logging.Filter):
    """Collects errors of the runner that no fault explains."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info:
            self.found.append(f"{record.getMessage()}: {record.exc_info[1]!r}")
        return False


FUNCTIONS = "functions"
"""Where functions do what servers do otherwise."""


def play(trouble: str, seed: int) -> SubscriptionWorld:
    kind = FunctionWorld if trouble.startswith(FUNCTIONS) else SubscriptionWorld
    world, bugs = kind(TROUBLES[trouble], seed), Bugs()
    runner.logger.addFilter(bugs)
    runner.logger.disabled = False
    try:
        run(seed, world.run, steps=STEPS)
        judge(world)
        assert bugs.found == []
    except Exception as error:
        again = f'TEST_SEED={seed} TEST_SEEDS=1 make test ARGS="-k schedule_of_sub[{trouble}]"'
        raise AssertionError(f"{trouble}, seed {seed}: {error}\nAgain: {again}") from error
    finally:
        runner.logger.removeFilter(bugs)
    return world


def judge(world: SubscriptionWorld) -> None:
    """Check what was stored, change by change."""
    records: dict[str, DurableSubscription] = {}
    holders: dict[tuple[str, int], str] = {}
    links: dict[tuple[str, str], Link] = {}
    for change in world.table.changes:
        partition, item = change.key[0], change.after
        if items.is_subscription(partition) and item is not None:
            record = items.subscription_of(item)
            before = records.get(record.uid)
            assert before is None or record.version == before.version + 1
            assert before is None or record.generation - before.generation in (0, 1)
            if record.holder is not None:
                generation = record.uid, record.generation
                assert holders.setdefault(generation, record.holder) == record.holder
            records[record.uid] = record
        if partition.startswith("YL") and item is None:
            links.pop((partition, change.key[1]), None)
        if partition.startswith("YL") and item is not None and "acked_offset" in item:
            link, key = items.link_of(item), (partition, change.key[1])
            old = links.get(key)
            if old is not None and old.stream == link.stream:
                assert offset_of(link.acked) >= offset_of(old.acked), f"{link.path} goes back"
            links[key] = link
    for record in records.values():
        assert record.pending_links == 0
    ids = {items.link_partition(uid): record.id for uid, record in records.items()}
    for (partition, _), link in links.items():
        if link.stream is not None:
            processed = world.processed[ids[partition], link.path + link.tail[:4]]
            assert processed == offset_of(link.acked), f"{link.path} is not processed"


def stories(trouble: str) -> Iterator[SubscriptionWorld]:
    for seed in STORIES:
        yield play(trouble, seed)


@pytest.mark.parametrize("trouble", TROUBLES)
def test_every_schedule_of_subscriptions_keeps_every_promise(trouble: str) -> None:
    for world in stories(trouble):
        assert {"appended", "claimed", "done"} <= world.seen


def test_one_seed_is_one_story_of_subscriptions() -> None:
    one, again = play("servers", FIRST), play("servers", FIRST)
    assert one.table.story() == again.table.story()
