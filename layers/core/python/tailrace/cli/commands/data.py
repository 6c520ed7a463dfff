"""`tailrace check`, `backup` and `restore`: the data directory of the embedded store."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from tailrace.cli.exit_codes import Exit, Failure
from tailrace.cli.options import Output, format_count
from tailrace.configuration import find_config, load_settings
from tailrace.errors import BadSetting, TailraceError

if TYPE_CHECKING:
    from tailrace.store.sqlite.verify import Verified

T = TypeVar("T")

PAUSE: Final = 1.0
"""Seconds between two progress lines."""

data_option: Final[Callable[..., Callable[..., None]]] = click.option(
    "--data",
    metavar="DIRECTORY",
    envvar="TAILRACE_DATA",
    show_envvar=True,
    help="Directory of the embedded store.  [default: ./data]",
)
as_json: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@data_option
@as_json
def check(data: str | None, as_json: bool) -> None:
    """Verify the database, large bodies and segments.

    A server may be running. It changes nothing; exit code 1: something is damaged.
    """
    from tailrace.store.sqlite.verify import DirectoryVerifier

    out = Output(as_json)
    verifier = DirectoryVerifier(_find_data(data), _report(out, _describe))
    findings = []
    for finding in verifier.run():
        findings.append(finding)
        if not as_json:
            out.line(str(finding))
    done = verifier.verified
    verdict = format_count(len(findings), "finding") if findings else "nothing is damaged"
    out.result(
        f"{verdict}: checked {_describe(done)}",
        findings=[finding._asdict() for finding in findings],
        **done._asdict(),
    )
    if findings:
        raise Failure("the data is damaged", Exit.UNEXPECTED, code="DAMAGED_DATA")


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@data_option
@as_json
def backup(directory: Path, data: str | None, as_json: bool) -> None:
    """Copy the data into a new DIRECTORY, as it is at one moment.

    A server may go on appending.
    """
    from tailrace.store.sqlite.backup import back_up

    out = Output(as_json)
    source = _find_data(data)
    try:
        done = back_up(source, directory, _report(out, str))
    except TailraceError as error:
        raise Failure(str(error), Exit.UNEXPECTED, code=error.code) from None
    out.result(
        f"backed up {format_count(done.streams, 'stream')} ({done.bytes:,} bytes) to '{directory}'",
        directory=str(directory),
        **done._asdict(),
    )


@click.command()
@click.argument("backup", type=click.Path(path_type=Path, exists=True, file_okay=False))
@data_option
@as_json
def restore(backup: Path, data: str | None, as_json: bool) -> None:
    """Copy a BACKUP into a new data directory, after it was verified.

    The directory must be empty or missing: move a damaged one away first.
    """
    from tailrace.store.sqlite.backup import back_up
    from tailrace.store.sqlite.verify import DirectoryVerifier

    out = Output(as_json)
    target = Path(_load_data(data))
    finding = next(DirectoryVerifier(backup, _report(out, _describe)).run(), None)
    if finding is not None:
        raise Failure(f"the backup is damaged: {finding.what}", Exit.UNEXPECTED)
    try:
        done = back_up(backup, target, _report(out, str))
    except TailraceError as error:
        raise Failure(str(error), Exit.UNEXPECTED, code=error.code) from None
    out.result(
        f"restored {format_count(done.streams, 'stream')} ({done.bytes:,} bytes) in '{target}'",
        directory=str(target),
        **done._asdict(),
    )


def _load_data(data: str | None) -> str:
    try:
        return load_settings(file=find_config(), data=data).data
    except BadSetting as error:
        raise Failure(str(error), Exit.USAGE, code=error.code) from None


def _find_data(data: str | None) -> Path:
    path = Path(_load_data(data))
    if not path.is_dir():
        raise Failure(f"data directory '{path}' does not exist; check --data", Exit.NOT_FOUND)
    return path


def _describe(verified: Verified) -> str:
    return (
        f"{format_count(verified.streams, 'stream')}, {verified.entries:,} entries in the database,"
        f" {format_count(verified.bodies, 'large body').replace('bodys', 'bodies')},"
        f" {format_count(verified.segments, 'segment')}"
    )


def _report(out: Output, describe: Callable[[T], str]) -> Callable[[T], None]:
    last = time.monotonic()

    def report(state: T) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PAUSE:
            last = now
            out.note(f"{describe(state)} so far")

    return report
