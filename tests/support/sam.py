"""Checks that `sam local invoke` finds what it needs for every function of a template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from devtools.sam_local.invocations import ENV_VARS, Invocation, read_invocations
from infra.names import camel_case, logical_id
from scripts.package import LAYERS, PYTHON_VERSION


def check_invocations(template: Path, home: Path) -> None:
    """Check that SAM finds code, layers, handler, runtime and environment of each function."""
    functions = _functions(json.loads(template.read_bytes()))
    found = {
        name: each
        for name, each in read_invocations(template, home).items()
        if not name.startswith("Custom")
    }
    assert found.keys() == functions.keys() == {logical_id(name) for name in LAYERS}
    for name in LAYERS:
        _check(name, found[logical_id(name)], functions[logical_id(name)])


def _check(name: str, found: Invocation, function: dict[str, Any]) -> None:
    module = found.handler.partition(".")[0]
    assert (found.code / f"{module}.py").is_file(), name
    assert len(found.layers) == len(LAYERS[name]) == len(function["Layers"])
    for path, layer in zip(found.layers, function["Layers"], strict=True):
        assert any(path.iterdir()), f"{name}: {path} is empty"
        assert "python" in [each.name for each in path.iterdir()], f"{name}: {layer}"
    tops = {each.name for path in found.layers for each in (path / "python").iterdir()}
    assert "tailrace" in tops, name
    assert (found.handler, found.runtime) == (function["Handler"], f"python{PYTHON_VERSION}")
    assert found.image == f"python:{PYTHON_VERSION}-{found.architecture}"
    assert [found.architecture] == function["Architectures"]
    assert (found.memory, found.seconds) == (function["MemorySize"], function["Timeout"])
    _check_environment(name, found.environment, function["Environment"]["Variables"])


def _check_environment(name: str, found: dict[str, str], declared: dict[str, Any]) -> None:
    overrides: dict[str, str] = json.loads(ENV_VARS.read_bytes())["Parameters"]
    own = {variable for variable in found if not variable.startswith("AWS_")}
    # Only variables that a function declares are replaced.
    assert own == {each for each in declared if not each.startswith("AWS_")}, name
    for variable in own:
        value = overrides.get(variable, declared[variable])
        assert isinstance(value, str), (
            f"{name}: {variable} only exists after a deployment, and events/env.json lacks it"
        )
        assert found[variable] == value, f"{name}: {variable}"
    for variable, value in declared.items():
        if variable.startswith("AWS_") and isinstance(value, str):
            assert found[variable] == value, f"{name}: {variable}"


def _functions(template: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The properties of the application's functions; the CDK's own are not for invocation."""
    wanted = {f"{camel_case(name)}Function" for name in LAYERS}
    return {
        name: resource["Properties"]
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::Lambda::Function" and name in wanted
    }
