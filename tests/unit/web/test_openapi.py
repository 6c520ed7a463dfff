"""The OpenAPI document: valid, complete, and true; and the answers of FastAPI's own routes."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import orjson
import pytest
import schemathesis
import yaml
from fastapi import FastAPI
from fastapi.routing import APIRoute

from scripts.openapi import PRODUCT, SOURCES, TARGET, join
from tailrace import docs, errors, limits
from tailrace.app import Application
from tailrace.errors import TailraceError
from tailrace.limits import COMPRESS_BYTES, HISTORY_CACHE_SECONDS
from tailrace.log.offsets import token
from tailrace.protocols.durable_streams import many, read_start, routes
from tailrace.settings import Settings
from tailrace.web import messages
from tailrace.web.statuses import error_response
from tailrace.web.urls import MANY, StreamUrls

PREFIXES = StreamUrls(Settings().ds_path).prefixes

REQUEST_ID = "5f2d8a0c91e7b364"
"""Of every example."""

NOT_FOR_HTTP = {
    errors.BadSetting,
    errors.CannotListen,
    errors.DataDirectoryInUse,
    errors.NotThroughTheEdge,
    errors.SlotTrimmed,
    errors.UnreadableData,
    errors.CannotSign,
    errors.WebhookFailed,
}
"""Errors before there is a server to ask, is said another way to its clients, or is said
only to those who go around the edge."""

SAMPLES: tuple[TailraceError, ...] = (
    errors.MethodNotAllowed("PATCH", messages.METHODS),
    errors.TooManyRequests("a client may append 10 times a second; wait", 1),
    errors.StreamNotFound("chat/room-1"),
    errors.StreamGone("chat/room-1"),
    errors.OffsetTrimmed(token(128, 90210, 3141)),
    errors.StaleOffset("the offset is of an earlier stream at this path"),
    errors.DamagedData("", "the file bodies/2f/7-5f2d8a0c91e7b364-0-9ae0daaf is missing"),
    errors.ContentTypeConflict("application/json", "text/plain"),
    errors.StreamClosed(token(3, 51)),
    errors.OffsetMismatch(token(3, 51, 3141)),
    errors.SequenceConflict("0009", "0008"),
    errors.ProducerFenced(4),
    errors.ProducerGap(5, 7),
    errors.SubscriptionNotFound("agents"),
    errors.SubscriptionAlreadyExists("agents"),
    errors.Fenced(),
    errors.AlreadyClaimed("worker-1", 3),
    errors.NoPendingWork(),
)
"""The errors of the examples, where an error makes its message itself."""

IGNORED_AS_PARAMETERS = {"Content-Type", "Authorization"}
"""OpenAPI has other places for these."""

NO_OPERATION = {"METHOD_NOT_ALLOWED"}
"""The answer to what is no operation."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return docs.describe(Settings(events_path="/events"))


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


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.parent.name)
def test_its_sources_are_valid(source: Path) -> None:
    """Each by itself, with references to the others."""
    text = source.read_text("utf-8")
    schemathesis.openapi.from_dict(yaml.safe_load(text)).validate()
    for file in set(re.findall(r"'([^'#]+)#/", text)):
        assert (source.parent / file).resolve() in SOURCES


def test_it_is_up_to_date() -> None:
    """When this fails: `make openapi`."""
    assert orjson.loads(TARGET.read_bytes()) == join()


def test_its_references_lead_somewhere(document: dict[str, Any]) -> None:
    references = {value for key, value in _items(document) if key == "$ref"}
    assert references
    for reference in references:
        assert _resolve(document, {"$ref": reference})


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
    tags = {tag["name"] for tag in document["tags"]}
    assert {tag for _, operation in _operations(document) for tag in operation["tags"]} == tags


