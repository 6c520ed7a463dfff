from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, replace
from pathlib import Path
from typing import Any

import pytest

from devtools.processes import ROOT
from tailrace.configuration import find_config, find_misspelt, load_settings, read_config
from tailrace.errors import BadSetting
from tailrace.settings import ConfigFile, Settings, parse, variable

SETTINGS = {setting.name: setting for setting in fields(Settings)}
NUMBERS = [name for name, setting in SETTINGS.items() if type(setting.default) in (int, float)]
ROW = re.compile(r"\| `(TAILRACE_[A-Z_]+)` \| (?:`(.*?)`)? *\| (.*) \|")


def refusal(name: str, text: str) -> str:
    """The error message for a value; empty if it is valid."""
    try:
        load_settings({f"TAILRACE_{name.upper()}": text})
    except BadSetting as refused:
        return str(refused)
    return ""


def accepted(names: list[str], texts: list[str], message: str) -> list[tuple[str, str]]:
    """The values that are not refused with this message after the name of the setting."""
    return [
        (name, text)
        for name in names
        for text in texts
        if not re.match(rf"TAILRACE_{name.upper()} {message}", refusal(name, text))
    ]


# Where values come from


def test_defaults_apply_without_any_variable() -> None:
    assert load_settings({}) == Settings()


@pytest.mark.parametrize(
    ("name", "variable_"),
    [
        ("port", "TAILRACE_PORT"),
        ("data", "TAILRACE_DATA"),
        ("long_poll_timeout", "TAILRACE_LONG_POLL_TIMEOUT"),
        ("max_body_bytes", "TAILRACE_MAX_BODY_BYTES"),
    ],
)
def test_a_variable_is_the_name_in_capitals_with_a_prefix(name: str, variable_: str) -> None:
    assert variable(SETTINGS[name]) == variable_


