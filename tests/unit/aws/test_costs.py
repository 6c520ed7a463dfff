"""The page of costs is computed, and the goals hold."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from devtools.processes import ROOT
from scripts import costs as written
from tailrace.aws import costs, prices
from tailrace.aws.costs import Bill
from tailrace.aws.prices import Price
from tailrace.protocols.subscriptions import items, table_stream
from tailrace.settings import Settings


@pytest.mark.parametrize("page", written.PAGES, ids=lambda page: page.name)
def test_a_page_has_the_computed_tables(page: Path) -> None:
    assert page.read_text("utf-8") == written.page(page), "`make costs` computes them"


def test_every_price_says_where_it_is_from() -> None:
    found = [price for price in vars(prices).values() if isinstance(price, Price)]
    assert len(found) > 20
    for price in found:
        assert price.dollars > 0
        assert price.page.startswith("https://aws.amazon.com/")
        assert price.verified is None or re.fullmatch(r"20\d\d-\d\d", price.verified)


def test_readers_are_polled_for_as_the_settings_say() -> None:
    settings, trip = Settings(), 0.005
    assert settings.poll_fastest + trip == costs.POLL_SECONDS
    assert settings.poll_slowest + trip == costs.QUIET_POLL_SECONDS


# The goals, without the firewall


def test_idle_readers_cost_what_their_requests_cost() -> None:
    bill = costs.longest_poll(10_000, 0)
    assert costs.total(bill) < 300
    assert bill["CloudFront"] + bill["its functions"] > 0.8 * costs.total(bill)


def test_ten_thousand_readers_of_containers() -> None:
    for firewall in (False, True):
        assert costs.total(costs.containers(10_000, 1, firewall=firewall)) < 1500


def test_ten_thousand_idle_readers_of_containers() -> None:
    for firewall in (False, True):
        bill = costs.containers(10_000, 0, firewall=firewall)
        assert costs.total(bill) - bill["load balancer"] - bill["endpoints"] < 100


def test_containers_are_for_large_audiences_and_functions_for_small_ones() -> None:
    for writes in written.PACES.values():
        assert written.cheapest_by_http(1, writes)[1] != "containers"
        assert written.cheapest_by_http(10_000, writes)[1] == "containers"


def test_a_million_appends_over_their_lives() -> None:
    assert costs.total(costs.million_appends()) < 3


def test_a_waiting_stream() -> None:
    assert costs.total(costs.waiting_stream()) < 15


def test_a_million_streams_that_expire_purge_nothing() -> None:
    bill = costs.short_streams()
    assert bill["purges"] == 0
    assert costs.total(bill) < 10


# By hand


def test_lambda_bills_requests_and_gigabyte_seconds() -> None:
    assert costs.invocations(1e6, 1024, 0.02) == pytest.approx(0.20 + 0.2667, abs=1e-4)


@pytest.mark.parametrize(("poll", "seconds"), [(costs.long_poll, 25), (costs.longest_poll, 116)])
def test_a_reader_who_waits_asks_after_each_wait(poll: Callable[..., Bill], seconds: int) -> None:
    bill = poll(10_000, 0)
    requests = 10_000 * 730 * 3600 / seconds
    assert bill["CloudFront"] == pytest.approx(requests * 1e-6)
    assert bill["its key-value store"] == pytest.approx(requests * 0.03e-6)


def test_containers_are_added_by_connections_and_by_deliveries() -> None:
    assert costs.containers_needed(100, 1, 2) == 2
    assert costs.containers_needed(20_000, 0, 2) == 4
    assert costs.containers_needed(10_000, 10, 2) == math.ceil(100_000 * 20e-6 / 0.5 / 0.6)


def test_appends_that_come_often_share_lines() -> None:
    alone, often = costs.log_lines(1e6, 0), costs.log_lines(1e6, 1)
    assert alone == pytest.approx(0.34, abs=0.005)
    assert often < alone / 8


def test_idle_subscriptions_cost_a_few_cents() -> None:
    assert costs.idle_subscriptions() < 0.10
    assert 0.5 * len(items.due_partitions()) == costs.DUE_READS
    assert costs.TIMER_RENEWAL_SECONDS * 1000 == table_stream.LEASE_MS - table_stream.RENEW_MS


def test_the_cost_of_wakes_is_on_their_page() -> None:
    page = (ROOT / "docs" / "subscriptions.md").read_text()
    for kind in costs.WAKE_UNITS:
        assert f"${costs.total(costs.million_wakes(kind)):.0f} per million" in page
    assert f"at most ${costs.busy_timer():.0f} a month" in page
    assert f"${costs.idle_subscriptions():.2f} a month" in page
