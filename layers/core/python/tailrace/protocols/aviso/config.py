"""Configuration of Aviso: the settings, and a configuration file for those that are not set.

The file has the format of an aviso-server configuration. Of that, `notification_schema`,
`application.base_url`, `watch_endpoint` and `auth.admin_roles` are used, and sections about other
parts of such a server are ignored. A file may also contain event types only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import Any, Final

from tailrace.auth.authorizer import is_open
from tailrace.errors import BadSetting
from tailrace.protocols.aviso.document import Section, read_document
from tailrace.protocols.aviso.event_types import (
    EventType,
    Roles,
    parse_events,
    parse_roles,
    refuse_auth_on_open_server,
)
from tailrace.settings import Settings

SCHEMA: Final = "notification_schema"

_BLOCKS: Final = (
    SCHEMA, "notification_schema_strict", "application", "watch_endpoint", "auth", "metrics",
    "notification_backend", "logging",
)  # fmt: skip

_IN_FILE: Final = {
    "aviso_heartbeat": ("watch_endpoint", "sse_heartbeat_interval_sec"),
    "aviso_max_duration": ("watch_endpoint", "connection_max_duration_sec"),
    "aviso_batch": ("watch_endpoint", "replay_batch_size"),
    "aviso_replay_limit": ("watch_endpoint", "max_historical_notifications"),
    "aviso_base_url": ("application", "base_url"),
}

LOCAL_URL: Final = "http://localhost"


@dataclass(frozen=True, slots=True)
class AvisoConfig:
    events: Mapping[str, EventType]
    base_url: str
    heartbeat: float
    max_duration: float
    batch: int
    replay_limit: int
    admin_roles: Roles

    @classmethod
    def load(cls, settings: Settings) -> AvisoConfig:
        document = _read_document(settings)
        if SCHEMA not in document.values and not any(key in document.values for key in _BLOCKS):
            return cls._merge(settings, document, Section.parse("", document.name))
        if document.values.get("notification_schema_strict") is False:
            raise document.error(
                "notification_schema_strict",
                "event types without a schema are not supported; set it to true",
            )
        return cls._merge(settings, document.section(SCHEMA), document)

    @classmethod
    def _merge(cls, settings: Settings, schema: Section, document: Section) -> AvisoConfig:
        events = parse_events(schema)
        # A function reads its policy from the access secret, which can change while it runs: an
        # open server today may be a closed one tomorrow.
        if is_open(settings) and settings.access != "open" and not settings.access_secret:
            refuse_auth_on_open_server(events)
        values = {name: _get_value(settings, document, name) for name in _IN_FILE}
        base_url = values["aviso_base_url"] or settings.public_url or LOCAL_URL
        roles = parse_admin_roles(settings.aviso_admin_roles)
        auth = document.section("auth")
        if not roles and "admin_roles" in auth:
            roles = parse_roles(auth.section("admin_roles"))
        return cls(
            events,
            base_url.rstrip("/"),
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
