"""AWS on loopback: what the tests of the DynamoDB store run against.

It is ministack, unless `TAILRACE_TEST_DYNAMODB` names another endpoint for DynamoDB, as
`make test-dynamodb-local` does; S3 is ministack's then, too.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import pytest

PYTHON = Path(__file__).resolve().parent.parent / ".engines" / "ministack" / "bin" / "python"
START_SECONDS = 20.0
STOP_SECONDS = 10.0
SHOWN_BYTES = 8_000


class Ministack:
    """One ministack process on loopback; what it holds ends with it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "log"
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Starts it on a free port and returns when it answers."""
        assert self._process is None, "ministack is running already"
        assert PYTHON.exists(), "ministack is missing; `make setup` brings it"
        self.port = free_port()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [PYTHON, "-m", "ministack"],
                env=self._env(),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            ended = self._process.poll()
            if ended is not None or time.monotonic() > deadline:
                self.stop()
                state = "is not ready" if ended is None else f"ended with {ended}"
                raise AssertionError(f"ministack {state}; its output:\n{self.output()}")
            time.sleep(0.01)
        return self

    def stop(self) -> None:
        """Ends it; harmless when it has ended."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def output(self) -> str:
        return self.log.read_bytes()[-SHOWN_BYTES:].decode(errors="replace")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()

    def _env(self) -> dict[str, str]:
        # Nothing but this: ministack takes many variables, some as common as AUTH and SERVICES.
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory),
            "TMPDIR": str(self.directory),
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(self.port),
            "S3_DATA_DIR": str(self.directory / "s3"),
            "LOG_LEVEL": "WARNING",
            # It would remove containers of another ministack from the machine's Docker.
            "DOCKER_HOST": f"unix://{self.directory}/no-docker",
            # Two listeners on fixed ports.
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
        }

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/_ministack/health", trust_env=False).is_success
        except httpx.TransportError:
            return False


@dataclass(frozen=True, slots=True)
class Engine:
    """Where DynamoDB (`url`) and S3 are; `name` is that of the DynamoDB engine."""

    name: str
    url: str
    s3_url: str

    @property
    def env(self) -> dict[str, str]:
        """The environment in which a server, or boto3, uses it."""
        return {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",  # boto3 reads no other
            "AWS_ENDPOINT_URL_DYNAMODB": self.url,
            "AWS_ENDPOINT_URL_S3": self.s3_url,
            "AWS_EC2_METADATA_DISABLED": "true",
        }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def fresh_name(prefix: str) -> str:
    """A name for a table or a bucket that nobody else has."""
    return f"{prefix}-{secrets.token_hex(6)}"


@pytest.fixture(scope="session", name="ministack")
def ministack_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ministack]:
    with Ministack(tmp_path_factory.mktemp("ministack")) as shared:
        yield shared


@pytest.fixture(scope="session", name="aws")
def aws_fixture(ministack: Ministack) -> Engine:
    """DynamoDB and S3 that the tests share; they keep apart by `fresh_name`."""
    url = os.environ.get("TAILRACE_TEST_DYNAMODB")
    if url:
        return Engine("DynamoDB Local", url, ministack.url)
    return Engine("ministack", ministack.url, ministack.url)
