from __future__ import annotations

from datetime import UTC, datetime
from hmac import digest
from typing import Any

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials
from hypothesis import given
from hypothesis import strategies as st

from tailrace.aws.client import sigv4
from tailrace.aws.client.service_access import AwsCredentials
from tailrace.aws.client.sigv4 import Signer

NOW = 1_790_000_000
KEYS = AwsCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", None)


def head_of(request: bytes) -> dict[str, str]:
    head, _, _ = request.partition(b"\r\n\r\n")
    return dict(line.split(":", 1) for line in head.decode().split("\r\n")[1:])


def boto_authorization(
    headers: dict[str, str], body: bytes, keys: AwsCredentials, region: str, now: float
) -> Any:
    """The `Authorization` of botocore for these very header fields and body."""
    unsigned = ("authorization", "content-length")
    request = AWSRequest(
        "POST",
        f"https://{headers['host']}/",
        headers={name: value for name, value in headers.items() if name not in unsigned},
        data=body,
    )
    with pytest.MonkeyPatch.context() as patch:
        moment = datetime.fromtimestamp(now, UTC)
        patch.setattr(botocore.auth, "get_current_datetime", lambda: moment)
        signer = botocore.auth.SigV4Auth(BotoCredentials(*keys), "dynamodb", region)
        signer.add_auth(request)
    return request.headers["Authorization"]


@given(
    host=st.sampled_from(["dynamodb.eu-west-1.amazonaws.com", "127.0.0.1:8000", "[::1]:8000"]),
    region=st.sampled_from(["eu-west-1", "us-gov-west-1"]),
    operation=st.sampled_from(["GetItem", "TransactWriteItems"]),
    body=st.binary(max_size=100),
    secret=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40),
    token=st.none() | st.from_regex(r"[A-Za-z0-9+/=]{1,80}", fullmatch=True),
    now=st.integers(0, 4_000_000_000),
)
def test_the_signature_is_the_one_botocore_makes(
    host: str, region: str, operation: str, body: bytes, secret: str, token: str | None, now: int
) -> None:
    keys = AwsCredentials("AKIDEXAMPLE", secret, token)
    request = Signer(host, region).request(operation, body, keys, now)
    headers = head_of(request)
    assert headers["authorization"] == boto_authorization(headers, body, keys, region, now)


def test_the_request_is_complete() -> None:
    request = Signer("localhost:8000", "eu-west-1").request("GetItem", b'{"a":1}', KEYS, NOW)
    assert request.startswith(b"POST / HTTP/1.1\r\n")
    assert request.endswith(b'\r\n\r\n{"a":1}')
    headers = head_of(request)
    del headers["authorization"]
    assert headers == {
        "host": "localhost:8000",
        "content-type": "application/x-amz-json-1.0",
        "x-amz-target": "DynamoDB_20120810.GetItem",
        "x-amz-date": "20260921T141320Z",
        "content-length": "7",
    }


def test_a_session_token_is_sent_and_signed() -> None:
    request = Signer("h", "r").request("GetItem", b"{}", KEYS._replace(token="tok"), NOW)
    headers = head_of(request)
    assert headers["x-amz-security-token"] == "tok"
    assert "x-amz-security-token;" in headers["authorization"]


def test_the_signing_key_is_derived_once_per_day_and_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    messages: list[bytes] = []

    def counted(key: bytes, message: bytes, algorithm: str) -> bytes:
        messages.append(message)
        return digest(key, message, algorithm)

    def keys_made() -> int:
        count = messages.count(b"aws4_request")
        messages.clear()
        return count

    monkeypatch.setattr(sigv4, "digest", counted)
    signer = Signer("h", "r")
    signer.request("GetItem", b"{}", KEYS, NOW)
    assert keys_made() == 1
    signer.request("PutItem", b"{}", KEYS, NOW + 60)
    assert keys_made() == 0
    signer.request("PutItem", b"{}", KEYS, NOW + 86_400)
    assert keys_made() == 1
    signer.request("PutItem", b"{}", KEYS._replace(secret_key="other"), NOW + 86_400)
    assert keys_made() == 1
