"""The figures of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.dynamodb import prices
from bench.dynamodb.clients import AT_ONCE, Cost
from bench.dynamodb.lab import SMALL, entry_item
from bench.dynamodb.operations import APPEND, READ_TAIL
from bench.dynamodb.page import PAGE
from bench.dynamodb.races import (
    APART,
    CROWDS,
    DISTANCE,
    EMPTIED,
    ONE_ITEM,
    SLOTS,
    TRANSACTION,
    Race,
)
from bench.dynamodb.results import Measured, Run
from bench.dynamodb.units import WRITE_BYTES, item_bytes
from bench.report import ABSENT, figure, times
from tailrace.limits import POLL_MILLISECONDS
from tailrace.settings import Settings
from tailrace.streams import ATTEMPTS

HOURS_A_MONTH = 730
SECONDS_AN_HOUR = 3600
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Report:
    facts: Mapping[str, str]
    runs: Sequence[Run]
    """One per engine; calls and units are taken from the first."""
    rounds: int
    costs: Sequence[Cost]
    settings: Settings


def markdown(report: Report) -> str:
    settings, run = report.settings, report.runs[0]
    overhead = item_bytes(entry_item(SMALL)) - len(SMALL)
    return PAGE.format(
        facts=_table(["", ""], report.facts.items(), words=2),
        operations=_operations(report.runs),
        shares=SHARES if any(each.share < 1 for each in run.operations) else "",
        overhead=overhead,
        one_unit=WRITE_BYTES - overhead,
        fastest=POLL_MILLISECONDS / 1000,
        slowest=settings.poll_slowest,
        idle=_idle(run, settings),
        watched=run.idle.seconds,
        long_poll=settings.long_poll_timeout,
        processes=APART.processes,
        attempts=ATTEMPTS,
        races=_races(report.runs, lambda each: each.slots),
        slots=SLOTS,
        transaction=TRANSACTION,
        tip=ONE_ITEM,
        rounds=report.rounds,
        appends=EMPTIED,
        crowded=_crowded(),
        designs=_races(report.runs, _all_designs),
        clients=_clients(report.costs),
        where_and_when=prices.WHERE_AND_WHEN,
        write_price=prices.WRITE_UNITS,
        read_price=prices.READ_UNITS,
        put_price=prices.S3_PUTS,
        get_price=prices.S3_GETS,
        away=AWAY if _far(run) else "",
        cost=_cost(run),
    )


AWAY = """ The last rows
are those of the designs with DynamoDB far away, lost attempts included."""
SHARES = """
  A percentage says how many of the runs made exactly these calls, where not all did."""


def _operations(runs: Sequence[Run]) -> str:
    latencies = [f"{name} ms{_on(run, runs)}" for run in runs for name in ("p50", "p99")]
    header = ["operation", "calls", "round trips", "write units", "read units", *latencies, "n"]
    return _table(
        header,
        (
            [
                each.title,
                _calls(each),
                str(each.round_trips),
                _number(each.write),
                _number(each.read),
                *(
                    figure(value)
                    for run in runs
                    for same in [run.operation(each.title)]
                    for value in (same.p50, same.p99)
                ),
                str(each.times),
            ]
            for each in runs[0].operations
        ),
        words=2,
    )


def _idle(run: Run, settings: Settings) -> str:
    hour = run.idle.per_minute * SECONDS_AN_HOUR / 60
    renewals = SECONDS_AN_HOUR / settings.long_poll_timeout
    renewed = 2 * renewals * run.operation(READ_TAIL).read
    rows = {
        "a watched stream, first minute after an append": run.idle.first_minute,
        "a watched stream, each idle minute after that": run.idle.per_minute,
        "a watched stream, an idle hour": hour,
        "a watched stream, an idle month": hour * HOURS_A_MONTH,
        "a long-poll reader, an idle hour": renewed,
    }
    return _table(
        ["", "read units", "dollars"],
        (
            [name, f"{units:,.0f}", f"{prices.dynamodb(0, units) / MILLION:.6f}"]
            for name, units in rows.items()
        ),
    )


def _races(runs: Sequence[Run], races: Callable[[Run], Sequence[Race]]) -> str:
    header = ["design", "writers", "away", "write units", "read units", "attempts"]
    return _table(
        [*header, "appends/s", "p99 ms", "refused"],
        (
            [
                f"{race.design}{_on(run, runs)}",
                str(race.crowd),
                f"{DISTANCE * 1000:g} ms" if race.far else ABSENT,
                *map(figure, (race.write, race.read, race.attempts)),
                figure(race.per_second),
                figure(race.p99),
                str(race.refused),
            ]
            for run in runs
            for race in races(run)
        ),
        words=3,
    )


def _all_designs(run: Run) -> list[Race]:
    """Near ones first; only the store has several writers in a process share its writes."""
    wanted = [race for race in (*run.slots, *run.others) if race.crowd.writers == 1]
    return sorted(wanted, key=lambda race: (race.far, race.crowd.processes))


def _crowded() -> str:
    """How many appends several writers in a process make."""
    crowds = [f"{crowd.appends * crowd.logs:,}" for crowd in CROWDS if crowd.writers > 1]
    return " and ".join(crowds)


def _clients(costs: Sequence[Cost]) -> str:
    theirs = costs[0].microseconds
    return _table(
        ["client", *(f"µs, {number} at a time" for number in AT_ONCE), "boto3 takes"],
        (
            [
                each.client,
                *map(figure, each.microseconds),
                " / ".join(
                    times(other / own) for other, own in zip(theirs, each.microseconds, strict=True)
                ),
            ]
            for each in costs
        ),
    )


def _cost(run: Run) -> str:
    rows = [
        (each.title, prices.dynamodb(each.write, each.read), prices.s3(each.puts, each.gets))
        for each in run.operations
    ]
    rows += [
        (f"{APPEND}: {race.design}, {race.crowd}", prices.dynamodb(race.write, race.read), 0.0)
        for race in _all_designs(run)
        if race.far == _far(run)
    ]
    return _table(
        ["a million times", "DynamoDB", "S3", "together"],
        (
            [title, _dollars(table), _dollars(objects), _dollars(table + objects)]
            for title, table, objects in rows
        ),
    )


def _far(run: Run) -> bool:
    return any(race.far for race in run.slots)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1) -> str:
    """A table whose first columns are words and whose others are figures."""
    marks = ["---"] * words + ["---:"] * (len(header) - words)
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, marks, *rows))


def _calls(operation: Measured) -> str:
    share = "" if operation.share == 1 else f" ({operation.share:.0%})"
    return f"{operation.shape}{share}"


def _on(run: Run, runs: Sequence[Run]) -> str:
    return "" if len(runs) == 1 else f", {run.engine}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else figure(value)


def _dollars(value: float) -> str:
    return f"{value:,.3f}" if value else "0"
