"""`python -m devtools.chaos`: faults and load together, and the check that nothing went wrong."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Sequence
from typing import Final

from devtools.chaos.campaign import Campaign
from devtools.chaos.fuzz.run import Fuzz
from devtools.chaos.plan import Kind
from devtools.chaos.report import PROGRESS_SECONDS, Report
from devtools.processes import allow_many_connections, stop_cleanly_when_terminated

FUZZ: Final = "fuzz"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    allow_many_connections()
    stop_cleanly_when_terminated()
    report = Report()
    print(f"seed {options.seed}: {', '.join(options.only)}", flush=True)
    asyncio.run(_run(options, report))
    print("\n".join(["", *report.table()]))
    return 1 if report.violations else 0


async def _run(options: argparse.Namespace, report: Report) -> None:
    progress = asyncio.create_task(_show_progress(report))
    try:
        kinds = [Kind(each) for each in options.only if each != FUZZ]
        if kinds:
            await Campaign(options.seed, kinds, report).run(options.seconds, options.round)
        if FUZZ in options.only:
            await Fuzz(options.seed, options.requests, report).run()
    finally:
        progress.cancel()


async def _show_progress(report: Report) -> None:
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        print(report.progress(), flush=True)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m devtools.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="of faults, default 120")
    parser.add_argument("--requests", type=int, default=20_000, help="of fuzz, default 20000")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument(
        "--only", type=_choices, default=[*Kind], help=f"of {','.join([*Kind, FUZZ])}"
    )
    parser.add_argument("--round", type=int, help="run only the round with this number")
    return parser.parse_args(arguments)


def _choices(text: str) -> list[str]:
    chosen = text.split(",")
    if unknown := {*chosen} - {*Kind, FUZZ}:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
    return chosen


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped")