SAMPLES: dict[str, tuple[str, Any]] = {
    "host": ("0.0.0.0", "0.0.0.0"),
    "port": ("8080", 8080),
    "data": ("/var/lib/tailrace", "/var/lib/tailrace"),
    "store": ("dynamodb", "dynamodb"),
    "table": ("log", "log"),
    "bucket": ("bodies", "bodies"),
    "endpoint_url": ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
    "create_table": ("true", True),
    "read_only": ("true", True),
    "origin_secret": (
        "arn:aws:secretsmanager:eu-west-1:1:secret:x",
        "arn:aws:secretsmanager:eu-west-1:1:secret:x",
    ),
    "access_secret": ('{"secret": "x"}', '{"secret": "x"}'),
    "subscription_keys": ("x" * 48,) * 2,
    "edge_keys": ("arn:aws:cloudfront::1:key-value-store/x",) * 2,
    "distribution": ("E1", "E1"),
    "poll_fastest": ("0.05", 0.05),
    "poll_slowest": ("2", 2.0),
    "trim_grace": ("3600", 3600),
    "public_url": ("https://example.org", "https://example.org"),
    "console": ("false", False),
    "ds_path": ("/log", "/log"),
    "long_poll_timeout": ("2.5", 2.5),
    "sse_lifetime": ("30", 30.0),
    "chunk_bytes": ("65536", 65536),
    "max_body_bytes": ("2048", 2048),
    "body_memory": ("2097152", 2097152),
    "append_rate": ("12.5", 12.5),
    "live_connections": ("7", 7),
    "streams_per_prefix": ("users/*/=7", "users/*/=7"),
    "hot_bytes": ("0", 0),
    "open_streams": ("16", 16),
    "inline_bytes": ("4096", 4096),
    "sweep_interval": ("0.5", 0.5),
    "compact_interval": ("0.05", 0.05),
    "segment_max_messages": ("2", 2),
    "segment_max_bytes": ("65536", 65536),
    "segment_target_bytes": ("65536", 65536),
    "retention": ("logs/*=7d; **=1GB", "logs/*=7d; **=1GB"),
    "shutdown_grace": ("0", 0.0),
    "access": ("closed", "closed"),
    "secret": ("old new", "old new"),
    "streams_secret": ("s3Krit", "s3Krit"),
    "turbo_streams_secret": ("none", "none"),
    "cable_ready_secret": ("s3Krit", "s3Krit"),
    "public_streams": ("news/*, status/**", "news/*, status/**"),
    "jwt_secret": ("s3Krit", "s3Krit"),
    "jwt_algorithm": ("EdDSA", "EdDSA"),
    "jwks": ("https://example.org/jwks.json", "https://example.org/jwks.json"),
    "jwt_audience": ("tailrace", "tailrace"),
    "jwt_issuer": ("https://example.org", "https://example.org"),
    "jwt_max_age": ("3600", 3600),
    "jwt_param": ("token", "token"),
    "enforce_jwt": ("true", True),
    "skip_auth": ("true", True),
    "allowed_hosts": ("mybox.local, *.test", "mybox.local, *.test"),
    "trusted_proxies": ("10.0.0.0/8", "10.0.0.0/8"),
    "allowed_origins": ("https://example.org", "https://example.org"),
    "broadcast_key": ("s3Krit", "s3Krit"),
    "api_secret": ("s3Krit", "s3Krit"),
    "cable_path": ("/ws", "/ws"),
    "broadcast_path": ("/_publish", "/_publish"),
    "api_path": ("/rest", "/rest"),
    "events_path": ("/events", "/events"),
    "events_lifetime": ("50", 50.0),
    "missing_waits": ("12", 12),
    "cable_endpoint": ("https://api.example/cable", "https://api.example/cable"),
    "heartbeat": ("tailrace-heartbeat", "tailrace-heartbeat"),
    "read_only_renews": ("true", True),
    "cursor_interval": ("110", 110.0),
    "metrics_interval": ("60", 60.0),
    "sse_shared": ("true", True),
    "rpc_url": ("https://app.example/_anycable", "https://app.example/_anycable"),
    "http_rpc_secret": ("s3Krit", "s3Krit"),
    "rpc_concurrency": ("5", 5),
    "rpc_request_timeout": ("1.5", 1.5),
    "rpc_headers": ("cookie, x-user", "cookie, x-user"),
    "turbo_streams": ("true", True),
    "cable_ready": ("true", True),
    "streams_whisper": ("true", True),
    "whisper_rate": ("20", 20.0),
    "streams_presence": ("false", False),
    "ping_interval": ("30", 30.0),
    "sessions_ttl": ("60", 60),
    "presence_ttl": ("5", 5),
    "cable_ttl": ("3600", 3600),
    "subscription_runner": ("false", False),
    "webhook_loopback": ("true", True),
    "webhooks": ("a-function", "a-function"),
    "aviso_schema": ("aviso.yaml", "aviso.yaml"),
    "aviso_heartbeat": ("5", 5.0),
    "aviso_max_duration": ("55", 55.0),
    "aviso_batch": ("10", 10),
    "aviso_replay_limit": ("7", 7),
    "aviso_base_url": ("https://aviso.example", "https://aviso.example"),
    "aviso_admin_roles": ("ops=admin", "ops=admin"),
    "log_level": ("debug", "debug"),
    "log_format": ("json", "json"),
    "log_sample": ("0.5", 0.5),
    "log_slow": ("2.5", 2.5),
    "metrics_key": ("s3Krit", "s3Krit"),
}


def test_every_setting_is_read_from_its_variable() -> None:
    assert SAMPLES.keys() == SETTINGS.keys()
    for name, (text, expected) in SAMPLES.items():
        settings = load_settings({f"TAILRACE_{name.upper()}": text})
        assert settings == replace(Settings(), **{name: expected})
        assert type(getattr(settings, name)) is type(SETTINGS[name].default), name


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_PORT", "1234")
    assert load_settings().port == 1234
    assert load_settings({}).port == 4437


def test_overrides_take_precedence_over_the_environment() -> None:
    env = {"TAILRACE_PORT": "1", "TAILRACE_HOST": "::1"}
    settings = load_settings(env, port="2", host=None)
    assert settings.port == 2
    assert settings.host == "::1"


def test_overrides_are_validated_like_the_environment() -> None:
    with pytest.raises(BadSetting, match="--port must be at most 65535"):
        load_settings({}, port=70_000)


def test_other_variables_are_ignored() -> None:
    assert load_settings({"PORT": "1", "TAILRACE_URL": "x", "tailrace_port": "2"}) == Settings()


def test_settings_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().port = 1  # type: ignore[misc]


# The config file


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], ConfigFile]:
    def write(text: str, mode: int = 0o600) -> ConfigFile:
        path = tmp_path / "tailrace.toml"
        path.write_text(text)
        path.chmod(mode)
        return read_config(str(path))

    return write


