"""The CDK context, from `cdk -c name=value` and cdk.json, read one switch at a time."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from typing import Any, Final, NoReturn

from tailrace.auth.origins import Origins
from tailrace.errors import BadSetting
from tailrace.log.retention import Retention
from tailrace.protocols.aviso.config import parse_admin_roles
from tailrace.settings import Settings, check_route

_SWITCH: Final = re.compile(r"[a-z_]+")
"""Switches; CDK's own context keys contain a colon, a slash or a dash."""

_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)?")

_ZONE: Final = re.compile(r"[a-z]+\d-az\d")
ZONES: Final = 2
"""The availability zones of a load balancer: at least so many."""

_BOOLEANS: Final = {"true": True, "false": False}


class Context:
    """Parses each switch once; an invalid value ends the synthesis with a message."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {
            name: str(value).strip()
            for name, value in values.items()
            if value is not None and _SWITCH.fullmatch(name)
        }
        self._names: list[str] = []

    def flag(self, name: str, default: bool) -> bool:
        value = self._read(name, str(default)).lower()
        if value not in _BOOLEANS:
            _reject(name, value, "true or false")
        return _BOOLEANS[value]

    def choice(self, name: str, default: str, choices: Collection[str]) -> str:
        value = self._read(name, default).lower()
        if value not in choices:
            _reject(name, value, " or ".join(choices))
        return value

    def count(self, name: str, default: int, least: int = 0, most: int | None = None) -> int:
        value = self._read(name, str(default))
        bounds = f"at least {least}" if most is None else f"{least} to {most}"
        if not value.isdecimal() or int(value) < least or (most and int(value) > most):
            _reject(name, value, f"a whole number, {bounds}")
        return int(value)

    def setting(self, name: str) -> float:
        """Read a switch that has the name, default and bounds of a setting in seconds."""
        field = Settings.__dataclass_fields__[name]
        least, most = field.metadata["least"], field.metadata["most"]
        value = self._read(name, str(field.default))
        if not _NUMBER.fullmatch(value) or not least <= float(value) <= most:
            _reject(name, value, f"seconds, {least:g} to {most:g}")
        return float(value)

    def text(self, name: str, expected: str, pattern: str) -> str | None:
        value = self._read(name, "")
        if value and not re.fullmatch(pattern, value):
            _reject(name, value, expected)
        return value or None

    def networks(self, name: str) -> tuple[str, ...]:
        value = self._read(name, "")
        try:
            return tuple(
                str(ipaddress.ip_network(part.strip())) for part in value.split(",") if part
            )
        except ValueError:
            _reject(name, value, "addresses or networks such as 203.0.113.0/24,2001:db8::/32")

    def origins(self, name: str) -> str:
        value = self._read(name, "")
        try:
            Origins(value)
        except BadSetting:
            _reject(name, value, "origins such as https://a.example,*.b.example")
        return value

    def mount(self, name: str, default: str) -> str:
        value = self._read(name, default)
        try:
            check_route(value)
        except BadSetting:
            _reject(name, value, "empty or a path such as /ds")
        return value

    def retention(self, name: str) -> str | None:
        value = self._read(name, "")
        try:
            Retention.parse(value)
        except BadSetting:
            _reject(name, value, "rules such as logs/*=7d,1GB; **=90d")
        return value or None

    def zones(self, name: str) -> tuple[str, ...]:
        value = self._read(name, "")
        zones = tuple(part.strip() for part in value.split(",") if part)
        if zones and (len(set(zones)) != ZONES or not all(map(_ZONE.fullmatch, zones))):
            _reject(name, value, "the ids of two availability zones such as use1-az1,use1-az2")
        return zones

    def roles(self, name: str) -> str:
        value = self._read(name, "")
        try:
            parse_admin_roles(value)
        except BadSetting:
            _reject(name, value, "roles by realm such as ops=admin,lead; lab=*")
        return value

    def reject_unknown(self) -> None:
        """Call this after reading all switches: any other name is a mistake."""
        for name in self._values.keys() - set(self._names):
            names = ", ".join(sorted(self._names))
            raise SystemExit(f"there is no switch {name!r}; the switches are {names}")

    def _read(self, name: str, default: str) -> str:
        self._names.append(name)
        return self._values.get(name, default)


def _reject(name: str, value: str, expected: str) -> NoReturn:
    raise SystemExit(f"{name} must be {expected}, not {value!r}: cdk … -c {name}=…")
