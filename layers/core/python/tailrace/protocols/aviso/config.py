"""What Aviso is set to: the settings, and the configuration file where those are not given.

The file has the form of an aviso server's: `notification_schema` is what counts, of the rest
`application.base_url`, `watch_endpoint` and `auth.admin_roles`. What is about other parts of such a
server is left alone. A file may also hold nothing but event types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import Any, Final

from tailrace.auth.authorizer import is_open
from tailrace.errors import BadSetting
from tailrace.protocols.aviso.document import Section, read
from tailrace.protocols.aviso.schema import (
    EventType,
    Roles,
    parse_events,
    parse_roles,
    require_doors,
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
class Config:
    events: Mapping[str, EventType]
    base_url: str
    heartbeat: float
    max_duration: float
    batch: int
    replay_limit: int
    admin_roles: Roles

    @classmethod
    def load(cls, settings: Settings) -> Config:
        document = _document(settings)
        if SCHEMA not in document.values and not any(key in document.values for key in _BLOCKS):
            return cls._of(settings, document, Section.parse("", document.name))
        if document.values.get("notification_schema_strict") is False:
            raise document.bad(
                "notification_schema_strict", "every event type needs a schema; say true"
            )
        return cls._of(settings, document.section(SCHEMA), document)

    @classmethod
    def _of(cls, settings: Settings, schema: Section, document: Section) -> Config:
        events = parse_events(schema)
        # A function's authorizer is in its access secret, which may change while it runs.
        if is_open(settings) and settings.access != "open" and not settings.access_secret:
            require_doors(events)
        given = {name: _value(settings, document, name) for name in _IN_FILE}
        base_url = given["aviso_base_url"] or settings.public_url or LOCAL_URL
        roles = given_roles(settings.aviso_admin_roles)
        auth = document.section("auth")
        if not roles and "admin_roles" in auth:
            roles = parse_roles(auth.section("admin_roles"))
        return cls(
            events,
            base_url.rstrip("/"),
            float(given["aviso_heartbeat"]),
            float(given["aviso_max_duration"]),
            int(given["aviso_batch"]),
            int(given["aviso_replay_limit"]),
            roles,
        )


def _document(settings: Settings) -> Section:
    if settings.aviso_schema:
        return read(settings.aviso_schema, settings.endpoint_url)
    packaged = files("tailrace.protocols.aviso").joinpath("schema.yaml").read_text(encoding="utf-8")
    return Section.parse(packaged, "the packaged schema")


def _value(settings: Settings, document: Section, name: str) -> Any:
    """A setting, or what the file says where it is not given."""
    given = getattr(settings, name)
    (setting,) = (each for each in fields(Settings) if each.name == name)
    block, key = _IN_FILE[name]
    section = document.section(block)
    if given != setting.default or key not in section:
        return given
    return section.text(key) if isinstance(given, str) else section.number(key)


def given_roles(text: str) -> Roles:
    """From `realm=role,role; realm=*`, as `TAILRACE_AVISO_ADMIN_ROLES` has it."""
    roles: dict[str, tuple[str, ...]] = {}
    for rule in filter(None, map(str.strip, text.split(";"))):
        realm, _, names = rule.partition("=")
        listed = tuple(filter(None, map(str.strip, names.split(","))))
        if not realm.strip() or not listed:
            raise BadSetting(
                f"TAILRACE_AVISO_ADMIN_ROLES has the rule '{rule}', but a rule is REALM=ROLE,ROLE"
            )
        roles[realm.strip()] = listed
    return roles
