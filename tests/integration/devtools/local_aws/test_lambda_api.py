"""The stand-in for Lambda's API invokes as Lambda does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from devtools.local_aws.lambda_api import LambdaApi
from tests.integration.devtools.local_aws.deploying import SECONDS, deployed

ARN = "arn:aws:lambda:us-east-1:000000000000:function:tiny"

HANDLER = """
    import json, os, time
    def handler(event, context):
        with open(os.environ["EVENTS"], "a") as events:
            events.write("x")
        tries = os.path.getsize(os.environ["EVENTS"])
        while not os.path.exists(event.get("until", "/")):
            time.sleep(0.01)
        if tries <= event.get("failures", 0):
            raise KeyError("k")
        return {"tries": tries, "event": event}
"""


class Running:
    def __init__(self, api: LambdaApi, events: Path) -> None:
        self.api = api
        self._events = events
        self._client: Any = None

    @property
    def tries(self) -> int:
        return self._events.stat().st_size if self._events.exists() else 0

    async def invoke(self, name: str = "tiny", kind: str = "RequestResponse", **event: Any) -> Any:
        return await self.send(name, kind, json.dumps(event).encode())

    async def send(self, name: str, kind: str, payload: bytes) -> Any:
        """The answer, or the error's status and name."""
        if self._client is None:
            self._client = await asyncio.to_thread(client, self.api)
        try:
            return await asyncio.to_thread(
                self._client.invoke, FunctionName=name, InvocationType=kind, Payload=payload
            )
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            return status, error.response["Error"]["Code"]

    async def tried(self, times: int) -> None:
        await until(lambda: self.tries >= times)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


def client(api: LambdaApi, secret: str = "test") -> Any:
    return boto3.client(
        "lambda",
        endpoint_url=api.url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 1}),
    )


@asynccontextmanager
async def running(folder: Path, **settings: Any) -> AsyncIterator[Running]:
    events = folder / "events"
    variables = {"EVENTS": str(events)}
    async with deployed(folder, HANDLER, environment=variables, **settings) as url:
        api = await LambdaApi({"tiny": url.function}).start()
        try:
            yield Running(api, events)
        finally:
            await api.close()


async def test_an_answer_is_waited_for(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        for tries, name in enumerate(["tiny", ARN, f"{ARN}:live", "tiny:live"], 1):
            answer = await here.invoke(name, a=1)
            assert answer["StatusCode"] == 200
            assert "FunctionError" not in answer
            assert json.load(answer["Payload"]) == {"tries": tries, "event": {"a": 1}}


async def test_a_failure_is_reported_and_not_retried(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        answer = await here.invoke(failures=1)
        assert (answer["StatusCode"], answer["FunctionError"]) == (200, "Unhandled")
        assert json.load(answer["Payload"])["errorType"] == "KeyError"
        assert here.tries == 1


async def test_an_event_is_taken_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.invoke()
        # Its function never ends, and is not waited for.
        answer = await here.invoke(ARN, "Event", until="/never")
        assert answer["StatusCode"] == 202
        assert answer["Payload"].read() == b""
        await here.tried(2)


async def test_an_event_is_tried_three_times(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.invoke(kind="Event", failures=2)
        await here.tried(3)
        assert here.api.discarded == []
        await here.invoke(kind="Event", failures=100)
        await until(lambda: bool(here.api.discarded))
        assert here.tries == 6
        assert [failure.body["errorType"] for failure in here.api.discarded] == ["KeyError"]


async def test_an_event_waits_for_an_environment(tmp_path: Path) -> None:
    async with running(tmp_path, concurrency=1) as here:
        go = tmp_path / "go"
        await here.invoke(kind="Event", until=str(go))
        await here.tried(1)
        assert await here.invoke() == (429, "TooManyRequestsException")
        await here.invoke(kind="Event")
        go.touch()
        await here.tried(2)


@pytest.mark.parametrize(
    ("name", "kind", "payload", "refusal"),
    [
        ("other", "Event", b"{}", (404, "ResourceNotFoundException")),
        ("tiny", "Event", b"{", (400, "InvalidRequestContentException")),
        ("tiny", "Event", b'"%b"' % bytes(b"x" * (1 << 20)), (413, "RequestTooLargeException")),
    ],
)
async def test_invalid_invocations_are_refused(
    tmp_path: Path, name: str, kind: str, payload: bytes, refusal: tuple[int, str]
) -> None:
    async with running(tmp_path) as here:
        assert await here.send(name, kind, payload) == refusal
        assert here.tries == 0


async def test_a_call_has_to_be_signed(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        here._client = client(here.api, secret="wrong")
        assert await here.invoke() == (403, "InvalidSignatureException")
        assert here.tries == 0
