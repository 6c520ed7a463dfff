"""`python -m bench`: compares Tailrace with the reference server, in one run on this machine."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvloop

from bench.report import OURS, Report, Result, figure, machine, print_table, write_docs, write_json
from bench.rows import SHAPES, Measured, Row, Span
from bench.servers import (
    NAMES,
    REFERENCE,
    Cores,
    Kind,
    Server,
    kinds,
)
from devtools.load import wrk
from devtools.load.client import WrongAnswer
from devtools.other_servers import RUST_PROGRAM, rust_program
from devtools.processes import ROOT, allow_many_connections, stop_cleanly_when_terminated

QUICK = Span(warm_up=0.1, seconds=0.3)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    allow_many_connections()
    stop_cleanly_when_terminated()
    cores = Cores.split()
    os.sched_setaffinity(0, cores.load)
    if options.servers != [OURS] and not (options.node_modules / REFERENCE).exists():
        print(f"no {REFERENCE} in {options.node_modules}: run `npm ci`", file=sys.stderr)
        return 2
    if "rust" in options.servers and rust_program() is None:
        print(f"without {RUST_PROGRAM}: `make rust-server` installs it, by cargo", file=sys.stderr)
        options.servers.remove("rust")
    if wrk.PROGRAM is None:
        print("without wrk: the load is made in Python, and may be the limit", file=sys.stderr)
    known = kinds(options.node_modules)
    contestants = [known[name] for name in options.servers]
    rows = [row for row in SHAPES[options.shape] if not options.only or row.matches(options.only)]
    rows = [row for row in rows if wrk.PROGRAM is not None or not row.needs_wrk]
    span = QUICK if options.quick else Span(min(1.0, options.seconds / 3), options.seconds)
    run = _Run(contestants, cores, span, options.rounds, len(rows), options.data_parent)
    load_average = os.getloadavg()[0]
    began = time.monotonic()
    results = [result for row in rows for result in run.measure(row)]
    report = Report(
        machine=machine(options.node_modules, run.data_parent),
        load_average=load_average,
        command=_command(options),
        minutes=(time.monotonic() - began) / 60,
        rounds=options.rounds,
        span=span,
        contestants=[kind.name for kind in contestants],
        labels={kind.name: kind.label for kind in contestants},
        results=results,
    )
    print_table(report)
    if options.json:
        write_json(report, options.json)
    if options.docs or not (options.quick or options.only or options.shape != "default"):
        name = "benchmarks" if options.shape == "default" else f"benchmarks-{options.shape}"
        for path in write_docs(report, options.docs or ROOT / "docs", name):
            print(f"wrote {path}")
    for failure in run.failures:
        print(f"FAILED {failure}", file=sys.stderr)
    return 1 if run.failures else 0


class _Run:
    def __init__(
        self,
        contestants: Sequence[Kind],
        cores: Cores,
        span: Span,
        rounds: int,
        rows: int,
        data_parent: Path | None,
    ) -> None:
        self._contestants = contestants
        self._cores = cores
        self._span = span
        self._rounds = rounds
        self._done = 0
        self._total = rows * rounds * len(contestants)
        self.data_parent = data_parent
        self.failures: list[str] = []

    def measure(self, row: Row) -> Iterator[Result]:
        """Measure the servers in turns, so that a slow minute of the machine affects all."""
        figures: dict[str, list[list[float]]] = {kind.name: [] for kind in self._contestants}
        busy: dict[str, list[float]] = {kind.name: [] for kind in self._contestants}
        servers: dict[str, Server] = {}
        try:
            for turn in range(self._rounds):
                for kind in self._contestants:
                    server = servers.get(kind.name)
                    if server is None:
                        server = Server(kind, self._cores, self.data_parent).start()
                        servers[kind.name] = server
                    outcome = self._one(row, turn, server)
                    if outcome is not None:
                        figures[kind.name].append(outcome.figures)
                        busy[kind.name].append(outcome.load_busy)
                    if row.fresh_server:
                        servers.pop(kind.name).stop()
        finally:
            for server in servers.values():
                server.stop()
        for index, metric in enumerate(row.metrics):
            yield Result(
                row.name,
                metric,
                {
                    name: statistics.median(values[index] for values in found) if found else None
                    for name, found in figures.items()
                },
                {name: [values[index] for values in found] for name, found in figures.items()},
                {name: statistics.median(values) for name, values in busy.items() if values},
            )

    def _one(self, row: Row, turn: int, server: Server) -> Measured | None:
        self._done += 1
        name = server.kind.name
        place = f"[{self._done:>3}/{self._total}] {row.name:<18} round {turn + 1}  {name:<10}"
        try:
            with _quiet_collector(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                measured = runner.run(_measured(row, server, self._span))
        except (WrongAnswer, OSError, TimeoutError, ValueError) as error:
            self.failures.append(f"{row.name}, round {turn + 1}, {name}: {error!r}")
            print(f"{place}  {error!r}", flush=True)
            return None
        shown = "  ".join(
            f"{figure(value)} {metric.unit}"
            for value, metric in zip(measured.figures, row.metrics, strict=True)
        )
        print(f"{place}  {shown}", flush=True)
        return measured


async def _measured(row: Row, server: Server, span: Span) -> Measured:
    return await row.measure(server, span)


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """Disable garbage collection: in the load process it would appear as latency of the server."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _command(options: argparse.Namespace) -> str:
    """The command of this run, without the paths of its results and data."""
    only = [f"--shape {options.shape}"] if options.shape != "default" else []
    only += [f"--only '{options.only}'"] if options.only else []
    length = "--quick" if options.quick else f"--seconds {options.seconds:g}"
    return " ".join(["python -m bench", *only, length, f"--rounds {options.rounds}"])


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: very short, one round")
    parser.add_argument(
        "--shape", choices=SHAPES, default="default", help="ds-bench: rows like electric-sql's"
    )
    parser.add_argument("--only", metavar="ROW", help="rows whose name contains or matches this")
    parser.add_argument("--rounds", type=int, metavar="N", help="default 3")
    parser.add_argument("--seconds", type=float, default=3.0, help="per measurement, default 3")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    parser.add_argument(
        "--docs", type=Path, metavar="DIR", help="default docs/ for a full run, else nothing"
    )
    parser.add_argument(
        "--servers",
        type=lambda text: text.split(","),
        default=list(NAMES),
        help=f"comma-separated, default {','.join(NAMES)}",
    )
    parser.add_argument(
        "--node-modules",
        type=Path,
        default=Path(os.environ.get("BENCH_NODE_MODULES", ROOT / "node_modules")),
        help="where the reference server is installed",
    )
    parser.add_argument(
        "--data-parent",
        type=Path,
        metavar="DIR",
        help="a directory on the disk to measure, default the system's temporary one",
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.servers) - set(NAMES):
        parser.error(f"unknown servers: {', '.join(sorted(unknown))}")
    if options.rounds is None:
        options.rounds = 1 if options.quick else 3
    return options


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped")
