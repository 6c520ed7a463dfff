"""JSON mode over HTTP: values are stored unchanged, and refused bodies have their status.

The mode itself is tested in tests/unit/log/test_json_mode.py.
"""

from __future__ import annotations

import httpx
import pytest

from tests.support.wire import JSON, START, error_of, place, producer

ELEMENTS = [
    b"12345678901234567890",
    b"-1E+400",
    b"-0.0e-0",
    b'{"a":1,"a":2}',
    b'{ "b" : [ 1 ,\t2 ] ,\r\n "a" : { } }',
    b'"\\u00e9\\/\\n\\u0000"',
    b'"\xc3\xa9\xf0\x9f\x98\x80\xe2\x80\xa8"',
    b'"\\ud800"',
    b'"],[\\"{"',
]


def test_elements_are_stored_byte_for_byte(client: httpx.Client, path: str) -> None:
    batch = b" [" + b",".join(ELEMENTS) + b"] "
    created = client.put(path, content=batch, headers=JSON)
    assert place(created.headers["stream-next-offset"]) == f"{1:016d}_{len(ELEMENTS):016d}"
    for element in ELEMENTS:
        body = b"\r\n\t " + element + b" \n"
        assert client.post(path, content=body, headers=JSON).status_code == 204
    read = client.get(path)
    assert read.headers["content-type"] == "application/json"
    assert read.content == b"[" + b",".join(ELEMENTS * 2) + b"]"
    tail = client.get(path, params={"offset": created.headers["stream-next-offset"]})
    assert tail.content == b"[" + b",".join(ELEMENTS) + b"]"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "INVALID_JSON"),
        (b"[1e400,NaN]", "INVALID_JSON"),
        (b'"\xff"', "INVALID_JSON"),
        (b" ", "INVALID_JSON"),
        (b"[" * 400_000, "INVALID_JSON"),
        (b"[" * 513 + b"]" * 513, "INVALID_JSON"),
        (b"\xef\xbb\xbf[]", "EMPTY_BATCH"),
    ],
)
def test_other_bodies_are_refused(client: httpx.Client, path: str, body: bytes, code: str) -> None:
    client.put(path, headers=JSON)
    headers = JSON | producer("p", 0, 0)
    answer = client.post(path, content=body, headers=headers)
    assert (answer.status_code, error_of(answer)["code"]) == (400, code)
    assert place(client.head(path).headers["stream-next-offset"]) == START
    assert client.post(path, content=b"1", headers=headers).status_code == 200
    assert client.get(path).content == b"[1]"


def test_only_application_json_has_the_mode(client: httpx.Client, path: str) -> None:
    headers = {"content-type": "application/vnd.x+json"}
    client.put(path, content=b"[1,", headers=headers)
    client.post(path, content=b"[]", headers=headers)
    assert client.get(path).content == b"[1,[]"


def test_an_empty_range_is_an_empty_array(client: httpx.Client, path: str) -> None:
    client.put(path, headers={"content-type": "Application/JSON; charset=utf-8"})
    for _ in range(2):
        for offset in (client.head(path).headers["stream-next-offset"], "now"):
            read = client.get(path, params={"offset": offset})
            assert (read.status_code, read.content) == (200, b"[]")
            assert read.headers["content-type"] == "Application/JSON; charset=utf-8"
        client.post(path, content=b"1", headers=JSON)
