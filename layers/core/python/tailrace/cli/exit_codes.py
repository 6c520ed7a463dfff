"""Exit codes, and failures: one line that says what went wrong.

| code | meaning |
|---|---|
| 0 | done |
| 1 | the server failed, or an unexpected error |
| 2 | wrong usage or bad input (400) |
| 3 | the stream does not exist, or was deleted (404, 410) |
| 4 | conflict: closed, exists with other settings, sequence (409) |
| 5 | the server cannot be reached |
| 6 | not authorized (401, 403) |
| 7 | too large (413) |
| 130 | interrupted with Ctrl-C |
"""

from __future__ import annotations

import json
from enum import IntEnum

import click


class Exit(IntEnum):
    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNREACHABLE = 5
    REFUSED = 6
    TOO_LARGE = 7
    INTERRUPTED = 130


BY_STATUS = {
    400: Exit.USAGE,
    401: Exit.REFUSED,
    403: Exit.REFUSED,
    404: Exit.NOT_FOUND,
    409: Exit.CONFLICT,
    410: Exit.NOT_FOUND,
    413: Exit.TOO_LARGE,
}


class Failure(Exception):
    """An expected failure: a sentence for people, a `code` for programs, and an exit code."""

    def __init__(
        self, message: str, exit_code: Exit, *, code: str = "", status: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.code = code or exit_code.name
        self.status = status


def report(error: Failure | click.ClickException, *, as_json: bool) -> int:
    """Print the failure to stderr, and return the exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    if isinstance(error, click.ClickException):
        error = _usage_failure(error)
    message = " ".join(error.message.split())
    if as_json:
        fields = {"code": error.code, "message": message, "exit_code": int(error.exit_code)}
        if error.status is not None:
            fields["status"] = error.status
        click.echo(json.dumps({"error": fields}, ensure_ascii=False), err=True)
    else:
        click.echo(f"tailrace: {message}", err=True)
    return error.exit_code


def _usage_failure(error: click.ClickException) -> Failure:
    message = error.format_message().rstrip(".")
    if isinstance(error, click.UsageError) and error.ctx is not None:
        message += f" (see '{error.ctx.command_path} --help')"
    return Failure(message, Exit.USAGE)
