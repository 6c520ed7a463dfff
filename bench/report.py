"""Reports: the table on the terminal, `benchmarks.md`, `benchmarks.png` and the raw figures."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from bench.rows import MICROSECONDS, TIMES, Metric, Span
from devtools.load import wrk
from devtools.other_servers import RUST_PLACE

OURS = "tailrace"
SATURATED = 0.9
BUSY = 0.5
ABSENT = "\N{EN DASH}"
GREY = "#4b5563"
COLOURS = ("#dc2626", "#2563eb", "#f59e0b", "#10b981")


@dataclass(frozen=True, slots=True)
class Result:
    """One metric: the median per server, all figures, and the CPU share of the load."""

    row: str
    metric: Metric
    medians: Mapping[str, float | None]
    rounds: Mapping[str, Sequence[float]]
    load_busy: Mapping[str, float]

    def ratio(self, other: str) -> float | None:
        """The factor by which ours is better than the other: above 1 is always better."""
        mine, theirs = self.medians.get(OURS), self.medians.get(other)
        if not mine or not theirs or mine < 0 or theirs < 0:
            return None
        return mine / theirs if self.metric.more_is_better else theirs / mine


@dataclass(frozen=True, slots=True)
class Report:
    machine: Mapping[str, str]
    load_average: float
    command: str
    minutes: float
    rounds: int
    span: Span
    contestants: Sequence[str]
    labels: Mapping[str, str]
    results: Sequence[Result]

    @property
    def others(self) -> list[str]:
        return [name for name in self.contestants if name != OURS]

    @property
    def limited_by_load(self) -> list[str]:
        return [
            result.metric.title
            for result in self.results
            if result.load_busy.get(OURS, 0.0) > SATURATED
        ]


def figure(value: float | None) -> str:
    if value is None:
        return ABSENT
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def times(value: float | None) -> str:
    if value is None:
        return ABSENT
    digits = 0 if value >= 10 else 1 if value >= 2 else 2
    return f"{value:.{digits}f}{TIMES}"


def print_table(report: Report) -> None:
    header, *lines = _cells(report)
    widths = [max(len(line[at]) for line in (header, *lines)) for at in range(len(header))]
    print()
    for line in (header, ["─" * width for width in widths], *lines):
        first, *rest = line
        padded = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *padded]))
    print()
    if report.load_average > BUSY:
        print(f"note: the machine was busy before the run (load {report.load_average:.1f})")
    for title in report.limited_by_load:
        print(f"note: the load generator was the limit in “{title}”")


def write_json(report: Report, path: Path) -> None:
    path.write_text(json.dumps(asdict(report), indent=2, default=str) + "\n")


def write_docs(report: Report, directory: Path, name: str = "benchmarks") -> list[Path]:
    directory.mkdir(parents=True, exist_ok=True)
    page, chart = directory / f"{name}.md", directory / f"{name}.png"
    page.write_text(_markdown(report, chart.name))
    _draw(report, chart)
    return [page, chart]


def machine(node_modules: Path, data_parent: Path | None) -> dict[str, str]:
    directory = data_parent or Path(tempfile.gettempdir())
    model = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    processor = model[1] if model else platform.machine()
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    gigabytes = f", {int(memory[1]) / 2**20:.0f} GB" if memory else ""
    return {
        "machine": f"{os.cpu_count()} {TIMES} {processor}{gigabytes}",
        "system": f"{platform.system()} {platform.release()}, {_file_system(directory)}",
        "fsync of 128 B": f"p50 {_fsync_ms(directory):.2f} ms",
        "Tailrace": f"{_version('tailrace')}, Python {platform.python_version()}, "
        f"uvloop {_version('uvloop')}",
        "Rust server": _rust_version(),
        "reference": f"@durable-streams/server {_package_version(node_modules)}, "
        f"Node {_output('node', '--version')}",
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _cells(report: Report) -> list[list[str]]:
    ours = [report.labels[name] for name in report.contestants]
    header = ["", "unit", *ours, *(f"{TIMES} {report.labels[name]}" for name in report.others)]
    return [header] + [
        [
            result.metric.title,
            result.metric.unit,
            *(figure(result.medians.get(name)) for name in report.contestants),
            *(times(result.ratio(name)) for name in report.others),
        ]
        for result in report.results
    ]


METHOD = """\
Every server runs as its own process on loopback with an empty data directory, pinned to one core;
the load generator is another process pinned to another core. For each row the servers take turns
({rounds} rounds of {seconds:g} s after {warm_up:g} s of warm-up) and the table shows the median
round, so that a slow minute of the machine hurts all alike. Tailrace, the Rust server and the
file-backed reference have the data on disk (fsync) before they acknowledge it, the in-memory
reference keeps it in memory only. {load} In the other rows a closed loop of raw asyncio protocols
on uvloop writes pre-rendered requests, one request per connection at a time, without compression,
and reads the clock where the bytes arrive. Latency is the time from sending the append until the
waiting reader has the message. “Flat out” is one writer that sends the next append as soon as the
last one is acknowledged; the clock stops when the last reader has the last message. Memory is the
growth of the server's resident set divided by the readers. Answers are checked: status codes while
the clock runs, and afterwards that the messages stored, or delivered to each reader, are those that
were acknowledged."""


WITH_WRK = """\
Appends of one message, catch-up reads and connects are by wrk, a load generator in C; processor
time is that of all threads of the server, per request."""
WITHOUT_WRK = "wrk was not installed, so that the load generator may be the limit."


def _markdown(report: Report, chart: str) -> str:
    header, *lines = _cells(report)
    header[0] = "measurement"
    aligned = ["---", "---", *("---:" for _ in header[2:])]
    table = "\n".join(f"| {' | '.join(line)} |" for line in (header, aligned, *lines))
    facts = "\n".join(f"| {name} | {value} |" for name, value in report.machine.items())
    method = METHOD.format(
        rounds=report.rounds, seconds=report.span.seconds, warm_up=report.span.warm_up,
        load=WITH_WRK if wrk.PROGRAM else WITHOUT_WRK,
    )  # fmt: skip
    limited = "".join(
        f"\nThe load generator was the limit in “{title}”; the server could do more.\n"
        for title in report.limited_by_load
    )
    return f"""\
