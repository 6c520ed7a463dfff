"""Options and parameter types shared by the commands."""

from __future__ import annotations

import functools
import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec

import click

from tailrace.cli.address import check_url


@dataclass(frozen=True, slots=True)
class Output:
    as_json: bool

    def result(self, sentence: str, **fields: object) -> None:
        """Print the outcome of a command, as a sentence or as JSON."""
        self.line(to_json_line(fields) if self.as_json else sentence)

    def line(self, text: str) -> None:
        # A name from the command line may contain bytes that are not UTF-8.
        self.write(text.encode(errors="backslashreplace") + b"\n")

    def write(self, data: bytes) -> None:
        # Flush, so that a full disk or a closed pipe raises here and not at interpreter exit.
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def note(self, sentence: str) -> None:
        """Print a note to stderr, unless the output is JSON."""
        if not self.as_json:
            click.echo(sentence, err=True)


def to_json_line(fields: object) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows with aligned columns; control characters become `?`."""
    clean = [["".join(c if c.isprintable() else "?" for c in cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*clean, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in clean
    )


def format_count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def release_stdout() -> None:
    """Redirect a broken stdout to null, so that the last flush at exit does not fail."""
    try:
        target = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, target)
    os.close(null)


if TYPE_CHECKING:
    from tailrace.cli.client import CommandClient

P = ParamSpec("P")

DEFAULT_URL: Final = "http://127.0.0.1:4437"
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class HeaderText(click.ParamType[str]):
    """Text that is valid as the value of an HTTP header."""

    name = "text"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        text = str(value)
        if not text or text != text.strip() or not (text.isascii() and text.isprintable()):
            self.fail(f"{text!r} is not plain ASCII text.", param, ctx)
        return text


class Duration(click.ParamType[int]):
    """A number of seconds, minutes, hours or days: 90, 15m, 12h, 7d."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        match = re.fullmatch(r"([0-9]+)([smhd]?)", str(value))
        if match is None:
            self.fail(f"{value!r} is not a duration such as 90, 15m, 12h or 7d.", param, ctx)
        return int(match[1]) * _SECONDS[match[2]]


class Instant(click.ParamType[str]):
    """A time that the server understands, or a duration before now: 90s, 15m, 12h, 7d."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:  # noqa: ARG002
        match = re.fullmatch(r"([0-9]+)([smhd])", str(value))
        if match is None:
            return str(value)
        return str(round((time.time() - int(match[1]) * _SECONDS[match[2]]) * 1000))


def client_command(
    command: Callable[Concatenate[CommandClient, Output, P], None],
) -> Callable[..., None]:
    """Add the options that all client commands share, and pass a client and an output."""

    @functools.wraps(command)
    def run(*args: Any, url: str, token: str | None, as_json: bool, **rest: Any) -> None:
        from tailrace.cli.client import CommandClient

        out = Output(as_json)
        with CommandClient(url, token, on_wait=out.note) as client:
            command(client, out, *args, **rest)

    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option(
            "--token",
            type=HeaderText(),
            envvar="TAILRACE_TOKEN",
            show_envvar=True,
            help="Bearer token to send with every request.",
        ),
        click.option(
            "--url",
            type=check_url,
            metavar="URL",
            default=DEFAULT_URL,
            envvar="TAILRACE_URL",
            show_default=True,
            show_envvar=True,
            help="URL of the server.",
        ),
    ):
        run = option(run)
    return run
