"""JSON mode: one body is one JSON text, a top-level array is a batch, and text stays as it was."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.http.wire import JSON, START, error_of, producer

ELEMENTS = [
    b"12345678901234567890",
    b"-123456789012345678901234567890123456789012345678901234567890",
    b"1e400",
    b"-1E+400",
    b"0.1000000000000000055511151231257827",
    b"1.0",
    b"1E2",
    b"-0",
    b"-0.0e-0",
    b"null",
    b"true",
    b"0",
    b'""',
    b"{}",
    b'{"a":1,"a":2}',
    b'{ "b" : [ 1 ,\t2 ] ,\r\n "a" : { } }',
    b'"\\u00e9\\/\\n\\u0000"',
    b'"\xc3\xa9\xf0\x9f\x98\x80\xe2\x80\xa8"',
    b'"\\ud83d\\ude00"',
    b'"\\ud800"',
    b'"],[\\"{"',
    b'"\x7f"',
    b'{"":{"":[[],[[]]]}}',
]


def elements(body: bytes) -> list[bytes]:
    """The text of each element of an array."""
    text = body.decode().strip(" \t\r\n")
    assert text[0] + text[-1] == "[]"
    texts, at = [], 1
    while text[at:-1].strip(" \t\r\n"):
        while text[at] in " \t\r\n,":
            at += 1
        _, end = json.JSONDecoder().raw_decode(text, at)
        texts.append(text[at:end].encode())
        at = end
    return texts


@pytest.mark.parametrize("element", ELEMENTS)
def test_an_element_is_kept_byte_for_byte(client: httpx.Client, path: str, element: bytes) -> None:
    client.put(path, headers=JSON)
    for body in (element, b"\r\n\t " + element + b" \n", b"[" + element + b"]"):
        assert client.post(path, content=body, headers=JSON).status_code == 204
    read = client.get(path)
    assert read.headers["content-type"] == "application/json"
    assert read.content == b"[" + b",".join([element] * 3) + b"]"


def test_a_batch_keeps_its_elements_byte_for_byte(client: httpx.Client, path: str) -> None:
    batch = b" [ " + b" ,\n ".join(ELEMENTS) + b"\t] "
    created = client.put(path, content=batch, headers=JSON)
    appended = client.post(path, content=batch, headers=JSON)
    assert created.headers["stream-next-offset"] == f"{1:016d}_{len(ELEMENTS):016d}"
    assert appended.headers["stream-next-offset"] == f"{2:016d}_{2 * len(ELEMENTS):016d}"
    assert elements(client.get(path).content) == ELEMENTS * 2
    tail = client.get(path, params={"offset": created.headers["stream-next-offset"]})
    assert elements(tail.content) == ELEMENTS


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        (b"[1,2]", [b"1", b"2"]),
        (b"[[1,2],[3,4]]", [b"[1,2]", b"[3,4]"]),
        (b"[[[1,2,3]]]", [b"[[1,2,3]]"]),
        (b"[[]]", [b"[]"]),
        (b"[{}]", [b"{}"]),
        (b'{"a":[1,2]}', [b'{"a":[1,2]}']),
        (b'"[1,2]"', [b'"[1,2]"']),
        (b"\xef\xbb\xbf[1]", [b"1"]),
        (b"[null]", [b"null"]),
    ],
)
def test_an_array_is_flattened_one_level(
    client: httpx.Client, path: str, body: bytes, messages: list[bytes]
) -> None:
    client.put(path, headers=JSON)
    answer = client.post(path, content=body, headers=JSON)
    assert answer.headers["stream-next-offset"] == f"{1:016d}_{len(messages):016d}"
    assert elements(client.get(path).content) == messages


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"[", b"]", b"[1,]", b"[,1]", b"[1 2]", b"1 2", b"1,2", b"[1][2]", b"[1],",
        b'{"a":1,}', b'{"a"}', b"{a:1}", b"{'a':1}", b"// 1", b"/**/1", b"tru", b"True", b"None",
        b"undefined", b"NaN", b"[NaN]", b"Infinity", b"-Infinity", b"[1e400,-Infinity]",
        b'[1e400,{"a":NaN}]', b"01", b"-01", b"+1", b".5", b"1.", b"1e", b"0x10", b"--1", b"1_0",
        b'"', b'"a', b'"\x01"', b'"\n"', b'"\\x"', b'"\\u12"', b'"\xff"', b'"\xc0\xaf"',
        b'"\xed\xa0\x80"', b"\xff\xfe1\x00", b" ", b"\n", b"\x00", b"\xef\xbb\xbf", b"1\x00",
        b"\x0b1", b"\xc2\xa01", "[\u0661]".encode(), b"[1e400", b'{"a":1e400,"b"}',
    ],
)  # fmt: skip
def test_what_is_not_json_is_refused(client: httpx.Client, path: str, body: bytes) -> None:
    client.put(path, headers=JSON)
    headers = JSON | producer("p", 0, 0)
    answer = client.post(path, content=body, headers=headers)
    assert (answer.status_code, error_of(answer)["code"]) == (400, "INVALID_JSON")
    assert client.post(path, content=b"1", headers=headers).status_code == 200
    assert client.get(path).content == b"[1]"


@pytest.mark.parametrize("body", [b"[]", b" [ ] ", b"\xef\xbb\xbf[]"])
def test_an_empty_batch_is_refused(client: httpx.Client, path: str, body: bytes) -> None:
    client.put(path, headers=JSON)
    answer = client.post(path, content=body, headers=JSON)
    assert (answer.status_code, error_of(answer)["code"]) == (400, "EMPTY_BATCH")
    assert client.head(path).headers["stream-next-offset"] == START


@pytest.mark.parametrize(
    ("depth", "status"), [(512, 204), (513, 400), (1025, 400), (5_000, 400), (400_000, 400)]
)
@pytest.mark.parametrize(("left", "right"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_has_a_limit(
    client: httpx.Client, path: str, depth: int, status: int, left: bytes, right: bytes
) -> None:
    client.put(path, headers=JSON)
    body = left * depth + (b"1" if left != b"[" else b"") + right * depth
    answer = client.post(path, content=body, headers=JSON)
    assert answer.status_code == status
    if status == 400:
        assert error_of(answer)["code"] == "INVALID_JSON"
        assert client.post(path, content=left * depth, headers=JSON).status_code == 400


def test_brackets_in_strings_are_not_nesting(client: httpx.Client, path: str) -> None:
    client.put(path, headers=JSON)
    body = json.dumps("[{" * 2000).encode()
    assert client.post(path, content=body, headers=JSON).status_code == 204
    assert client.get(path).content == b"[" + body + b"]"


@pytest.mark.parametrize("kind", ["application/ndjson", "application/vnd.x+json", "text/json"])
def test_only_application_json_has_the_mode(client: httpx.Client, path: str, kind: str) -> None:
    headers = {"content-type": kind}
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


def test_a_fork_takes_the_first_messages_of_a_batch(client: httpx.Client, path: str) -> None:
    batch = [b'"a,b"', b'{"x":[1,2]}', b'"\\\\\\",["', b"1e400", b"[ ]"]
    client.put(path, content=b"[ " + b" , ".join(batch) + b" ]", headers=JSON)
    for count in range(1, len(batch) + 1):
        fork = f"{path}/{count}"
        answer = client.put(
            fork,
            headers={
                "stream-forked-from": f"/v1/stream/{path}",
                "stream-fork-offset": START,
                "stream-fork-sub-offset": str(count),
            },
        )
        assert answer.headers["stream-next-offset"] == f"{1:016d}_{count:016d}"
        assert elements(client.get(fork).content) == batch[:count]
