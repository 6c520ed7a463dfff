"""`tailrace serve`: one flag per setting, derived from `Settings`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final

import click

from tailrace.cli.failures import Exit, Failure
from tailrace.errors import BadSetting, TailraceError
from tailrace.settings import Settings, variable

_METAVARS: Final = {int: "INTEGER", float: "NUMBER", str: "TEXT"}


def settings_flags(command: Callable[..., None]) -> Callable[..., None]:
    for knob in reversed(fields(Settings)):
        if not knob.metadata["serve"]:
            continue
        flag = f"--{knob.name.replace('_', '-')}"
        default = f"default: {knob.default}; " if knob.default != "" else ""
        shape: dict[str, Any] = (
            {"is_flag": True, "default": None}
            if type(knob.default) is bool
            else {"metavar": _METAVARS[type(knob.default)]}
        )
        command = click.option(
            flag,
            knob.name,
            help=f"{knob.metadata['doc']}  [{default}env: {variable(knob)}]",
            **shape,
        )(command)
    return command


@click.command()
@settings_flags
def serve(**flags: Any) -> None:
    """Run the server.

    It ends with Ctrl-C or SIGTERM, after the requests under way.
    """
    try:
        settings = Settings.from_env(**flags)
        from tailrace.server import serve as run

        run(settings)
    except TailraceError as error:
        code = Exit.USAGE if isinstance(error, BadSetting) else Exit.UNEXPECTED
        raise Failure(str(error), code, code=error.code) from None
    except OSError as error:
        raise Failure(f"cannot serve: {error}", Exit.UNEXPECTED) from None
