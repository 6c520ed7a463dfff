"""The guide for Rails covers every setting, channel and reason."""

from __future__ import annotations

import re
from dataclasses import fields

from devtools.processes import ROOT
from tailrace.protocols.action_cable.core.channels import CABLE_READY, PUBSUB, TURBO
from tailrace.protocols.action_cable.in_process.socket import CLOSES
from tailrace.settings import Settings, variable

PAGE = (ROOT / "docs" / "rails.md").read_text()

CABLE = (
    "cable_path", "broadcast_path", "api_path", "events_path", "events_lifetime", "turbo_streams",
    "cable_ready", "streams_whisper", "whisper_rate", "streams_presence", "ping_interval",
    "sessions_ttl", "presence_ttl", "cable_ttl", "secret", "streams_secret",
    "turbo_streams_secret", "cable_ready_secret", "broadcast_key", "api_secret", "public_streams",
    "jwt_secret", "jwt_param", "enforce_jwt", "skip_auth", "allowed_origins", "rpc_url",
    "http_rpc_secret", "rpc_concurrency", "rpc_request_timeout", "rpc_headers",
)  # fmt: skip


def test_every_setting_is_documented_with_its_default() -> None:
    rows = dict(re.findall(r"\| `(TAILRACE_\w+)` \| (?:`(.*?)`)? *\|", PAGE))
    for setting in fields(Settings):
        if setting.name not in CABLE:
            continue
        shown = rows[variable(setting)]
        if isinstance(setting.default, bool):
            assert shown == str(setting.default).lower()
        elif isinstance(setting.default, str):
            assert shown == setting.default
        else:
            assert float(shown) == setting.default


def test_only_settings_are_documented() -> None:
    known = {variable(setting) for setting in fields(Settings)}
    assert set(re.findall(r"TAILRACE_[A-Z_]+[A-Z]", PAGE)) <= known


def test_every_disconnect_reason_is_documented() -> None:
    table = PAGE.partition("## When a connection ends")[2].partition("##")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(CLOSES)


def test_every_channel_is_documented() -> None:
    assert PUBSUB in PAGE
    for name in (TURBO, CABLE_READY):
        assert name.partition("::")[0] in PAGE
