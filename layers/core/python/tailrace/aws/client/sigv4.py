"""Requests to AWS services, signed with Signature Version 4.

Limited to what Tailrace needs: for JSON protocols a POST to `/` with a fixed set of headers, for
REST protocols a path without a query. A test compares signatures with botocore's.
"""

from __future__ import annotations

import time
from hashlib import sha256
from hmac import digest
from typing import Final, NamedTuple
from urllib.parse import quote

from tailrace.aws.client.service_access import AwsCredentials

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SIGNED: Final = "content-type;host;x-amz-date;x-amz-target"
_TIMESTAMP_FORMAT: Final = "%Y%m%dT%H%M%SZ"
_SIGNED_TEMPORARY: Final = "content-type;host;x-amz-date;x-amz-security-token;x-amz-target"


class Service(NamedTuple):
    name: str
    target: str
    """The prefix of the operation's name."""
    content_type: str


DYNAMODB: Final = Service("dynamodb", "DynamoDB_20120810.", "application/x-amz-json-1.0")
SECRETS: Final = Service("secretsmanager", "secretsmanager.", "application/x-amz-json-1.1")


class _SigningKeys:
    """The signing keys of one service in one region."""

    def __init__(self, region: str, service: str) -> None:
        self._scope = f"{region}/{service}/aws4_request"
        self._key_of = ("", "")
        """The secret and day of `_key`, cached since deriving it costs as much as signing."""
        self._key = b""

    def authorization(
        self, timestamp: str, credentials: AwsCredentials, signed: str, canonical: str
    ) -> str:
        """Return the `authorization` header for a canonical request."""
        day = timestamp[:8]
        scope = f"{day}/{self._scope}"
        statement = f"{_ALGORITHM}\n{timestamp}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
        key = self._signing_key(credentials.secret_key, day)
        signature = digest(key, statement.encode(), "sha256").hex()
        return (
            f"authorization:{_ALGORITHM} Credential={credentials.access_key}/{scope}, "
            f"SignedHeaders={signed}, Signature={signature}\r\n"
        )

    def _signing_key(self, secret_key: str, day: str) -> bytes:
        if self._key_of != (secret_key, day):
            key = f"AWS4{secret_key}".encode()
            for part in (day, *self._scope.split("/")):
                key = digest(key, part.encode(), "sha256")
            self._key_of, self._key = (secret_key, day), key
        return self._key


class Signer:
    """Builds signed requests for one host in one region."""

    def __init__(self, host: str, region: str, service: Service = DYNAMODB) -> None:
        self._host = host
        self._service = service
        self._keys = _SigningKeys(region, service.name)

    def request(
        self, operation: str, body: bytes, credentials: AwsCredentials, now: float
    ) -> bytes:
        """Return the request's head and body, signed at the time `now`."""
        timestamp = time.strftime(_TIMESTAMP_FORMAT, time.gmtime(now))
        token = credentials.token
        token_line = f"x-amz-security-token:{token}\n" if token else ""
        signed = _SIGNED_TEMPORARY if token else _SIGNED
        fields = (
            f"content-type:{self._service.content_type}\n"
            f"host:{self._host}\n"
            f"x-amz-date:{timestamp}\n"
            f"{token_line}"
            f"x-amz-target:{self._service.target}{operation}\n"
        )
        canonical = f"POST\n/\n\n{fields}\n{signed}\n{sha256(body).hexdigest()}"
        authorization = self._keys.authorization(timestamp, credentials, signed, canonical)
        # The fields' canonical form is valid HTTP, but for the ends of the lines.
        sent = fields.replace("\n", "\r\n")
        head = f"POST / HTTP/1.1\r\n{sent}content-length:{len(body)}\r\n{authorization}\r\n"
        return head.encode() + body


class RestSigner:
    """Builds signed requests for a service whose operations are methods and paths."""

    def __init__(self, host: str, region: str, service: str) -> None:
        self._host = host
        self._keys = _SigningKeys(region, service)

    def request(
        self,
        method: str,
        path: str,
        body: bytes,
        credentials: AwsCredentials,
        now: float,
        more: str = "",
    ) -> bytes:
        """`path`: encoded, as it is sent; `more`: unsigned header lines with their CRLF."""
        timestamp = time.strftime(_TIMESTAMP_FORMAT, time.gmtime(now))
        token = credentials.token
        signed = "host;x-amz-date;x-amz-security-token" if token else "host;x-amz-date"
        fields = f"host:{self._host}\nx-amz-date:{timestamp}\n"
        if token:
            fields += f"x-amz-security-token:{token}\n"
        # All services but S3 expect an encoded path to be encoded again.
        canonical = (
            f"{method}\n{quote(path, safe='/~')}\n\n{fields}\n{signed}\n{sha256(body).hexdigest()}"
        )
        authorization = self._keys.authorization(timestamp, credentials, signed, canonical)
        sent = fields.replace("\n", "\r\n")
        head = (
            f"{method} {path} HTTP/1.1\r\n{sent}{more}"
            f"content-length:{len(body)}\r\n{authorization}\r\n"
        )
        return head.encode() + body
