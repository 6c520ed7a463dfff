"""Options and parameter types shared by the commands."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

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

    @property
    def width(self) -> int | None:
        """The columns of the terminal; None if the output is none."""
        return shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    def note(self, sentence: str) -> None:
        """Print a note to stderr, unless the output is JSON."""
        if not self.as_json:
            click.echo(sentence, err=True)


def to_json_line(fields: object) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def format_table(
    rows: Sequence[Sequence[str]], *, width: int | None = None, optional: Sequence[int] = ()
) -> str:
    """Format rows with aligned columns; control characters become `?`.

    Within a width, the `optional` columns are left out one after the other until the others fit;
    then cells are shortened.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    clean = [["".join(c if c.isprintable() else "?" for c in cell) for cell in row] for row in rows]
    columns = list(range(len(clean[0])))
    widths = [max(cell_len(row[column]) for row in clean) for column in columns]
    dropped = list(optional)
    while dropped and width is not None and sum(widths[each] + 2 for each in columns) - 2 > width:
        columns.remove(dropped.pop(0))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for column in columns:
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=widths[column])
    for row in clean:
        table.add_row(*(Text(row[column]) for column in columns))
    natural = sum(widths[each] + 2 for each in columns)
    console = Console(width=min(width or natural, natural), color_system=None, emoji=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


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
T = TypeVar("T")

DEFAULT_URL: Final = "http://127.0.0.1:4437"
COMPLETIONS: Final = 100
COMPLETION_SECONDS: Final = 2.0
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


class StreamName(click.ParamType[str]):
    """The path or URL of a stream, which a shell completes from those of the server."""

    name = "stream"

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        from tailrace.client import Client, RetryPolicy, StreamError

        url = str(shared_option(ctx, "url") or DEFAULT_URL)
        token = shared_option(ctx, "token")
        none = RetryPolicy(attempts=0)
        try:
            with Client(url, token=token, timeout=COMPLETION_SECONDS, retries=none) as client:
                names = [each.name for each in islice(client.list(incomplete), COMPLETIONS)]
        except (StreamError, ValueError):
            return []
        return [CompletionItem(name) for name in names if name]


def shared_options(run: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of all client commands, which may come before the command as well."""
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


def shared_option(ctx: click.Context, name: str) -> Any:
    """The value of an option that may come before the command or after it, where it wins."""
    root = ctx.find_root()
    if ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE and (
        root.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ):
        return root.params[name]
    return ctx.params.get(name)


def client_command(
    command: Callable[Concatenate[CommandClient, Output, P], None],
) -> Callable[..., None]:
    """Add the options that all client commands share, and pass a client and an output."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        from tailrace.cli.client import CommandClient

        ctx = click.get_current_context()
        shared = {name: shared_option(ctx, name) for name in ("url", "token", "as_json")}
        rest = {name: value for name, value in options.items() if name not in shared}
        out = Output(shared["as_json"])
        with CommandClient(shared["url"], shared["token"], on_wait=out.note) as client:
            command(client, out, *args, **rest)

    return shared_options(run)


data_option: Final[Callable[..., Any]] = click.option(
    "--data",
    metavar="DIRECTORY",
    envvar="TAILRACE_DATA",
    show_envvar=True,
    help="Directory of the embedded store.  [default: ./data]",
)
json_option: Final[Callable[..., Any]] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON."
)

PROGRESS_SECONDS: Final = 1.0
"""Between two progress lines."""


def report_progress(out: Output, describe: Callable[[T], str]) -> Callable[[T], None]:
    """Return a function that notes the state of long work, once a second."""
    last = time.monotonic()

    def report(state: T) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PROGRESS_SECONDS:
            last = now
            out.note(f"{describe(state)} so far")

    return report
