"""The deployment that is measured: its URLs, its secrets, and a client for its streams."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import httpx

from devtools.aws_smoke.findings import NotMeasured
from devtools.local_aws.stack import SECRET, SECRET_HEADER, AwsLocal
from tailrace.auth.jws import sign_token
from tailrace.auth.keys import Keys
from tailrace.settings import Settings

HOUR_SECONDS: Final = 3_600
MOVED: Final = "x-tailrace-authorization"
"""Where the edge function moves credentials that it has not verified: functions read them there."""
TEXT: Final = {"content-type": "text/plain"}
REQUEST_SECONDS: Final = 150.0
"""Longer than the longest long-poll that CloudFront allows."""


class Account(Protocol):
    """The AWS account of a deployment."""

    def client(self, service: str, region: str | None = None) -> Any:
        """A boto3 client; by default of the deployment's region."""

    def output(self, name: str) -> str:
        """An output of the stacks; raises `NotMeasured` if the deployment lacks it."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long and how much the checks measure."""

    readers: int = 40
    """Readers that wait for the same data."""
    wait: float = 15.0
    """Seconds that readers wait before there is data: a long wait has to collapse, too."""
    events: int = 10
    """Small messages that must arrive one by one."""
    gap: float = 0.7
    """Seconds between two of them, in which a streaming function may become quiet."""
    prompt: float = 2.0
    """Seconds after which a message is held back. It takes the pause of the slowest poll, and the
    way to the viewer."""
    settle: float = 5.0
    """Seconds in which all readers of a check have sent their requests."""
    metrics: float = 900.0
    """The longest wait for a metric, a log or a change of the distribution, in seconds."""


LOCAL_PACE: Final = Pace(readers=10, wait=0.5, events=4, gap=0.1, prompt=60, settle=0.5, metrics=0)


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    url: str
    cable_url: str
    secret: str
    """The secret with which clients sign."""
    origin_secret: str
    function_urls: Mapping[str, str]
    pace: Pace = field(default_factory=Pace)
    account: Account | None = None
    """None: the local AWS."""
    probe_url: str | None = None
    """A second distribution, which shares streamed responses; None: there is none."""
    run: str = field(default_factory=lambda: secrets.token_hex(4))
    """Part of the names of all streams, so that a second run meets no stream of the first."""

    @classmethod
    def from_local(cls, stack: AwsLocal, secret: str) -> Target:
        return cls(
            name="the local AWS",
            url=stack.url,
            cable_url=f"{stack.url.replace('http', 'ws', 1)}/cable",
            secret=secret,
            origin_secret=SECRET,
            function_urls={name: url.url for name, url in stack.urls.items()},
            pace=LOCAL_PACE,
        )

    @property
    def in_account(self) -> Account:
        if self.account is None:
            raise NotMeasured("needs an account")
        return self.account

    def stream(self, name: str) -> str:
        """The path of a stream of this run."""
        return f"/v1/stream/smoke/{self.run}/{name}"

    def token(self, scope: str, client: str = "smoke") -> str:
        claims = {
            "scope": scope,
            "streams": f"smoke/{self.run}/**",
            "sub": client,
            "exp": int(time.time()) + HOUR_SECONDS,
        }
        return sign_token(claims, self.secret.encode(), "HS256")

    def broadcast_key(self) -> str:
        (key,) = Keys.from_settings(Settings(secret=self.secret)).broadcast
        return key.decode()

    @contextmanager
    def viewer(self) -> Iterator[Client]:
        """A client of the distribution."""
        with self._connect(self.url) as http:
            yield Client(http, self, "authorization")

    @contextmanager
    def direct(self, function: str) -> Iterator[Client]:
        """A client of a function URL, past CloudFront."""
        headers = {SECRET_HEADER: self.origin_secret}
        with self._connect(self.function_urls[function], headers) as http:
            yield Client(http, self, MOVED)

    @contextmanager
    def probe(self) -> Iterator[Client]:
        """A client of the second distribution, whose function moves no credentials."""
        if self.probe_url is None:
            raise NotMeasured("needs the second distribution")
        with self._connect(self.probe_url) as http:
            yield Client(http, self, MOVED)

    def _connect(self, url: str, headers: Mapping[str, str] | None = None) -> httpx.Client:
        return httpx.Client(
            base_url=url,
            headers=dict(headers or {}),
            timeout=REQUEST_SECONDS,
            # A proxy of the environment leads to AWS, but not to this machine.
            trust_env=self.account is not None,
            limits=httpx.Limits(max_connections=None),
        )


class Client:
    """Sends requests for streams of a target, by default with a token for what they do."""

    def __init__(self, http: httpx.Client, target: Target, credentials: str) -> None:
        self._http = http
        self._target = target
        self._credentials = credentials

    def bearer(self, scope: str, reader: str = "smoke") -> dict[str, str]:
        return {self._credentials: f"Bearer {self._target.token(scope, reader)}"}

    def create(self, path: str) -> str:
        """Create a stream of text; returns the offset of its end."""
        answer = self.send("PUT", path, self._writing())
        self._require(answer, 200, 201)
        return str(answer.headers["stream-next-offset"])

    def append(self, path: str, body: str) -> str:
        answer = self.send("POST", path, self._writing(), body)
        self._require(answer, 204)
        return str(answer.headers["stream-next-offset"])

    def read(self, path: str, **query: str) -> httpx.Response:
        target = f"{path}?{httpx.QueryParams(query)}" if query else path
        return self.send("GET", target, self.bearer("read"))

    def send(
        self, method: str, target: str, headers: Mapping[str, str], body: str = ""
    ) -> httpx.Response:
        """Send a request whose target arrives byte by byte as it is given."""
        return self._http.request(
            method,
            "/",
            headers=dict(headers),
            content=body.encode() or None,
            extensions={"target": target.encode()},
        )

    @contextmanager
    def open(self, path: str, **query: str) -> Iterator[httpx.Response]:
        """A streamed read."""
        target = f"{path}?{httpx.QueryParams(query)}"
        headers = self.bearer("read")
        with self._http.stream(
            "GET", "/", headers=headers, extensions={"target": target.encode()}
        ) as answer:
            yield answer

    def _writing(self) -> dict[str, str]:
        return {**TEXT, **self.bearer("write")}

    def _require(self, answer: httpx.Response, *statuses: int) -> None:
        if answer.status_code not in statuses:
            request = answer.request
            raise AssertionError(
                f"{request.method} {request.extensions.get('target')!r}:"
                f" {answer.status_code} {answer.text[:300]}"
            )


def wait_until(met: Callable[[], bool], seconds: float, pause: float = 1.0) -> bool:
    """Whether a condition was met within so many seconds."""
    deadline = time.monotonic() + seconds
    while not met():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
    return True


def first_secret(document: str) -> str:
    """The secret that signs, of an access secret."""
    secret: str = json.loads(document)["secret"]
    return secret.split()[0]
