"""Event types: the fields of their identifiers, their access rules and their storage policy."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeAlias

from tailrace.errors import BadSetting
from tailrace.limits import AVISO_CLOUD_POINTS, AVISO_NAME_BYTES, AVISO_OPEN_FIELDS
from tailrace.protocols.aviso.document import Section
from tailrace.protocols.aviso.field_handlers import (
    DATE_FORMATS,
    HANDLERS,
    MAX_INT,
    MIN_INT,
    POLYGON,
    SPATIAL_NAMES,
    Handler,
    StringHandler,
)

Roles: TypeAlias = Mapping[str, tuple[str, ...]]
"""The roles of each realm; `*` stands for all roles of the realm."""

_BASE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_AGE: Final = re.compile(r"([0-9]{1,12})([smhdw])", re.IGNORECASE)
_SIZE: Final = re.compile(r"([0-9]{1,15})([KMGT]i?)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_POWERS: Final = {"K": 1, "M": 2, "G": 3, "T": 4}


@dataclass(frozen=True, slots=True)
class EventAuth:
    """Access rules of an event type.

    Without roles, everybody with a valid token may read, and only admins may write."""

    required: bool
    read: Roles | None = None
    write: Roles | None = None


@dataclass(frozen=True, slots=True)
class StoragePolicy:
    """Limits of the history that can be replayed; None means no limit."""

    seconds: int | None = None
    messages: int | None = None
    size: int | None = None
    latest: bool = False
    """Whether only the newest notification of each topic is replayed."""


@dataclass(frozen=True, slots=True)
class EventType:
    name: str
    base: str
    keys: tuple[Handler, ...]
    """The fields of the topic, in its order."""
    fields: Mapping[str, Handler]
    payload_required: bool | None = None
    """None if the schema does not say; then it is optional."""
    auth: EventAuth | None = None
    storage: StoragePolicy = field(default_factory=StoragePolicy)
    replay_limit: int | None = None
    schemaless: bool = False
    """Whether no schema names it: each of its notifications may have other fields."""

    @property
    def label(self) -> str:
        """The value of the label `event_type` of metrics; types that no schema names share one."""
        return "generic" if self.schemaless else self.name

    @property
    def path(self) -> str:
        """The path of the stream with its notifications."""
        return f"aviso/{self.base}"

    def describe(self) -> dict[str, Any]:
        """Describe the event type for the schema API."""
        required = self.payload_required
        return {
            "payload": None if required is None else {"required": required},
            "identifier": {name: handler.describe() for name, handler in self.fields.items()},
        }


class EventTypes(dict[str, EventType]):
    """The event types that the schema names; if it is not strict, requests may use others."""

    def __init__(self, named: Mapping[str, EventType], *, strict: bool) -> None:
        super().__init__(named)
        self.strict = strict
        self._reserved = {
            each.lower() for event in named.values() for each in (event.name, event.base)
        }

    def find(self, name: str, identifier: Iterable[str] = ()) -> EventType | None:
        """The event type of a request; None if it needs a schema and has none.

        Without a schema, all fields of the identifier are optional texts but `polygon`. A
        ValueError says why there can be no such event type."""
        if name in self or self.strict:
            return self.get(name)
        if not _BASE.fullmatch(name) or len(name) > AVISO_NAME_BYTES:
            raise ValueError(
                "the name of an event type without a schema must consist of letters, digits, - and"
                f" _, start with a letter or a digit, and have at most {AVISO_NAME_BYTES} bytes"
            )
        if name.lower() in self._reserved:
            raise ValueError(f"'{name}' is the name or the topic base of another event type")
        names = sorted(set(identifier) - {"point", "polygon"})
        if len(names) > AVISO_OPEN_FIELDS:
            raise ValueError(
                f"an identifier has at most {AVISO_OPEN_FIELDS} fields if it has no schema"
            )
        keys = tuple(StringHandler(name=each, required=False) for each in names)
        handlers: dict[str, Handler] = {handler.name: handler for handler in keys}
        if "polygon" in identifier:
            handlers["polygon"] = POLYGON
        return EventType(name, name, keys, handlers, schemaless=True)


def parse_events(section: Section) -> dict[str, EventType]:
    """Parse the event types in a `notification_schema`."""
    events: dict[str, EventType] = {}
    bases: dict[str, str] = {}
    for name, each in section.sections().items():
        event = _parse_event(name, each)
        other = bases.setdefault(event.base.lower(), name)
        if other != name:
            raise section.error(name, f"the topic base '{event.base}' is already used by '{other}'")
        events[name] = event
    return events


def _parse_event(name: str, section: Section) -> EventType:
    section.refuse_other_keys(
        "topic", "identifier", "payload", "auth", "storage_policy", "endpoint",
        "max_historical_notifications",
    )  # fmt: skip
    rules = section.section("identifier")
    handlers = {key: _parse_handler(key, each) for key, each in rules.sections().items()}
    base, keys = _parse_topic(name, section, handlers)
    payload = section.section("payload")
    payload.refuse_other_keys("required")
    limit = "max_historical_notifications"
    return EventType(
        name,
        base,
        tuple(handlers[key] for key in keys),
        handlers,
        payload.flag("required") if "payload" in section else None,
        _parse_auth(section.section("auth")) if "auth" in section else None,
        _parse_storage_policy(section.section("storage_policy")),
        section.number(limit) if limit in section else None,
    )


def _parse_topic(
    name: str, section: Section, handlers: Mapping[str, Handler]
) -> tuple[str, list[str]]:
    plain = [key for key, handler in handlers.items() if not handler.spatial]
    if "topic" not in section:
        if not _BASE.fullmatch(name):
            raise section.error("topic", f"is missing, and '{name}' is not a valid topic base")
        return name, sorted(plain)
    topic = section.section("topic")
    topic.refuse_other_keys("base", "key_order", "separator")
    base = topic.text("base")
    if not _BASE.fullmatch(base):
        raise topic.error(
            "base", "must consist of letters, digits, - and _, and start with a letter or a digit"
        )
    keys = list(topic.texts("key_order"))
    for key in keys:
        if keys.count(key) > 1:
            raise topic.error("key_order", f"'{key}' occurs twice")
        if key not in handlers:
            raise topic.error("key_order", f"'{key}' is not a field of identifier")
        if handlers[key].spatial:
            raise topic.error(
                "key_order", f"'{key}' is a spatial field and cannot be part of a topic"
            )
    for key in plain:
        if key not in keys:
            raise topic.error(
                "key_order", f"'{key}' is missing: only fields of the topic are stored"
            )
    return base, keys


def _parse_handler(name: str, section: Section) -> Handler:
    kind = HANDLERS.get(section.text("type"))
    if kind is None:
        raise section.error("type", f"unknown type; the known ones are {', '.join(HANDLERS)}")
    if kind.type in SPATIAL_NAMES and name != SPATIAL_NAMES[kind.type]:
        raise section.error(
            "type", f"a field of type {kind.type} must be named '{SPATIAL_NAMES[kind.type]}'"
        )
    if kind.type not in SPATIAL_NAMES and name in SPATIAL_NAMES.values():
        raise section.error("type", f"a field named '{name}' must have a spatial type")
    arguments: dict[str, Any] = {"name": name, "required": section.flag("required")}
    options = [option.name for option in fields(kind) if option.name != "name"]
    section.refuse_other_keys("type", *options)
    for key in options:
        if key in section and key != "required":
            arguments[key] = _OPTIONS[key](section, key, kind.type)
    if kind.type == "EnumHandler" and not arguments.get("values"):
        raise section.error("values", "is missing: list the values of the enum")
    return kind(**arguments)


def _parse_date_format(section: Section, key: str, _: str) -> str:
    date_format = section.text(key)
    if date_format not in DATE_FORMATS:
        raise section.error(key, f"must be one of {', '.join(DATE_FORMATS)}")
    return date_format


def _parse_range(section: Section, key: str, kind: str) -> tuple[float, float]:
    bounds = section.values[key]
    kinds = int if kind == "IntHandler" else (int, float)
    if not isinstance(bounds, list) or len(bounds) != 2:
        raise section.error(key, "expected two numbers, [lowest, highest]")
    for number in bounds:
        if isinstance(number, bool) or not isinstance(number, kinds) or not math.isfinite(number):
            raise section.error(
                key, f"{number!r} is not {'an integer' if kinds is int else 'a finite number'}"
            )
        if kinds is int and not MIN_INT <= number <= MAX_INT:
            raise section.error(key, f"{number} does not fit in 64 bits")
    if bounds[0] > bounds[1]:
        raise section.error(key, "the smaller number must come first")
    return bounds[0], bounds[1]


def _parse_max_points(section: Section, key: str, _: str) -> int:
    max_points = section.number(key)
    if max_points > AVISO_CLOUD_POINTS:
        raise section.error(key, f"must be at most {AVISO_CLOUD_POINTS}")
    return max_points


_OPTIONS: Final[dict[str, Any]] = {
    "description": lambda section, key, _: section.text(key),
    "max_length": lambda section, key, _: section.number(key),
    "canonical_format": _parse_date_format,
    "values": lambda section, key, _: section.texts(key),
    "default": lambda section, key, _: section.text(key),
    "range": _parse_range,
    "max_points": _parse_max_points,
}


def _parse_auth(section: Section) -> EventAuth:
    section.refuse_other_keys("required", "read_roles", "write_roles", "plugins")
    if "plugins" in section:
        raise section.error("plugins", "plugins are not supported")
    required = section.flag("required")
    read, write = (
        parse_roles(section.section(key)) if key in section else None
        for key in ("read_roles", "write_roles")
    )
    if not required and (read is not None or write is not None):
        raise section.error("required", "must be true for an event type with roles")
    return EventAuth(required, read, write)


def parse_roles(section: Section) -> Roles:
    """Parse the roles of each realm."""
    if not section.values:
        raise section.error("", "expected at least one realm with roles")
    roles = {realm: section.texts(realm) for realm in section.values}
    for realm, names in roles.items():
        if any(each != each.strip() or not each for each in (realm, *names)):
            raise section.error(realm, "names must not be empty or have spaces around them")
    return roles


def _parse_storage_policy(section: Section) -> StoragePolicy:
    section.refuse_other_keys(
        "retention_time", "max_messages", "max_size", "allow_duplicates", "compression"
    )
    seconds = size = None
    if "retention_time" in section:
        match = _AGE.fullmatch(section.text("retention_time"))
        if match is None or not int(match[1]):
            raise section.error(
                "retention_time", "expected a number with the unit s, m, h, d or w, such as 7d"
            )
        seconds = int(match[1]) * _SECONDS[match[2].lower()]
    if "max_size" in section:
        match = _SIZE.fullmatch(section.text("max_size"))
        if match is None or not int(match[1]):
            raise section.error(
                "max_size",
                "expected a number with the unit K, Ki, M, Mi, G, Gi, T or Ti, such as 1Gi",
            )
        size = int(match[1]) * (1024 if match[2][1:] else 1000) ** _POWERS[match[2][0]]
    if "compression" in section:
        section.flag("compression")
    latest = "allow_duplicates" in section and not section.flag("allow_duplicates")
    messages = section.number("max_messages") if "max_messages" in section else None
    return StoragePolicy(seconds, messages, size, latest)


def refuse_auth_on_open_server(events: Mapping[str, EventType]) -> None:
    """Refuse event types that require authentication on a server that has none."""
    for event in events.values():
        if event.auth is not None and event.auth.required:
            raise BadSetting(
                f"the event type '{event.name}' requires authentication, but the server is open:"
                " set TAILRACE_SECRET or the jwt settings, or TAILRACE_ACCESS=open to allow"
                " everybody"
            )
