"""The command line `tailrace`.

`serve` runs the server, `config` shows its settings, `secret`, `sign` and `token` create
credentials, `keys` rotates those of subscriptions, `compact` works on the data of a stopped server,
`glue` on the table and bucket of a deployment, `plan` estimates its costs; every other command is
a client.

The module of a command is imported when the command runs, and httpx when a request is sent, to keep
the start fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import click
from click.core import ParameterSource

from tailrace import __version__
from tailrace.cli.exit_codes import Exit, Failure, report
from tailrace.cli.options import release_stdout, shared_options

COMMANDS: Final = {
    "serve": "serve:serve",
    "config": "serve:show_config",
    "create": "manage:create",
    "append": "append:append",
    "read": "read:read",
    "head": "read:head",
    "tail": "read:tail",
    "info": "manage:info",
    "ls": "manage:ls",
    "fork": "manage:fork",
    "close": "manage:close",
    "rm": "manage:rm",
    "subscribe": "subscriptions:subscribe",
    "subscriptions": "subscriptions:subscriptions",
    "work": "work:work",
    "secret": "sign:secret",
    "sign": "sign:sign",
    "token": "sign:token",
    "keys": "keys:keys",
    "check": "data:check",
    "backup": "data:backup",
    "restore": "data:restore",
    "compact": "compact:compact",
    "glue": "glue:glue",
    "plan": "plan:plan",
}
"""The location of each command: a module of `tailrace.cli.commands`, and a name in it."""


class Tailrace(click.Group):
    """Imports commands lazily, and reports every failure as one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command = getattr(import_module(f"{__name__}.commands.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        _check_variables()
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            release_stdout()
            ctx.exit(Exit.OK)
        except KeyboardInterrupt:
            if sys.stderr.isatty():
                click.echo(err=True)
            ctx.exit(Exit.INTERRUPTED)
        except OSError as error:
            release_stdout()
            raise Failure(error.strerror or str(error), Exit.UNEXPECTED) from None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        arguments = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(arguments, prog_name, complete_var, standalone_mode=False, **extra)
            if not standalone_mode:
                return code
        except (Failure, click.ClickException) as error:
            if not standalone_mode:
                raise
            code = report(error, as_json="--json" in arguments)
        except click.Abort:
            code = Exit.INTERRUPTED
        sys.exit(code or Exit.OK)


def _check_variables() -> None:
    """Refuse misspelt variables; a server would ignore them."""
    names = {name for name in os.environ if name.startswith("TAILRACE_")}
    if names <= {"TAILRACE_URL", "TAILRACE_TOKEN"}:
        return  # Without importing all settings, which a client does not need.
    from tailrace.configuration import find_misspelt

    for sentence in find_misspelt(os.environ):
        raise Failure(sentence, Exit.USAGE)


@click.group(cls=Tailrace, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tailrace")
@shared_options
@click.pass_context
def main(ctx: click.Context, /, **shared: Any) -> None:
    """Durable streams: append-only logs over HTTP.

    STREAM is a path such as chat/room-1 on the server at --url, or a full URL. The options of
    client commands may also come before the command.
    """
    command = main.get_command(ctx, ctx.invoked_subcommand or "")
    taken = {parameter.name for parameter in command.params} if command else set(shared)
    for name in shared:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE and name not in taken:
            option = "--json" if name == "as_json" else f"--{name}"
            raise click.UsageError(f"'{ctx.invoked_subcommand}' takes no {option}", ctx)
