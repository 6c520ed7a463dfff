"""The whole deployment on this machine: edge, cache, function URLs, functions, DynamoDB."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import boto3
import httpx

from devtools import templates
from devtools.engines.ministack import Ministack
from devtools.local_aws.assembly import Assembly
from devtools.local_aws.cloudfront import CloudFrontApi
from devtools.local_aws.containers import MOST_CONTAINERS, Containers
from devtools.local_aws.edge import VARNISH, Edge, Origin
from devtools.local_aws.environments import PYTHON, REGION
from devtools.local_aws.event_source import EventSource
from devtools.local_aws.function_url import FunctionUrl
from devtools.local_aws.functions import Function
from devtools.local_aws.lambda_api import LambdaApi
from devtools.local_aws.websocket_api import WebSocketApi
from devtools.processes import allow_many_connections
from infra.console import ORIGIN as CONSOLE
from infra.names import CONTAINERS, logical_id
from tailrace import console
from tailrace.aws.edge.key_document import build_entries
from tailrace.aws.runtime.policy_provider import apply_access_secret
from tailrace.settings import Settings
from tailrace.store.dynamodb.provision import table_definition

SECRET: Final = "the-origin-secret-of-this-machine"
SECRET_HEADER: Final = "x-tailrace-origin"
DISTRIBUTION: Final = "ELOCAL"
URLS: Final = ("http", "wait", "live")
FOLLOWERS: Final = ("dispatch", "purge")
"""The functions behind the table's stream."""

FUNCTIONS: Final = (*URLS, *FOLLOWERS, "cable", "heartbeat", "webhooks")
START_SECONDS: Final = 600.0
"""A generous limit: on a busy machine, a start of seconds can take minutes."""

T = TypeVar("T")


class Missing(Exception):
    """A tool that the local AWS needs is missing on this machine."""


