"""Options and argument types that commands share."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec

import click

from tailrace.cli.address import checked
from tailrace.cli.output import Output

if TYPE_CHECKING:
    from tailrace.cli.client import Client

P = ParamSpec("P")

DEFAULT_URL: Final = "http://127.0.0.1:4437"
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class HeaderText(click.ParamType[str]):
    """Text that can travel as the value of an HTTP header."""

    name = "text"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        text = str(value)
        if not text or text != text.strip() or not (text.isascii() and text.isprintable()):
            self.fail(f"{text!r} is not plain ASCII text.", param, ctx)
        return text


class Seconds(click.ParamType[int]):
    """A whole number of seconds, or of minutes, hours or days: 90, 15m, 12h, 7d."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        match = re.fullmatch(r"([0-9]+)([smhd]?)", str(value))
        if match is None:
            self.fail(f"{value!r} is not a duration such as 90, 15m, 12h or 7d.", param, ctx)
        return int(match[1]) * _SECONDS[match[2]]


def client_command(
    command: Callable[Concatenate[Client, Output, P], None],
) -> Callable[..., None]:
    """Give a command the options of every client command, and its connection and output."""

    @functools.wraps(command)
    def run(*args: Any, url: str, token: str | None, as_json: bool, **rest: Any) -> None:
        from tailrace.cli.client import Client

        out = Output(as_json)
        with Client(url, token, on_wait=out.note) as client:
            command(client, out, *args, **rest)

    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON for machines."),
        click.option(
            "--token",
            type=HeaderText(),
            envvar="TAILRACE_TOKEN",
            show_envvar=True,
            help="Bearer token to send with every request.",
        ),
        click.option(
            "--url",
            type=checked,
            metavar="URL",
            default=DEFAULT_URL,
            envvar="TAILRACE_URL",
            show_default=True,
            show_envvar=True,
            help="Where the server is.",
        ),
    ):
        run = option(run)
    return run
