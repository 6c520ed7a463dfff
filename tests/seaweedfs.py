"""S3 on loopback that asks for real signatures: what ministack answers without looking."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import pytest

HOME = Path(__file__).resolve().parent.parent / ".engines" / "seaweedfs"
WEED = HOME / "weed"
START_SECONDS = 30.0
STOP_SECONDS = 10.0
SHOWN_BYTES = 8_000
SERVERS = ("master", "volume", "filer", "s3", "admin")


class Seaweedfs:
    """One SeaweedFS process on loopback with keys of its own; what it holds ends with it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "log"
        self.access_key = secrets.token_hex(10)
        self.secret_key = secrets.token_hex(20)
        self.port = 0
        self._ports: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        """The environment in which a server, or boto3, uses it."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",  # boto3 reads no other
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self) -> Self:
        """Starts it on free ports and returns when it answers."""
        assert self._process is None, "SeaweedFS is running already"
        assert WEED.exists(), "SeaweedFS is missing; `make setup` brings it"
        self._ports = free_ports(2 * len(SERVERS))
        self.port = self._ports[2 * SERVERS.index("s3")]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [WEED, "-logtostderr=true", "mini", *self._options()],
                # Nothing but this: it takes settings from variables, too.
                env={"HOME": str(self.directory), "TMPDIR": str(self.directory)},
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
                raise AssertionError(f"SeaweedFS {state}; its output:\n{self.output()}")
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
        # It opens sockets there, wherever it is told to work, and leaves some.
        for port in self._ports:
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)

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
        # Every port, even of servers without use here: the defaults are fixed ones.
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


def free_ports(count: int) -> list[int]:
    """All open at once, so that no two are the same."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in held]


@pytest.fixture(scope="session", name="seaweedfs")
def seaweedfs_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweedfs]:
    """S3 that checks signatures; tests keep apart by `fresh_name`."""
    reason = HOME / "missing"
    if reason.exists():
        pytest.skip(f"without SeaweedFS: {reason.read_text().strip()}")
    with Seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as shared:
        yield shared
