"""SeaweedFS: S3 on loopback that checks signatures, which ministack does not."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import httpx

from devtools.processes import ENGINES, Process, free_ports

WEED: Final = ENGINES / "seaweedfs" / "weed"
MISSING: Final = ENGINES / "seaweedfs" / "missing"
"""Its text says why `make setup` could not install SeaweedFS."""
SERVERS: Final = ("master", "volume", "filer", "s3", "admin")


class Seaweedfs(Process):
    """A SeaweedFS process on loopback with its own keys, whose data is lost when it stops."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.access_key = secrets.token_hex(10)
        self.secret_key = secrets.token_hex(20)
        self._ports = free_ports(2 * len(SERVERS))
        self.port = self._ports[2 * SERVERS.index("s3")]
        super().__init__(
            "SeaweedFS",
            [WEED, "-logtostderr=true", "mini", *self._options()],
            directory / "log",
            # A minimal environment: it reads settings from variables, too.
            env={"HOME": str(directory), "TMPDIR": str(directory)},
            cwd=directory,
            ready=self._answers,
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def client_env(self) -> dict[str, str]:
        """Environment variables with which a server, or boto3, uses it."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",  # boto3 reads this one only
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self) -> Self:
        assert WEED.exists(), "SeaweedFS is missing; `make setup` brings it"
        return super().start()

    def kill(self) -> None:
        super().kill()
        # It creates sockets there, whatever its working directory, and leaves some behind.
        for port in self._ports:
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)

    def _options(self) -> Iterator[str]:
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": self.access_key, "secretKey": self.secret_key}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        config = self.directory / "s3.json"
        config.write_text(json.dumps({"identities": [identity]}))
        yield f"-dir={self.directory}"
        yield "-ip=127.0.0.1"
        yield "-ip.bind=127.0.0.1"
        yield "-master.telemetry=false"
        # All ports, even those of unused servers: the defaults are fixed.
        for server, http, grpc in zip(SERVERS, self._ports[::2], self._ports[1::2], strict=True):
            yield f"-{server}.port={http}"
            yield f"-{server}.port.grpc={grpc}"
        yield f"-s3.config={config}"
        yield "-s3.port.iceberg=0"
        yield "-s3.port.lance=0"
        yield "-s3.iam=false"
        yield "-s3.autoCreateBucket=false"
        yield "-admin.ui=false"
        yield "-webdav=false"

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/healthz", trust_env=False).is_success
        except httpx.TransportError:
            return False
