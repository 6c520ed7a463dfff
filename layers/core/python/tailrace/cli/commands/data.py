"""`tailrace check`, `backup` and `restore`: the data directory of the embedded store."""

from __future__ import annotations

from pathlib import Path
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
    from tailrace.store.sqlite.verify import Verified


@click.command()
@data_option
@json_option
def check(data: str | None, as_json: bool) -> None:
    """Verify the database, large bodies and segments.

    A server may be running. It changes nothing; exit code 1: something is damaged.
    """
    from tailrace.store.sqlite.verify import DirectoryVerifier

    out = Output(as_json)
    verifier = DirectoryVerifier(_find_data(data), report_progress(out, _describe))
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
@json_option
def backup(directory: Path, data: str | None, as_json: bool) -> None:
    """Copy the data into a new DIRECTORY, as it is at one moment.

    A server may go on appending.
    """
    from tailrace.store.sqlite.backup import back_up

    out = Output(as_json)
    source = _find_data(data)
    try:
        done = back_up(source, directory, report_progress(out, str))
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
@json_option
def restore(backup: Path, data: str | None, as_json: bool) -> None:
    """Copy a BACKUP into a new data directory, after it was verified.

    The directory must be empty or missing: move a damaged one away first.
    """
    from tailrace.store.sqlite.backup import back_up
    from tailrace.store.sqlite.verify import DirectoryVerifier

    out = Output(as_json)
    target = Path(_load_data(data))
    finding = next(DirectoryVerifier(backup, report_progress(out, _describe)).run(), None)
    if finding is not None:
        raise Failure(f"the backup is damaged: {finding.what}", Exit.UNEXPECTED)
    try:
        done = back_up(backup, target, report_progress(out, str))
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
