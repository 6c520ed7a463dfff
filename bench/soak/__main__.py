"""`python -m bench.soak`: minutes of mixed traffic against one Tailrace server, then the audit."""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import uvloop

from bench.servers import Server, kinds
from bench.soak.churn import churn
from bench.soak.readers import follow
from bench.soak.world import Ledger, World
from bench.soak.writers import write
from bench.streams import BINARY, streams_at
from devtools.health import SPARE_FILES, Health, Memory, files_settle
from devtools.load.client import Address
from devtools.processes import ROOT, allow_many_connections, stop_cleanly_when_terminated

PROGRESS_SECONDS = 10.0
FINISH_SECONDS = 90.0
BALLAST = "ballast"
BALLAST_APPENDS = 1000
BALLAST_BYTES = 40_000
BALLAST_READERS = 16
SERVER_FLAGS = {
    "--hot-bytes": str(16 << 20),
    "--sweep-interval": "2",
    "--long-poll-timeout": "5",
    "--sse-lifetime": "15",
}
"""Small caches that fill during the warm-up and short timeouts, so that minutes suffice."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    allow_many_connections()
    stop_cleanly_when_terminated()
    kind = kinds(ROOT / "node_modules")["tailrace"]
    flags = [part for flag in SERVER_FLAGS.items() for part in flag]
    server = Server(replace(kind, command=lambda data: [*kind.command(data), *flags])).start()
    print(f"seed {options.seed}, server process {server.pid}, {options.minutes:g} minutes")
    try:
        failures = uvloop.run(_soak(server, options))
    finally:
        log = server.output()
        server.stop()
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    if failures:
        print(f"the end of the server's log:\n{log}", file=sys.stderr)
    return 1 if failures else 0


async def _soak(server: Server, options: argparse.Namespace) -> list[str]:
    seconds = options.minutes * 60
    world = World(
        Address(server.host, server.port), {f"soak-{at}": Ledger() for at in range(options.streams)}
    )
    await _prepare(world)
    baseline = server.open_files()
    health = Health(server, warm_up=min(60.0, seconds / 3))
    dice = random.Random(options.seed)
    writers = [
        asyncio.create_task(write(world, at, options.rate / options.writers, _fork(dice)))
        for at in range(options.writers)
    ]
    writers += [asyncio.create_task(churn(world, at, _fork(dice))) for at in range(options.churn)]
    readers = [asyncio.create_task(follow(world, at, _fork(dice))) for at in range(options.readers)]
    await _watch(world, server, health, seconds)
    memory = health.memory()
    busy_files = server.open_files()
    world.stop_writing.set()
    await _finish(world, writers)
    world.stop_reading.set()
    await _finish(world, readers)
    files = await files_settle(server, baseline)
    print("everybody has left; reading everything back", flush=True)
    await _audit(world)
    await _read_ballast(world)
    if not memory.flat:
        world.fail(f"memory grew from {memory.warm_kb:,.0f} to {memory.final_kb:,.0f} KB")
    if files > baseline + SPARE_FILES:
        world.fail(f"{files} open files after everybody left, {baseline} before anybody came")
    _summary(world, memory, baseline, busy_files, files)
    return world.failures


async def _prepare(world: World) -> None:
    """Create the streams and warm up: filled caches and open files would look like leaks."""
    async with streams_at(world.address) as streams:
        for name in world.ledgers:
            await streams.create(name)
        await streams.create(BALLAST, BINARY)
        for _ in range(BALLAST_APPENDS):
            await streams.append(BALLAST, bytes(BALLAST_BYTES), BINARY)
    await asyncio.gather(*(_read_ballast(world) for _ in range(BALLAST_READERS)))
    await asyncio.sleep(1)


async def _read_ballast(world: World) -> None:
    async with streams_at(world.address) as streams:
        length = await streams.length(BALLAST)
        if length != BALLAST_APPENDS * BALLAST_BYTES:
            world.fail(f"the ballast is {length} bytes long")


async def _watch(world: World, server: Server, health: Health, seconds: float) -> None:
    began = time.monotonic()
    next_line = PROGRESS_SECONDS
    while (elapsed := time.monotonic() - began) < seconds:
        await asyncio.sleep(min(1.0, seconds - elapsed))
        health.sample()
        if elapsed >= next_line:
            next_line += PROGRESS_SECONDS
            tally = world.tally
            print(
                f"{elapsed:5.0f} s  {tally['appends']:>9,} appends  "
                f"{tally['delivered live']:>9,} delivered live  "
                f"{tally['churned streams']:>7,} churned  {server.rss_kb() / 1024:6.1f} MB  "
                f"{server.open_files():>4} files  {tally['failures']} failures",
                flush=True,
            )


async def _finish(world: World, tasks: Sequence[asyncio.Task[None]]) -> None:
    done, late = await asyncio.wait(tasks, timeout=FINISH_SECONDS)
    for task in late:
        task.cancel()
        world.fail(f"{task.get_name()} did not end within {FINISH_SECONDS:.0f} s")
    for task in done:
        task.result()


async def _audit(world: World) -> None:
    """Check that each remaining stream has exactly the acknowledged messages, in order."""
    async with streams_at(world.address) as streams:
        for name, ledger in world.ledgers.items():
            stored = await streams.messages(name)
            world.tally["messages read back"] += len(stored)
            for problem in ledger.problems(stored):
                world.fail(f"{name}: {problem}")


def _summary(world: World, memory: Memory, before: int, busy: int, after: int) -> None:
    lines = {name: f"{count:,}" for name, count in world.tally.items()}
    if len(world.delays) > 1:
        cuts = statistics.quantiles(world.delays, n=100, method="inclusive")
        lines["append → live reader, ms"] = (
            f"p50 {cuts[49] * 1000:.1f}, p99 {cuts[98] * 1000:.1f}, "
            f"max {max(world.delays) * 1000:.0f}"
        )
    lines["memory after warm-up → end, MB"] = (
        f"{memory.warm_kb / 1024:.1f} → {memory.final_kb / 1024:.1f} "
        f"({memory.slope_kb_per_minute:+,.0f} KB/min)"
    )
    lines["open files before / during / after"] = f"{before} / {busy} / {after}"
    lines["verdict"] = "FAILED" if world.failures else "every check passed"
    width = max(map(len, lines))
    print()
    for name, value in lines.items():
        print(f"{name:<{width}}  {value}")


def _fork(dice: random.Random) -> random.Random:
    """A random generator for each task, so that one seed determines all, in any order of tasks."""
    return random.Random(dice.random())


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="default 5")
    parser.add_argument("--streams", type=int, default=200, help="that live on, default 200")
    parser.add_argument("--writers", type=int, default=30, help="default 30")
    parser.add_argument("--readers", type=int, default=100, help="live at a time, default 100")
    parser.add_argument("--churn", type=int, default=16, help="tasks creating streams, default 16")
    parser.add_argument("--rate", type=float, default=1000, help="appends/s at most, default 1000")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped")
