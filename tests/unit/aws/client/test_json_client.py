"""The DynamoDB client against a scripted server, and beside boto3."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import ipaddress
import json
import logging
import random
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import botocore
import pytest
import uvloop
from botocore.config import Config
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tailrace.aws.client import pool
from tailrace.aws.client.failures import (
    CallFailed,
    ConditionFailed,
    Reason,
    Refused,
    Throttled,
    TransactionCanceled,
    Unavailable,
)
from tailrace.aws.client.json_client import OUTCOMES, WRITES, Call, JsonClient
from tailrace.aws.client.service_access import AwsCredentials, CredentialsUnavailable, ServiceAccess
from tailrace.errors import BadSetting
from tests.unit.aws.client.stub import (
    CLOSE,
    RESET,
    SILENCE,
    Reply,
    Stub,
    answer,
    failure,
    until,
)
from tests.unit.aws.client.test_sigv4 import boto_authorization

KEYS = AwsCredentials("AKIDEXAMPLE", "a-secret-key", None)
SESSION_KEYS = AwsCredentials("ASIAEXAMPLE", "another-secret-key", "a/session+token==")
REGION = "eu-west-1"

KEY = {"s": {"S": "straße"}, "n": {"N": "7"}}
ITEM = {**KEY, "b": {"B": b"\x00\xff body"}, "m": {"M": {"flag": {"BOOL": True}}}}
ABSENT = {
    "ConditionExpression": "attribute_not_exists(s)",
    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
}
CHANGE = {
    "UpdateExpression": "SET #v = :v",
    "ExpressionAttributeNames": {"#v": "v"},
    "ExpressionAttributeValues": {":v": {"N": "8"}},
}
REQUESTS: dict[str, dict[str, Any]] = {
    "GetItem": {"TableName": "t", "Key": KEY, "ConsistentRead": True},
    "PutItem": {"TableName": "t", "Item": ITEM, **ABSENT},
    "UpdateItem": {"TableName": "t", "Key": KEY, "ReturnValues": "ALL_NEW", **CHANGE},
    "DeleteItem": {"TableName": "t", "Key": KEY, **ABSENT},
    "Query": {
        "TableName": "t",
        "KeyConditionExpression": "s = :s AND n > :n",
        "ExpressionAttributeValues": {":s": {"S": "x"}, ":n": {"N": "3"}},
        "ScanIndexForward": False,
        "Limit": 10,
        "ExclusiveStartKey": KEY,
    },
    "BatchWriteItem": {
        "RequestItems": {
            "t": [{"PutRequest": {"Item": ITEM}}, {"DeleteRequest": {"Key": KEY}}],
        }
    },
    "TransactWriteItems": {
        "TransactItems": [
            {"Put": {"TableName": "t", "Item": ITEM, **ABSENT}},
            {"Update": {"TableName": "t", "Key": KEY, **CHANGE}},
            {"ConditionCheck": {"TableName": "t", "Key": KEY, **ABSENT}},
        ]
    },
}


def on_wire(value: Any) -> Any:
    """As JSON has it: boto3 takes bytes and sends base64."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {name: on_wire(each) for name, each in value.items()}
        case list():
            return [on_wire(each) for each in value]
    return value


