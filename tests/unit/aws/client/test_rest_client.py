"""Calls to services that speak REST: signed as botocore does, and functions that are woken."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials
from hypothesis import given
from hypothesis import strategies as st

from devtools.local_aws.events import Request
from devtools.local_aws.http_server import Api
from devtools.local_aws.replies import Reply
from devtools.local_aws.sigv4 import check_signature
from tailrace.aws.client.service_access import AwsCredentials
from tailrace.aws.client.sigv4 import RestSigner
from tailrace.aws.runtime import event_context
from tailrace.aws.runtime.event_context import LambdaInvoker
from tailrace.errors import StoreUnavailable
from tailrace.settings import Settings

NOW = 1_790_000_000
KEYS = AwsCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", None)
EVENT_TYPE = "x-amz-invocation-type:Event\r\n"


def head_of(request: bytes) -> tuple[str, dict[str, str]]:
    head, _, _ = request.partition(b"\r\n\r\n")
    first, *fields = head.decode().split("\r\n")
    return first, dict(line.split(":", 1) for line in fields)


def boto_authorization(
    request: bytes, body: bytes, keys: AwsCredentials, service: str, region: str, now: float
) -> Any:
    """The `Authorization` of botocore for a request with these very fields."""
    first, headers = head_of(request)
    method, target, _ = first.split(" ")
    unsigned = ("authorization", "content-length", "x-amz-invocation-type")
    signed = AWSRequest(
        method,
        f"https://{headers['host']}{target}",
        headers={name: value for name, value in headers.items() if name not in unsigned},
        data=body,
    )
    with pytest.MonkeyPatch.context() as patch:
        moment = datetime.fromtimestamp(now, UTC)
        patch.setattr(botocore.auth, "get_current_datetime", lambda: moment)
        botocore.auth.SigV4Auth(BotoCredentials(*keys), service, region).add_auth(signed)
    return signed.headers["Authorization"]


@given(
    service=st.sampled_from(["execute-api", "lambda"]),
    region=st.sampled_from(["eu-west-1", "us-gov-west-1"]),
    method=st.sampled_from(["POST", "DELETE"]),
    name=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40),
    body=st.binary(max_size=100),
    token=st.none() | st.from_regex(r"[A-Za-z0-9+/=]{1,80}", fullmatch=True),
    more=st.sampled_from(["", EVENT_TYPE]),
    now=st.integers(0, 4_000_000_000),
)
def test_the_signature_is_the_one_botocore_makes(
    service: str,
    region: str,
    method: str,
    name: str,
    body: bytes,
    token: str | None,
    more: str,
    now: int,
) -> None:
    keys = KEYS._replace(token=token)
    path = f"/prod/@connections/{quote(name, safe='')}"
    # A name of dots alone would be taken for a way through folders.
    if set(name) <= {"."}:
        return
    signer = RestSigner("abc.execute-api.eu-west-1.amazonaws.com", region, service)
    request = signer.request(method, path, body, keys, now, more)
    _, headers = head_of(request)
    expected = boto_authorization(request, body, keys, service, region, now)
    assert headers["authorization"] == expected


def test_the_request_is_complete() -> None:
    signer = RestSigner("localhost:8000", "eu-west-1", "lambda")
    keys = KEYS._replace(token="tok")
    request = signer.request("POST", "/a%3Ab", b"{}", keys, NOW, EVENT_TYPE)
    assert request.endswith(b"\r\n\r\n{}")
    first, headers = head_of(request)
    assert first == "POST /a%3Ab HTTP/1.1"
    signed = "SignedHeaders=host;x-amz-date;x-amz-security-token,"
    assert signed in headers.pop("authorization")
    assert headers == {
        "host": "localhost:8000",
        "x-amz-date": "20260921T141320Z",
        "x-amz-security-token": "tok",
        "x-amz-invocation-type": "Event",
        "content-length": "2",
    }


# LambdaInvoker


class Lambda:
    """Takes events as it is told to."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.woken: list[tuple[str, bytes]] = []
        self.server = Api(self._handle)

    async def _handle(self, request: Request) -> Reply:
        refusal = check_signature(request, "lambda")
        if refusal is not None:
            return refusal
        assert request.method == "POST"
        assert dict(request.headers)["x-amz-invocation-type"] == "Event"
        self.woken.append((request.target, request.body))
        status = self.answers.pop(0)
        if status < 0:
            raise OSError
        return Reply(status)


@pytest.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lambda]:
    service = Lambda()
    await service.server.start()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": service.server.url,
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(event_context, "PAUSE", 0.001)
    yield service
    await service.server.close()


@pytest.fixture
async def functions(service: Lambda) -> AsyncIterator[LambdaInvoker]:
    assert service.woken == []
    functions = LambdaInvoker(Settings())
    yield functions
    await functions.close()


async def test_a_function_is_invoked_with_an_event(
    service: Lambda, functions: LambdaInvoker
) -> None:
    service.answers = [202]
    await functions.invoke("arn:aws:lambda:us-east-1:1:function:x", {"a": 1})
    path = "/2015-03-31/functions/arn%3Aaws%3Alambda%3Aus-east-1%3A1%3Afunction%3Ax/invocations"
    assert service.woken == [(path, b'{"a":1}')]


@pytest.mark.parametrize("passing", [429, 500, -1])
async def test_transient_failures_are_retried(
    service: Lambda, functions: LambdaInvoker, passing: int
) -> None:
    service.answers = [passing, 202]
    await functions.invoke("x", {})
    assert len(service.woken) == 2


@pytest.mark.parametrize(("answers", "tries"), [([404], 1), ([403], 1), ([429] * 3, 3)], ids=str)
async def test_a_failed_invocation_raises_store_unavailable(
    service: Lambda, functions: LambdaInvoker, answers: list[int], tries: int
) -> None:
    service.answers = answers.copy()
    with pytest.raises(StoreUnavailable, match=f"x could not be invoked: status {answers[0]}"):
        await functions.invoke("x", {})
    assert len(service.woken) == tries
