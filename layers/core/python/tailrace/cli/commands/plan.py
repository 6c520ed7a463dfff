"""`tailrace plan`: what a workload costs on AWS."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

import click

from tailrace.cli.options import Duration, Output, format_table
from tailrace.limits import MAX_INTEGER

DAY: Final = 86_400
COUNT: Final = click.IntRange(0, MAX_INTEGER)


@click.command()
@click.option(
    "--streams",
    type=click.IntRange(1, MAX_INTEGER),
    default=100,
    show_default=True,
    help="Number of streams in use.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0, 1e6),
    default=0.1,
    show_default=True,
    help="Messages per second that are appended to each stream.",
)
@click.option(
    "--writers",
    type=click.IntRange(1, MAX_INTEGER),
    default=1,
    show_default=True,
    help="Clients that append to each stream.",
)
@click.option(
    "--readers",
    type=COUNT,
    default=10,
    show_default=True,
    help="Clients that wait for news of each stream, all the time.",
)
@click.option("--size", type=COUNT, default=200, show_default=True, help="Bytes of a message.")
@click.option(
    "--retention",
    type=Duration(),
    default="30d",
    show_default=True,
    help="How long messages are kept: 12h, 30d.",
)
@click.option("--mode", metavar="NAME", help="How clients wait for news.  [default: the cheapest]")
@click.option("--firewall/--no-firewall", default=False, help="With the web firewall.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(mode: str | None, retention: int, as_json: bool, **workload: Any) -> None:
    """Estimate the monthly bill of a deployment on AWS.

    Prints the dollars by service, the limits that the workload meets first, and the ways to wait
    for news with their prices. The prices are list prices, without free tiers of the account.
    """
    from tailrace.aws import prices
    from tailrace.aws.plan import MODES, Workload, explain
    from tailrace.aws.plan import plan as make_plan

    if mode is not None and mode not in MODES:
        raise click.BadParameter(f"'{mode}' is none of: {'; '.join(MODES)}", param_hint="--mode")
    work = Workload(retention=retention / DAY, **workload)
    made = make_plan(work, mode)
    why = explain(made, work) if work.readers else "nobody waits for news"
    out = Output(as_json)
    if as_json:
        out.result(
            "",
            workload=asdict(work),
            region=prices.REGION,
            prices_as_of=prices.AS_OF,
            mode=made.mode,
            switch=MODES[made.mode].switch,
            reason=why,
            services=_rounded(made.services),
            total=round(made.total, 2),
            modes=_rounded(made.modes),
            limits=[{**limit._asdict(), "share": round(limit.share, 4)} for limit in made.limits],
        )
        return
    bill = [(service, _dollars(amount)) for service, amount in made.services.items()]
    out.line(format_table([("SERVICE", "A MONTH"), *bill, ("total", _dollars(made.total))]))
    modes = sorted(made.modes.items(), key=lambda each: each[1])
    rows = [(name, _dollars(amount), MODES[name].switch) for name, amount in modes]
    out.line("\n" + format_table([("LIVE BY", "A MONTH", "SWITCH"), *rows]))
    out.line(f"\nWith {made.mode}: {why}.")
    limits = [
        (limit.what, f"{limit.used:,.6g}", f"{limit.most:,.0f}", f"{limit.share:.1%}")
        for limit in made.limits
    ]
    out.line("\n" + format_table([("LIMIT", "USED", "OF", "SHARE"), *limits]))
    first = made.limits[0]
    verb = "exceeds the limit" if first.share > 1 else "comes nearest to the limit"
    out.line(f"\nThe workload {verb} of {first.what}: {first.remedy}.")
    out.line(f"List prices of {prices.REGION}, {prices.AS_OF}.")


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}"


def _rounded(amounts: dict[str, float]) -> dict[str, float]:
    return {name: round(amount, 2) for name, amount in amounts.items()}
