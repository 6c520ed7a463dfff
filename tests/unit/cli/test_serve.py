from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import pytest
from click.testing import CliRunner, Result

from tailrace.cli import main
from tailrace.errors import DataDirectoryInUse
from tailrace.settings import GROUPS, Settings, variable

Serve = Callable[[Settings], None]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    calls: list[Settings] = []
    replace_server(monkeypatch, calls.append)
    return calls


def replace_server(monkeypatch: pytest.MonkeyPatch, serve: Serve) -> None:
    module = ModuleType("tailrace.server")
    module.serve = serve  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tailrace.server", module)


def invoke(*args: str, command: str = "serve", **env: str) -> Result:
    unset = dict.fromkeys(map(variable, fields(Settings)))
    return CliRunner(env={**unset, **env}).invoke(main, [command, *args], catch_exceptions=False)


def test_every_setting_is_a_flag_with_its_doc_default_and_variable() -> None:
    shown = " ".join(invoke("--help").stdout.split())
    for setting in fields(Settings):
        flag = f"--{setting.name.replace('_', '-')} "
        if type(setting.default) is bool:
            flag = f"{flag}/ --no-{flag[2:]}"
        if not setting.metadata["serve"]:
            assert flag not in shown
            continue
        assert flag in shown
        assert setting.metadata["doc"] in shown
        assert f"env: {variable(setting)}]" in shown
        assert str(setting.default) in shown


def test_no_flags_are_the_defaults(served: list[Settings]) -> None:
    assert invoke().exit_code == 0
    assert served == [Settings()]


def test_flag_overrides_the_environment(served: list[Settings]) -> None:
    result = invoke("--port", "1", TAILRACE_PORT="2", TAILRACE_HOST="::1")
    assert result.exit_code == 0
    assert served == [Settings(port=1, host="::1")]


@pytest.mark.parametrize(
    ("args", "env", "message"),
    [
        (["--port", "x"], {}, "--port must be a whole number"),
        (["--port", "65536"], {}, "--port must be at most"),
        ([], {"TAILRACE_PORT": "x"}, "TAILRACE_PORT must be a whole number"),
        ([], {"TAILRACE_PROT": "1"}, "unknown variable TAILRACE_PROT; did you mean TAILRACE_PORT?"),
        (["--config", "/no/such"], {}, "cannot read the config file /no/such: No such file"),
    ],
)
def test_a_bad_setting_is_named_and_exit_2(
    served: list[Settings], args: list[str], env: dict[str, str], message: str
) -> None:
    result = invoke(*args, **env)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"tailrace: {message}")
    assert result.stderr.count("\n") == 1
    assert served == []


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(98, "Address already in use"), "cannot serve: [Errno 98] Address already in use"),
        (DataDirectoryInUse("./data is in use"), "./data is in use"),
    ],
)
def test_a_server_that_cannot_start_says_why(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, message: str
) -> None:
    replace_server(monkeypatch, Mock(side_effect=error))
    result = invoke()
    assert result.exit_code == 1
    assert result.stderr.startswith(f"tailrace: {message}")


def test_ctrl_c_is_exit_130(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_server(monkeypatch, Mock(side_effect=KeyboardInterrupt))
    assert invoke().exit_code == 130


def test_help_lists_flags_in_the_sections_of_the_documentation() -> None:
    lines = invoke("--help").stdout.splitlines()
    sections = [
        line for line in lines if line.endswith(":") and not line.startswith((" ", "Usage"))
    ]
    assert sections == ["Options:", *(f"{title}:" for title in GROUPS if "AWS" not in title)]
    assert "  --log-level [debug|info|warning|error]" in lines


def test_a_switch_that_the_environment_turned_on_can_be_turned_off(served: list[Settings]) -> None:
    assert invoke("--no-read-only", TAILRACE_READ_ONLY="true").exit_code == 0
    assert served == [Settings(read_only=False)]


def test_config_shows_what_is_in_force_and_where_it_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("table = 'log'\nsecret = 's3Krit'\n")
    file.chmod(0o600)
    args = ["--config", str(file), "--port", "1"]
    result = invoke(*args, TAILRACE_HOST="::1", command="config")
    assert result.exit_code == 0
    rows = {line.split()[0]: line.split(maxsplit=1)[1:] for line in result.stdout.splitlines()}
    assert rows["port"][0].split() == ["1", "--port"]
    assert rows["host"][0].split() == ["::1", "TAILRACE_HOST"]
    assert rows["table"][0].split() == ["log", "table", "in", str(file)]
    assert rows["secret"][0].split() == ["(hidden)", "secret", "in", str(file)]
    assert rows["ds_path"][0].split() == ["/ds"]
    assert "s3Krit" not in result.stdout
    printed = json.loads(invoke(*args, "--json", command="config").stdout)
    assert printed["config_file"] == str(file)
    assert printed["settings"]["port"] == {"value": 1, "source": "--port"}
    assert printed["settings"]["secret"]["value"] == "(hidden)"
    assert printed["settings"]["jwks"] == {"value": "", "source": "default"}
    assert printed["settings"].keys() == {setting.name for setting in fields(Settings)}
