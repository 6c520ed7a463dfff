"""`tailrace compact`: move older entries of the embedded store into segment files."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from tailrace.cli.exit_codes import Exit, Failure
from tailrace.cli.options import Output, format_count
from tailrace.configuration import find_config, load_settings
from tailrace.errors import BadSetting, TailraceError

if TYPE_CHECKING:
    from tailrace.settings import Settings
    from tailrace.store.base import Compacted

PAUSE: Final = 1.0
"""Seconds between two progress lines."""


@click.command()
@click.option(
    "--data",
    metavar="DIRECTORY",
    envvar="TAILRACE_DATA",
    show_envvar=True,
    help="Directory of the embedded store.  [default: ./data]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compact(data: str | None, as_json: bool) -> None:
    """Move older entries from the database into segment files.

    Stop the server that uses the directory first. A running server does the same by itself.
    """
    import asyncio
    from pathlib import Path

    out = Output(as_json)
    try:
        settings = load_settings(file=find_config(), data=data)
        if not Path(settings.data).is_dir():
            raise Failure(
                f"data directory '{settings.data}' does not exist; check --data", Exit.NOT_FOUND
            )
        done, retained = asyncio.run(_compact(settings, _report_progress(out)))
    except TailraceError as error:
        code = Exit.USAGE if isinstance(error, BadSetting) else Exit.UNEXPECTED
        raise Failure(str(error), code, code=error.code) from None
    if retained:
        out.note(f"removed {_entries(retained)} that TAILRACE_RETENTION does not keep")
    out.result(
        f"moved {_amount(done)} into {format_count(done.segments, 'segment')}"
        if done.segments
        else "nothing to move",
        streams=done.streams,
        entries=done.entries,
        bytes=done.bytes,
        segments=done.segments,
        failed=done.failed,
    )
    if done.failed:
        raise Failure("; ".join(done.failed), Exit.UNEXPECTED)


async def _compact(
    settings: Settings, progress: Callable[[Compacted], None]
) -> tuple[Compacted, int]:
    """Apply retention, then compact; returns what was moved and how many entries were removed."""
    from tailrace.store.sqlite.store import SqliteStore

    store = SqliteStore(settings)
    await store.open()
    try:
        retained = await store.maintenance.retain()
        done = await store.compact(progress)
        # No reader can still be using the replaced files.
        await store.maintenance.remove_replaced()
        await store.sweep()
    finally:
        await store.close()
    return done, retained


def _report_progress(out: Output) -> Callable[[Compacted], None]:
    last = time.monotonic()

    def report(done: Compacted) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PAUSE:
            last = now
            out.note(f"{_amount(done)} so far")

    return report


def _amount(done: Compacted) -> str:
    size = f"{_entries(done.entries)} ({done.bytes:,} bytes)"
    return f"{size} of {format_count(done.streams, 'stream')}"


def _entries(number: int) -> str:
    return f"{number:,} {'entry' if number == 1 else 'entries'}"