def test_every_route_is_described(document: dict[str, Any]) -> None:
    api = Application(Settings()).api
    assert isinstance(api, FastAPI)
    served = {
        route.path
        for route in api.routes
        if isinstance(route, APIRoute) and route.include_in_schema
    }
    assert served == {
        *(
            "/",
            "/docs",
            "/health",
            "/metrics",
            "/openapi.json",
            "/v1/streams",
            "/v1/details",
            "/v1/access",
        ),
        *("/v1/cable/connections", "/v1/cable/presence"),
    }
    streams = {f"{prefix}{{path}}" for prefix in PREFIXES}
    cable = {"/_broadcast", "/events", "/api/publish", "/api/presence/{stream}/users"}
    control = {path for path in document["paths"] if path.startswith("/v1/stream/__ds/")}
    assert len(control) == 9
    assert set(document["paths"]) == served | streams | {MANY} | cable | control
    for path in streams:
        described = {method.upper() for method in document["paths"][path]} - {"PARAMETERS"}
        assert described == set(messages.METHODS.split(", "))


def test_both_prefixes_have_the_same_operations(document: dict[str, Any]) -> None:
    main, short = (dict(document["paths"][f"{prefix}{{path}}"]) for prefix in PREFIXES)
    for item in (main, short):
        for method in set(item) - {"parameters"}:
            item[method] = {**item[method], "operationId": "", "tags": []}
    assert main == short


def test_paths_are_those_of_the_settings() -> None:
    settings = Settings(broadcast_path="/cast", events_path="/sse", api_path="/rest")
    assert {"/cast", "/sse", "/rest/publish"} < set(docs.describe(settings)["paths"])
    read_only = docs.describe(Settings(broadcast_path="/cast", read_only=True))["paths"]
    assert not {"/cast", "/_broadcast", "/events", "/api/publish"} & set(read_only)


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
    described = {name for response in _responses(document) for name in response["headers"]}
    assert set(messages.RESPONSE_HEADERS) <= described


def test_every_common_header_is_on_every_response(document: dict[str, Any]) -> None:
    common = {name.decode() for name, _ in messages.COMMON_HEADERS} | {"x-request-id"}
    cors = {name.decode() for name, _ in messages.ANY_ORIGIN}
    for response in _responses(document):
        assert {name.lower() for name in response["headers"]} >= common | cors
        assert {name.lower() for name in _required(document, response)} >= common


def test_every_query_parameter_is_described(document: dict[str, Any]) -> None:
    sources = "".join(map(inspect.getsource, (routes, many, read_start)))
    read = set(re.findall(r'parameters\.get\("(\w+)"', sources))
    assert read == {"offset", "live", "cursor", "stream"}
    assert _parameters(document, "query") >= read | {"last", "since"}


def test_every_error_is_described(document: dict[str, Any]) -> None:
    codes = {kind.code for kind in _kinds(TailraceError) - NOT_FOR_HTTP}
    error = document["components"]["schemas"]["Error"]["properties"]["error"]
    assert sorted(error["properties"]["code"]["enum"]) == sorted(codes)
    assert set(document["components"]["examples"]) == codes
    components = document["components"]["responses"].values()
    assert sorted(code for response in components for code in _codes(response)) == sorted(codes)


def test_errors_are_answered_as_described(document: dict[str, Any]) -> None:
    """Status, headers and body of each example are those of the error that it is about."""
    statuses = {"MethodNotAllowed": 405}
    for _, operation in _operations(document):
        for status, response in operation["responses"].items():
            if "$ref" in response:
                statuses.setdefault(response["$ref"].rpartition("/")[2], int(status))
                assert statuses[response["$ref"].rpartition("/")[2]] == int(status)
    own = {type(error): error for error in SAMPLES}
    common = {*(name for name, _ in messages.COMMON_HEADERS), b"cache-control", b"x-request-id"}
    common |= {name for name, _ in messages.ANY_ORIGIN}
    for name, response in document["components"]["responses"].items():
        described = {header.lower().encode() for header in response["headers"]} - common
        required = {header.lower().encode() for header in _required(document, response)} - common
        answered = set()
        for code in _codes(response):
            example = document["components"]["examples"][code]["value"]
            kind = next(kind for kind in _kinds(TailraceError) if kind.code == code)
            answer = error_response(
                own.get(kind) or kind(example["error"]["message"]), example["error"]["request_id"]
            )
            assert answer.status == statuses[name]
            assert orjson.loads(answer.body) == example
            assert example["error"]["request_id"] == REQUEST_ID
            headers = {header for header, _ in answer.headers} - common - {b"content-type"}
            assert required <= headers <= described
            answered |= headers
        assert answered == described


