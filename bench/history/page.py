"""`docs/benchmarks-history.md`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bench.report import machine
from devtools.processes import ROOT

if TYPE_CHECKING:
    from bench.history.__main__ import Run
    from bench.history.reads import Reads

PAGE = ROOT / "docs" / "benchmarks-history.md"
FACTS = ("machine", "system", "Tailrace", "date")
GOAL = 0.4


def render(runs: Sequence[Run], reads: Reads, cores: int) -> str:
    facts = machine(ROOT / "node_modules", None)
    small, large = runs[0], runs[-1]
    growth = (large.compact / small.compact) / (large.size.entries / small.size.entries)
    lines = [
        "# Benchmarks: history",
        "",
        f"`make bench-history`, Spark on `local[{cores}]`, DynamoDB and S3 by ministack on the",
        "same machine. The source is a DynamoDB export (JSON, gzip); stream k has a share of 1/k",
        "of the entries, and in every fourth stream an entry has up to ten appends. Compaction",
        "reads it, sorts it, writes segments to S3 and commits each to the table. Beside it the",
        "same Spark merely reads the data and writes it as Parquet.",
        "",
        *(f"- {name}: {facts[name]}" for name in FACTS if name in facts),
        f"- load average, 15 minutes: {os.getloadavg()[2]:.1f} (busy otherwise above {cores})",
        "",
        "| | " + " | ".join(f"{run.size.entries:,} entries" for run in runs) + " |",
        "|---|" + "---|" * len(runs),
        _row("streams", runs, lambda run: f"{run.size.streams:,}"),
        _row("appends", runs, lambda run: f"{run.appends:,}"),
        _row("bodies", runs, lambda run: f"{run.bytes / 1e6:,.0f} MB"),
        _row("compaction", runs, lambda run: f"{run.compact:.1f} s"),
        _row("entries a second", runs, lambda run: f"{run.size.entries / run.compact:,.0f}"),
        _row("MB a second", runs, lambda run: f"{run.bytes / 1e6 / run.compact:,.1f}"),
        _row("of them archived", runs, lambda run: f"{run.summary.entries:,}"),
        _row("in segments", runs, lambda run: f"{run.summary.segments:,}"),
        _row("the export read, Parquet written", runs, lambda run: f"{run.from_export:.1f} s"),
        _row(
            f"**speed beside that** (goal {GOAL})",
            runs,
            lambda run: f"**{run.from_export / run.compact:.2f}**",
        ),
        _row("Parquet read, Parquet written", runs, lambda run: f"{run.from_parquet:.1f} s"),
        _row("speed beside that", runs, lambda run: f"{run.from_parquet / run.compact:.2f}"),
        _row(
            "memory of Spark and its workers, at most",
            runs,
            lambda run: f"{run.megabytes:,.0f} MB",
        ),
        "",
        f"From {small.size.entries:,} to {large.size.entries:,} entries the time for one changes",
        f"by a factor of {growth:.2f} (1 is linear). Entries that fill no segment stay in the",
        "table: short streams cost a row in Spark and nothing else.",
        "",
        "A chunk of 64 KiB, at the median:",
        "",
        "| from | ms |",
        "|---|---|",
        f"| the table | {reads.hot:.2f} |",
        f"| a segment | {reads.cold:.2f} |",
        f"| a segment whose index is not known yet | {reads.first:.2f} |",
        "",
        "Latencies are ministack's, not AWS's; what they say is how many steps each takes.",
        "",
    ]
    return "\n".join(lines)


def _row(title: str, runs: Sequence[Run], value: Callable[[Run], str]) -> str:
    return f"| {title} | " + " | ".join(map(value, runs)) + " |"
