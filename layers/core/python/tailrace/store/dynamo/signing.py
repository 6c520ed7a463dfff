"""Requests to DynamoDB and its like, signed with AWS Signature Version 4.

Only what services that speak JSON need: always a POST to `/`, always the same header fields. A test
compares every signature with botocore's.
"""

from __future__ import annotations

import time
from hashlib import sha256
from hmac import digest
from typing import Final, NamedTuple

from tailrace.store.dynamo.access import Credentials

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SIGNED: Final = "content-type;host;x-amz-date;x-amz-target"
_SIGNED_TEMPORARY: Final = "content-type;host;x-amz-date;x-amz-security-token;x-amz-target"


class Service(NamedTuple):
    name: str
    target: str
    """What stands before the operation's name."""
    content_type: str


DYNAMODB: Final = Service("dynamodb", "DynamoDB_20120810.", "application/x-amz-json-1.0")
SECRETS: Final = Service("secretsmanager", "secretsmanager.", "application/x-amz-json-1.1")


class Signer:
    """Makes whole requests for one host in one region."""

    def __init__(self, host: str, region: str, service: Service = DYNAMODB) -> None:
        self._host = host
        self._region = region
        self._service = service
        self._key_of = ("", "")
        """The secret and the day that `_key` is made of; making it costs as much as a signature."""
        self._key = b""

    def request(self, operation: str, body: bytes, credentials: Credentials, now: float) -> bytes:
        """The request's bytes, head and body, signed as of `now`."""
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        day = moment[:8]
        access_key, secret_key, token = credentials
        token_line = f"x-amz-security-token:{token}\n" if token else ""
        signed = _SIGNED_TEMPORARY if token else _SIGNED
        fields = (
            f"content-type:{self._service.content_type}\n"
            f"host:{self._host}\n"
            f"x-amz-date:{moment}\n"
            f"{token_line}"
            f"x-amz-target:{self._service.target}{operation}\n"
        )
        canonical = f"POST\n/\n\n{fields}\n{signed}\n{sha256(body).hexdigest()}"
        scope = f"{day}/{self._region}/{self._service.name}/aws4_request"
        statement = f"{_ALGORITHM}\n{moment}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
        signature = digest(self._signing_key(secret_key, day), statement.encode(), "sha256").hex()
        # The fields' canonical form is valid HTTP, but for the ends of the lines.
        sent = fields.replace("\n", "\r\n")
        head = (
            f"POST / HTTP/1.1\r\n{sent}"
            f"content-length:{len(body)}\r\n"
            f"authorization:{_ALGORITHM} Credential={access_key}/{scope}, "
            f"SignedHeaders={signed}, Signature={signature}\r\n"
            "\r\n"
        )
        return head.encode() + body

    def _signing_key(self, secret_key: str, day: str) -> bytes:
        if self._key_of != (secret_key, day):
            key = f"AWS4{secret_key}".encode()
            for part in (day, self._region, self._service.name, "aws4_request"):
                key = digest(key, part.encode(), "sha256")
            self._key_of, self._key = (secret_key, day), key
        return self._key
