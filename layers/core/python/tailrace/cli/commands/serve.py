"""`tailrace serve`, with one flag per setting, and `tailrace config`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Any, Final

import click

from tailrace.cli.exit_codes import Exit, Failure
from tailrace.cli.options import Output, format_table
from tailrace.configuration import find_config, load_settings
from tailrace.errors import BadSetting, TailraceError
from tailrace.settings import GROUPS, flag, given, variable

_METAVARS: Final = {int: "INTEGER", float: "NUMBER", str: "TEXT"}
_HIDDEN: Final = "(hidden)"


class SettingOption(click.Option):
    """The flag of a setting; a switch can be turned off as well."""

    def __init__(self, setting: Field[Any], section: str) -> None:
        self.section = section
        metadata, name = setting.metadata, flag(setting)
        default = f"default: {setting.default}; " if setting.default != "" else ""
        text = f"{metadata['doc']}  [{default}env: {variable(setting)}]"
        if type(setting.default) is bool:
            switch = f"{name}/--no-{name.removeprefix('--')}"
            super().__init__([switch, setting.name], help=text, default=None)
        else:
            choices = metadata["choices"]
            metavar = f"[{'|'.join(choices)}]" if choices else _METAVARS[type(setting.default)]
            super().__init__([name, setting.name], help=text, metavar=metavar)


class SettingsCommand(click.Command):
    """A command with a flag per setting, which its help lists as the documentation does."""

    def __init__(self, *args: Any, **extra: Any) -> None:
        super().__init__(*args, **extra)
        self.params += [
            SettingOption(setting, title)
            for title, group in GROUPS.items()
            for setting in fields(group)
            if setting.metadata["serve"]
        ]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(option, "section", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


config_option: Final[Callable[..., Any]] = click.option(
    "--config",
    metavar="FILE",
    help="Config file, as `long_poll_timeout = 10`.  [default: tailrace.toml if there is one;"
    " env: TAILRACE_CONFIG]",
)


@click.command(cls=SettingsCommand)
@config_option
def serve(config: str | None, **flags: Any) -> None:
    """Run the server.

    Ctrl-C or SIGTERM stops it after the requests in progress. A flag precedes its variable, which
    precedes the config file.
    """
    try:
        file = find_config(config)
        settings = load_settings(file=file, **flags)
        if file.path:
            click.echo(f"Settings from {file.path}", err=True)
        from tailrace.server import serve as run

        run(settings)
    except TailraceError as error:
        code = Exit.USAGE if isinstance(error, BadSetting) else Exit.UNEXPECTED
        raise Failure(str(error), code, code=error.code) from None
    except OSError as error:
        raise Failure(f"cannot serve: {error}", Exit.UNEXPECTED) from None


@click.command("config", cls=SettingsCommand)
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show_config(config: str | None, as_json: bool, **flags: Any) -> None:
    """Print the settings in force, and where each value comes from.

    It takes the flags of `serve`. Secrets are not shown.
    """
    try:
        file = find_config(config)
        settings = load_settings(file=file, **flags)
    except BadSetting as error:
        raise Failure(str(error), Exit.USAGE, code=error.code) from None
    sources = {each.setting.name: each.source for each in given(os.environ, file, flags)}
    values = {
        setting.name: _HIDDEN
        if setting.metadata["secret"] and setting.name in sources
        else getattr(settings, setting.name)
        for group in GROUPS.values()
        for setting in fields(group)
    }
    if as_json:
        rows = {
            name: {"value": value, "source": sources.get(name, "default")}
            for name, value in values.items()
        }
        Output(as_json).result("", config_file=file.path, settings=rows)
    else:
        table = [(name, str(value), sources.get(name, "")) for name, value in values.items()]
        Output(as_json).line(format_table([("SETTING", "VALUE", "FROM"), *table]))