def test_every_error_belongs_to_an_operation(document: dict[str, Any]) -> None:
    answered = set()
    for _, operation in _operations(document):
        for response in operation["responses"].values():
            if "$ref" in response:
                codes = re.findall(r"`(\w+)`", response["description"])
                assert set(codes) <= set(_codes(_resolve(document, response)))
                answered |= set(codes)
    assert answered == set(document["components"]["examples"]) - NO_OPERATION


def test_fastapi_leaves_no_errors_of_its_own(document: dict[str, Any]) -> None:
    assert not [each for _, each in _operations(document) if "422" in each["responses"]]
    assert not [name for name in document["components"]["schemas"] if "Validation" in name]


def test_limits_are_those_of_the_server(document: dict[str, Any]) -> None:
    components, text = document["components"], " ".join(str(document).split())
    parameters = {name: each["schema"] for name, each in components["parameters"].items()}
    assert parameters["path"]["maxLength"] == limits.PATH_BYTES
    assert parameters["Stream-Seq"]["maxLength"] == limits.STREAM_SEQ_BYTES
    assert parameters["Producer-Id"]["maxLength"] == limits.PRODUCER_ID_BYTES
    assert components["schemas"]["Counter"]["maximum"] == limits.MAX_INTEGER
    assert f"At most {limits.PATH_BYTES:,} bytes, percent-encoded" in text
    assert f"`Content-Type` becomes the stream's, at most {limits.CONTENT_TYPE_BYTES} by" in text
    assert f"nested deeper than {limits.JSON_DEPTH} levels" in text
    assert f"forks of forks are nested deeper than {limits.FORK_DEPTH}." in text
    assert f"took longer than {limits.HEADER_SECONDS} seconds to arrive" in text
    assert f"the body longer than {limits.BODY_SECONDS} seconds" in text
    assert f"one more for each {limits.BODY_BYTES_PER_SECOND:,} bytes" in text
    assert f"{limits.HEADER_COUNT} header fields, or more than {limits.HEADER_BYTES:,} by" in text
    assert f"one in each line, at most {limits.CABLE_FRAME_BYTES // 1024} KiB" in text


def test_defaults_are_those_of_the_settings(document: dict[str, Any]) -> None:
    settings, text = Settings(), " ".join(document["info"]["description"].split())
    text += str(document)
    for name in re.findall(r"`TAILRACE_(\w+)`", text):
        assert hasattr(settings, name.lower()), name
    for shown in (
        f"`TAILRACE_LONG_POLL_TIMEOUT` seconds ({settings.long_poll_timeout:g} by default)",
        f"`TAILRACE_LONG_POLL_TIMEOUT` seconds: {settings.long_poll_timeout:g} by default",
        f"`TAILRACE_CHUNK_BYTES` ({settings.chunk_bytes >> 20} MiB by default)",
        f"`TAILRACE_MAX_BODY_BYTES` allows ({settings.max_body_bytes >> 20} MiB by default)",
        f"Bodies of {COMPRESS_BYTES:,} bytes or more are compressed",
    ):
        assert shown in text.replace("\\n", " "), shown
    assert f"`TAILRACE_SSE_LIFETIME` seconds ({settings.sse_lifetime:g} by default)" in text
    assert "may be kept for a day once it is history" in text
    assert HISTORY_CACHE_SECONDS == 24 * 60 * 60


async def test_examples_call_the_public_url() -> None:
    application = Application(Settings(public_url="https://streams.example/"))
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        text = (await client.get("/openapi.json")).text
    assert orjson.loads(text)["servers"] == [{"url": "https://streams.example"}]
    assert "https://streams.example/v1/stream/chat/room-1" in text
    assert docs.EXAMPLE_URL not in text


async def test_it_is_served(client: httpx.AsyncClient) -> None:
    answer = await client.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    text = answer.text.replace("http://here", docs.EXAMPLE_URL)
    assert orjson.loads(text) == docs.describe(Settings())