def test_a_flag_precedes_a_variable_and_a_variable_the_file(
    config: Callable[[str], ConfigFile],
) -> None:
    file = config("port = 1\nhost = '::1'\nsse_lifetime = 2\nread_only = true\ntable = 'x'")
    settings = load_settings({"TAILRACE_PORT": "2", "TAILRACE_HOST": "::2"}, file, host="::3")
    assert settings == Settings(port=2, host="::3", sse_lifetime=2.0, read_only=True, table="x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("portt = 1", r"tailrace\.toml has an unknown key portt; did you mean port\?"),
        ("xyzzy = 1", "has an unknown key xyzzy; `tailrace config` lists all"),
        ("[server]\nport = 1", "server in .* must be a text, a number or true or false"),
        ("port = 1.5", r"port in .*tailrace\.toml must be a whole number, not 1\.5"),
        ("port = true", "port in .* must be a whole number"),
        ("port = [1]", "port in .* must be a text, a number or true or false"),
        ("read_only = 2", "read_only in .* must be true or false"),
        ("port = ", "is not valid TOML"),
        ("host = '\x00'", "is not valid TOML"),
    ],
)
def test_a_bad_config_file_is_refused_by_name(
    config: Callable[[str], ConfigFile], text: str, message: str
) -> None:
    with pytest.raises(BadSetting, match=message):
        load_settings({}, config(text))


def test_a_config_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"cannot read the config file .*/x: No such file"):
        find_config(str(tmp_path / "x"))


def test_only_the_owner_may_read_a_config_file_with_secrets(
    config: Callable[[str, int], ConfigFile],
) -> None:
    assert config("port = 1", 0o644).values == {"port": 1}
    assert config("secret = 'a'", 0o600).values == {"secret": "a"}
    for mode in (0o640, 0o604):
        with pytest.raises(BadSetting, match="other users may read: chmod 600"):
            config("secret = 'a'", mode)


def test_the_config_file_of_the_working_directory_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAILRACE_CONFIG", raising=False)
    assert find_config() == ConfigFile("", {})
    (tmp_path / "tailrace.toml").write_text("port = 1")
    (tmp_path / "other.toml").write_text("port = 2")
    assert find_config() == ConfigFile("tailrace.toml", {"port": 1})
    monkeypatch.setenv("TAILRACE_CONFIG", "other.toml")
    assert find_config() == ConfigFile("other.toml", {"port": 2})
    assert find_config("tailrace.toml") == ConfigFile("tailrace.toml", {"port": 1})


def test_a_misspelt_variable_is_found_with_the_nearest_name() -> None:
    env = {"TAILRACE_PROT": "1", "TAILRACE_PORT": "1", "TAILRACE_XYZZY": "1", "PATH": "",
           "TAILRACE_URL": "", "TAILRACE_TOKEN": "", "TAILRACE_CONFIG": ""}  # fmt: skip
    assert list(find_misspelt(env)) == [
        "unknown variable TAILRACE_PROT; did you mean TAILRACE_PORT?",
        "unknown variable TAILRACE_XYZZY; `tailrace config` lists all",
    ]


# Valid values


def test_bad_number_is_refused_by_name() -> None:
    texts = ["", " ", "abc", "1,5", "1e", "0x10", "--1", "None"]
    assert accepted(NUMBERS, texts, "must be a .*number") == []


def test_a_whole_number_has_no_fraction() -> None:
    whole = [name for name in NUMBERS if type(SETTINGS[name].default) is int]
    assert accepted(whole, ["1.5", "1e3", "1024.0"], "must be a whole number") == []


def test_a_number_has_bounds() -> None:
    for name in NUMBERS:
        setting = SETTINGS[name]
        least, most = setting.metadata["least"], setting.metadata["most"]
        assert least is not None, f"a negative {name} never makes sense"
        assert parse(setting, str(least), "x") == least
        with pytest.raises(BadSetting, match=f"x must be at least {least}"):
            parse(setting, str(least - 1), "x")
        if most is not None:
            assert parse(setting, str(most), "x") == most
            with pytest.raises(BadSetting, match=f"x must be at most {most}"):
                parse(setting, str(most + 1), "x")


def test_a_time_is_finite() -> None:
    times = [name for name in NUMBERS if type(SETTINGS[name].default) is float]
    assert accepted(times, ["nan", "inf", "-inf", "-nan"], "") == []


def test_a_switch_is_on_or_off() -> None:
    for text in ("true", "True", "1", "yes"):
        assert load_settings({"TAILRACE_CREATE_TABLE": text}).create_table is True
    for text in ("false", "FALSE", "0", "no"):
        assert load_settings({"TAILRACE_CREATE_TABLE": text}).create_table is False


def test_bad_switch_is_refused_by_name() -> None:
    texts = ["", "on", "2", "maybe"]
    assert accepted(["create_table"], texts, "must be true or false") == []


