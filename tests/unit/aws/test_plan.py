from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

from tailrace.aws import costs, prices
from tailrace.aws.costs import MONTH_SECONDS, total
from tailrace.aws.plan import (
    MODES,
    SERVICES,
    Workload,
    _appends,
    _bill,
    _live,
    explain,
    find_limits,
    plan,
)
from tailrace.cli import main

LONG_POLL, WEBSOCKET = MODES["long-poll"], MODES["WebSocket"]


def invoke(*args: str) -> Result:
    return CliRunner().invoke(main, ["plan", *args], catch_exceptions=False)


def test_an_idle_deployment_without_readers_costs_what_the_page_says() -> None:
    idle = costs.idle_month("prod")
    made = plan(Workload(rate=0, readers=0))
    assert made.total == pytest.approx(total(idle) - idle["firewall"])
    assert plan(Workload(rate=0, readers=0, firewall=True)).total == pytest.approx(total(idle))


def test_a_million_appends_cost_what_the_page_says() -> None:
    work = Workload(streams=1, rate=costs.MILLION / MONTH_SECONDS, size=190)
    assert total(_appends(work, LONG_POLL)) == pytest.approx(total(costs.million_appends()))


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("rate", [0, 0.2])
def test_the_readers_of_one_stream_cost_what_the_page_says(name: str, rate: float) -> None:
    work = Workload(streams=1, rate=rate, readers=100, size=0)
    expected = MODES[name].bill(100, rate)
    live = _live(work, MODES[name])
    assert live == pytest.approx(
        {**expected, "data": live.get("data", 0)} if "data" in expected else expected
    )


def test_larger_messages_cost_more_units_bytes_and_storage() -> None:
    small, large = (_bill(Workload(size=size), LONG_POLL) for size in (100, 10_000))
    assert large["DynamoDB: write"] == pytest.approx(10 * small["DynamoDB: write"])
    assert large["S3: storage"] == pytest.approx(100 * small["S3: storage"])
    assert large["scans by compaction"] > 30 * small["scans by compaction"]


def test_the_free_gigabytes_count_once_for_all_streams() -> None:
    work = Workload(streams=1000, rate=1, readers=10, size=400)
    sent = 1000 * 10 * MONTH_SECONDS * 1000 / 1e9
    expected = prices.EDGE_GIGABYTE.of(sent - costs.FREE_GIGABYTES)
    assert _live(work, LONG_POLL)["data"] == pytest.approx(expected)


def test_every_item_has_a_service_and_jobs_are_those_of_glue() -> None:
    items = {
        item for mode in MODES.values() for item in _bill(Workload(writers=2, firewall=True), mode)
    }
    assert {item.split("`")[1] for item in items - SERVICES.keys()} == {
        "compact-history", "export-history", "sweep", "audit",
    }  # fmt: skip
    assert SERVICES.keys() - items <= {"purges", "DynamoDB: polls"}, "no service is for nothing"


def test_the_cheapest_mode_is_chosen_and_explained() -> None:
    idle = Workload(streams=1, rate=0, readers=10_000)
    made = plan(idle)
    assert made.mode == "containers"
    assert made.total == made.modes[made.mode] == min(made.modes.values())
    assert explain(made, idle).startswith("long-poll of 116 s would cost $13")
    assert explain(made, idle).endswith("more, most of it for CloudFront")
    dear = plan(idle, "SSE, held")
    assert dear.total == max(made.modes.values())
    assert explain(dear, idle).endswith("less, most of it for Lambda")


def test_the_limit_that_binds_is_the_first() -> None:
    held = MODES["SSE, held"]
    first = find_limits(Workload(streams=10, readers=500), held)[0]
    assert first.what == "concurrent executions of Lambda"
    assert first.share == pytest.approx(5, rel=0.01)
    busy = Workload(streams=1, rate=900, readers=0)
    assert find_limits(busy, LONG_POLL)[0].what == "write units of one stream per second"
    large = replace(busy, rate=0.1, size=3 << 20)
    assert find_limits(large, LONG_POLL)[0].what == "bytes of a message"
    crowd = Workload(streams=1, rate=1, readers=10_000)
    first = find_limits(crowd, WEBSOCKET)[0]
    assert first.what == "calls of API Gateway per second"
    assert first.share == pytest.approx(4 / 3, rel=0.01), "messages, and pings"


def test_text_and_json_say_the_same() -> None:
    text = invoke("--streams", "5", "--retention", "12h").stdout
    printed = json.loads(invoke("--streams", "5", "--retention", "12h", "--json").stdout)
    assert printed["workload"]["retention"] == 0.5
    assert f"${printed['total']:,.2f}" in text
    assert printed["reason"] in text
    for service, dollars in printed["services"].items():
        assert any(
            line.split() == [*service.split(), f"${dollars:,.2f}"] for line in text.splitlines()
        )
    assert list(printed["modes"]) == list(MODES)
    assert printed["limits"][0]["what"] in text.splitlines()[-2]


def test_a_mode_is_refused_by_name() -> None:
    assert invoke("--mode", "WebSocket").exit_code == 0
    refused = invoke("--mode", "pigeon")
    assert refused.exit_code == 2
    assert "'pigeon' is none of: long-poll; " in refused.stderr
