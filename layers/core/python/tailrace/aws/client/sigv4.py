"""Requests to AWS, signed with Signature Version 4.

Only what is needed here: for services that speak JSON always a POST to `/`, always the same header
fields; for those that speak REST a path without a query. A test compares every signature with
botocore's.
"""

from __future__ import annotations

import time
from hashlib import sha256
from hmac import digest
from typing import Final, NamedTuple
from urllib.parse import quote

from tailrace.aws.client.endpoint import Credentials

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SIGNED: Final = "content-type;host;x-amz-date;x-amz-target"
_MOMENT: Final = "%Y%m%dT%H%M%SZ"
_SIGNED_TEMPORARY: Final = "content-type;host;x-amz-date;x-amz-security-token;x-amz-target"


class Service(NamedTuple):
    name: str
    target: str
    """What stands before the operation's name."""
    content_type: str


DYNAMODB: Final = Service("dynamodb", "DynamoDB_20120810.", "application/x-amz-json-1.0")
SECRETS: Final = Service("secretsmanager", "secretsmanager.", "application/x-amz-json-1.1")


class _Keys:
    """What requests of one service in one region are signed with."""

    def __init__(self, region: str, service: str) -> None:
        self._scope = f"{region}/{service}/aws4_request"
        self._key_of = ("", "")
        """The secret and the day that `_key` is made of; making it costs as much as a signature."""
        self._key = b""

    def authorization(
        self, moment: str, credentials: Credentials, signed: str, canonical: str
    ) -> str:
        """The header field for a request in its canonical form."""
        day = moment[:8]
        scope = f"{day}/{self._scope}"
        statement = f"{_ALGORITHM}\n{moment}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
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
    """Makes whole requests for one host in one region."""

    def __init__(self, host: str, region: str, service: Service = DYNAMODB) -> None:
        self._host = host
        self._service = service
        self._keys = _Keys(region, service.name)

    def request(self, operation: str, body: bytes, credentials: Credentials, now: float) -> bytes:
        """The request's bytes, head and body, signed as of `now`."""
        moment = time.strftime(_MOMENT, time.gmtime(now))
        token = credentials.token
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
        authorization = self._keys.authorization(moment, credentials, signed, canonical)
        # The fields' canonical form is valid HTTP, but for the ends of the lines.
        sent = fields.replace("\n", "\r\n")
        head = f"POST / HTTP/1.1\r\n{sent}content-length:{len(body)}\r\n{authorization}\r\n"
        return head.encode() + body


class RestSigner:
    """The same for a service whose operations are methods and paths."""

    def __init__(self, host: str, region: str, service: str) -> None:
        self._host = host
        self._keys = _Keys(region, service)

    def request(
        self,
        method: str,
        path: str,
        body: bytes,
        credentials: Credentials,
        now: float,
        more: str = "",
    ) -> bytes:
        """`path` as it is sent; `more`: header fields that are not signed, with their line ends."""
        moment = time.strftime(_MOMENT, time.gmtime(now))
        token = credentials.token
        signed = "host;x-amz-date;x-amz-security-token" if token else "host;x-amz-date"
        fields = f"host:{self._host}\nx-amz-date:{moment}\n"
        if token:
            fields += f"x-amz-security-token:{token}\n"
        # What is encoded already is encoded once more, as all services but S3 want it.
        canonical = (
            f"{method}\n{quote(path, safe='/~')}\n\n{fields}\n{signed}\n{sha256(body).hexdigest()}"
        )
        authorization = self._keys.authorization(moment, credentials, signed, canonical)
        sent = fields.replace("\n", "\r\n")
        head = (
            f"{method} {path} HTTP/1.1\r\n{sent}{more}"
            f"content-length:{len(body)}\r\n{authorization}\r\n"
        )
        return head.encode() + body
