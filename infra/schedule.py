"""When a job runs: the words of the switches, as expressions of AWS's."""

from __future__ import annotations

from typing import Final

PATTERN: Final = r"off|hourly|daily|weekly|cron\((\S+ ){5}\S+\)"
WANTED: Final = "off, hourly, daily, weekly or cron(minutes hours day month weekday year)"


def expression(when: str, *, hour: int, minute: int) -> str | None:
    """In UTC, at an hour and minute of the job's own; None: never."""
    words = {
        "off": None,
        "hourly": f"cron({minute} * * * ? *)",
        "daily": f"cron({minute} {hour} * * ? *)",
        "weekly": f"cron({minute} {hour} ? * SUN *)",
    }
    return words.get(when, when)


def hours_between(expression: str) -> int | None:
    """Hours within which a next run is due: one, or a day; None: more than that."""
    _, hours, day, month, weekday, _ = expression.removeprefix("cron(").removesuffix(")").split()
    if month != "*" or not {day, weekday} <= {"*", "?"}:
        return None
    return 1 if hours == "*" else 24
