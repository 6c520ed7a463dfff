"""Checks the AWS signatures of requests."""

from __future__ import annotations

import hmac
import re
import time
from calendar import timegm
from hashlib import sha256
from typing import Final

from botocore.auth import SIGV4_TIMESTAMP, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from devtools.local_aws.environments import REGION
from devtools.local_aws.events import Request
from devtools.local_aws.http_server import refusal
from devtools.local_aws.replies import Reply

KEY: Final = "test"
"""The access key id and the secret key, which are the same."""
SKEW_SECONDS: Final = 300
"""The maximum age of a signature, as on AWS."""

_AUTHORIZATION: Final = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request,"
    r" ?SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})"
)


def check_signature(request: Request, service: str) -> Reply | None:
    """Check the signature for a service; returns the error response, or None if it is valid."""
    values = {name.lower(): value for name, value in request.headers}
    if "authorization" not in values:
        return refusal(403, "MissingAuthenticationTokenException", "Missing Authentication Token")
    match = _AUTHORIZATION.fullmatch(values["authorization"])
    if match is None:
        return refusal(403, "IncompleteSignatureException", "the Authorization is malformed")
    key, day, region, scope, names, signature = match.groups()
    date = values.get("x-amz-date", "")
    if key != KEY:
        return refusal(403, "UnrecognizedClientException", "the security token is invalid")
    if (region, scope) != (REGION, service):
        return _invalid(f"signed for {region}/{scope}, not for {REGION}/{service}")
    if not date.startswith(day) or not _recent(date):
        return _invalid(f"signed at {date!r}, which is not now")
    signed = names.split(";")
    if not {"host", "x-amz-date"} <= set(signed) <= values.keys():
        return _invalid(f"signed are {names}")
    if values.get("x-amz-content-sha256", _hash(request)) != _hash(request):
        return _invalid("the body is not the one that was signed")
    expected = _signature(request, service, date, {name: values[name] for name in signed})
    if not hmac.compare_digest(expected, signature):
        return _invalid("the request's signature is another")
    return None


def _signature(request: Request, service: str, date: str, headers: dict[str, str]) -> str:
    signer = SigV4Auth(Credentials(KEY, KEY), service, REGION)
    signed = AWSRequest(
        method=request.method,
        url=f"http://{headers['host']}{request.target}",
        headers=headers,
        data=request.body,
    )
    signed.context["timestamp"] = date
    return str(
        signer.signature(signer.string_to_sign(signed, signer.canonical_request(signed)), signed)
    )


def _recent(date: str) -> bool:
    try:
        at = timegm(time.strptime(date, SIGV4_TIMESTAMP))
    except ValueError:
        return False
    return abs(time.time() - at) < SKEW_SECONDS


def _hash(request: Request) -> str:
    return sha256(request.body).hexdigest()


def _invalid(why: str) -> Reply:
    return refusal(403, "InvalidSignatureException", why)
