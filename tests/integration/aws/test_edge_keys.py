"""The edge hears of changed keys: the function behind CloudFront's key-value store."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from botocore.awsrequest import AWSResponse

from devtools.processes import fresh_name
from tailrace.aws.edge.key_document import build_entries
from tailrace.aws.handlers.edge_keys import EdgeKeysHandler
from tailrace.errors import BadSetting
from tailrace.settings import Settings

ARN = "arn:aws:cloudfront::123456789012:key-value-store/0a1b2c3d"


class KeyValueStore:
    """As much of CloudFront's API as it takes, where botocore would send a request."""

    def __init__(self) -> None:
        self.items: dict[str, str] = {}
        self.version = 1
        self.calls: list[str] = []
        self.hosts: set[str] = set()
        self.signatures: set[str] = set()

    def __call__(self, request: Any, **_: Any) -> AWSResponse:
        parts = urlsplit(request.url)
        self.hosts.add(str(parts.hostname))
        self.signatures.add(request.headers["Authorization"].decode().split()[0])
        path = unquote(parts.path)
        assert path.startswith(f"/key-value-stores/{ARN}")
        action = "describe" if path.endswith(ARN) else request.method.lower()
        self.calls.append(action)
        if action == "describe":
            return self._answer(request, {})
        if action == "get":
            items = [{"Key": key, "Value": value} for key, value in self.items.items()]
            return self._answer(request, {"Items": items} if items else {})
        assert request.headers["If-Match"].decode() == f"V{self.version}"
        change = json.loads(request.body)
        for item in change.get("Puts", ()):
            self.items[item["Key"]] = item["Value"]
        for item in change.get("Deletes", ()):
            del self.items[item["Key"]]
        self.version += 1
        return self._answer(request, {})

    def _answer(self, request: Any, body: dict[str, Any]) -> AWSResponse:
        whole = {"ItemCount": len(self.items), "TotalSizeInBytes": 0, "KvsARN": ARN, **body}
        raw = BytesIO(json.dumps({**whole, "Created": 0}).encode())
        raw.stream = lambda *_, **__: iter([raw.read()])  # type: ignore[attr-defined]
        return AWSResponse(request.url, 200, {"ETag": f"V{self.version}"}, raw)


@pytest.fixture
def access(secrets_manager: Any) -> str:
    """The ARN of an access secret."""
    text = json.dumps({"secret": "the-first-secret", "public_streams": "news/*"})
    arn: str = secrets_manager.create_secret(Name=fresh_name("access"), SecretString=text)["ARN"]
    return arn


@pytest.fixture
def kvs() -> KeyValueStore:
    return KeyValueStore()


@pytest.fixture
def store(
    secret: str, access: str, kvs: KeyValueStore, monkeypatch: pytest.MonkeyPatch
) -> EdgeKeysHandler:
    monkeypatch.setenv("TAILRACE_ORIGIN_SECRET", secret)
    monkeypatch.setenv("TAILRACE_ACCESS_SECRET", access)
    monkeypatch.setenv("TAILRACE_EDGE_KEYS", ARN)
    store = EdgeKeysHandler()
    store._store.meta.events.register("before-send.cloudfront-keyvaluestore", kvs)
    return store


def wanted(origin: bytes = b"first", **settings: Any) -> dict[str, str]:
    return build_entries(Settings(access="closed", **settings), origin)


def test_the_store_gets_the_entries_of_the_secrets(
    store: EdgeKeysHandler, kvs: KeyValueStore
) -> None:
    store()
    assert kvs.items == wanted(secret="the-first-secret", public_streams="news/*")
    assert kvs.calls == ["describe", "get", "post"]


def test_a_store_that_is_up_to_date_is_left_alone(
    store: EdgeKeysHandler, kvs: KeyValueStore
) -> None:
    store()
    store()
    assert kvs.calls == ["describe", "get", "post", "describe", "get"]


def test_removed_and_unknown_keys_are_deleted_from_the_store(
    store: EdgeKeysHandler, kvs: KeyValueStore, access: str, secrets_manager: Any
) -> None:
    kvs.items = wanted(secret="the-first-secret the-second-secret", public_streams="news/*") | {
        "other": "x"
    }
    secrets_manager.put_secret_value(
        SecretId=access, SecretString='{"secret": "the-second-secret"}'
    )
    store()
    assert kvs.items == wanted(secret="the-second-secret")


def test_the_edge_token_key_follows_the_origin_secret(
    store: EdgeKeysHandler, kvs: KeyValueStore, secret: str, secrets_manager: Any
) -> None:
    store()
    secrets_manager.put_secret_value(SecretId=secret, SecretString="second")
    store()
    assert kvs.items == wanted(b"second", secret="the-first-secret", public_streams="news/*")


@pytest.mark.parametrize("bad", ["{", '{"secret": ["hush"]}', '{"enforce_jwt": true}'])
def test_a_mistake_fails_and_changes_nothing(
    store: EdgeKeysHandler, kvs: KeyValueStore, access: str, secrets_manager: Any, bad: str
) -> None:
    store()
    before = dict(kvs.items)
    secrets_manager.put_secret_value(SecretId=access, SecretString=bad)
    with pytest.raises(BadSetting) as raised:
        store()
    assert "hush" not in str(raised.value)
    assert kvs.items == before


def test_requests_are_signed_for_every_region(store: EdgeKeysHandler, kvs: KeyValueStore) -> None:
    store()
    assert kvs.signatures == {"AWS4-ECDSA-P256-SHA256"}
    (host,) = kvs.hosts
    assert host.startswith("123456789012."), "each account has a host of its own"