def test_unknown_store_is_refused() -> None:
    with pytest.raises(BadSetting, match="TAILRACE_STORE must be one of sqlite, dynamodb"):
        load_settings({"TAILRACE_STORE": "redis"})


def test_unknown_log_level_is_refused() -> None:
    assert accepted(["log_level"], ["loud", "", "warn ing", "1"], "must be one of") == []
    named = ["debug", "info", "warning", "error"]
    assert [text for text in named if refusal("log_level", text)] == []


SECRETS = ["origin_secret", "access_secret", "subscription_keys", "secret", "streams_secret",
           "turbo_streams_secret", "cable_ready_secret", "jwt_secret", "broadcast_key",
           "api_secret", "http_rpc_secret", "metrics_key"]  # fmt: skip


def test_secrets_are_marked() -> None:
    secret = {name for name, setting in SETTINGS.items() if setting.metadata["secret"]}
    assert secret == set(SECRETS)


def test_a_secret_is_not_shown() -> None:
    settings = load_settings({f"TAILRACE_{name.upper()}": "s3Krit" for name in SECRETS})
    assert "s3Krit" not in f"{settings!r} {settings}"
    # Every user of a machine can read its command lines.
    assert not [name for name in SECRETS if SETTINGS[name].metadata["serve"]]


def test_error_does_not_show_a_secret() -> None:
    metadata = {**SETTINGS["secret"].metadata, "choices": ("a", "b")}
    setting: Any = field(default="", metadata=metadata)
    setting.name = "secret"
    with pytest.raises(BadSetting, match=r"must be one of a, b, not the given value$"):
        parse(setting, "s3Krit", "x")


@pytest.mark.parametrize(
    "text",
    ["http://example.org/jwks", "http://127.0.0.1.example.org/", "ftp://example.org/", "https://",
     "file:///etc/keys", "https://me@example.org/", "https://me:pw@example.org/", "https://[x/",
     "http://localhost.example.org/", "http://169.254.169.254/", "https://a b/", "http:///x",
     "https://example.org:0/", "HTTP://example.org/", "https://example.org:x/"],
)  # fmt: skip
def test_public_keys_from_an_unsafe_url_are_refused(text: str) -> None:
    with pytest.raises(BadSetting, match=r"^TAILRACE_JWKS must be an https URL"):
        load_settings({"TAILRACE_JWKS": text})


@pytest.mark.parametrize(
    "text",
    ["https://example.org/jwks", "https://example.org:8443/a?b=c", "http://127.0.0.1:80/",
     "http://localhost/", "http://[::1]:8080/", "http://127.1.2.3/", "/etc/keys.json", "keys.json",
     "HTTPS://example.org/"],
)  # fmt: skip
def test_public_keys_from_https_loopback_or_a_file_are_accepted(text: str) -> None:
    assert load_settings({"TAILRACE_JWKS": text}).jwks == text


def test_a_bad_path_is_refused_by_name() -> None:
    paths = ["cable_path", "broadcast_path", "api_path", "events_path"]
    assert accepted(paths, ["cable", "/", "/a b", "/a?b"], "must be empty or a path such as") == []


def test_a_bad_url_of_an_application_is_refused() -> None:
    bad = ["app", "ftp://app", "http://", "http://a b", "http://u:p@a/", "http://a/?b", "//a"]
    assert accepted(["rpc_url"], bad, "must be empty or a URL such as") == []


@pytest.mark.parametrize("text", ["", "a b", "J", "é", "a/b", "signed", "offset", "live", "cursor"])
def test_reserved_or_invalid_jwt_param_is_refused(text: str) -> None:
    with pytest.raises(BadSetting, match=r"^TAILRACE_JWT_PARAM must have lower-case letters"):
        load_settings({"TAILRACE_JWT_PARAM": text})


def test_every_default_is_valid() -> None:
    for setting in SETTINGS.values():
        assert parse(setting, str(setting.default), "x") == setting.default


# Documentation


def test_every_description_is_a_sentence() -> None:
    texts = [setting.metadata["doc"] for setting in SETTINGS.values()]
    assert not [text for text in texts if not text[0].isupper() or not text.endswith(".")]


def test_the_documented_settings_are_the_settings() -> None:
    rows = ROW.findall((ROOT / "docs" / "settings.md").read_text())
    assert sorted(rows) == sorted(
        (variable(setting), str(setting.default), setting.metadata["doc"])
        for setting in SETTINGS.values()
    )