class Pauses(list[float]):
    """How long each pause could have been at most; none is made."""

    def uniform(self, least: float, most: float) -> float:
        assert least == 0
        self.append(most)
        return 0


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    recorded = Pauses()
    monkeypatch.setattr(random, "uniform", recorded.uniform)
    return recorded


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time-out but where a test asks for one: a busy machine must not cause it."""
    monkeypatch.setattr(pool, "AWS_CALL_SECONDS", 120)
    monkeypatch.setattr(pool, "AWS_CONNECT_SECONDS", 120)


@pytest.fixture
def impatient(stub: Stub, client: JsonClient) -> None:
    """The time for an answer is up as soon as the stub has decided to stay silent."""

    def expire() -> None:
        for each in list(client._pool._open):
            each._expire()

    stub.on_silence = expire


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    async with Stub() as stub:
        yield stub


def access_to(url: str, keys: AwsCredentials = KEYS, **changes: Any) -> ServiceAccess:
    async def credentials() -> AwsCredentials:
        return keys

    access = ServiceAccess(url, REGION, 4, None, credentials, local=True)
    return access._replace(**changes)


@asynccontextmanager
async def connected(
    access: ServiceAccess, connections: int = 4, meter: Callable[[Call], None] | None = None
) -> AsyncIterator[JsonClient]:
    client = JsonClient(access, connections, meter)
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
async def client(stub: Stub) -> AsyncIterator[JsonClient]:
    async with connected(access_to(stub.url)) as client:
        yield client


async def put(client: JsonClient, number: int = 0) -> dict[str, Any]:
    return await client.call("PutItem", {"TableName": "t", "Item": {"n": {"N": str(number)}}})


async def get(client: JsonClient) -> dict[str, Any]:
    return await client.call("GetItem", {"TableName": "t", "Key": {"n": {"N": "1"}}})


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port


# Beside boto3


@pytest.mark.parametrize("keys", [KEYS, SESSION_KEYS], ids=["keys", "session"])
@pytest.mark.parametrize("operation", REQUESTS)
async def test_a_request_equals_that_of_boto3(
    operation: str, keys: AwsCredentials, stub: Stub
) -> None:
    boto = boto3.client(
        "dynamodb",
        region_name=REGION,
        endpoint_url=stub.url,
        aws_access_key_id=keys.access_key,
        aws_secret_access_key=keys.secret_key,
        aws_session_token=keys.token,
        config=Config(proxies={}),
    )
    request = REQUESTS[operation]
    try:
        await asyncio.to_thread(getattr(boto, botocore.xform_name(operation)), **request)
    finally:
        boto.close()
    async with connected(access_to(stub.url, keys)) as client:
        await client.call(operation, on_wire(request))
    theirs, ours = stub.seen
    assert ours.method == theirs.method
    assert ours.path == theirs.path
    shared = ["host", "content-type", "x-amz-target", "x-amz-security-token"]
    assert [ours.headers.get(name) for name in shared] == [
        theirs.headers.get(name) for name in shared
    ]
    sent, expected = ours.json, theirs.json
    if operation == "TransactWriteItems":
        sent["ClientRequestToken"] = expected["ClientRequestToken"]
    assert sent == expected
    assert signed_headers(ours.headers) == signed_headers(theirs.headers)
    moment = datetime.strptime(ours.headers["x-amz-date"], "%Y%m%dT%H%M%S%z").timestamp()
    expected_authorization = boto_authorization(ours.headers, ours.body, keys, REGION, moment)
    assert ours.headers["authorization"] == expected_authorization


def signed_headers(headers: dict[str, str]) -> str:
    return headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0]


async def test_an_answer_is_dynamodbs_json(stub: Stub, client: JsonClient) -> None:
    stub.script.append(answer({"Item": on_wire(ITEM)}))
    assert await get(client) == {"Item": on_wire(ITEM)}


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_an_answer_of_many_megabytes_is_read_whole(
    chunked: bool, stub: Stub, client: JsonClient
) -> None:
    content = {"Items": [{"b": {"S": "x" * 300_000}}] * 20}
    stub.script.append(answer(content, chunked=chunked))
    assert await get(client) == content


async def test_a_request_of_many_megabytes_is_sent_whole(stub: Stub, client: JsonClient) -> None:
    request = {"RequestItems": {"t": [{"PutRequest": {"Item": {"s": {"S": "x" * 300_000}}}}] * 20}}
    await client.call("BatchWriteItem", request)
    assert stub.seen[0].json == request


async def test_the_usual_port_is_not_named_in_the_host_field() -> None:
    for url, host in [
        ("https://dynamodb.eu-west-1.amazonaws.com", "dynamodb.eu-west-1.amazonaws.com"),
        ("http://example.org:80", "example.org"),
        ("http://example.org:8000", "example.org:8000"),
        ("http://[::1]:8000", "[::1]:8000"),
    ]:
        async with connected(access_to(url)) as client:
            request = client._signer.request("GetItem", b"{}", KEYS, 0)
            assert f"\r\nhost:{host}\r\n".encode() in request


# Failures


@pytest.mark.parametrize("item", [None, {"s": {"S": "x"}}])
async def test_a_failed_condition_brings_the_item_that_is_there(
    item: dict[str, Any] | None, stub: Stub, client: JsonClient
) -> None:
    more: dict[str, Any] = {} if item is None else {"Item": item}
    stub.script.append(failure("ConditionalCheckFailedException", message="no", **more))
    with pytest.raises(ConditionFailed) as caught:
        await put(client)
    assert caught.value.item == item
    assert caught.value.operation == "PutItem"
    assert len(stub.seen) == 1


async def test_a_canceled_transaction_brings_its_reasons(stub: Stub, client: JsonClient) -> None:
    reasons = [
        {"Code": "None"},
        {"Code": "ConditionalCheckFailed", "Item": {"s": {"S": "x"}}, "Message": "no"},
        {"Code": "TransactionConflict"},
    ]
    stub.script.append(failure("TransactionCanceledException", CancellationReasons=reasons))
    with pytest.raises(TransactionCanceled) as caught:
        await client.call("TransactWriteItems", {"TransactItems": []})
    assert caught.value.reasons == (
        Reason("None", None),
        Reason("ConditionalCheckFailed", {"s": {"S": "x"}}),
        Reason("TransactionConflict", None),
    )
    assert len(stub.seen) == 1


@pytest.mark.parametrize(
    "code",
    ["ResourceNotFoundException", "ValidationException", "AccessDeniedException", "Surprise"],
)
async def test_a_refusal_is_not_tried_again(code: str, stub: Stub, client: JsonClient) -> None:
    stub.script.append(failure(code, message="not like this"))
    with pytest.raises(Refused, match=rf"PutItem: {code}: not like this") as caught:
        await put(client)
    assert caught.value.code == code
    assert len(stub.seen) == 1


async def test_a_refusal_without_a_code_has_its_status(stub: Stub, client: JsonClient) -> None:
    stub.script.append(answer({}, 403))
    with pytest.raises(Refused) as caught:
        await put(client)
    assert caught.value.code == "HTTP 403"


@pytest.mark.parametrize("reason", ["ValidationError", "ItemCollectionSizeLimitExceeded"])
async def test_a_transaction_that_can_never_go_through_is_refused(
    reason: str, stub: Stub, client: JsonClient
) -> None:
    reasons = [{"Code": "TransactionConflict"}, {"Code": reason}]
    stub.script.append(failure("TransactionCanceledException", CancellationReasons=reasons))
    with pytest.raises(Refused):
        await client.call("TransactWriteItems", {"TransactItems": []})
    assert len(stub.seen) == 1


def canceled(*codes: str, message: str = "") -> Reply:
    reasons = [{"Code": code, "Message": message} for code in codes]
    return failure("TransactionCanceledException", CancellationReasons=reasons)


def limited(code: str, limit: str, field: str = "ThrottlingReasons") -> Reply:
    reasons: dict[str, Any] = {field: [{"reason": limit, "resource": "arn:aws:dynamodb:x"}]}
    return failure(code, **reasons)


PTEE = "ProvisionedThroughputExceededException"
THROTTLES = [
    (failure(PTEE, message="The level of configured throughput was exceeded."), True),
    (limited(PTEE, "TableWriteKeyRangeThroughputExceeded"), True),
    (limited(PTEE, "TableWriteProvisionedThroughputExceeded"), False),
    (limited(PTEE, "IndexReadAccountLimitExceeded"), False),
    (failure("ThrottlingException", message="Rate of requests exceeds the allowed."), False),
    (failure("ThrottlingException", message="TableReadKeyRangeThroughputExceeded"), True),
    (
        limited("ThrottlingException", "TableReadKeyRangeThroughputExceeded", "throttlingReasons"),
        True,
    ),
    (limited("ThrottlingException", "TableReadMaxOnDemandThroughputExceeded"), False),
    (failure("RequestLimitExceeded", message="Throughput exceeds the AccountLimit."), False),
    (failure("TransactionConflictException"), True),
    (canceled("None", "TransactionConflict"), True),
    (canceled("ProvisionedThroughputExceeded"), True),
    (canceled("ThrottlingError"), False),
    (canceled("ThrottlingError", message="TableWriteKeyRangeThroughputExceeded"), True),
    (canceled(), False),
]


@pytest.mark.parametrize(("reply", "hot_key"), THROTTLES)
async def test_a_throttle_that_lasts_says_whether_one_key_is_hot(
    reply: Reply, hot_key: bool, stub: Stub, client: JsonClient, pauses: Pauses
) -> None:
    stub.script.extend([reply] * 4)
    with pytest.raises(Throttled) as caught:
        await put(client)
    assert caught.value.hot_key is hot_key
    assert len(stub.seen) == 4
    assert pauses == [0.05, 0.1, 0.2]


PASSING = {
    "reset": RESET,
    "closed": CLOSE,
    "truncated": answer({"Attributes": {}}, keep=-5),
    "truncated in the head": answer(keep=20),
    "wrong checksum": answer(checksum=1),
    "no JSON": answer(body=b"<html>"),
    "no JSON in an error": answer(body=b"<html>", status=403),
    "no object": answer(body=b"[]"),
    "no HTTP": Reply(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "internal error": failure("InternalServerError", status=500),
    "unavailable": answer(body=b"", status=503),
    "silence": SILENCE,
    "transaction in progress": failure("TransactionInProgressException"),
}
UNCLEAR = pytest.mark.parametrize("reply", PASSING.values(), ids=PASSING.keys())


@UNCLEAR
@pytest.mark.usefixtures("impatient")
async def test_transient_failures_are_retried(
    reply: Reply, stub: Stub, client: JsonClient, pauses: Pauses
) -> None:
    stub.script.extend([reply, reply, answer({"done": True})])
    assert await put(client) == {"done": True}
    assert stub.operations == ["PutItem"] * 3
    assert stub.seen[0].body == stub.seen[2].body
    assert pauses == [0.025, 0.05]


@UNCLEAR
@pytest.mark.usefixtures("impatient")
async def test_a_lasting_failure_is_unclear(reply: Reply, stub: Stub, client: JsonClient) -> None:
    stub.script.extend([reply] * 4)
    with pytest.raises(Unavailable) as caught:
        await put(client)
    assert caught.value.unclear
    assert len(stub.seen) == 4


@pytest.mark.parametrize("reply", [reply for reply, _ in THROTTLES])
async def test_a_throttle_that_ends_is_no_failure(
    reply: Reply, stub: Stub, client: JsonClient
) -> None:
    stub.script.append(reply)
    assert await put(client) == {}
    assert len(stub.seen) == 2


async def test_a_pause_has_an_upper_bound(stub: Stub, pauses: Pauses) -> None:
    stub.script.extend([failure("InternalServerError", status=500)] * 9)
    async with connected(access_to(stub.url, attempts=9)) as client:
        with pytest.raises(Unavailable):
            await put(client)
    assert pauses == [0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


async def test_a_server_that_is_not_there_leaves_nothing_unclear(pauses: Pauses) -> None:
    async with connected(access_to(f"http://127.0.0.1:{free_port()}")) as client:
        with pytest.raises(Unavailable) as caught:
            await put(client)
    assert not caught.value.unclear
    assert len(pauses) == 3


async def test_one_unclear_attempt_makes_the_call_unclear(stub: Stub, client: JsonClient) -> None:
    authorizer = asyncio.Event()
    stub.script.append(RESET._replace(authorizer=authorizer))
    call = asyncio.create_task(put(client))
    await stub.arrived(1)
    stub.stop_listening()
    authorizer.set()
    with pytest.raises(Unavailable, match="no connection") as caught:
        await call
    assert caught.value.unclear


@pytest.mark.parametrize("operation", REQUESTS)
@pytest.mark.parametrize("last", [failure("ThrottlingException"), failure("AccessDeniedException")])
async def test_a_write_with_an_unclear_attempt_never_ends_as_not_done(
    last: Reply, operation: str, stub: Stub, client: JsonClient
) -> None:
    stub.script.extend([failure("InternalServerError", status=500), last, last, last])
    with pytest.raises(CallFailed) as caught:
        await client.call(operation, {})
    if operation in WRITES:
        assert isinstance(caught.value, Unavailable)
        assert caught.value.unclear
    else:
        assert isinstance(caught.value, Throttled | Refused)


async def test_a_condition_is_judged_by_the_last_attempt(stub: Stub, client: JsonClient) -> None:
    stub.script.extend([RESET, failure("ConditionalCheckFailedException", Item={"s": {"S": "x"}})])
    with pytest.raises(ConditionFailed) as caught:
        await put(client)
    assert caught.value.item == {"s": {"S": "x"}}


async def test_all_attempts_of_a_transaction_have_one_token(stub: Stub, client: JsonClient) -> None:
    stub.script.extend([RESET, failure("TransactionConflictException")])
    await client.call("TransactWriteItems", {"TransactItems": []})
    await client.call("TransactWriteItems", {"TransactItems": []})
    await client.call("TransactWriteItems", {"TransactItems": [], "ClientRequestToken": "mine"})
    tokens = [seen.json["ClientRequestToken"] for seen in stub.seen]
    assert tokens[0] == tokens[1] == tokens[2]
    assert len(tokens[0]) == 32
    assert tokens[3] != tokens[0]
    assert tokens[4] == "mine"


async def test_the_number_of_attempts_is_the_configured_one(stub: Stub) -> None:
    stub.script.extend([failure("InternalServerError", status=500)] * 9)
    async with connected(access_to(stub.url, attempts=1)) as client:
        with pytest.raises(Unavailable):
            await put(client)
    assert len(stub.seen) == 1


# AwsCredentials


class Rotating:
    """AwsCredentials that are new after each `renew`."""

    def __init__(self) -> None:
        self.renewed = 0

    async def credentials(self) -> AwsCredentials:
        return KEYS._replace(access_key=f"KEY{self.renewed}")

    def renew(self) -> None:
        self.renewed += 1


@pytest.mark.parametrize("code", ["ExpiredTokenException", "UnrecognizedClientException"])
async def test_expired_credentials_are_renewed_once(code: str, stub: Stub, pauses: Pauses) -> None:
    keys = Rotating()
    access = access_to(stub.url, credentials=keys.credentials, renew=keys.renew, attempts=1)
    async with connected(access) as client:
        stub.script.append(failure(code))
        await put(client)
        used = [seen.headers["authorization"].partition("KEY")[2][0] for seen in stub.seen]
        assert used == ["0", "1"]
        stub.script.extend([failure(code)] * 2)
        with pytest.raises(Refused) as caught:
            await put(client)
    assert caught.value.code == code
    assert len(stub.seen) == 4
    assert pauses == []


async def test_credentials_that_cannot_be_had_are_tried_for_again(stub: Stub) -> None:
    failures = 2

    async def credentials() -> AwsCredentials:
        nonlocal failures
        if failures:
            failures -= 1
            raise CredentialsUnavailable("no credentials: IMDS")
        return KEYS

    access = access_to(stub.url, credentials=credentials)
    async with connected(access) as client:
        await put(client)
        assert len(stub.seen) == 1
        failures = 4
        with pytest.raises(Unavailable, match="no credentials") as caught:
            await put(client)
    assert not caught.value.unclear
    assert len(stub.seen) == 1


QUOTING = [
    "The signature does not match.\n\nThe Canonical String should have been\n'POST\n{secrets}'",
    "Authorization header requires 'Signature'. Authorization={secrets}",
]


@pytest.mark.parametrize("message", QUOTING)
async def test_no_secret_gets_into_a_message_or_a_log(
    message: str, stub: Stub, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = [*map(str, SESSION_KEYS), "a-private-thing", "Credential="]
    quoted = failure("InvalidSignatureException", message=message.format(secrets=secrets))
    stub.script.extend([RESET, quoted])
    async with connected(access_to(stub.url, SESSION_KEYS)) as client:
        for operation in ("GetItem", "PutItem"):
            with pytest.raises(CallFailed) as caught:
                await client.call(operation, {"body": "a-private-thing"})
            stub.script.append(quoted)
            shown = f"{caught.value} {caught.value!r} {caught.value.__cause__!r} {caplog.text}"
            assert "InvalidSignatureException" in shown
            assert not [secret for secret in secrets if secret in shown]


# Connections


async def test_a_connection_is_reused_by_the_next_call(stub: Stub, client: JsonClient) -> None:
    for _ in range(5):
        await put(client)
    stub.script.append(failure("ConditionalCheckFailedException"))
    with pytest.raises(ConditionFailed):
        await put(client)
    await put(client)
    assert stub.accepted == 1


async def test_a_connection_that_the_server_closes_is_not_reused(
    stub: Stub, client: JsonClient
) -> None:
    stub.script.append(answer(close=True))
    await put(client)
    announced = answer(close=True)._replace(then="")
    stub.script.append(announced)
    await put(client)
    await put(client)
    assert [seen.connection for seen in stub.seen] == [1, 2, 3]


async def test_idle_connections_that_the_server_closed_are_dropped(
    stub: Stub, client: JsonClient, pauses: Pauses
) -> None:
    await asyncio.gather(*(put(client) for _ in range(3)))
    await stub.hang_up()
    await until(lambda: not client._pool._open)
    await put(client)
    assert stub.accepted == 4
    assert stub.operations == ["PutItem"] * 4
    assert pauses == []


async def test_a_connection_that_still_lives_is_used_before_a_new_one(
    stub: Stub, client: JsonClient
) -> None:
    await asyncio.gather(put(client), put(client))
    client._pool._idle[-1].abort()
    await put(client)
    assert stub.accepted == 2


async def test_a_request_that_was_never_sent_leaves_nothing_unclear(stub: Stub) -> None:
    async with connected(access_to(stub.url, attempts=1)) as client:
        await put(client)
        (idle,) = client._pool._idle
        idle._transport.close()
        assert idle.ready
        stub.script.append(failure("ThrottlingException"))
        with pytest.raises(Throttled):
            await put(client)
    assert [seen.connection for seen in stub.seen] == [1, 2]


async def test_a_connection_found_closed_is_replaced_at_once(stub: Stub, pauses: Pauses) -> None:
    calls: list[Call] = []
    async with connected(access_to(stub.url, attempts=1), meter=calls.append) as client:
        await put(client)
        stub.script.append(CLOSE)
        await put(client)
    assert len(stub.seen) == 3
    assert [seen.connection for seen in stub.seen] == [1, 1, 2]
    assert [call.attempts for call in calls] == [1, 1]
    assert pauses == []


async def test_a_request_sent_on_a_closed_connection_leaves_a_write_unclear(stub: Stub) -> None:
    throttled = failure("ThrottlingException")
    async with connected(access_to(stub.url, attempts=1)) as client:
        await put(client)
        stub.script.extend([CLOSE, throttled])
        with pytest.raises(Unavailable) as caught:
            await put(client)
        assert caught.value.unclear
        stub.script.extend([CLOSE, throttled])
        with pytest.raises(Throttled):
            await get(client)


async def test_a_closed_connection_and_then_no_server_is_unclear(stub: Stub) -> None:
    async with connected(access_to(stub.url, attempts=1)) as client:
        await put(client)
        stub.stop_listening()
        stub.script.append(CLOSE)
        with pytest.raises(Unavailable, match="no connection") as caught:
            await put(client)
    assert caught.value.unclear


async def test_the_replacement_is_a_new_connection_even_if_others_are_idle(stub: Stub) -> None:
    async with connected(access_to(stub.url, attempts=1), 3) as client:
        await asyncio.gather(*(put(client) for _ in range(3)))
        stub.script.append(CLOSE)
        await put(client)
    assert stub.seen[-1].connection == 4
    assert stub.most == 3


async def test_a_partial_response_on_a_reused_connection_is_an_attempt(stub: Stub) -> None:
    async with connected(access_to(stub.url, attempts=1)) as client:
        await put(client)
        stub.script.append(answer(keep=10))
        with pytest.raises(Unavailable):
            await put(client)
    assert len(stub.seen) == 2


@pytest.mark.parametrize("after", [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", b"garbage"])
async def test_unexpected_bytes_end_the_connection(
    after: bytes, stub: Stub, client: JsonClient
) -> None:
    whole = answer({"first": True}).data
    stub.script.append(Reply(whole + after))
    assert await put(client) == {"first": True}
    stub.script.append(answer({"second": True}))
    assert await put(client) == {"second": True}
    assert stub.accepted == 2


async def test_a_response_on_an_idle_connection_is_discarded(
    stub: Stub, client: JsonClient
) -> None:
    await put(client)
    (peer,) = stub.peers
    peer.transport.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
    await until(lambda: not client._pool._open)
    assert await put(client) == {}
    assert stub.accepted == 2


async def test_there_are_never_more_connections_than_allowed(stub: Stub) -> None:
    authorizer = asyncio.Event()
    stub.script.extend([answer(authorizer=authorizer)] * 3)
    async with connected(access_to(stub.url), 3) as client:
        calls = [asyncio.create_task(put(client, number)) for number in range(30)]
        await stub.arrived(3)
        await asyncio.sleep(0.02)
        assert len(stub.seen) == 3
        authorizer.set()
        await asyncio.gather(*calls)
    assert len(stub.seen) == 30
    assert stub.most == stub.accepted == 3


async def test_calls_wait_for_a_connection_in_their_order(stub: Stub) -> None:
    authorizer = asyncio.Event()
    stub.script.append(answer(authorizer=authorizer))
    async with connected(access_to(stub.url), 1) as client:
        calls = [asyncio.create_task(put(client, number)) for number in range(5)]
        await stub.arrived(1)
        calls[2].cancel()
        authorizer.set()
        await asyncio.wait(calls)
    assert [int(seen.json["Item"]["n"]["N"]) for seen in stub.seen] == [0, 1, 3, 4]
    assert stub.accepted == 1


async def test_the_connection_used_last_is_used_next(stub: Stub, client: JsonClient) -> None:
    gates = [asyncio.Event() for _ in range(3)]
    stub.script.extend(answer(authorizer=authorizer) for authorizer in gates)
    calls = []
    for number in range(3):
        calls.append(asyncio.create_task(put(client, number)))
        await stub.arrived(number + 1)
    for number in (1, 2, 0):
        gates[number].set()
        await calls[number]
    for _ in range(3):
        await put(client)
    first = stub.seen[0].connection
    assert [seen.connection for seen in stub.seen[3:]] == [first] * 3


async def test_a_canceled_call_does_not_leave_its_answer_to_the_next(stub: Stub) -> None:
    authorizer = asyncio.Event()
    stub.script.append(answer({"late": True}, authorizer=authorizer))
    async with connected(access_to(stub.url), 1) as client:
        call = asyncio.create_task(put(client))
        await stub.arrived(1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        authorizer.set()
        assert await put(client) == {}
        await until(lambda: len(stub.peers) == 1)
    assert stub.accepted == 2


async def test_a_call_canceled_with_its_answer_there_keeps_the_connection(
    stub: Stub, client: JsonClient
) -> None:
    call = asyncio.create_task(put(client))
    await stub.arrived(1)
    (used,) = client._pool._open
    await until(lambda: used.ready)
    call.cancel()
    await asyncio.wait([call])
    await put(client)
    assert stub.accepted == 1


async def test_a_call_canceled_while_it_connects_frees_its_place() -> None:
    async with silent_server() as url, connected(access_to(url), 1) as client:
        for _ in range(3):
            call = asyncio.create_task(put(client))
            await asyncio.sleep(0.01)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call


async def test_a_late_response_is_not_taken_for_the_next(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorizer = asyncio.Event()
    stub.script.append(answer({"late": True}, authorizer=authorizer))
    async with connected(access_to(stub.url, attempts=1), 1) as client:
        with monkeypatch.context() as patch:
            patch.setattr(pool, "AWS_CALL_SECONDS", 0.2)
            with pytest.raises(Unavailable, match=r"no response within 0\.2 s"):
                await put(client)
        authorizer.set()
        assert await put(client) == {}


async def test_a_timer_does_not_outlive_its_attempt(stub: Stub, client: JsonClient) -> None:
    loop = asyncio.get_running_loop()

    def timers() -> int:
        pending: list[Any] = loop._scheduled  # type: ignore[attr-defined]
        callbacks = [each._callback for each in pending if not each.cancelled()]
        return sum(getattr(each, "__name__", "") == "_expire" for each in callbacks)

    authorizer = asyncio.Event()
    stub.script.append(answer(authorizer=authorizer))
    call = asyncio.create_task(put(client))
    await stub.arrived(1)
    assert timers() == 1
    authorizer.set()
    await call
    assert timers() == 0


@asynccontextmanager
async def silent_server() -> AsyncIterator[str]:
    """Accepts connections and never says a word."""

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(1024):
                pass
        finally:
            writer.close()

    server = await asyncio.start_server(wait, "127.0.0.1", 0)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    await asyncio.sleep(0.01)


async def test_a_connection_timeout_leaves_nothing_unclear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "AWS_CONNECT_SECONDS", 0.05)
    async with silent_server() as url, connected(access_to(url, attempts=2)) as client:
        with pytest.raises(Unavailable, match=r"no connection within 0\.05 s") as caught:
            await put(client)
    assert not caught.value.unclear


async def test_closing_ends_the_calls_under_way(stub: Stub, pauses: Pauses) -> None:
    stub.script.extend([SILENCE] * 2)
    client = JsonClient(access_to(stub.url), 2)
    calls = [asyncio.create_task(put(client)) for _ in range(4)]
    await stub.arrived(2)
    await client.close()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [Unavailable] * 4
    assert [getattr(result, "unclear", None) for result in results] == [True, True, False, False]
    assert stub.accepted == 2
    assert pauses == []


async def test_a_closed_client_takes_no_calls(stub: Stub, client: JsonClient) -> None:
    await put(client)
    await client.close()
    assert not client._pool._open
    await client.close()
    with pytest.raises(Unavailable, match="closed") as caught:
        await put(client)
    assert not caught.value.unclear
    assert len(stub.seen) == 1


async def test_closing_while_a_call_connects_leaves_no_connection(stub: Stub) -> None:
    client = JsonClient(access_to(stub.url), 1)
    call = asyncio.create_task(put(client))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(Unavailable):
        await call
    await until(lambda: not stub.peers)
    assert stub.seen == []


# https


class Certificate(NamedTuple):
    path: str
    server: ssl.SSLContext


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate for 127.0.0.1 that only who is told of it trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stub")])
    now = datetime.now(UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    directory = tmp_path_factory.mktemp("tls")
    public, private = directory / "certificate.pem", directory / "key.pem"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    return Certificate(str(public), context)


async def speak_https(certificate: Certificate) -> None:
    """A long life of a client, in short."""
    async with Stub(tls=certificate.server) as stub:
        async with connected(access_to(stub.url, ca_bundle=certificate.path), 2) as client:
            await asyncio.gather(*(put(client) for _ in range(4)))
            stub.script.extend([CLOSE, answer({"big": "x" * 3_000_000}), RESET])
            assert len((await put(client))["big"]) == 3_000_000
            await put(client)
            authorizer = asyncio.Event()
            stub.script.append(answer(authorizer=authorizer))
            call = asyncio.create_task(put(client))
            await stub.arrived(9)
            call.cancel()
            await asyncio.wait([call])
            await stub.hang_up()
            await until(lambda: not client._pool._open)
            await put(client)
        assert stub.most <= 3
        assert len(stub.seen) == 10


async def test_https_with_a_custom_ca_bundle(certificate: Certificate) -> None:
    await speak_https(certificate)
    gc.collect()


def test_uvloop_runs_it_as_well(certificate: Certificate) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(speak_https(certificate))
    gc.collect()


async def test_an_untrusted_certificate_is_refused(certificate: Certificate) -> None:
    async with (
        Stub(tls=certificate.server) as stub,
        connected(access_to(stub.url, attempts=1)) as client,
    ):
        with pytest.raises(Unavailable, match="certificate verify failed") as caught:
            await put(client)
    assert not caught.value.unclear
    assert stub.seen == []


def test_a_ca_bundle_that_cannot_be_read_is_a_bad_setting(tmp_path: Path) -> None:
    for name in ("missing.pem", "empty.pem"):
        (tmp_path / "empty.pem").touch()
        with pytest.raises(BadSetting, match=name):
            JsonClient(access_to("https://127.0.0.1", ca_bundle=str(tmp_path / name)), 1)


# Metering


async def test_nothing_is_added_to_a_request_without_a_meter(
    stub: Stub, client: JsonClient
) -> None:
    await put(client)
    assert "ReturnConsumedCapacity" not in stub.seen[0].json


@pytest.mark.parametrize("operation", [*REQUESTS, "TransactGetItems", "BatchGetItem"])
async def test_units_are_those_that_the_operation_consumed(operation: str, stub: Stub) -> None:
    calls: list[Call] = []
    listed = operation.startswith(("Batch", "Transact"))
    one = {"TableName": "t", "CapacityUnits": 1.5}
    stub.script.append(answer({"ConsumedCapacity": [one, one] if listed else one}))
    async with connected(access_to(stub.url), meter=calls.append) as client:
        await client.call(operation, {})
    assert stub.seen[0].json["ReturnConsumedCapacity"] == "TOTAL"
    (call,) = calls
    units = 3.0 if listed else 1.5
    expected = (0.0, units) if operation in WRITES else (units, 0.0)
    assert (call.read_units, call.write_units) == expected
    assert (call.operation, call.outcome, call.attempts) == (operation, "ok", 1)
    assert call.seconds > 0


async def test_the_capacity_option_of_a_request_is_unchanged(stub: Stub) -> None:
    calls: list[Call] = []
    async with connected(access_to(stub.url), meter=calls.append) as client:
        await client.call("Query", {"ReturnConsumedCapacity": "NONE"})
    assert stub.seen[0].json == {"ReturnConsumedCapacity": "NONE"}
    assert (calls[0].read_units, calls[0].write_units) == (0, 0)


@pytest.mark.parametrize(
    ("replies", "outcome", "attempts"),
    [
        ([answer()], "ok", 1),
        ([RESET, RESET, answer()], "ok", 3),
        ([failure("ConditionalCheckFailedException")], "condition-failed", 1),
        ([canceled("ConditionalCheckFailed")], "canceled", 1),
        ([failure("ThrottlingException")] * 4, "throttled", 4),
        ([failure("InternalServerError", status=500)] * 4, "unavailable", 4),
        ([failure("InternalServerError", status=500), *[failure(PTEE)] * 3], "unavailable", 4),
        ([failure("ValidationException")], "refused", 1),
    ],
)
async def test_each_call_is_metered_once_with_its_outcome(
    replies: list[Reply], outcome: str, attempts: int, stub: Stub
) -> None:
    calls: list[Call] = []
    stub.script.extend(replies)
    async with connected(access_to(stub.url), meter=calls.append) as client:
        with contextlib.suppress(CallFailed):
            await put(client)
    assert [(call.operation, call.outcome, call.attempts) for call in calls] == [
        ("PutItem", outcome, attempts)
    ]


def test_every_failure_has_an_outcome() -> None:
    assert set(OUTCOMES) == set(CallFailed.__subclasses__())


async def test_a_request_is_not_changed_by_a_call(stub: Stub) -> None:
    request: dict[str, Any] = {"TransactItems": []}
    async with connected(access_to(stub.url), meter=lambda _: None) as client:
        await client.call("TransactWriteItems", request)
    assert request == {"TransactItems": []}
    assert json.loads(stub.seen[0].body).keys() > request.keys()
