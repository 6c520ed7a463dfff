"""Schemas and configuration files, and the line of each error."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from devtools.processes import ROOT
from tailrace.configuration import load_settings
from tailrace.errors import BadSetting
from tailrace.protocols.aviso.config import AvisoConfig, parse_admin_roles
from tailrace.protocols.aviso.document import Section
from tailrace.protocols.aviso.event_types import EventAuth, StoragePolicy, parse_events
from tailrace.settings import Settings
from tests.support.aviso import events

GOOD = """\
notification_schema:
  mars:
    topic:
      base: mars
      key_order: [class, step]
    payload:
      required: true
    identifier:
      class:
        type: StringHandler
        required: true
      step:
        type: IntHandler
        required: false
        range: [0, 10]
"""


def load(text: str, tmp_path: Path, **settings: object) -> AvisoConfig:
    file = tmp_path / "aviso.yaml"
    file.write_text(dedent(text))
    return AvisoConfig.load(Settings(aviso_schema=str(file), **settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("type: IntHandler", "type: NumberHandler", 13, "unknown type"),
        ("        type: IntHandler\n", "", 12, "type: is missing"),
        ("        required: false\n", "", 12, "required: is missing"),
        ("required: false", "required: maybe", 14, "expected true or false"),
        ("range: [0, 10]", "range: [10, 0]", 15, "the smaller number must come first"),
        ("range: [0, 10]", "range: [0]", 15, "expected two numbers"),
        ("range: [0, 10]", "range: [0, 1.5]", 15, "1.5 is not an integer"),
        ("range: [0, 10]", "range: [0, true]", 15, "True is not an integer"),
        ("range: [0, 10]", "range: [0, 9223372036854775808]", 15, "does not fit in 64 bits"),
        ("range: [0, 10]", "rnage: [0, 10]", 15, "rnage: unknown key"),
        ("range: [0, 10]", "max_length: 3", 15, "max_length: unknown key"),
        ("base: mars", "base: ma.rs", 4, "must consist of letters, digits"),
        ("base: mars", "base: _mars", 4, "must consist of letters, digits"),
        ("base: mars", "base: 5", 4, "expected a string; put it in quotes"),
        ("      base: mars\n", "", 3, "base: is missing"),
        ("[class, step]", "[class]", 5, "'step' is missing"),
        ("[class, step]", "[class, step, step]", 5, "'step' occurs twice"),
        ("[class, step]", "[class, step, stop]", 5, "'stop' is not a field"),
        ("[class, step]", "[]", 5, "expected a list"),
        ("[class, step]", "class", 5, "expected a list"),
        ("true\n    id", "true\n      needed: true\n    id", 8, "needed: unknown key"),
        ("      required: true\n    id", "      {}\n    id", 6, "required: is missing"),
        ("    payload:\n", "    payloads:\n", 6, "payloads: unknown key"),
        ("  mars:\n", "  mars:\n    auth: {}\n    auth: {}\n", 4, "the key 'auth' occurs twice"),
        ("  mars:\n", "  5:\n", 2, "the key '5' is not a string"),
        ("    topic:\n", "   topic:\n", 6, "expected "),
        ("      class:\n", "      polygon:\n", 10,
         "a field named 'polygon' must have a spatial type"),
        ("type: StringHandler", "type: PolygonHandler", 10,
         "a field of type PolygonHandler must be named 'polygon'"),
        ("type: StringHandler", "type: EnumHandler", 9, "values: is missing"),
        ("type: StringHandler", "type: EnumHandler\n        values: [yes]", 11,
         "True is not a string"),
        ("type: StringHandler", "type: EnumHandler\n        values: []", 11, "expected a list"),
        ("type: StringHandler", "type: StringHandler\n        max_length: 0", 11, "at least 1"),
        ("StringHandler", 'DateHandler\n        canonical_format: "%d"', 11, "one of %Y%m%d"),
        ("type: StringHandler", "type: ExpverHandler\n        default: 1", 11, "put it in quotes"),
        ("StringHandler", "FloatHandler\n        range: [0, .inf]", 11,
         "inf is not a finite number"),
    ],
)  # fmt: skip
def test_errors_name_the_line(old: str, new: str, line: int, reason: str, tmp_path: Path) -> None:
    assert old in GOOD
    with pytest.raises(BadSetting) as error:
        load(GOOD.replace(old, new), tmp_path)
    assert f"aviso.yaml line {line}: " in str(error.value)
    assert reason in str(error.value)


def event_with(block: str) -> str:
    return GOOD.replace("    payload:\n", f"{block}    payload:\n")


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ("    auth: {}\n", "required: is missing"),
        ("    auth: {required: true, roles: {}}\n", "roles: unknown key"),
        (
            "    auth: {required: false, read_roles: {a: [b]}}\n",
            "must be true for an event type with roles",
        ),
        ("    auth: {required: true, read_roles: {}}\n", "at least one realm"),
        ("    auth: {required: true, read_roles: {a: []}}\n", "expected a list"),
        ("    auth: {required: true, read_roles: {a: [' b']}}\n", "spaces around them"),
        ("    auth: {required: true, plugins: [ecpds]}\n", "plugins are not supported"),
        ("    storage_policy: {retention_time: 7}\n", "put it in quotes"),
        ("    storage_policy: {retention_time: 0d}\n", "such as 7d"),
        ("    storage_policy: {retention_time: 7y}\n", "such as 7d"),
        ("    storage_policy: {max_size: 7k}\n", "K, Ki, M"),
        ("    storage_policy: {max_size: 0M}\n", "K, Ki, M"),
        ("    storage_policy: {max_messages: 0}\n", "at least 1"),
        ("    storage_policy: {allow_duplicates: 1}\n", "expected true or false"),
        ("    storage_policy: {age: 1}\n", "unknown key"),
        ("    max_historical_notifications: 0\n", "at least 1"),
    ],
)
def test_errors_in_optional_blocks_name_the_line(block: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(BadSetting) as error:
        load(event_with(block), tmp_path)
    assert "line 6" in str(error.value)
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("{}", StoragePolicy()),
        ("{retention_time: 90s}", StoragePolicy(seconds=90)),
        ("{retention_time: 2H}", StoragePolicy(seconds=7200)),
        ("{retention_time: 7d}", StoragePolicy(seconds=604_800)),
        ("{retention_time: 1w}", StoragePolicy(seconds=604_800)),
        ("{retention_time: 5m}", StoragePolicy(seconds=300)),
        ("{max_size: 2K}", StoragePolicy(size=2000)),
        ("{max_size: 2Ki}", StoragePolicy(size=2048)),
        ("{max_size: 1M}", StoragePolicy(size=1_000_000)),
        ("{max_size: 1Gi}", StoragePolicy(size=1 << 30)),
        ("{max_size: 1T}", StoragePolicy(size=10**12)),
        ("{max_messages: 5, compression: true}", StoragePolicy(messages=5)),
        ("{allow_duplicates: true}", StoragePolicy()),
        ("{allow_duplicates: false}", StoragePolicy(latest=True)),
    ],
)
def test_storage_policies_are_parsed(policy: str, expected: StoragePolicy, tmp_path: Path) -> None:
    config = load(event_with(f"    storage_policy: {policy}\n"), tmp_path)
    assert config.events["mars"].storage == expected


def test_a_topic_base_belongs_to_one_event_type(tmp_path: Path) -> None:
    other = "\n  other:\n    topic: {base: MARS, key_order: [a]}\n    identifier:\n"
    other += "      a: {type: StringHandler, required: false}\n"
    with pytest.raises(BadSetting, match=r"line 17: .*'MARS' is already used by 'mars'"):
        load(GOOD + other, tmp_path)


def test_without_a_topic_fields_are_sorted_by_name() -> None:
    text = "b: {identifier: {z: {type: TimeHandler, required: true}, a: {type: IntHandler, "
    events_ = parse_events(Section.parse(f"{text}required: true}}}}}}", "x"))
    assert [handler.name for handler in events_["b"].keys] == ["a", "z"]
    assert events_["b"].base == "b"


def test_a_file_may_contain_event_types_only(tmp_path: Path) -> None:
    bare = dedent(GOOD.partition("\n")[2])
    assert list(load(bare, tmp_path).events) == ["mars"]


def test_an_empty_file_has_no_event_types(tmp_path: Path) -> None:
    assert load("", tmp_path).events == {}
    assert load("notification_schema: {}\n", tmp_path).events == {}


@pytest.mark.parametrize(
    ("text", "strict"),
    [
        (GOOD, True),
        (f"{GOOD}notification_schema_strict: true\n", True),
        (f"{GOOD}notification_schema_strict: false\n", False),
        ("", False),
        ("notification_schema: {}\n", False),
        ("notification_schema_strict: true\n", True),
    ],
)
def test_a_schema_is_strict_unless_it_is_empty_or_says_otherwise(
    text: str, strict: bool, tmp_path: Path
) -> None:
    assert load(text, tmp_path).events.strict is strict


@pytest.mark.parametrize(
    "text", ["[]", "5", "a: [", "a: b: c", "\tx: 1", "!!python/object:os.system {}"]
)
def test_a_document_must_be_a_mapping(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"aviso\.yaml"):
        load(text, tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"TAILRACE_AVISO_SCHEMA: cannot read .*nowhere.yaml"):
        AvisoConfig.load(Settings(aviso_schema=str(tmp_path / "nowhere.yaml")))


FILE = """\
application: {host: 0.0.0.0, port: 8000, base_url: "https://aviso.example/"}
watch_endpoint:
  sse_heartbeat_interval_sec: 5
  connection_max_duration_sec: 60
  replay_batch_size: 7
  max_historical_notifications: 50
  replay_batch_delay_ms: 100
