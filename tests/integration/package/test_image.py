"""The container image: its Dockerfile, and its steps as processes of this machine.

There is no container here: packages are installed as the Dockerfile says, but for this machine, and
the server runs from them with the image's user, environment and commands.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from devtools.processes import ROOT, Process, free_port
from scripts.package import UV, _index
from scripts.trim_packages import trim
from tests.support.dockerfile import stages

MEGABYTES = 150
"""Of packages in the image; a third of them is numpy."""


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """The image's files below a folder that every user may read."""
    # Not below the folder of pytest, which only this user may read.
    folder = Path(tempfile.mkdtemp(prefix="tailrace-image-"))
    folder.chmod(0o755)
    try:
        _install(folder / "packages")
        trim(folder / "packages")
        shutil.copytree(
            ROOT / "layers/core/python/tailrace",
            folder / "packages" / "tailrace",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        yield folder
    finally:
        shutil.rmtree(folder)


def _install(target: Path) -> None:
    """Run the step that installs packages: with uv, which has them in its cache."""
    (step,) = (text for text in stages()[0].all("RUN") if text.startswith("pip install"))
    options = step.removeprefix("pip install").split()
    options = [each for each in options if each not in ("--no-cache-dir", "--no-compile")]
    given = {"--target": str(target), "--requirement": str(ROOT / "requirements" / "serve.txt")}
    named = [f"{name}={given.get(name, value)}" for name, _, value in _split(options) if value]
    flags = [name for name, _, value in _split(options) if not value]
    index = (line.removeprefix("export ").split("=", 1) for line in _index().splitlines())
    subprocess.run(
        [UV, "pip", "install", "--quiet", "--python", sys.executable, *flags, *named],
        env={**os.environ, **{name: value.strip("'") for name, value in index}},
        check=True,
    )


def _split(options: list[str]) -> list[tuple[str, str, str]]:
    return [option.partition("=") for option in options]


@pytest.fixture
def environment(image: Path, tmp_path: Path) -> dict[str, str]:
    """The image's variables, with this machine's places."""
    data = image / tmp_path.name
    data.mkdir(mode=0o700)
    os.chown(data, *_user())
    declared = stages()[-1].environment
    assert declared["PYTHONPATH"] == "/opt/tailrace"
    assert declared["TAILRACE_DATA"] == "/data"
    return {
        "PATH": os.defpath,
        **declared,
        "PYTHONPATH": str(image / "packages"),
        "TAILRACE_DATA": str(data),
        "TAILRACE_PORT": str(free_port()),
    }


def _user() -> tuple[int, int]:
    user, group = map(int, stages()[-1].one("USER").text.split(":"))
    return user, group


@pytest.fixture(scope="module")
def as_user() -> list[str | Path]:
    """Runs a Python for which the packages were installed as the image's user, who may not read
    the home directories in which others have theirs."""
    user, group = _user()
    become = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"]
    name = f"python3.{sys.version_info.minor}"
    for python in (Path(sys.base_prefix) / "bin" / name, Path("/usr/bin") / name):
        probe = subprocess.run([*become, python, "-c", ""], capture_output=True)
        if probe.returncode == 0:
            return [*become, python]
    pytest.skip(f"no {name} that another user may run, or this user may not become another")


def test_the_server_runs_from_the_images_packages_as_its_user(
    environment: dict[str, str], as_user: list[str | Path], tmp_path: Path
) -> None:
    last = stages()[-1]
    command = [*last.one("ENTRYPOINT").command, *last.one("CMD").command]
    health: list[str] = json.loads(last.one("HEALTHCHECK").text.partition("CMD ")[2])
    url = f"http://127.0.0.1:{environment['TAILRACE_PORT']}"
    assert command[0] == "python"
    user, _ = _user()
    check = [*as_user, *health[1:]]
    server = Process(
        "the image's server",
        [*as_user, *command[1:]],
        tmp_path / "log",
        env={**environment, "TAILRACE_ACCESS": "open"},
        cwd=Path(environment["TAILRACE_DATA"]),
        ready=lambda: "ready on" in (tmp_path / "log").read_text(),
    )
    assert subprocess.run(check, env=environment, capture_output=True).returncode != 0
    with server:
        status = Path(f"/proc/{server.pid}/status").read_text()
        assert f"Uid:\t{user}\t{user}\t{user}\t{user}\n" in status
        assert subprocess.run(check, env=environment).returncode == 0
        httpx.put(f"{url}/v1/stream/a", content="hello").raise_for_status()
        assert httpx.get(f"{url}/v1/stream/a").text == "hello"
        assert httpx.get(f"{url}/docs").is_success
        assert httpx.get(f"{url}/api/v1/schema").is_success
        assert server.stop() == 0


def test_a_server_on_all_addresses_asks_for_access_control(
    environment: dict[str, str], as_user: list[str | Path]
) -> None:
    command = stages()[-1].one("ENTRYPOINT").command
    refused = subprocess.run(
        [*as_user, *command[1:], "serve"], env=environment, capture_output=True, text=True
    )
    assert refused.returncode == 2
    assert "TAILRACE_ACCESS=open" in refused.stderr


def test_the_packages_are_few(image: Path) -> None:
    size = sum(file.stat().st_size for file in image.rglob("*") if file.is_file())
    assert size < MEGABYTES << 20
    services = {path.name for path in (image / "packages/botocore/data").glob("*/")}
    assert {"dynamodb", "s3", "secretsmanager", "sts"} <= services
    assert len(services) < 10


def test_the_image_is_not_run_by_root() -> None:
    assert all(_user())
    assert [text.split() for text in stages()[-1].all("VOLUME")] == [["/data"]]


def test_all_files_that_the_steps_copy_are_sent_to_the_build() -> None:
    sent = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"
    ]
    copied = [
        text.split()[0]
        for stage in stages()
        for text in stage.all("COPY")
        if not text.startswith("--from")
    ]
    assert sorted(sent) == sorted(copied)
    assert all((ROOT / path).exists() for path in copied)


def test_packages_are_installed_by_their_hashes_as_wheels() -> None:
    """Nothing of a package runs in the build, and nothing is newer than what was tested."""
    (step,) = (text for text in stages()[0].all("RUN") if "pip" in text)
    assert {"--require-hashes", "--only-binary=:all:", "--no-deps"} <= set(step.split())
