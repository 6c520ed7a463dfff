"""Calls of API Gateway's management API, and how its responses are handled."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from devtools.local_aws.events import Request
from devtools.local_aws.http_server import Api
from devtools.local_aws.replies import Reply
from devtools.local_aws.sigv4 import check_signature
from tailrace.errors import StoreUnavailable
from tailrace.limits import GATEWAY_FRAME_BYTES
from tailrace.protocols.action_cable.api_gateway import gateway_api
from tailrace.protocols.action_cable.api_gateway.gateway_api import GatewayApi, SendResult
from tailrace.settings import Settings

HOST = "abc.execute-api.us-east-1.amazonaws.com"
CLOSED = -1
"""In place of a status: the connection is closed without an answer."""


class Gateway:
    """Responds with the given statuses, and then with 200."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.asked: list[tuple[str, str, str]] = []
        self.server = Api(self._handle)

    async def _handle(self, request: Request) -> Reply:
        refusal = check_signature(request, "execute-api")
        if refusal is not None:
            return refusal
        assert dict(request.headers)["host"] == HOST
        self.asked.append((request.method, request.target, request.body.decode()))
        status = self.answers.pop(0) if self.answers else 200
        if status == CLOSED:
            raise OSError
        return Reply(status)

    @property
    def frames(self) -> list[str]:
        return [body for method, _, body in self.asked if method == "POST"]


@pytest.fixture
async def gateway(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    gateway = Gateway()
    await gateway.server.start()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": gateway.server.url,
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(gateway_api, "PAUSE", 0.001)
    yield gateway
    await gateway.server.close()


@pytest.fixture
async def sender(gateway: Gateway) -> AsyncIterator[GatewayApi]:
    assert gateway.asked == []
    sender = GatewayApi(Settings(cable_endpoint=f"https://{HOST}/prod"))
    yield sender
    await sender.close()


async def test_frames_are_sent_in_their_order(gateway: Gateway, sender: GatewayApi) -> None:
    assert await sender.send("one", ["1", "2", "né"]) is SendResult.OK
    assert gateway.asked == [
        ("POST", "/prod/@connections/one", frame) for frame in ("1", "2", "né")
    ]
    assert sender.counts == {"posts": 3}


async def test_sending_no_frames_succeeds(gateway: Gateway, sender: GatewayApi) -> None:
    assert await sender.send("one", []) is SendResult.OK
    assert gateway.asked == []


async def test_the_name_of_a_connection_is_encoded(gateway: Gateway, sender: GatewayApi) -> None:
    assert await sender.send("L0S+9c/FvHcCIhw=", ["1"]) is SendResult.OK
    await sender.end("L0S+9c/FvHcCIhw=")
    target = "/prod/@connections/L0S%2B9c%2FFvHcCIhw%3D"
    assert gateway.asked == [("POST", target, "1"), ("DELETE", target, "")]


async def test_410_stops_sending(gateway: Gateway, sender: GatewayApi) -> None:
    gateway.answers = [200, 410]
    assert await sender.send("one", ["1", "2", "3"]) is SendResult.GONE
    assert gateway.frames == ["1", "2"]
    assert sender.counts == {"posts": 1, "gone": 1}


async def test_429_is_retried(gateway: Gateway, sender: GatewayApi) -> None:
    gateway.answers = [429, 429, 200]
    assert await sender.send("one", ["1", "2"]) is SendResult.OK
    assert gateway.frames == ["1", "1", "1", "2"]


async def test_429_is_not_retried_forever(
    gateway: Gateway, sender: GatewayApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_api, "ATTEMPTS", 3)
    gateway.answers = [429] * 10
    assert await sender.send("one", ["1", "2"]) is SendResult.DOUBTFUL
    assert gateway.frames == ["1"] * 3


@pytest.mark.parametrize("status", [500, 503, CLOSED])
async def test_uncertain_frames_are_not_retried(
    gateway: Gateway, sender: GatewayApi, status: int
) -> None:
    gateway.answers = [status]
    assert await sender.send("one", ["1", "2"]) is SendResult.DOUBTFUL
    assert gateway.frames == ["1"]
    assert sender.counts == {"doubtful": 1}


async def test_a_frame_resent_on_a_new_connection_is_uncertain(
    gateway: Gateway, sender: GatewayApi
) -> None:
    """The pool repeats a request if a kept connection is closed without a response."""
    gateway.answers = [200, CLOSED]
    assert await sender.send("one", ["1", "2", "3"]) is SendResult.DOUBTFUL
    assert gateway.frames == ["1", "2", "2"]


async def test_idle_connections_are_not_reused(
    gateway: Gateway, sender: GatewayApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.aws.client.json_client.IDLE_SECONDS", -1.0)
    gateway.answers = [200, CLOSED]
    assert await sender.send("one", ["1", "2", "3"]) is SendResult.DOUBTFUL
    assert gateway.frames == ["1", "2"]


async def test_a_refused_connection_is_retried(
    gateway: Gateway, sender: GatewayApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_api, "ATTEMPTS", 2)
    await gateway.server.close()
    assert await sender.send("one", ["1"]) is SendResult.DOUBTFUL
    await sender.end("one")
    assert gateway.asked == []


@pytest.mark.parametrize("status", [400, 403])
async def test_client_errors_are_raised(gateway: Gateway, sender: GatewayApi, status: int) -> None:
    gateway.answers = [status]
    with pytest.raises(StoreUnavailable, match=f"{status}"):
        await sender.send("one", ["1"])


async def test_oversized_frames_are_skipped(
    gateway: Gateway, sender: GatewayApi, caplog: pytest.LogCaptureFixture
) -> None:
    most = "x" * GATEWAY_FRAME_BYTES
    frames = ["1", most, f"{most}x", "é" * (GATEWAY_FRAME_BYTES // 2 + 1), "2"]
    assert await sender.send("one", frames) is SendResult.OK
    assert gateway.frames == ["1", most, "2"]
    assert sender.counts == {"posts": 3, "oversized": 2}
    assert "too large for a cable" in caplog.text


@pytest.mark.parametrize(
    ("answers", "attempts"),
    [([204], 1), ([410], 1), ([403], 1), ([429, 500, CLOSED, 204], 4)],
    ids=str,
)
async def test_a_connection_is_closed(
    gateway: Gateway, sender: GatewayApi, answers: list[int], attempts: int
) -> None:
    gateway.answers = answers
    await sender.end("one")
    assert gateway.asked == [("DELETE", "/prod/@connections/one", "")] * attempts


async def test_a_close_that_fails_is_given_up(
    gateway: Gateway, sender: GatewayApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_api, "ATTEMPTS", 3)
    gateway.answers = [500] * 10
    await sender.end("one")
    assert len(gateway.asked) == 3
