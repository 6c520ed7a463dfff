"""Write the tables of `docs/deploying.md` and `docs/modes.md` that say what the service costs.

`make costs` writes them; a test fails when they are out of date.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tailrace.aws import costs
from tailrace.aws.costs import Bill, total

PAGE: Final = Path(__file__).parent.parent / "docs" / "deploying.md"
MODES_PAGE: Final = PAGE.with_name("modes.md")
BEGIN: Final = "<!-- `make costs` writes what follows -->\n"
END: Final = "<!-- to here -->\n"

RATES: Final = {"idle": 0.0, "1 write in 5 s": 0.2, "1 write/s": 1.0}
Mode = Callable[..., Bill]
MODES: Final[Mapping[str, Mode]] = {
    "long-poll": costs.long_poll,
    f"long-poll, `long_poll_timeout={costs.LONGEST_WAIT_SECONDS}`": costs.longest_poll,
    "SSE, shared": costs.shared_sse,
    "SSE, held": costs.held_sse,
    "WebSocket": costs.websockets,
    "containers": costs.containers,
}


def dollars(amount: float) -> str:
    """To the cent below 100, then to three digits."""
    if amount == 0:
        return "\N{EN DASH}"
    if amount < 0.005:
        return "$0.00"
    if amount < 100:
        return f"${amount:.2f}"
    digits = 2 - math.floor(math.log10(amount))
    return f"${round(amount, min(0, digits)):,.0f}"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def workloads() -> str:
    rows: list[tuple[str, Bill, float]] = [
        (
            "1 M appends of 100 B over their lives, without cables and subscriptions",
            costs.million_appends(),
            0.6,
        ),
        ("the same with WebSockets", costs.million_appends(cables=True), 0.6),
        (
            "the same if environments take turns, and with traces",
            costs.million_appends(cables=True, stale=True, traces=True),
            0.6,
        ),
        ("1 M short streams: created with one entry, closed, expired", costs.short_streams(), 0.6),
        ("a stream with a waiting reader, polled every 25 ms, a month", costs.waiting_stream(), 0),
        ("the same after a long silence", costs.waiting_stream(quiet=True), 0),
    ]
    return table(
        ["", "firewall off", "on"],
        [[what, dollars(total(bill)), dollars(total(bill) + on)] for what, bill, on in rows],
    )


def readers() -> str:
    rows = []
    for mode, bill in MODES.items():
        for rate, writes in RATES.items():
            amounts = [
                total(bill(count, writes, firewall=firewall))
                for count in (100, 10_000)
                for firewall in (False, True)
            ]
            rows.append([mode, rate, *map(dollars, amounts)])
    return table(["readers by", "", "100", "with firewall", "10,000", "with firewall"], rows)


# Which mode when

AUDIENCES: Final = (1, 100, 1_000, 10_000, 100_000)
PACES: Final = {"idle": 0.0, "1 write in 5 s": 0.2, "1 write/s": 1.0, "10 writes/s": 10.0}
MOST_HELD: Final = 1_000
"""Readers of server-sent events that functions hold at all: the concurrency of an account."""
MOST_SOCKETS: Final = 20_000
"""WebSockets through API Gateway that the heartbeat is made for."""
CHOICES: Final[Mapping[str, tuple[Mode, int | None]]] = {
    "long-poll": (costs.long_poll, None),
    "SSE, held": (costs.held_sse, MOST_HELD),
    "WebSocket": (costs.websockets, MOST_SOCKETS),
    "containers": (costs.containers, None),
    "cables of containers": (costs.contained_cables, None),
}
BY_HTTP: Final = ("long-poll", "SSE, held", "containers")


def price(choice: str, count: int, writes: float) -> float | None:
    """None: it does not serve so many."""
    bill, most = CHOICES[choice]
    return None if most is not None and count > most else total(bill(count, writes))


def cheapest_by_http(count: int, writes: float) -> tuple[float, str]:
    """The price and the name of the cheapest way for clients that use HTTP."""
    prices = {name: price(name, count, writes) for name in BY_HTTP}
    return min((each, name) for name, each in prices.items() if each is not None)


def cheapest() -> str:
    rows = []
    for count in AUDIENCES:
        found = [cheapest_by_http(count, writes) for writes in PACES.values()]
        rows.append([f"{count:,}", *(f"{name}: {dollars(least)}" for least, name in found)])
    return table(["readers of one stream", *PACES], rows)


def choices() -> str:
    rows = []
    for name in CHOICES:
        for rate, writes in PACES.items():
            amounts = [price(name, count, writes) for count in AUDIENCES]
            cells = ["" if each is None else dollars(each) for each in amounts]
            rows.append([name, rate, *cells])
    return table(["", "", *(f"{count:,}" for count in AUDIENCES)], rows)


def modes() -> str:
    busy, idle = costs.containers(10_000, 1), costs.containers(10_000, 0)
    return "\n".join(
        [
            "The cheapest for readers of one stream by HTTP, and what it costs in a month:\n",
            cheapest(),
            "Every way, a month:\n",
            choices(),
            "10,000 readers of containers, item by item:\n",
            items(["", "1 write/s", "idle"], busy, idle),
        ]
    )


def items(head: list[str], *bills: Bill) -> str:
    names = dict.fromkeys(name for bill in bills for name in bill)
    rows = [[name, *(dollars(bill.get(name, 0)) for bill in bills)] for name in names]
    return table(head, [*rows, ["total", *(f"**{dollars(total(bill))}**" for bill in bills)]])


def tables() -> str:
    return "\n".join(
        [
            "What a workload costs:\n",
            workloads(),
            "What an audience of one stream costs in a month:\n",
            readers(),
            "A million appends in a month, item by item:\n",
            items(
                [
                    "",
                    "without cables and subscriptions",
                    "with both",
                    "and `traces=true`, environments take turns",
                ],
                costs.million_appends(),
                costs.million_appends(cables=True),
                costs.million_appends(cables=True, stale=True, traces=True),
            ),
            "An idle month:\n",
            items(["", "dev", "prod"], costs.idle_month("dev"), costs.idle_month("prod")),
        ]
    )


PAGES: Final[Mapping[Path, Callable[[], str]]] = {PAGE: tables, MODES_PAGE: modes}


def page(path: Path) -> str:
    """A page with current tables."""
    before, rest = path.read_text("utf-8").split(BEGIN)
    return before + BEGIN + "\n" + PAGES[path]() + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    for each in PAGES:
        each.write_text(page(each), "utf-8")
