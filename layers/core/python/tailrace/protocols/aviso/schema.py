"""Event types: what their identifiers are made of, who may use them, and what is kept of them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeAlias

from tailrace.errors import BadSetting
from tailrace.limits import AVISO_CLOUD_POINTS
from tailrace.protocols.aviso.document import Section
from tailrace.protocols.aviso.handlers import (
    DATE_FORMATS,
    HANDLERS,
    LEAST_INT,
    MOST_INT,
    SPATIAL_NAMES,
    Handler,
)

Roles: TypeAlias = Mapping[str, tuple[str, ...]]
"""Realm to roles; `*` is every role of it."""

_BASE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_AGE: Final = re.compile(r"([0-9]{1,12})([smhdw])", re.IGNORECASE)
_SIZE: Final = re.compile(r"([0-9]{1,15})([KMGT]i?)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_POWERS: Final = {"K": 1, "M": 2, "G": 3, "T": 4}


@dataclass(frozen=True, slots=True)
class Auth:
    """Who may use an event type. Read by anybody with a token, and written by admins only, where
    no roles are named."""

    required: bool
    read: Roles | None = None
    write: Roles | None = None


@dataclass(frozen=True, slots=True)
class Storage:
    """What of an event type can be replayed; None: no such limit."""

    seconds: int | None = None
    messages: int | None = None
    size: int | None = None
    latest: bool = False
    """Only the newest notification of each topic."""


@dataclass(frozen=True, slots=True)
class EventType:
    name: str
    base: str
    keys: tuple[Handler, ...]
    """The fields that make the topic, in its order."""
    fields: Mapping[str, Handler]
    payload_required: bool | None = None
    """None: the schema does not say, so none is needed."""
    auth: Auth | None = None
    storage: Storage = field(default_factory=Storage)
    replay_limit: int | None = None

    @property
    def path(self) -> str:
        """The stream that holds its notifications."""
        return f"aviso/{self.base}"

    @property
    def places(self) -> dict[str, int]:
        return {handler.name: place for place, handler in enumerate(self.keys)}

    def described(self) -> dict[str, Any]:
        """As the schema API shows it."""
        required = self.payload_required
        return {
            "payload": None if required is None else {"required": required},
            "identifier": {name: each.described() for name, each in self.fields.items()},
        }


def parse_events(section: Section) -> dict[str, EventType]:
    """The event types of a `notification_schema`."""
    events: dict[str, EventType] = {}
    bases: dict[str, str] = {}
    for name, each in section.sections().items():
        event = _event(name, each)
        other = bases.setdefault(event.base.lower(), name)
        if other != name:
            raise section.bad(name, f"its topic base '{event.base}' is also that of '{other}'")
        events[name] = event
    return events


def _event(name: str, section: Section) -> EventType:
    section.only(
        "topic", "identifier", "payload", "auth", "storage_policy", "endpoint",
        "max_historical_notifications",
    )  # fmt: skip
    rules = section.section("identifier")
    handlers = {key: _handler(key, each) for key, each in rules.sections().items()}
    base, keys = _topic(name, section, handlers)
    payload = section.section("payload")
    payload.only("required")
    limit = "max_historical_notifications"
    return EventType(
        name,
        base,
        tuple(handlers[key] for key in keys),
        handlers,
        payload.flag("required") if "payload" in section else None,
        _auth(section.section("auth")) if "auth" in section else None,
        _storage(section.section("storage_policy")),
        section.number(limit) if limit in section else None,
    )


def _topic(name: str, section: Section, known: Mapping[str, Handler]) -> tuple[str, list[str]]:
    plain = [key for key, handler in known.items() if not handler.spatial]
    if "topic" not in section:
        if not _BASE.fullmatch(name):
            raise section.bad("topic", f"it is missing, and '{name}' cannot be a base")
        return name, sorted(plain)
    topic = section.section("topic")
    topic.only("base", "key_order", "separator")
    base = topic.text("base")
    if not _BASE.fullmatch(base):
        raise topic.bad("base", "a base has letters, digits, - and _, and begins with no - or _")
    keys = list(topic.texts("key_order"))
    for key in keys:
        if keys.count(key) > 1:
            raise topic.bad("key_order", f"'{key}' is there twice")
        if key not in known:
            raise topic.bad("key_order", f"'{key}' has no rule in identifier")
        if known[key].spatial:
            raise topic.bad("key_order", f"'{key}' is a shape, and cannot be part of a topic")
    for key in plain:
        if key not in keys:
            raise topic.bad("key_order", f"'{key}' is missing; its values would be lost")
    return base, keys


def _handler(name: str, section: Section) -> Handler:
    kind = HANDLERS.get(section.text("type"))
    if kind is None:
        raise section.bad("type", f"there is no such type; use one of {', '.join(HANDLERS)}")
    if kind.type in SPATIAL_NAMES and name != SPATIAL_NAMES[kind.type]:
        raise section.bad("type", f"a {kind.type} is called '{SPATIAL_NAMES[kind.type]}'")
    if kind.type not in SPATIAL_NAMES and name in SPATIAL_NAMES.values():
        raise section.bad("type", f"a field called '{name}' is a shape")
    given: dict[str, Any] = {"name": name, "required": section.flag("required")}
    options = [option.name for option in fields(kind) if option.name != "name"]
    section.only("type", *options)
    for key in options:
        if key in section and key != "required":
            given[key] = _OPTIONS[key](section, key, kind.type)
    if kind.type == "EnumHandler" and not given.get("values"):
        raise section.bad("values", "it is missing: the values that there are")
    return kind(**given)


def _date_format(section: Section, key: str, _: str) -> str:
    given = section.text(key)
    if given not in DATE_FORMATS:
        raise section.bad(key, f"must be one of {', '.join(DATE_FORMATS)}")
    return given


def _range(section: Section, key: str, kind: str) -> tuple[float, float]:
    given = section.values[key]
    kinds = int if kind == "IntHandler" else (int, float)
    if not isinstance(given, list) or len(given) != 2:
        raise section.bad(key, "expected two numbers, [least, most]")
    for number in given:
        if isinstance(number, bool) or not isinstance(number, kinds) or not math.isfinite(number):
            raise section.bad(
                key, f"{number!r} is no {'whole' if kinds is int else 'finite'} number"
            )
        if kinds is int and not LEAST_INT <= number <= MOST_INT:
            raise section.bad(key, f"{number} does not fit 64 bits")
    if given[0] > given[1]:
        raise section.bad(key, "begins with the smaller number")
    return given[0], given[1]


def _points(section: Section, key: str, _: str) -> int:
    given = section.number(key)
    if given > AVISO_CLOUD_POINTS:
        raise section.bad(key, f"must be at most {AVISO_CLOUD_POINTS}")
    return given


_OPTIONS: Final[dict[str, Any]] = {
    "description": lambda section, key, _: section.text(key),
    "max_length": lambda section, key, _: section.number(key),
    "canonical_format": _date_format,
    "values": lambda section, key, _: section.texts(key),
    "default": lambda section, key, _: section.text(key),
    "range": _range,
    "max_points": _points,
}


def _auth(section: Section) -> Auth:
    section.only("required", "read_roles", "write_roles", "plugins")
    if "plugins" in section:
        raise section.bad("plugins", "there are none here")
    required = section.flag("required")
    read, write = (
        parse_roles(section.section(key)) if key in section else None
        for key in ("read_roles", "write_roles")
    )
    if not required and (read is not None or write is not None):
        raise section.bad("required", "roles count only where it is true")
    return Auth(required, read, write)


def parse_roles(section: Section) -> Roles:
    """Realms and their roles."""
    if not section.values:
        raise section.bad("", "expected at least one realm with its roles")
    roles = {realm: section.texts(realm) for realm in section.values}
    for realm, names in roles.items():
        if any(each != each.strip() or not each for each in (realm, *names)):
            raise section.bad(realm, "a name has no space around it")
    return roles


def _storage(section: Section) -> Storage:
    section.only("retention_time", "max_messages", "max_size", "allow_duplicates", "compression")
    seconds = size = None
    if "retention_time" in section:
        match = _AGE.fullmatch(section.text("retention_time"))
        if match is None or not int(match[1]):
            raise section.bad("retention_time", "expected a number and s, m, h, d or w, such as 7d")
        seconds = int(match[1]) * _SECONDS[match[2].lower()]
    if "max_size" in section:
        match = _SIZE.fullmatch(section.text("max_size"))
        if match is None or not int(match[1]):
            raise section.bad("max_size", "expected a number and K, Ki, M, Mi, G, Gi, T or Ti")
        size = int(match[1]) * (1024 if match[2][1:] else 1000) ** _POWERS[match[2][0]]
    if "compression" in section:
        section.flag("compression")
    latest = "allow_duplicates" in section and not section.flag("allow_duplicates")
    messages = section.number("max_messages") if "max_messages" in section else None
    return Storage(seconds, messages, size, latest)


def require_doors(events: Mapping[str, EventType]) -> None:
    """Where nobody is asked who they are, nobody has a role."""
    for event in events.values():
        if event.auth is not None and event.auth.required:
            raise BadSetting(
                f"the event type '{event.name}' is not for everybody, but the server is open: give"
                " TAILRACE_SECRET or a jwt setting, or say TAILRACE_ACCESS=open"
            )
