"""Write the tables of `docs/deploying.md` that say what the service costs.

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
        ("1 M appends of 100 B over their lives, `cable=false`", costs.million_appends(), 0.6),
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
                ["", "`cable=false`", "WebSockets", "and `traces=true`, environments take turns"],
                costs.million_appends(),
                costs.million_appends(cables=True),
                costs.million_appends(cables=True, stale=True, traces=True),
            ),
            "An idle month:\n",
            items(["", "dev", "prod"], costs.idle_month("dev"), costs.idle_month("prod")),
        ]
    )


def page(text: str) -> str:
    """The page with current tables."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + tables() + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
