from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields
from types import ModuleType
from unittest.mock import Mock

import pytest
from click.testing import CliRunner, Result

from tailrace.cli import main
from tailrace.errors import DataDirectoryInUse
from tailrace.settings import Settings, variable

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


def invoke(*args: str, **env: str) -> Result:
    unset = dict.fromkeys(map(variable, fields(Settings)))
    return CliRunner(env={**unset, **env}).invoke(main, ["serve", *args], catch_exceptions=False)


def test_every_setting_is_a_flag_with_its_doc_default_and_variable() -> None:
    shown = " ".join(invoke("--help").stdout.split())
    for setting in fields(Settings):
        flag = f"--{setting.name.replace('_', '-')} "
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
    ("args", "env"),
    [(["--port", "x"], {}), (["--port", "65536"], {}), ([], {"TAILRACE_PORT": "x"})],
)
def test_a_bad_setting_is_named_and_exit_2(
    served: list[Settings], args: list[str], env: dict[str, str]
) -> None:
    result = invoke(*args, **env)
    assert result.exit_code == 2
    assert result.stderr.startswith("tailrace: TAILRACE_PORT must be ")
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
