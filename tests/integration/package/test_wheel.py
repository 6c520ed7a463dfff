"""The package `tailrace`, as users install it: in an environment outside of the repository."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import httpx
import pytest

from devtools.processes import ROOT, free_port

AWS = ("boto3", "botocore")
AVISO = ("yaml", "shapely", "numpy")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and what it requires, at tested versions."""
    place = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    python = place / "bin" / "python"
    uv = Path(sys.executable).with_name("uv")
    pins = ROOT / "requirements" / "serve.txt"
    if uv.exists():
        command = [str(uv), "pip", "install", "--quiet", "--python", str(python)]
        tries = [[*command, "--offline"], command]
    else:
        tries = [[sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]]
    for each in tries:
        done = subprocess.run(
            [*each, "--constraint", pins, wheel],
            env={**os.environ, **index()},
            capture_output=True,
            text=True,
        )
        if done.returncode == 0:
            return python.parent
    raise AssertionError(done.stderr)


def index() -> dict[str, str]:
    """Variables with which the set-up reached the index of packages."""
    text = (ROOT / ".venv" / ".index").read_text()
    return dict(word.split("=", 1) for word in shlex.split(text) if "=" in word)


def run(program: Path, *args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {"PATH": os.environ["PATH"], "HOME": str(cwd), **env}
    return subprocess.run([program, *args], cwd=cwd, env=clean, capture_output=True, text=True)


@pytest.fixture
def server(installed: Path, tmp_path: Path) -> Iterator[str]:
    port = free_port()
    command = [str(installed / "tailrace"), "serve", "--port", str(port)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "is ready" in process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
        process.terminate()
        assert process.wait() == 0


def test_the_wheel_has_nothing_but_the_product_at_its_top_level(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {re.sub(r"-.*\.dist-info", "", name.split("/")[0]) for name in names} == {"tailrace"}
    assert "tailrace/py.typed" in names
    assert "tailrace/docs/openapi.json" in names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_the_wheel_says_what_it_needs(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
    metadata = Parser().parsestr(archive.read(name).decode())
    assert set(metadata.get_all("Provides-Extra", [])) == {"aws", "aviso", "spark"}
    required = metadata.get_all("Requires-Dist", [])
    unbounded = [each for each in required if not re.search("[<>=]", each.split(";")[0])]
    assert unbounded == ["pyarrow; extra == 'spark'"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "# Tailrace" in str(metadata.get_payload())


def test_the_server_and_the_command_line_run_from_the_wheel(
    installed: Path, server: str, tmp_path: Path
) -> None:
    def tailrace(*args: str) -> str:
        done = run(installed / "tailrace", *args, cwd=tmp_path, TAILRACE_URL=server)
        assert done.returncode == 0, done.stderr
        return done.stdout

    tailrace("create", "chat", "-t", "application/json")
    tailrace("append", "chat", "-m", '{"hello": 1}')
    assert json.loads(tailrace("read", "chat")) == {"hello": 1}
    assert httpx.get(f"{server}/openapi.json").status_code == 200
    assert httpx.get(f"{server}/docs").status_code == 200


def test_the_plain_package_is_light_and_names_the_extras(installed: Path, tmp_path: Path) -> None:
    modules = [*AWS, *AVISO, "glue_jobs", "pytest"]
    code = f"from importlib.util import find_spec; print([m for m in {modules} if find_spec(m)])"
    assert run(installed / "python", "-c", code, cwd=tmp_path).stdout == "[]\n"
    for env, extra in (
        ({"TAILRACE_STORE": "dynamodb"}, "aws"),
        ({"TAILRACE_AVISO_SCHEMA": "schema.yaml"}, "aviso"),
    ):
        refused = run(installed / "tailrace", "serve", "--port", "0", cwd=tmp_path, **env)
        assert refused.returncode == 2
        assert f"pip install 'tailrace[{extra}]'" in refused.stderr.splitlines()[-1]
