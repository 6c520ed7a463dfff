"""What `cdk -c name=value` and cdk.json say, read one switch at a time."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from typing import Any, Final, NoReturn

from tailrace.auth.origins import Origins
from tailrace.errors import BadSetting
from tailrace.log.retention import Retention
from tailrace.protocols.aviso.config import given_roles

_SWITCH: Final = re.compile(r"[a-z_]+")
"""The names of context that is CDK's own have a colon, a slash or a dash."""

_FLAGS: Final = {"true": True, "false": False}


class Context:
    """Each switch is asked for once; a value that it does not take ends the synthesis."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {
            name: str(value).strip()
            for name, value in values.items()
            if value is not None and _SWITCH.fullmatch(name)
        }
        self._known: list[str] = []

    def flag(self, name: str, default: bool) -> bool:
        value = self._take(name, str(default)).lower()
        if value not in _FLAGS:
            _refuse(name, value, "true or false")
        return _FLAGS[value]

    def choice(self, name: str, default: str, choices: Collection[str]) -> str:
        value = self._take(name, default)
        if value not in choices:
            _refuse(name, value, " or ".join(choices))
        return value

    def count(self, name: str, default: int, least: int = 0, most: int | None = None) -> int:
        value = self._take(name, str(default))
        bounds = f"at least {least}" if most is None else f"{least} to {most}"
        if not value.isdecimal() or int(value) < least or (most and int(value) > most):
            _refuse(name, value, f"a whole number, {bounds}")
        return int(value)

    def text(self, name: str, wanted: str, pattern: str) -> str | None:
        value = self._take(name, "")
        if value and not re.fullmatch(pattern, value):
            _refuse(name, value, wanted)
        return value or None

    def networks(self, name: str) -> tuple[str, ...]:
        value = self._take(name, "")
        try:
            return tuple(
                str(ipaddress.ip_network(part.strip())) for part in value.split(",") if part
            )
        except ValueError:
            _refuse(name, value, "addresses or networks such as 203.0.113.0/24,2001:db8::/32")

    def origins(self, name: str) -> str:
        value = self._take(name, "")
        try:
            Origins(value)
        except BadSetting:
            _refuse(name, value, "origins such as https://a.example,*.b.example")
        return value

    def retention(self, name: str) -> str | None:
        value = self._take(name, "")
        try:
            Retention.parse(value)
        except BadSetting:
            _refuse(name, value, "rules such as logs/*=7d,1GB; **=90d")
        return value or None

    def roles(self, name: str) -> str:
        value = self._take(name, "")
        try:
            given_roles(value)
        except BadSetting:
            _refuse(name, value, "roles by realm such as ops=admin,lead; lab=*")
        return value

    def end(self) -> None:
        """Everything was asked for: what is left is a switch that does not exist."""
        for name in self._values.keys() - set(self._known):
            known = ", ".join(sorted(self._known))
            raise SystemExit(f"there is no switch {name!r}; there are {known}")

    def _take(self, name: str, default: str) -> str:
        self._known.append(name)
        return self._values.get(name, default)


def _refuse(name: str, value: str, wanted: str) -> NoReturn:
    raise SystemExit(f"{name} must be {wanted}, not {value!r}: cdk … -c {name}=…")