# Benchmarks

<!-- Written by `make bench`; do not edit. -->

Tailrace beside the official Rust server and the reference Node server, file-backed and in memory,
measured in one run on one machine. A ratio above 1 always means that Tailrace is better: for
latency, processor time and memory it is the other's figure over ours. Ratios travel between
machines, absolute figures do not.

![How many times better Tailrace is, per measurement]({chart})

{table}
{limited}
## Method

{method}

| | |
| --- | --- |
{facts}
| load average before | {report.load_average:.1f} |
| command | `{report.command}` ({report.minutes:.0f} min) |
"""


def _draw(report: Report, path: Path) -> None:
    """Draw bars from 1 to the right where Tailrace is better, and to the left where it is worse."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    # Processor time says the same as the rate beside it.
    results = [each for each in report.results if each.metric.unit != MICROSECONDS]
    ratios = {name: [result.ratio(name) for result in results] for name in report.others}
    known = [ratio for values in ratios.values() for ratio in values if ratio is not None]
    if not known:
        return
    pyplot.rcParams.update({"font.family": "DejaVu Sans", "font.size": 9.5})
    rows, bars = len(results), len(report.others)
    chart, axes = pyplot.subplots(figsize=(10, 1.4 + 0.4 * rows))
    height = 0.76 / bars
    for at, (name, values) in enumerate(ratios.items()):
        for row, ratio in enumerate(values):
            if ratio is None:
                continue
            y = row + (at - (bars - 1) / 2) * height
            axes.barh(
                y,
                ratio - 1,
                left=1,
                height=height * 0.92,
                color=COLOURS[at % len(COLOURS)],
                label=f"than the {report.labels[name]}" if row == 0 else None,
            )
            axes.annotate(
                times(ratio),
                (ratio, y),
                xytext=(4 if ratio >= 1 else -4, 0),
                textcoords="offset points",
                ha="left" if ratio >= 1 else "right",
                va="center",
                fontsize=8,
                color=GREY,
            )
    axes.set_xscale("log")
    axes.set_xlim(min(0.5, min(known) / 1.6), max(2.0, max(known) * 1.9))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}{TIMES}")
    axes.xaxis.set_minor_formatter("")
    axes.set_yticks(range(rows), [result.metric.title for result in results])
    axes.set_ylim(rows - 0.4, -0.6)
    axes.axvline(1, color="#111827", linewidth=1.2)
    axes.grid(axis="x", color="#e5e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", length=0)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    chart.subplots_adjust(left=0.36, right=0.98, top=1 - 0.85 / chart.get_figheight(), bottom=0.05)
    chart.text(
        0.015,
        1 - 0.2 / chart.get_figheight(),
        "How many times better is Tailrace …",
        fontsize=14,
        fontweight="bold",
        va="top",
    )
    chart.text(
        0.985,
        1 - 0.24 / chart.get_figheight(),
        "log scale · right of the line is better",
        color=GREY,
        ha="right",
        va="top",
    )
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=bars,
        frameon=False,
        handlelength=1,
        handleheight=1,
        borderpad=0,
        borderaxespad=0.3,
    )
    chart.savefig(path, dpi=150, facecolor="white")
    pyplot.close(chart)


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "from source"


def _package_version(node_modules: Path) -> str:
    manifest = node_modules / "@durable-streams" / "server" / "package.json"
    return str(json.loads(manifest.read_text())["version"]) if manifest.exists() else "absent"


def _rust_version() -> str:
    """The version that cargo has noted beside the program it installed."""
    noted = RUST_PLACE.parent / ".crates.toml"
    version = re.search(r'"durable-streams ([^ "]+)', noted.read_text()) if noted.exists() else None
    return f"durable-streams {version[1]}" if version else "absent"


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "absent"


def _file_system(directory: Path) -> str:
    """The type of the data's file system, because on tmpfs an fsync costs nothing."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, found, *_ = line.split()
        if directory.resolve().is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def _fsync_ms(directory: Path) -> float:
    samples = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(200):
            file.write(b"x" * 128)
            began = time.perf_counter()
            os.fsync(file.fileno())
            samples.append(time.perf_counter() - began)
    return statistics.median(samples) * 1000
