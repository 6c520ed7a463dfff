"""`tailrace serve`: one flag per setting, derived from `Settings`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final

import click

from tailrace.cli.exit_codes import Exit, Failure
from tailrace.configuration import load_settings
from tailrace.errors import BadSetting, TailraceError
from tailrace.settings import Settings, variable

_METAVARS: Final = {int: "INTEGER", float: "NUMBER", str: "TEXT"}


def add_settings_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Add a flag for every setting of the server."""
    for setting in reversed(fields(Settings)):
        if not setting.metadata["serve"]:
            continue
        flag = f"--{setting.name.replace('_', '-')}"
        default = f"default: {setting.default}; " if setting.default != "" else ""
        options: dict[str, Any] = (
            {"is_flag": True, "default": None}
            if type(setting.default) is bool
            else {"metavar": _METAVARS[type(setting.default)]}
        )
        command = click.option(
            flag,
            setting.name,
            help=f"{setting.metadata['doc']}  [{default}env: {variable(setting)}]",
            **options,
        )(command)
    return command


@click.command()
@add_settings_flags
def serve(**flags: Any) -> None:
    """Run the server.

    Ctrl-C or SIGTERM stops it after the requests in progress.
    """
    try:
        settings = load_settings(**flags)
        from tailrace.server import serve as run

        run(settings)
    except TailraceError as error:
        code = Exit.USAGE if isinstance(error, BadSetting) else Exit.UNEXPECTED
        raise Failure(str(error), code, code=error.code) from None
    except OSError as error:
        raise Failure(f"cannot serve: {error}", Exit.UNEXPECTED) from None
