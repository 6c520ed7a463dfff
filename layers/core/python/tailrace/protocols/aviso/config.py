"""Configuration of Aviso: the settings, and a configuration file for those that are not set.

The file has the format of an aviso-server configuration, of which some keys have no effect here:
the log names those that are set. A file may also contain event types only.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import Any, Final

from tailrace.auth.authorizer import is_open
from tailrace.errors import BadSetting
from tailrace.protocols.aviso.document import Section, read_document
from tailrace.protocols.aviso.event_types import (
    EventTypes,
    Roles,
    parse_events,
    parse_roles,
    refuse_auth_on_open_server,
)
from tailrace.settings import Settings

SCHEMA: Final = "notification_schema"
STRICT: Final = "notification_schema_strict"

_BLOCKS: Final = (
    SCHEMA, STRICT, "application", "watch_endpoint", "auth", "metrics",
    "notification_backend", "logging",
)  # fmt: skip

_IN_FILE: Final = {
    "aviso_heartbeat": ("watch_endpoint", "sse_heartbeat_interval_sec"),
    "aviso_max_duration": ("watch_endpoint", "connection_max_duration_sec"),
    "aviso_batch": ("watch_endpoint", "replay_batch_size"),
    "aviso_replay_limit": ("watch_endpoint", "max_historical_notifications"),
    "aviso_base_url": ("application", "base_url"),
}

_ADMIN_ROLES: Final = ("auth", "admin_roles")
_USED: Final = {*_IN_FILE.values(), _ADMIN_ROLES}
_UNUSED_IN_EVENTS: Final = (("topic", "separator"), ("storage_policy", "compression"))
"""Keys of an event type that are accepted, besides `endpoint`, and have no effect."""

_VARIABLES: Final = "AVISOSERVER_"

logger = logging.getLogger("tailrace")

LOCAL_URL: Final = "http://localhost"


@dataclass(frozen=True, slots=True)
class AvisoConfig:
    events: EventTypes
    base_url: str
    heartbeat: float
    max_duration: float
    batch: int
    replay_limit: int
    admin_roles: Roles

    @classmethod
    def load(cls, settings: Settings) -> AvisoConfig:
        document = _read_document(settings)
        schema = document.section(SCHEMA)
        if not any(key in document.values for key in _BLOCKS):
            schema, document = document, Section.parse("", document.name)
        config = cls._merge(settings, schema, document)
        if unused := [*_unused_keys(schema, document), *_unused_variables()]:
            logger.warning("these settings of aviso-server have no effect: %s", ", ".join(unused))
        return config

    @classmethod
    def _merge(cls, settings: Settings, schema: Section, document: Section) -> AvisoConfig:
        named = parse_events(schema)
        strict = document.flag(STRICT) if STRICT in document else bool(named)
        events = EventTypes(named, strict=strict)
        # A function reads its policy from the access secret, which can change while it runs: an
        # open server today may be a closed one tomorrow.
        if is_open(settings) and settings.access != "open" and not settings.access_secret:
            refuse_auth_on_open_server(events)
        values = {name: _get_value(settings, document, name) for name in _IN_FILE}
        base_url = values["aviso_base_url"] or settings.public_url or LOCAL_URL
        roles = parse_admin_roles(settings.aviso_admin_roles)
        block, key = _ADMIN_ROLES
        auth = document.section(block)
        if not roles and key in auth:
            roles = parse_roles(auth.section(key))
        return cls(
            events,
            base_url,
            float(values["aviso_heartbeat"]),
            float(values["aviso_max_duration"]),
            int(values["aviso_batch"]),
            int(values["aviso_replay_limit"]),
            roles,
        )


def _read_document(settings: Settings) -> Section:
    if settings.aviso_schema:
        return read_document(settings.aviso_schema, settings.endpoint_url)
    packaged = files("tailrace.protocols.aviso").joinpath("schema.yaml").read_text(encoding="utf-8")
    return Section.parse(packaged, "the packaged schema")


def _get_value(settings: Settings, document: Section, name: str) -> Any:
    """A setting, or the value in the file where the setting has its default."""
    value = getattr(settings, name)
    (setting,) = (field for field in fields(Settings) if field.name == name)
    block, key = _IN_FILE[name]
    section = document.section(block)
    if value != setting.default or key not in section:
        return value
    return section.text(key) if isinstance(value, str) else section.number(key)


def _unused_keys(schema: Section, document: Section) -> Iterator[str]:
    blocks = {block for block, _ in _USED}
    for block in sorted(document.values.keys() - {SCHEMA, STRICT}):
        if block in blocks:
            keys = document.section(block).values
            yield from (f"{block}.{key}" for key in keys if (block, key) not in _USED)
        else:
            yield block
    for event, section in schema.sections().items():
        if "endpoint" in section:
            yield f"{event}.endpoint"
        for block, key in _UNUSED_IN_EVENTS:
            if key in section.section(block):
                yield f"{event}.{block}.{key}"


def _unused_variables() -> list[str]:
    used = {field.metadata["fallback"] for field in fields(Settings)}
    return sorted({name for name in os.environ if name.startswith(_VARIABLES)} - used)


def parse_admin_roles(text: str) -> Roles:
    """Parse `realm=role,role; realm=*`, the form of `TAILRACE_AVISO_ADMIN_ROLES`."""
    roles: dict[str, tuple[str, ...]] = {}
    for rule in filter(None, map(str.strip, text.split(";"))):
        realm, _, names = rule.partition("=")
        role_names = tuple(filter(None, map(str.strip, names.split(","))))
        if not realm.strip() or not role_names:
            raise BadSetting(
                f"TAILRACE_AVISO_ADMIN_ROLES: '{rule}' is not of the form REALM=ROLE,ROLE"
            )
        roles[realm.strip()] = role_names
    return roles