class AwsLocal:
    """A context manager that starts all components on loopback, and stops them at the end.

    `variables` replaces settings of the functions. `access` is the content of the access secret
    (None: everybody may do everything). `variant` is one of `devtools.templates`, `local-` with its
    switches; None: as deployed by default. `lifetime` is the maximum duration of a WebSocket
    connection. `say` is called with progress messages."""

    def __init__(
        self,
        *,
        variables: Mapping[str, str] | None = None,
        access: Mapping[str, Any] | None = None,
        variant: str | None = None,
        ministack: Ministack | None = None,
        port: int = 0,
        lifetime: float | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.functions: dict[str, Function] = {}
        self.urls: dict[str, FunctionUrl] = {}
        self.containers: Containers | None = None
        """None: the variant has none."""
        self.invalidations = CloudFrontApi(lambda tag: self.edge.purge(tag))
        self._variables = dict(variables or {})
        self._access = access
        self._variant = variant
        self._ministack = ministack
        self._wanted_port = port
        self._lifetime = lifetime
        self._say = say
        self._loop = asyncio.new_event_loop()
        self._stack = contextlib.ExitStack()

    @property
    def url(self) -> str:
        """The URL for viewers."""
        return self.edge.url

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def cold_starts(self) -> dict[str, int]:
        return {name: function.cold_starts for name, function in self.functions.items()}

    def requests(self, name: str) -> Counter[tuple[str, str]]:
        """How often each method and target was requested from a function URL, or from the
        containers in its place."""
        if name not in self.urls:
            assert self.containers is not None
            return Counter(self.containers.balancer.requests)
        return Counter(self.urls[name].requests)

    def output(self) -> str:
        """The end of every log, for failed tests."""
        parts = [f"--- {name} ---\n{each.output()}" for name, each in self.functions.items()]
        if self.containers is not None:
            parts.append(self.containers.output())
        return "\n".join([*parts, f"--- edge ---\n{self.edge.output()}"])

    def change_access(self, access: Mapping[str, Any]) -> None:
        """Replace the access secret, with immediate effect.

        On AWS the function `edge_keys` updates the edge within a minute, and the other functions
        read the secret again within five."""
        self._secrets.put_secret_value(SecretId=self._access_arn, SecretString=json.dumps(access))
        self.edge.put_keys(edge_keys(access))
        for name in self.urls:
            self._call(self.functions[name].renew())
        for server in [] if self.containers is None else self.containers.servers:
            server.restart()

    def __enter__(self) -> Self:
        check_tools()
        allow_many_connections()
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _start(self) -> None:
        enter = self._stack.enter_context
        self.folder = Path(tempfile.mkdtemp(prefix="tailrace-aws-"))
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._say("Synthesising the stacks, and packaging the functions for this machine …")
        access = "open" if self._access is None else "closed"
        assembly = templates.folder(self._variant or f"local-{access}")
        if self._ministack is None:
            self._say("Starting ministack: DynamoDB, S3, Secrets Manager …")
            (self.folder / "ministack").mkdir()
            self._ministack = enter(Ministack(self.folder / "ministack"))
        self._run_loop()
        self.cable = self._call(WebSocketApi(lifetime=self._lifetime).start())
        self._lambda = self._call(LambdaApi(self.functions).start())
        stream, references = self._provision(self._ministack.url)
        self._deploy(Assembly(assembly, references), stream)

    def _deploy(self, assembly: Assembly, stream: str) -> None:
        assert self._ministack is not None
        enter = self._stack.enter_context
        enter(self.invalidations)
        variables = {
            "AWS_ENDPOINT_URL": self._ministack.url,
            "AWS_ENDPOINT_URL_APIGATEWAYMANAGEMENTAPI": self.cable.endpoint,
            "AWS_ENDPOINT_URL_CLOUDFRONT": self.invalidations.url,
            "AWS_ENDPOINT_URL_LAMBDA": self._lambda.url,
            # Receivers of webhooks are on this machine, too; no deployment has this.
            "TAILRACE_WEBHOOK_LOOPBACK": "true",
            **self._variables,
        }
        for name in [each for each in FUNCTIONS if logical_id(each) in assembly.functions]:
            configuration = assembly.function(name, **variables)
            self.functions[name] = self._call(
                Function(configuration, self.folder / "functions").start()
            )
            self._stack.callback(self._end, self.functions[name].close)
        if "cable" in self.functions:
            self.cable.function = self.functions["cable"]
        for api in (self._lambda, self.cable):
            self._stack.callback(self._end, api.close)
        for name in [each for each in URLS if each in self.functions]:
            domain = f"{name}.lambda-url.{REGION}.on.aws"
            url = FunctionUrl(self.functions[name], domain, streaming=assembly.streams(name))
            self.urls[name] = self._call(url.start())
            self._stack.callback(self._end, url.close)
        ports = {name: url.port for name, url in self.urls.items()} | {"cable": self.cable.port}
        environment = assembly.container(**variables)
        if environment is not None:
            self._say("Starting the containers …")
            ports[CONTAINERS] = self._start_containers(environment, assembly.most_containers)
        self._say("Starting the edge and the cache …")
        origins = {
            name: Origin(port=port, headers={SECRET_HEADER: SECRET}) for name, port in ports.items()
        }
        bucket = urlsplit(self._ministack.url)
        assert bucket.port is not None
        origins[CONSOLE] = Origin(
            bucket.port, host=bucket.hostname or "127.0.0.1", prefix=f"/{self._console}"
        )
        self.edge = enter(
            Edge(self.folder / "edge", assembly.template, origins, port=self._wanted_port)
        )
        if self._access is not None:
            self.edge.put_keys(edge_keys(self._access))
        self._follow(assembly, stream)
        self._say("Starting the first function environments …")
        self._warm_up()

    def _start_containers(self, environment: Mapping[str, str], most: int) -> int:
        """Start the containers; returns the port of their load balancer."""
        count = min(most, MOST_CONTAINERS)
        self.containers = Containers(self.folder / CONTAINERS, environment, count)
        self._call(self.containers.balancer.start())
        self._stack.callback(self._end, self.containers.balancer.close)
        self._stack.callback(self.containers.stop)
        for number in range(count):
            self.containers.start(number)
        return self.containers.balancer.port

    def _provision(self, endpoint: str) -> tuple[str, dict[str, str]]:
        """Create the resources of the storage stack; returns the table's stream and the names."""

        def client(service: str) -> Any:
            return boto3.client(
                service,
                endpoint_url=endpoint,
                region_name=REGION,
                aws_access_key_id="test",
                aws_secret_access_key="test",
            )

        name = f"tailrace-{secrets.token_hex(6)}"
        table = client("dynamodb").create_table(**table_definition(name))["TableDescription"]
        client("s3").create_bucket(Bucket=name)
        self._console = f"{name}-console"
        upload_console(client("s3"), self._console)
        self._secrets = client("secretsmanager")
        secret = self._secrets.create_secret(Name=name, SecretString=SECRET)
        access = self._secrets.create_secret(
            Name=f"{name}-access", SecretString=json.dumps(self._access)
        )
        keys = self._secrets.create_secret(
            Name=f"{name}-keys", SecretString=secrets.token_urlsafe(36)
        )
        self._access_arn = access["ARN"]
        self._streams = client("dynamodbstreams")
        return table["LatestStreamArn"], {
            "AWS::DynamoDB::GlobalTable": name,
            "AWS::S3::Bucket": name,
            "AWS::SecretsManager::Secret": secret["ARN"],
            "AWS::SecretsManager::Secret.Id": secret["ARN"],
            "AccessSecret.Id": access["ARN"],
            "SubscriptionKeys.Id": keys["ARN"],
            "AWS::CloudFront::Distribution": DISTRIBUTION,
            "AWS::Region": REGION,
            "AWS::URLSuffix": "amazonaws.com",
            "AWS::ApiGatewayV2::Api": self.cable.api_id,
            **{logical_id(name): name for name in FUNCTIONS},
        }

    def _follow(self, assembly: Assembly, stream: str) -> None:
        mappings = assembly.resources("AWS::Lambda::EventSourceMapping").values()
        for name in [each for each in FOLLOWERS if each in self.functions]:
            function = {"Fn::GetAtt": [logical_id(name), "Arn"]}
            (mapping,) = (each for each in mappings if each["FunctionName"] == function)
            filters = [each["Pattern"] for each in mapping["FilterCriteria"]["Filters"]]
            source = EventSource(self._streams, stream, filters, self.functions[name])
            following = asyncio.run_coroutine_threadsafe(source.run(), self._loop)
            following.add_done_callback(_report_failure)
            self._stack.callback(following.cancel)

    def _warm_up(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            answer = httpx.get(f"{self.url}/health", timeout=START_SECONDS, trust_env=False)
            if answer.is_success:
                return
            if time.monotonic() > deadline or answer.status_code not in (429, 503, 504):
                raise AssertionError(
                    f"GET /health: {answer.status_code} {answer.text}\n{self.output()}"
                )
            time.sleep(0.1)

    def _run_loop(self) -> None:
        thread = threading.Thread(target=self._loop.run_forever, name="lambda", daemon=True)
        thread.start()

        def end() -> None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

        self._stack.callback(end)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_SECONDS)

    def _end(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._call(close())


def upload_console(s3: Any, bucket: str) -> None:
    """Do what the deployment does to the console's files, in a new bucket."""
    s3.create_bucket(Bucket=bucket)
    for name in console.names():
        file = console.read(name)
        assert file is not None
        s3.put_object(
            Bucket=bucket,
            Key=name,
            Body=file.body,
            ContentType=file.kind,
            CacheControl=file.cache_control,
        )


def edge_keys(access: Mapping[str, Any]) -> dict[str, str]:
    """The part of an access secret that the edge gets."""
    return build_entries(apply_access_secret(Settings(), json.dumps(access)), SECRET.encode())


def _report_failure(following: Future[None]) -> None:
    """Report the error of a background task, which would otherwise go unnoticed."""
    if not following.cancelled() and (error := following.exception()) is not None:
        print(f"the event source mapping ended: {error!r}", file=sys.stderr)


def check_tools() -> None:
    """Check that all tools are installed; raises `Missing` with the fix."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    if shutil.which("node", path=path) is None:
        raise Missing("Node is missing; `make setup` brings it")
    if not PYTHON.exists():
        raise Missing("Lambda's Python is missing; `make setup` brings it")
    if not VARNISH.exists():
        raise Missing("Varnish, the cache, is missing; `make setup` brings it, or says why not")
    if shutil.which("cc") is None:
        raise Missing("Varnish needs a C compiler (Debian, Ubuntu: apt install gcc libc6-dev)")
