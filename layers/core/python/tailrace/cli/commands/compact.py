"""`tailrace compact`: move older entries of the embedded store into segment files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tailrace.cli.exit_codes import Exit, Failure
from tailrace.cli.options import (
    Output,
    data_option,
    format_count,
    json_option,
    report_progress,
)
from tailrace.configuration import find_config, load_settings
from tailrace.errors import BadSetting, TailraceError

if TYPE_CHECKING:
    from tailrace.settings import Settings
    from tailrace.store.base import Compacted


@click.command()
@data_option
@json_option
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
        done, retained = asyncio.run(_compact(settings, report_progress(out, _amount)))
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


def _amount(done: Compacted) -> str:
    size = f"{_entries(done.entries)} ({done.bytes:,} bytes)"
    return f"{size} of {format_count(done.streams, 'stream')}"


def _entries(number: int) -> str:
    return f"{number:,} {'entry' if number == 1 else 'entries'}"
