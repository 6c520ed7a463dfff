"""`tailrace keys`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run


def test_rotation_adds_a_key_that_signs_later(run: Run, tmp_path: Path) -> None:
    first = json.loads(run("keys", "rotate", "--data", str(tmp_path), "--json").stdout)["keys"]
    assert [key["state"] for key in first] == ["signs", "next"]
    result = run("keys", "show", TAILRACE_DATA=str(tmp_path))
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["KEY", "STATE", "SIGNS", "FROM"]
    assert [line[:2] for line in lines[1:]] == [[key["kid"], key["state"]] for key in first]
    assert all(len(line[2]) == len("2030-01-31T12:00:00Z") for line in lines[1:])


def test_a_revocation_leaves_one_key(run: Run, tmp_path: Path) -> None:
    before = json.loads(run("keys", "rotate", "--data", str(tmp_path), "--json").stdout)["keys"]
    result = run("keys", "rotate", "--revoke", "--data", str(tmp_path), "--json")
    (after,) = json.loads(result.stdout)["keys"]
    assert after["state"] == "signs"
    assert after["kid"] not in {key["kid"] for key in before}


def test_no_secret_is_shown(run: Run, tmp_path: Path) -> None:
    output = run("keys", "rotate", "--data", str(tmp_path), "--json").stdout
    stored = json.loads((tmp_path / "tailrace.keys").read_text())["keys"]
    assert len(stored) == 2
    assert not any(each["secret"] in output for each in stored)


@pytest.mark.parametrize(("command", "more"), [("show", ()), ("rotate", ("--revoke",))])
def test_a_missing_directory(run: Run, tmp_path: Path, command: str, more: tuple[str, ...]) -> None:
    result = run("keys", command, *more, "--data", str(tmp_path / "none"))
    assert (result.exit_code, result.stdout) == (3, "")
    assert "does not exist; check --data" in result.stderr
    assert not (tmp_path / "none").exists()


def test_a_directory_without_keys(run: Run, tmp_path: Path) -> None:
    result = run("keys", "show", "--data", str(tmp_path))
    assert result.exit_code == 3
    assert "has no keys yet" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_keys_that_others_can_read(run: Run, tmp_path: Path) -> None:
    run("keys", "rotate", "--data", str(tmp_path))
    (tmp_path / "tailrace.keys").chmod(0o644)
    for command in ("show", "rotate"):
        result = run("keys", command, "--data", str(tmp_path))
        assert result.exit_code == 1
        assert "other users may read it" in result.stderr
