"""Schemas and configuration files: what they may say, and where they are wrong."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from devtools.processes import ROOT
from tailrace.configuration import load_settings
from tailrace.errors import BadSetting
from tailrace.protocols.aviso.config import Config, given_roles
from tailrace.protocols.aviso.document import Section
from tailrace.protocols.aviso.schema import Auth, Storage, parse_events
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


def load(text: str, tmp_path: Path, **given: object) -> Config:
    file = tmp_path / "aviso.yaml"
    file.write_text(dedent(text))
    return Config.load(Settings(aviso_schema=str(file), **given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "new", "line", "why"),
    [
        ("type: IntHandler", "type: NumberHandler", 13, "there is no such type"),
        ("        type: IntHandler\n", "", 12, "type: it is missing"),
        ("        required: false\n", "", 12, "required: it is missing"),
        ("required: false", "required: maybe", 14, "expected true or false"),
        ("range: [0, 10]", "range: [10, 0]", 15, "begins with the smaller number"),
        ("range: [0, 10]", "range: [0]", 15, "expected two numbers"),
        ("range: [0, 10]", "range: [0, 1.5]", 15, "1.5 is no whole number"),
        ("range: [0, 10]", "range: [0, true]", 15, "True is no whole number"),
        ("range: [0, 10]", "range: [0, 9223372036854775808]", 15, "does not fit 64 bits"),
        ("range: [0, 10]", "rnage: [0, 10]", 15, "rnage: there is no such key"),
        ("range: [0, 10]", "max_length: 3", 15, "max_length: there is no such key"),
        ("base: mars", "base: ma.rs", 4, "a base has letters, digits"),
        ("base: mars", "base: _mars", 4, "a base has letters, digits"),
        ("base: mars", "base: 5", 4, "expected text; put it in quotes"),
        ("      base: mars\n", "", 3, "base: it is missing"),
        ("[class, step]", "[class]", 5, "'step' is missing"),
        ("[class, step]", "[class, step, step]", 5, "'step' is there twice"),
        ("[class, step]", "[class, step, stop]", 5, "'stop' has no rule"),
        ("[class, step]", "[]", 5, "expected a list"),
        ("[class, step]", "class", 5, "expected a list"),
        ("true\n    id", "true\n      needed: true\n    id", 8, "needed: there is no such key"),
        ("      required: true\n    id", "      {}\n    id", 6, "required: it is missing"),
        ("    payload:\n", "    payloads:\n", 6, "payloads: there is no such key"),
        ("  mars:\n", "  mars:\n    auth: {}\n    auth: {}\n", 4, "'auth' is there twice"),
        ("  mars:\n", "  5:\n", 2, "'5' is no text"),
        ("    topic:\n", "   topic:\n", 6, "expected "),
        ("      class:\n", "      polygon:\n", 10, "a field called 'polygon' is a shape"),
        ("type: StringHandler", "type: PolygonHandler", 10, "a PolygonHandler is called 'polygon'"),
        ("type: StringHandler", "type: EnumHandler", 9, "values: it is missing"),
        ("type: StringHandler", "type: EnumHandler\n        values: [yes]", 11, "True is no text"),
        ("type: StringHandler", "type: EnumHandler\n        values: []", 11, "expected a list"),
        ("type: StringHandler", "type: StringHandler\n        max_length: 0", 11, "at least 1"),
        ("StringHandler", 'DateHandler\n        canonical_format: "%d"', 11, "one of %Y%m%d"),
        ("type: StringHandler", "type: ExpverHandler\n        default: 1", 11, "put it in quotes"),
        ("StringHandler", "FloatHandler\n        range: [0, .inf]", 11, "no finite number"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(
    old: str, new: str, line: int, why: str, tmp_path: Path
) -> None:
    assert old in GOOD
    with pytest.raises(BadSetting) as refusal:
        load(GOOD.replace(old, new), tmp_path)
    assert f"aviso.yaml line {line}: " in str(refusal.value)
    assert why in str(refusal.value)


def event_with(block: str) -> str:
    return GOOD.replace("    payload:\n", f"{block}    payload:\n")


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("    auth: {}\n", "required: it is missing"),
        ("    auth: {required: true, roles: {}}\n", "roles: there is no such key"),
        ("    auth: {required: false, read_roles: {a: [b]}}\n", "roles count only where"),
        ("    auth: {required: true, read_roles: {}}\n", "at least one realm"),
        ("    auth: {required: true, read_roles: {a: []}}\n", "expected a list"),
        ("    auth: {required: true, read_roles: {a: [' b']}}\n", "no space around it"),
        ("    auth: {required: true, plugins: [ecpds]}\n", "there are none here"),
        ("    storage_policy: {retention_time: 7}\n", "put it in quotes"),
        ("    storage_policy: {retention_time: 0d}\n", "such as 7d"),
        ("    storage_policy: {retention_time: 7y}\n", "such as 7d"),
        ("    storage_policy: {max_size: 7k}\n", "K, Ki, M"),
        ("    storage_policy: {max_size: 0M}\n", "K, Ki, M"),
        ("    storage_policy: {max_messages: 0}\n", "at least 1"),
        ("    storage_policy: {allow_duplicates: 1}\n", "expected true or false"),
        ("    storage_policy: {age: 1}\n", "there is no such key"),
        ("    max_historical_notifications: 0\n", "at least 1"),
    ],
)
def test_a_mistake_in_a_block_is_told(block: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(BadSetting) as refusal:
        load(event_with(block), tmp_path)
    assert "line 6" in str(refusal.value)
    assert why in str(refusal.value)


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ("{}", Storage()),
        ("{retention_time: 90s}", Storage(seconds=90)),
        ("{retention_time: 2H}", Storage(seconds=7200)),
        ("{retention_time: 7d}", Storage(seconds=604_800)),
        ("{retention_time: 1w}", Storage(seconds=604_800)),
        ("{retention_time: 5m}", Storage(seconds=300)),
        ("{max_size: 2K}", Storage(size=2000)),
        ("{max_size: 2Ki}", Storage(size=2048)),
        ("{max_size: 1M}", Storage(size=1_000_000)),
        ("{max_size: 1Gi}", Storage(size=1 << 30)),
        ("{max_size: 1T}", Storage(size=10**12)),
        ("{max_messages: 5, compression: true}", Storage(messages=5)),
        ("{allow_duplicates: true}", Storage()),
        ("{allow_duplicates: false}", Storage(latest=True)),
    ],
)
def test_a_storage_policy_is_read(policy: str, kept: Storage, tmp_path: Path) -> None:
    config = load(event_with(f"    storage_policy: {policy}\n"), tmp_path)
    assert config.events["mars"].storage == kept


def test_two_event_types_cannot_have_one_base(tmp_path: Path) -> None:
    other = "\n  other:\n    topic: {base: MARS, key_order: [a]}\n    identifier:\n"
    other += "      a: {type: StringHandler, required: false}\n"
    with pytest.raises(BadSetting, match=r"line 17: .*'MARS' is also that of 'mars'"):
        load(GOOD + other, tmp_path)


def test_without_a_topic_the_fields_are_in_the_order_of_their_names() -> None:
    text = "b: {identifier: {z: {type: TimeHandler, required: true}, a: {type: IntHandler, "
    found = parse_events(Section.parse(f"{text}required: true}}}}}}", "x"))
    assert [handler.name for handler in found["b"].keys] == ["a", "z"]
    assert found["b"].base == "b"


def test_a_file_may_hold_event_types_only(tmp_path: Path) -> None:
    bare = dedent(GOOD.partition("\n")[2])
    assert list(load(bare, tmp_path).events) == ["mars"]


def test_an_empty_file_has_no_event_types(tmp_path: Path) -> None:
    assert load("", tmp_path).events == {}
    assert load("notification_schema: {}\n", tmp_path).events == {}


def test_every_event_type_needs_a_schema(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="notification_schema_strict"):
        load(f"{GOOD}notification_schema_strict: false\n", tmp_path)


@pytest.mark.parametrize(
    "text", ["[]", "5", "a: [", "a: b: c", "\tx: 1", "!!python/object:os.system {}"]
)
def test_what_is_no_mapping_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"aviso\.yaml"):
        load(text, tmp_path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"TAILRACE_AVISO_SCHEMA: cannot read .*nowhere.yaml"):
        Config.load(Settings(aviso_schema=str(tmp_path / "nowhere.yaml")))


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


def test_the_file_of_an_aviso_server_counts(tmp_path: Path) -> None:
    config = load(FILE + GOOD, tmp_path)
    assert config.base_url == "https://aviso.example"
    assert (config.heartbeat, config.max_duration) == (5, 60)
    assert (config.batch, config.replay_limit) == (7, 50)
    assert config.admin_roles == {"ops": ("admin",)}


def test_a_setting_counts_more_than_the_file(tmp_path: Path) -> None:
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
def test_the_variables_of_an_aviso_server_count(variable: str, name: str, value: object) -> None:
    assert getattr(load_settings({variable: "12"}), name) == value
    own = f"TAILRACE_{name.upper()}"
    assert getattr(load_settings({variable: "12", own: "13"}), name) != value
    docs = ROOT / "docs" / "aviso.md"
    assert f"`{variable}`" in docs.read_text()
    assert f"`{own}`" in docs.read_text()


def test_roles_mean_nothing_on_an_open_server(tmp_path: Path) -> None:
    guarded = event_with("    auth: {required: true, write_roles: {lab: ['*']}}\n")
    with pytest.raises(BadSetting, match="'mars' is not for everybody, but the server is open"):
        load(guarded, tmp_path)
    assert load(guarded, tmp_path, access="open").events["mars"].auth is not None
    assert load(guarded, tmp_path, access_secret="arn:aws:secretsmanager:x").events
    config = load(guarded, tmp_path, secret="s" * 32)
    assert config.events["mars"].auth == Auth(True, None, {"lab": ("*",)})


def test_admin_roles_are_realms_with_roles() -> None:
    assert given_roles("ops = admin, lead; lab=*") == {"ops": ("admin", "lead"), "lab": ("*",)}
    assert given_roles("") == {}
    for text in ("ops", "=admin", "ops=", "ops=,"):
        with pytest.raises(BadSetting, match="TAILRACE_AVISO_ADMIN_ROLES"):
            given_roles(text)


def test_the_schema_that_comes_along_is_good() -> None:
    assert set(Config.load(Settings()).events) >= {"mars", "dissemination"}


def test_an_event_type_is_described_with_its_options() -> None:
    described = events()["product"].described()
    assert described["payload"] is None
    assert described["identifier"]["destination"] == {
        "type": "StringHandler", "required": False, "max_length": 10,
    }  # fmt: skip
    assert described["identifier"]["step"]["range"] == (0, 240)
    assert described["identifier"]["expver"]["default"] == "1"
    area = events()["area"].described()["identifier"]
    assert area["name"]["max_length"] is None
    assert area["polygon"] == {
        "type": "PolygonHandler", "required": False, "description": "where",
    }  # fmt: skip
    assert events()["strict"].described()["payload"] == {"required": True}