auth: {enabled: true, mode: direct, admin_roles: {ops: [admin]}}
metrics: {enabled: false}
notification_backend: {kind: in_memory}
"""


def test_the_configuration_file_of_an_aviso_server_is_used(tmp_path: Path) -> None:
    config = load(FILE + GOOD, tmp_path)
    assert config.base_url == "https://aviso.example/"
    assert (config.heartbeat, config.max_duration) == (5, 60)
    assert (config.batch, config.replay_limit) == (7, 50)
    assert config.admin_roles == {"ops": ("admin",)}


def test_settings_without_effect_are_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AVISOSERVER_AUTH__ENABLED", "true")
    monkeypatch.setenv("AVISOSERVER_CONFIG_FILE", "used.yaml")
    schema = event_with(
        "    endpoint: {base: a}\n    storage_policy: {compression: true, max_messages: 5}\n"
    ).replace("base: mars", "base: mars\n      separator: '/'")
    load(f"{FILE}newer: {{}}\n{schema}", tmp_path)
    (record,) = caplog.records
    message, _, names = record.getMessage().rpartition(": ")
    assert message == "these settings of aviso-server have no effect"
    assert names.split(", ") == [
        "application.host", "application.port", "auth.enabled", "auth.mode", "metrics", "newer",
        "notification_backend", "watch_endpoint.replay_batch_delay_ms", "mars.endpoint",
        "mars.topic.separator", "mars.storage_policy.compression", "AVISOSERVER_AUTH__ENABLED",
    ]  # fmt: skip


def test_the_log_is_silent_if_all_settings_are_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load(GOOD, tmp_path)
    load("notification_schema_strict: false\n", tmp_path)
    assert not caplog.records


def test_settings_override_the_file(tmp_path: Path) -> None:
    config = load(FILE + GOOD, tmp_path, aviso_heartbeat=9.0, aviso_admin_roles="lab=*")
    assert config.heartbeat == 9
    assert config.max_duration == 60
    assert config.admin_roles == {"lab": ("*",)}


@pytest.mark.parametrize(
    ("variable", "name", "value"),
    [
        ("AVISOSERVER_CONFIG_FILE", "aviso_schema", "12"),
        ("AVISOSERVER_WATCH_ENDPOINT__SSE_HEARTBEAT_INTERVAL_SEC", "aviso_heartbeat", 12.0),
        ("AVISOSERVER_WATCH_ENDPOINT__CONNECTION_MAX_DURATION_SEC", "aviso_max_duration", 12.0),
        ("AVISOSERVER_WATCH_ENDPOINT__REPLAY_BATCH_SIZE", "aviso_batch", 12),
        ("AVISOSERVER_WATCH_ENDPOINT__MAX_HISTORICAL_NOTIFICATIONS", "aviso_replay_limit", 12),
        ("AVISOSERVER_APPLICATION__BASE_URL", "aviso_base_url", "12"),
    ],
)
def test_the_variables_of_an_aviso_server_are_used(variable: str, name: str, value: object) -> None:
    assert getattr(load_settings({variable: "12"}), name) == value
    own = f"TAILRACE_{name.upper()}"
    assert getattr(load_settings({variable: "12", own: "13"}), name) != value
    docs = ROOT / "docs" / "aviso.md"
    assert f"`{variable}`" in docs.read_text()
    assert f"`{own}`" in docs.read_text()


def test_an_open_server_refuses_event_types_that_require_auth(tmp_path: Path) -> None:
    guarded = event_with("    auth: {required: true, write_roles: {lab: ['*']}}\n")
    with pytest.raises(BadSetting, match="'mars' requires authentication, but the server is open"):
        load(guarded, tmp_path)
    assert load(guarded, tmp_path, access="open").events["mars"].auth is not None
    assert load(guarded, tmp_path, access_secret="arn:aws:secretsmanager:x").events
    config = load(guarded, tmp_path, secret="s" * 32)
    assert config.events["mars"].auth == EventAuth(True, None, {"lab": ("*",)})


def test_admin_roles_are_parsed() -> None:
    assert parse_admin_roles("ops = admin, lead; lab=*") == {
        "ops": ("admin", "lead"),
        "lab": ("*",),
    }
    assert parse_admin_roles("") == {}
    for text in ("ops", "=admin", "ops=", "ops=,"):
        with pytest.raises(BadSetting, match="TAILRACE_AVISO_ADMIN_ROLES"):
            parse_admin_roles(text)


def test_the_packaged_schema_is_valid() -> None:
    assert set(AvisoConfig.load(Settings()).events) >= {"mars", "dissemination"}


def test_the_description_of_an_event_type_has_its_options() -> None:
    described = events()["product"].describe()
    assert described["payload"] is None
    assert described["identifier"]["destination"] == {
        "type": "StringHandler", "required": False, "max_length": 10,
    }  # fmt: skip
    assert described["identifier"]["step"]["range"] == (0, 240)
    assert described["identifier"]["expver"]["default"] == "1"
    area = events()["area"].describe()["identifier"]
    assert area["name"]["max_length"] is None
    assert area["polygon"] == {
        "type": "PolygonHandler", "required": False, "description": "where",
    }  # fmt: skip
    assert events()["strict"].describe()["payload"] == {"required": True}
