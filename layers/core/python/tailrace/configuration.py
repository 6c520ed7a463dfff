"""Settings from flags, the environment and the config file, validated by their components.

`tailrace.settings` imports no component, so it validates only numbers, switches and choices.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from tailrace.auth.credentials import check_parameter
from tailrace.auth.jwks import check_source
from tailrace.auth.origins import Origins, check_hosts
from tailrace.auth.proxies import Proxies
from tailrace.errors import BadSetting
from tailrace.log.quota import Quota
from tailrace.log.retention import Retention
from tailrace.settings import NO_FILE, PREFIX, ConfigFile, Settings, given, variable

CHECKS: Final[Mapping[str, Callable[[str], object]]] = {
    "streams_per_prefix": Quota.parse,
    "retention": Retention.parse,
    "jwks": check_source,
    "jwt_param": check_parameter,
    "allowed_hosts": check_hosts,
    "trusted_proxies": Proxies,
    "allowed_origins": Origins,
}
"""For each setting, a function that raises `BadSetting` for an invalid value."""

CONFIG: Final = PREFIX + "CONFIG"
DEFAULT_CONFIG: Final = "tailrace.toml"

CLI_VARIABLES: Final = (CONFIG, PREFIX + "URL", PREFIX + "TOKEN")
"""Variables of the command line that are not settings."""


def load_settings(
    env: Mapping[str, str] | None = None, file: ConfigFile = NO_FILE, **flags: Any
) -> Settings:
    """Read settings; `flags` that are not None precede the environment, which precedes the file."""
    settings = Settings.from_values(given(os.environ if env is None else env, file, flags))
    for name, check in CHECKS.items():
        check(getattr(settings, name))
    return settings


def find_config(path: str | None = None) -> ConfigFile:
    """Read the config file: the one given, else that of TAILRACE_CONFIG, else `tailrace.toml` in
    the working directory if there is one."""
    path = path or os.environ.get(CONFIG) or ""
    if not path and not Path(DEFAULT_CONFIG).exists():
        return NO_FILE
    return read_config(path or DEFAULT_CONFIG)


def read_config(path: str) -> ConfigFile:
    """Read a config file; raise BadSetting if it is not one, or if others may read its secrets."""
    import tomllib

    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            values = tomllib.load(file)
    except OSError as error:
        raise BadSetting(f"cannot read the config file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSetting(f"the config file {path} is not valid TOML: {error}") from None
    settings = {setting.name: setting for setting in fields(Settings)}
    for name, value in values.items():
        if not isinstance(value, str | int | float):
            raise BadSetting(f"{name} in {path} must be a text, a number or true or false")
        if name not in settings:
            raise BadSetting(
                f"the config file {path} has an unknown key {_or_nearest(name, settings)}"
            )
        if settings[name].metadata["secret"] and mode & 0o077:
            raise BadSetting(
                f"the config file {path} holds a secret that other users may read: chmod 600 {path}"
            )
    return ConfigFile(path, values)


def find_misspelt(env: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each variable that looks like a setting and is none."""
    known: set[str] | None = None
    for name in env:
        if name.startswith(PREFIX) and name not in CLI_VARIABLES:
            known = known or {*CLI_VARIABLES, *map(variable, fields(Settings))}
            if name not in known:
                yield f"unknown variable {_or_nearest(name, known)}"


def _or_nearest(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    bare = {each.removeprefix(PREFIX): each for each in known}
    nearest = get_close_matches(name.removeprefix(PREFIX), bare, 1)
    fix = f"did you mean {bare[nearest[0]]}?" if nearest else "`tailrace config` lists all"
    return f"{name}; {fix}"
