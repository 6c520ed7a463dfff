"""docs/deploying.md says everything that a deployment has."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from devtools.processes import ROOT
from infra.stage import PRICE_CLASSES, Plan
from scripts.package import LAYERS
from scripts.package_glue import JOBS
from tests.integration.infra.conftest import stacks_of
from tests.integration.infra.stacks import Stacks
from tests.integration.infra.test_functions import MAY
from tests.integration.infra.test_history import MAY as JOBS_MAY
from tests.integration.infra.test_history import schedules
from tests.integration.infra.test_observe import alarms

PAGE = (ROOT / "docs" / "deploying.md").read_text()


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(title: str) -> dict[str, list[str]]:
    """The rows of a section's table by the names, in backquotes, that their first cell has."""
    table = [line for line in section(title).splitlines() if line.startswith("| ")]
    lines = [line.strip("| ").split(" | ") for line in table]
    return {name: cells for cells in lines for name in re.findall(r"`([^`]+)`", cells[0])}


def test_every_switch_is_listed() -> None:
    assert rows("Switches").keys() == {field.name for field in fields(Plan)}


@pytest.mark.parametrize(("column", "stage"), [(1, "dev"), (2, "prod")])
def test_the_defaults_are_the_listed_ones(
    monkeypatch: pytest.MonkeyPatch, column: int, stage: str
) -> None:
    monkeypatch.delenv("CDK_DEFAULT_REGION", raising=False)
    plan = Plan.read({"stage": stage})
    price_classes = {name: each for each, name in PRICE_CLASSES.items()}
    for switch, cells in rows("Switches").items():
        default = getattr(plan, switch)
        if switch == "stage":
            shown = default.value
        elif switch == "price_class":
            shown = price_classes[default]
        elif isinstance(default, bool):
            shown = str(default).lower()
        elif default is None and switch.endswith("_concurrency"):
            shown = "0"
        else:
            shown = default or None
        if shown is not None:
            assert cells[column].strip() == f"`{shown}`", switch
        else:
            assert "`" not in cells[column], switch


def test_every_output_is_listed(dev: Stacks) -> None:
    containers = stacks_of("containers").templates["tailrace-prod"]["Outputs"]
    outputs = set(dev.templates["tailrace-dev"]["Outputs"]) | {"TableName", "BucketName"}
    outputs |= containers.keys()
    assert rows("First requests").keys() == outputs


def test_every_alarm_is_listed(dev: Stacks, prod: Stacks) -> None:
    every = alarms(dev).keys() | alarms(prod).keys() | alarms(stacks_of("containers")).keys()
    assert rows("Alarms").keys() == every | {"JobFailed"}


@pytest.mark.parametrize("name", list(LAYERS))
def test_functions_and_their_permissions_are_listed(dev: Stacks, name: str) -> None:
    _, _, memory, time, may = rows("What it is made of")[name]
    seconds = dev.function(name)["Timeout"]
    assert set(re.findall(r"`([\w-]+:\w+)`", may)) == MAY[name]
    assert memory.startswith(f"{dev.function(name)['MemorySize']} MB")
    assert time.startswith(f"{seconds} s" if seconds < 900 else f"{seconds // 60} min")


@pytest.mark.parametrize("name", JOBS)
def test_jobs_with_schedules_and_permissions_are_listed(
    dev: Stacks, prod: Stacks, name: str
) -> None:
    _, _, *when, may = rows("History")[name]
    assert set(re.findall(r"`(\w+:\w+)`", may)) == JOBS_MAY[name]
    for stacks, shown in zip((dev, prod), when, strict=True):
        schedule = schedules(stacks).get(name)
        assert shown.strip() == said(schedule)


def said(schedule: str | None) -> str:
    """A schedule in words."""
    if schedule is None:
        return "never"
    minute, hour, _, _, weekday, _ = schedule.removeprefix("cron(").split()
    if hour == "*":
        return f"{minute} minutes past each hour"
    time = f"{int(hour):02}:{int(minute):02}"
    return f"Sundays {time}" if weekday == "SUN" else time
