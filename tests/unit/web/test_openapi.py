"""The OpenAPI document: valid, complete, and true; and the answers of FastAPI's own routes."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis

from tailrace import errors
from tailrace.app import Application
from tailrace.errors import TailraceError
from tailrace.protocols.durable_streams import routes
from tailrace.protocols.durable_streams.openapi.failures import known_errors
from tailrace.protocols.durable_streams.openapi.guide import EXAMPLE_URL
from tailrace.settings import Settings
from tailrace.web import messages
from tailrace.web.paths import PREFIXES
from tailrace.web.statuses import status_of

NOT_FOR_HTTP = {
    errors.BadSetting,
    errors.CannotListen,
    errors.DataDirectoryInUse,
    errors.NotThroughTheEdge,
    errors.SlotTrimmed,
    errors.UnreadableData,
    errors.CannotSign,
}
"""What goes wrong before there is a server to ask, is said another way to its clients, or is said
only to those who go around the edge."""

IGNORED_AS_PARAMETERS = {"Content-Type", "Authorization"}
"""OpenAPI has other places for these."""

NO_OPERATION = {"METHOD_NOT_ALLOWED"}
"""The answer to what is no operation."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    document: dict[str, Any] = Application(Settings()).api.openapi()  # type: ignore[attr-defined]
    return document


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    application = Application(Settings(data=str(tmp_path / "data")))
    await application.start()
    transport = httpx.ASGITransport(application, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        yield client
    await application.stop()


def test_it_is_valid(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1.")
    schemathesis.openapi.from_dict(document).validate()


def test_what_it_refers_to_is_there(document: dict[str, Any]) -> None:
    references = {value for key, value in _items(document) if key == "$ref"}
    assert references
    for reference in references:
        found = document
        for key in reference.removeprefix("#/").split("/"):
            found = found[key]


def test_operations_have_names_of_their_own(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, operation in _operations(document)]
    assert len(set(names)) == len(names)
    linked = {
        link["operationId"]
        for key, value in _items(document)
        if key == "links"
        for link in value.values()
    }
    assert linked <= set(names)


def test_every_method_of_a_stream_is_described(document: dict[str, Any]) -> None:
    for prefix in PREFIXES:
        item = document["paths"][f"{prefix}{{path}}"]
        described = {method.upper() for method in item if method != "parameters"}
        assert described == set(messages.METHODS.split(", "))


def test_every_request_header_is_described(document: dict[str, Any]) -> None:
    named = _parameters(document, "header")
    assert set(messages.REQUEST_HEADERS) - named == IGNORED_AS_PARAMETERS
    bodies = [
        operation.get("requestBody", {}).get("description", "")
        for _, operation in _operations(document)
    ]
    texts = [document["info"]["description"], *bodies]
    for name in IGNORED_AS_PARAMETERS:
        assert any(f"`{name}`" in text for text in texts), name


def test_every_response_header_is_described(document: dict[str, Any]) -> None:
    responses = document["components"]["responses"].values()
    described = {name for response in responses for name in response["headers"]}
    assert set(messages.RESPONSE_HEADERS) <= described


def test_every_common_header_is_on_every_response(document: dict[str, Any]) -> None:
    common = {name.decode() for name, _ in messages.COMMON_HEADERS}
    for response in document["components"]["responses"].values():
        always = {
            name.lower()
            for name, header in response["headers"].items()
            if header["$ref"].endswith(".always")
        }
        assert always >= common


def test_every_query_parameter_is_described(document: dict[str, Any]) -> None:
    read = set(re.findall(r'parameters\.get\("(\w+)"', inspect.getsource(routes)))
    assert read == {"offset", "live", "cursor"}
    assert _parameters(document, "query") >= read


def test_every_error_is_described(document: dict[str, Any]) -> None:
    """When this fails: see `known_errors` and `OWN_ERRORS` in `openapi.failures`."""
    known = {type(error.sample): error for error in known_errors(Settings())}
    assert set(known) == {TailraceError, *_kinds(TailraceError)} - NOT_FOR_HTTP
    codes = document["components"]["schemas"]["Error"]["properties"]["error"]["properties"]["code"]
    assert codes["enum"] == [kind.code for kind in known]
    assert set(document["components"]["examples"]) == set(codes["enum"])
    for kind, error in known.items():
        assert document["components"]["examples"][kind.code]["x-status"] == status_of(error.sample)


def test_every_error_belongs_to_an_operation(document: dict[str, Any]) -> None:
    answered: dict[str, set[int]] = {}
    for name, response in document["components"]["responses"].items():
        for code in response.get("content", {}).get("application/json", {}).get("examples", {}):
            answered.setdefault(code, set()).add(int(name.rpartition(".")[2]))
    known = {error.sample.code: {error.answer.status} for error in known_errors(Settings())}
    assert answered == {code: status for code, status in known.items() if code not in NO_OPERATION}


def test_fastapi_leaves_no_errors_of_its_own(document: dict[str, Any]) -> None:
    assert not [name for name in document["components"]["responses"] if name.endswith(".422")]
    assert not [name for name in document["components"]["schemas"] if "Validation" in name]


def test_limits_are_those_of_the_server() -> None:
    application = Application(Settings(max_body_bytes=4321, long_poll_timeout=7, sse_lifetime=11))
    text = str(application.api.openapi())  # type: ignore[attr-defined]
    assert "4,321 bytes" in text
    assert "after 7 seconds" in text
    assert "after 11 seconds" in text


def test_examples_call_the_public_url() -> None:
    application = Application(Settings(public_url="https://streams.example/"))
    document = application.api.openapi()  # type: ignore[attr-defined]
    assert document["servers"] == [{"url": "https://streams.example"}]
    assert EXAMPLE_URL not in str(document)


async def test_it_is_served(client: httpx.AsyncClient, document: dict[str, Any]) -> None:
    answer = await client.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == document


async def test_a_bad_parameter_is_our_error(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/streams", params={"limit": "many"})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "BAD_PARAMETER"
    assert error["message"].startswith("limit: ")
    _has_common_headers(answer)


@pytest.mark.parametrize("path", ["/nope", "/v1/stream", "/v1/streams/", "/redoc", "/ds"])
async def test_an_unknown_route_is_our_error(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert error.pop("request_id") == answer.headers["x-request-id"]
    assert error == {"code": "NOT_FOUND", "message": f"nothing is at '{path}'; /docs lists what is"}
    _has_common_headers(answer)


@pytest.mark.parametrize("path", ["/", "/docs", "/health", "/openapi.json", "/v1/streams"])
async def test_a_wrong_method_is_our_error(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.post(path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"
    assert answer.json()["error"]["code"] == "METHOD_NOT_ALLOWED"
    _has_common_headers(answer)


@pytest.mark.parametrize("path", ["/", "/docs", "/health", "/openapi.json", "/v1/streams"])
async def test_head_is_get_without_the_body(client: httpx.AsyncClient, path: str) -> None:
    get, head = await client.get(path), await client.head(path)
    assert get.is_success
    assert head.status_code == get.status_code
    assert head.headers.pop("x-request-id") != get.headers.pop("x-request-id")
    assert head.headers == get.headers
    _has_common_headers(get)


async def test_a_crash_is_our_error(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr("tailrace.api.Health", crash)
    answer = await client.get("/health")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "INTERNAL"
    assert "secret" not in answer.text
    _has_common_headers(answer)


async def test_a_busy_store_is_our_error(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise errors.StoreUnavailable("the disk is full")

    monkeypatch.setattr("tailrace.streams.Streams.list", fail)
    answer = await client.get("/v1/streams")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    error = answer.json()["error"]
    assert error.pop("request_id") == answer.headers["x-request-id"]
    assert error == {"code": "STORE_UNAVAILABLE", "message": "the disk is full"}


async def test_the_listing_is_paged(client: httpx.AsyncClient) -> None:
    for name in ("a/1", "a/2", "a/3", "b"):
        await client.put(f"/v1/stream/{name}", headers={"stream-ttl": "60"})
    first = (await client.get("/v1/streams", params={"prefix": "a/", "limit": 2})).json()
    assert [stream["path"] for stream in first["streams"]] == ["a/1", "a/2"]
    assert first["next"] == "a/2"
    query = {"prefix": "a/", "limit": 2, "after": first["next"]}
    second = (await client.get("/v1/streams", params=query)).json()
    assert second["next"] is None
    (stream,) = second["streams"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", stream.pop("created_at"))
    assert stream == {
        "path": "a/3",
        "content_type": "application/octet-stream",
        "next_offset": f"{0:016d}_{0:016d}",
        "closed": False,
        "ttl": 60,
        "expires_at": None,
    }


def _has_common_headers(answer: httpx.Response) -> None:
    for name, value in messages.COMMON_HEADERS:
        assert answer.headers[name.decode()] == value.decode()
    assert answer.headers["cache-control"] in ("no-store", "no-cache")


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method != "parameters":
                yield f"{method.upper()} {path}", operation


def _parameters(document: dict[str, Any], place: str) -> set[str]:
    """The parameters that some operation has."""
    referred = [value for key, value in _items(document["paths"]) if key == "$ref"]
    parameters = document["components"]["parameters"].items()
    return {
        parameter["name"]
        for name, parameter in parameters
        if parameter["in"] == place and f"#/components/parameters/{name}" in referred
    }


def _items(node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield key, value
            yield from _items(value)
    elif isinstance(node, list):
        for value in node:
            yield from _items(value)


def _kinds(kind: type[TailraceError]) -> set[type[TailraceError]]:
    found = {each for each in kind.__subclasses__() if each.__module__ == errors.__name__}
    return found.union(*map(_kinds, found))
