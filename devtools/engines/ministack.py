"""ministack: DynamoDB, S3, Secrets Manager and more of AWS, on loopback."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import httpx

from devtools.processes import ENGINES, Process, free_port

PYTHON: Final = ENGINES / "ministack" / "bin" / "python"


class Ministack(Process):
    """A ministack process on loopback, whose data is lost when it stops."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        command: list[str | Path] = [PYTHON, "-m", "ministack"]
        super().__init__(
            "ministack",
            command,
            directory / "log",
            env=self._settings(),
            cwd=directory,
            ready=self._answers,
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        assert PYTHON.exists(), "ministack is missing; `make setup` brings it"
        return super().start()

    def _settings(self) -> dict[str, str]:
        # A minimal environment: ministack reads many variables, such as AUTH and SERVICES.
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory),
            "TMPDIR": str(self.directory),
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(self.port),
            "S3_DATA_DIR": str(self.directory / "s3"),
            "LOG_LEVEL": "WARNING",
            # Otherwise it would remove containers of other ministacks from the machine's Docker.
            "DOCKER_HOST": f"unix://{self.directory}/no-docker",
            # These would listen on fixed ports.
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
    """The URLs of DynamoDB (`url`) and S3; `name` is the name of the DynamoDB engine."""

    name: str
    url: str
    s3_url: str

    @property
    def env(self) -> dict[str, str]:
        """Environment variables with which a server, or boto3, uses it."""
        return {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",  # boto3 reads this one only
            "AWS_ENDPOINT_URL_DYNAMODB": self.url,
            "AWS_ENDPOINT_URL_S3": self.s3_url,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
