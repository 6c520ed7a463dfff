"""What API Gateway's management API is sent, and what its answers lead to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from devtools.local_aws.events import Request
from devtools.local_aws.http_server import Api
from devtools.local_aws.replies import Reply
from devtools.local_aws.sigv4 import refused
from tailrace.errors import StoreUnavailable
from tailrace.limits import CABLE_POST_BYTES
from tailrace.protocols.action_cable.api_gateway import gateway_api
from tailrace.protocols.action_cable.api_gateway.gateway_api import GatewayApi, Sent
from tailrace.settings import Settings

HOST = "abc.execute-api.us-east-1.amazonaws.com"
CLOSED = -1
"""In place of a status: the connection is closed without an answer."""


class Gateway:
    """Answers as it is told to, and with 200 after that."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.asked: list[tuple[str, str, str]] = []
        self.server = Api(self._handle)

    async def _handle(self, request: Request) -> Reply:
        refusal = refused(request, "execute-api")
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
    assert await sender.send("one", ["1", "2", "né"]) is Sent.OK
    assert gateway.asked == [
        ("POST", "/prod/@connections/one", frame) for frame in ("1", "2", "né")
    ]
    assert sender.counts == {"posts": 3}


async def test_nothing_is_sent_well(gateway: Gateway, sender: GatewayApi) -> None:
    assert await sender.send("one", []) is Sent.OK
    assert gateway.asked == []


async def test_the_name_of_a_connection_is_encoded(gateway: Gateway, sender: GatewayApi) -> None:
    assert await sender.send("L0S+9c/FvHcCIhw=", ["1"]) is Sent.OK
    await sender.end("L0S+9c/FvHcCIhw=")
    target = "/prod/@connections/L0S%2B9c%2FFvHcCIhw%3D"
    assert gateway.asked == [("POST", target, "1"), ("DELETE", target, "")]


async def test_who_is_gone_gets_nothing_more(gateway: Gateway, sender: GatewayApi) -> None:
    gateway.answers = [200, 410]
    assert await sender.send("one", ["1", "2", "3"]) is Sent.GONE
    assert gateway.frames == ["1", "2"]
    assert sender.counts == {"posts": 1, "gone": 1}


async def test_what_is_refused_for_its_rate_is_sent_again(
    gateway: Gateway, sender: GatewayApi
) -> None:
    gateway.answers = [429, 429, 200]
    assert await sender.send("one", ["1", "2"]) is Sent.OK
    assert gateway.frames == ["1", "1", "1", "2"]


async def test_what_is_refused_for_its_rate_for_too_long_is_given_up(
    gateway: Gateway, sender: GatewayApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_api, "ATTEMPTS", 3)
    gateway.answers = [429] * 10
    assert await sender.send("one", ["1", "2"]) is Sent.DOUBTFUL
    assert gateway.frames == ["1"] * 3


@pytest.mark.parametrize("status", [500, 503, CLOSED])
async def test_what_may_have_arrived_is_not_repeated(
    gateway: Gateway, sender: GatewayApi, status: int
) -> None:
    gateway.answers = [status]
    assert await sender.send("one", ["1", "2"]) is Sent.DOUBTFUL
    assert gateway.frames == ["1"]
    assert sender.counts == {"doubtful": 1}


async def test_what_was_sent_again_by_itself_may_have_arrived_twice(
    gateway: Gateway, sender: GatewayApi
) -> None:
    """On a connection that was kept, and is closed without an answer, requests are repeated."""
    gateway.answers = [200, CLOSED]
    assert await sender.send("one", ["1", "2", "3"]) is Sent.DOUBTFUL
    assert gateway.frames == ["1", "2", "2"]


async def test_a_connection_that_was_idle_for_long_is_not_used(
    gateway: Gateway, sender: GatewayApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.aws.client.rest_client.IDLE_SECONDS", -1.0)
    gateway.answers = [200, CLOSED]
    assert await sender.send("one", ["1", "2", "3"]) is Sent.DOUBTFUL
    assert gateway.frames == ["1", "2"]


async def test_where_nobody_listens_nothing_has_arrived(
    gateway: Gateway, sender: GatewayApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_api, "ATTEMPTS", 2)
    await gateway.server.close()
    assert await sender.send("one", ["1"]) is Sent.DOUBTFUL
    await sender.end("one")
    assert gateway.asked == []


@pytest.mark.parametrize("status", [400, 403])
async def test_what_is_refused_for_good_fails(
    gateway: Gateway, sender: GatewayApi, status: int
) -> None:
    gateway.answers = [status]
    with pytest.raises(StoreUnavailable, match=f"{status}"):
        await sender.send("one", ["1"])


async def test_what_is_too_large_is_left_out(
    gateway: Gateway, sender: GatewayApi, caplog: pytest.LogCaptureFixture
) -> None:
    most = "x" * CABLE_POST_BYTES
    frames = ["1", most, f"{most}x", "é" * (CABLE_POST_BYTES // 2 + 1), "2"]
    assert await sender.send("one", frames) is Sent.OK
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
