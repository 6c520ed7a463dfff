"""`scripts/aws-smoke` as a command: it deploys to a ministack with the CDK, and leaves nothing.

ministack has no key-value stores, so access is open here, and the checks, which sign, have nothing
to measure: the command says so, and destroys what it made. The checks themselves run in
`tests/e2e/test_aws_smoke.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.local_deploy.deployment import Cloud, Deployment
from devtools.processes import ROOT

SWITCHES = ["--context=platform=host", "--context=access=open", "--context=history=false"]
SECONDS = 900.0
STACK = "tailrace-smoketest"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A ministack with the CDK's bootstrap."""
    directory = tmp_path_factory.mktemp("smoke")
    with Cloud(tmp_path_factory.mktemp("ministack")) as ministack:
        deployment = Deployment(ministack, directory)
        deployment.bootstrap()
        yield deployment


class Command:
    """A running `scripts/aws-smoke`."""

    def __init__(self, cloud: Deployment, directory: Path, *options: str) -> None:
        self._said = directory / "said"
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [ROOT / "scripts" / "aws-smoke", "--stage=smoketest", *SWITCHES, *options],
                env=cloud.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                start_new_session=True,
            )

    def said(self) -> str:
        return self._said.read_text()

    def interrupt(self) -> None:
        os.killpg(self._process.pid, signal.SIGINT)

    def wait(self) -> tuple[int, str]:
        """The exit code and the standard output."""
        output, _ = self._process.communicate(timeout=SECONDS)
        return self._process.returncode, output

    def running(self) -> bool:
        return self._process.poll() is None


def smoke_stacks(cloud: Deployment) -> set[str]:
    return {name for name in cloud.stacks() if name.startswith(STACK)}


def test_a_deployment_that_cannot_be_measured_is_destroyed(
    cloud: Deployment, tmp_path: Path
) -> None:
    command = Command(cloud, tmp_path, "--json", "--only=basics,job")
    code, output = command.wait()
    assert code == 1, command.said()
    report = json.loads(output)
    assert "AccessSecretArn" in report["error"], command.said()
    assert [check["outcome"] for check in report["checks"]] == ["not measured"] * 2
    assert "cdk deploy took" in command.said()
    assert "cdk destroy took" in command.said()
    assert (report["left"], smoke_stacks(cloud)) == ([], set())


def test_ctrl_c_during_the_deployment_destroys_it(cloud: Deployment, tmp_path: Path) -> None:
    command = Command(cloud, tmp_path, "--only=basics")
    deadline = time.monotonic() + SECONDS
    while not smoke_stacks(cloud):
        assert command.running(), command.said()
        assert time.monotonic() < deadline, command.said()
        time.sleep(0.2)
    command.interrupt()
    code, output = command.wait()
    assert code == 130, command.said()
    assert "not measured" in output
    assert "Destroying what was deployed" in command.said()
    assert smoke_stacks(cloud) == set(), command.said()


def test_a_kept_deployment_is_refused_and_destroyed_on_demand(
    cloud: Deployment, tmp_path: Path
) -> None:
    kept = Command(cloud, tmp_path, "--keep", "--only=basics")
    assert kept.wait()[0] == 1, kept.said()
    assert STACK in smoke_stacks(cloud)
    again = Command(cloud, tmp_path, "--only=basics")
    assert again.wait()[0] == 2
    assert "there are stacks already" in again.said()
    assert STACK in smoke_stacks(cloud)
    destroyed = Command(cloud, tmp_path, "--destroy")
    assert destroyed.wait()[0] == 0, destroyed.said()
    assert smoke_stacks(cloud) == set()
