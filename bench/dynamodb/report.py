"""The figures of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.dynamodb import prices
from bench.dynamodb.clients import AT_ONCE, Cost
from bench.dynamodb.lab import SMALL, entry_item
from bench.dynamodb.measure import Simulated
from bench.dynamodb.operations import APPEND
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
from bench.dynamodb.spread import Spread
from bench.dynamodb.units import WRITE_BYTES, item_bytes
from bench.dynamodb.virtual import LONG_POLL_SECONDS
from bench.report import ABSENT, figure, times
from tailrace.limits import POLLS_PER_SECOND, RECENT_SECONDS
from tailrace.settings import Settings
from tailrace.streams import ATTEMPTS

SECONDS_A_MONTH = 730 * 3600
MILLION = 1_000_000
WAIT_MEGABYTES = 256
"""Of a function that only waits."""


@dataclass(frozen=True, slots=True)
class Report:
    facts: Mapping[str, str]
    runs: Sequence[Run]
    """One per engine; calls and units are taken from the first."""
    simulated: Simulated
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
        fastest=settings.poll_fastest,
        slowest=settings.poll_slowest,
        recent=RECENT_SECONDS // 60,
        quiet=RECENT_SECONDS * settings.poll_slowest / settings.poll_fastest / 60,
        polls=POLLS_PER_SECOND,
        delivered=_deliveries(report.simulated),
        waits=_waiting(report.simulated),
        megabytes=WAIT_MEGABYTES,
        long_poll=LONG_POLL_SECONDS,
        spreads=_spreads(report),
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


def _deliveries(simulated: Simulated) -> str:
    return _table(
        ["reader", "appended by", "stream", "p50 ms", "p99 ms", "n"],
        (
            [
                each.mode,
                "the same process" if each.same_process else "another process",
                "quiet for hours" if each.quiet else "with news",
                figure(each.p50),
                figure(each.p99),
                str(each.times),
            ]
            for each in simulated.deliveries
        ),
        words=3,
    )


def _waiting(simulated: Simulated) -> str:
    """The price of a stream that is long-polled all the time."""
    requests = SECONDS_A_MONTH / LONG_POLL_SECONDS
    function = prices.function(SECONDS_A_MONTH, WAIT_MEGABYTES, requests) / MILLION
    rows = []
    for name, per_second in (
        ("with news all the time", simulated.waiting.news),
        ("quiet all the time", simulated.waiting.quiet),
    ):
        table = prices.dynamodb(0, per_second * SECONDS_A_MONTH) / MILLION
        rows.append(
            [
                name,
                f"{per_second * 60:,.0f}",
                *(f"{dollars:.2f}" for dollars in (table, function, table + function)),
            ]
        )
    return _table(
        ["a waiting stream", "read units a minute", "DynamoDB", "function", "dollars a month"], rows
    )


def _spreads(report: Report) -> str:
    """Those in virtual time first."""
    rows: list[tuple[str, Spread]] = [("virtual time", each) for each in report.simulated.spreads]
    rows += [(run.engine, each) for run in report.runs for each in run.spreads]
    header = ["environments", "appends/s", "on", "write units", "read units", "round trips"]
    return _table(
        [*header, "p50 ms", "p99 ms", "a million, $"],
        (
            [
                str(each.environments),
                f"{each.per_second:g}",
                engine,
                *(f"{value:.2f}" for value in (each.write, each.read, each.round_trips)),
                *map(figure, (each.p50, each.p99)),
                f"{prices.dynamodb(each.write, each.read):.3f}",
            ]
            for engine, each in rows
        ),
        words=3,
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