def test_the_product_holds_every_source() -> None:
    assert set(PRODUCT.rglob("openapi.yaml")) == {
        *SOURCES,
        PRODUCT / "protocols" / "aviso" / "openapi.yaml",
    }


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


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/health", "/metrics", "/openapi.json", "/v1/streams"]
)
async def test_a_wrong_method_is_our_error(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.post(path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"
    assert answer.json()["error"]["code"] == "METHOD_NOT_ALLOWED"
    _has_common_headers(answer)


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/health", "/metrics", "/openapi.json", "/v1/streams"]
)
async def test_head_is_get_without_the_body(client: httpx.AsyncClient, path: str) -> None:
    get, head = await client.get(path), await client.head(path)
    assert get.is_success
    assert head.status_code == get.status_code
    assert head.headers.pop("x-request-id") != get.headers.pop("x-request-id")
    assert head.headers == get.headers
    _has_common_headers(get)


async def test_health_has_a_request_id_of_its_own(client: httpx.AsyncClient) -> None:
    """As every answer of aviso-server has."""
    answer = await client.get("/health", headers={"x-request-id": "mine"})
    assert UUID(answer.headers["x-request-id"]).version == 4


async def test_health_has_details_on_request_only(client: httpx.AsyncClient) -> None:
    assert (await client.get("/health")).content == b'{"status":"ok"}'
    for query in ("verbose", "verbose=1"):
        details = (await client.get(f"/health?{query}")).json()
        assert details.keys() == {"status", "version", "longest_block_ms", "damaged_objects"}


async def test_a_crash_is_our_error(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr("tailrace.web.watchdog.Watchdog.longest_block", crash)
    answer = await client.get("/health?verbose")
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
    for name in ("a/1", "a/2", "b", "a/3"):
        created = await client.put(f"/v1/stream/{name}", headers={"stream-ttl": "60"})
    first = (await client.get("/v1/streams", params={"prefix": "a/", "limit": 2})).json()
    assert [stream["path"] for stream in first["streams"]] == ["a/1", "a/2"]
    assert first["next"] == "a/2"
    query = {"prefix": "a/", "limit": 2, "after": first["next"]}
    second = (await client.get("/v1/streams", params=query)).json()
    assert second["next"] is None
    (stream,) = second["streams"]
    for name in ("created_at", "last_written_at"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", stream.pop(name))
    assert stream == {
        "path": "a/3",
        "content_type": "application/octet-stream",
        "next_offset": created.headers["stream-next-offset"],
        "closed": False,
        "ttl": 60,
        "expires_at": None,
        "length": 0,
        "bytes": 0,
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


def _resolve(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node:
        target: Any = document
        for key in node["$ref"].removeprefix("#/").split("/"):
            target = target[key]
        node = target
    return node


def _responses(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for _, operation in _operations(document):
        for response in operation["responses"].values():
            yield _resolve(document, response)


def _required(document: dict[str, Any], response: dict[str, Any]) -> set[str]:
    """The headers that a response always has."""
    headers = response["headers"].items()
    return {name for name, each in headers if _resolve(document, each).get("required")}


def _codes(response: dict[str, Any]) -> list[str]:
    """The errors that a response is described with."""
    return [*response["content"]["application/json"]["examples"]]


def _parameters(document: dict[str, Any], place: str) -> set[str]:
    """The parameters that some operation has."""
    items = document["paths"].values()
    found = [each for item in items for each in item.get("parameters", [])]
    found += [e for _, operation in _operations(document) for e in operation.get("parameters", [])]
    parameters = [_resolve(document, parameter) for parameter in found]
    return {parameter["name"] for parameter in parameters if parameter["in"] == place}


def _items(node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield key, value
            yield from _items(value)
    elif isinstance(node, list):
        for value in node:
            yield from _items(value)


def _kinds(kind: type[TailraceError]) -> set[type[TailraceError]]:
    """An error of `tailrace.errors` and all that are derived from it."""
    derived = {each for each in kind.__subclasses__() if each.__module__ == errors.__name__}
    return {kind}.union(*map(_kinds, derived))
