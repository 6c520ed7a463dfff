"""Schedules of jobs: the values of the switches as cron expressions."""

from __future__ import annotations

from typing import Final

PATTERN: Final = r"off|hourly|daily|weekly|cron\((\S+ ){5}\S+\)"
EXPECTED: Final = "off, hourly, daily, weekly or cron(minutes hours day month weekday year)"


def cron_expression(schedule: str, *, hour: int, minute: int) -> str | None:
    """`hour` and `minute`: the job's own start time in UTC. None: never."""
    expressions = {
        "off": None,
        "hourly": f"cron({minute} * * * ? *)",
        "daily": f"cron({minute} {hour} * * ? *)",
        "weekly": f"cron({minute} {hour} ? * SUN *)",
    }
    return expressions.get(schedule, schedule)


def hours_between(expression: str) -> int | None:
    """The interval between runs, 1 or 24 hours; None: longer."""
    _, hours, day, month, weekday, _ = expression.removeprefix("cron(").removesuffix(")").split()
    if month != "*" or not {day, weekday} <= {"*", "?"}:
        return None
    return 1 if hours == "*" else 24
