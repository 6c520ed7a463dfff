"""POST: the order of the checks, Stream-Seq, and concurrent writers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support.wire import (
    CLOSE,
    JSON,
    START,
    TEXT,
    Connection,
    error_of,
    place,
    producer,
    target,
)

NONE: dict[str, str] = {}


def test_an_append_answers_with_the_next_offset(client: httpx.Client, path: str) -> None:
    client.put(path, headers=TEXT)
    answer = client.post(path, content=b"hello", headers=TEXT)
    assert answer.status_code == 204
    offset = answer.headers["stream-next-offset"]
    assert place(offset) == f"{1:016d}_{5:016d}"
    assert answer.headers["etag"] == f'"{offset}"'
    unwanted = ("content-type", "content-length", "stream-closed", "producer-seq")
    assert not [name for name in unwanted if name in answer.headers]
    assert client.get(path).content == b"hello"


STREAMS: dict[str, list[tuple[str, dict[str, str], bytes]]] = {
    "missing": [],
    "open": [
        ("PUT", JSON, b""),
        ("POST", JSON | producer("p", 3, 0) | {"stream-seq": "m"}, b"0"),
        ("POST", JSON | producer("p", 3, 1), b"1"),
    ],
    "closed": [
        ("PUT", JSON, b""),
        ("POST", JSON | producer("p", 3, 0) | {"stream-seq": "m"}, b"0"),
        ("POST", JSON | producer("p", 3, 1) | CLOSE, b"1"),
    ],
}

ORDER: list[tuple[str, dict[str, str], bytes, int, str | None]] = [
    # First malformed producer headers.
    ("missing", {"producer-id": "p"}, b"1", 400, "BAD_HEADER"),
    ("closed", JSON | producer("p", 3, 2) | {"producer-epoch": "x"}, b"1", 400, "BAD_HEADER"),
    # Then whether the stream exists.
    ("missing", CLOSE, b"", 404, "STREAM_NOT_FOUND"),
    ("missing", JSON | producer("p", 0, 5), b"{", 404, "STREAM_NOT_FOUND"),
    # Then whether the request has a body.
    ("open", NONE, b"", 400, "EMPTY_BODY"),
    ("open", TEXT | producer("p", 1, 9), b"", 400, "EMPTY_BODY"),
    # Then whether the body has a content type.
    ("open", NONE, b"1", 400, "BAD_HEADER"),
    # Then the rules of the log, in the order that its own tests check.
    ("closed", JSON | {"stream-seq": "a"}, b"{", 409, "STREAM_CLOSED"),
    ("closed", JSON | producer("p", 3, 1), b"1", 204, None),
    ("open", TEXT | producer("p", 1, 0), b"1", 409, "CONTENT_TYPE_CONFLICT"),
    ("open", JSON | producer("p", 3, 1) | {"stream-seq": "a"}, b"{", 204, None),
    ("open", JSON | producer("p", 3, 2) | {"stream-seq": "m"}, b"{", 409, "SEQUENCE_CONFLICT"),
    ("open", JSON | producer("p", 3, 2) | {"stream-seq": "z"}, b"{", 400, "INVALID_JSON"),
]


@pytest.mark.parametrize(("stream", "headers", "body", "status", "code"), ORDER)
def test_the_order_of_the_checks(
    client: httpx.Client,
    path: str,
    stream: str,
    headers: dict[str, str],
    body: bytes,
    status: int,
    code: str | None,
) -> None:
    for method, sent, content in STREAMS[stream]:
        assert client.request(method, path, headers=sent, content=content).is_success
    before = client.head(path).headers.get("stream-next-offset")
    answer = client.post(path, headers=headers, content=body)
    assert answer.status_code == status
    if code is not None:
        assert error_of(answer)["code"] == code
    assert client.head(path).headers.get("stream-next-offset") == before
    if stream == "open":
        # No refused request has changed the producer, the sequence or the data.
        next_one = JSON | producer("p", 3, 2) | {"stream-seq": "n"}
        assert client.post(path, headers=next_one, content=b"2").status_code == 200
        assert client.get(path).content == b"[0,1,2]"


@pytest.mark.parametrize(
    ("sequence", "accepted"),
    [
        (["1", "2", "10"], [True, True, False]),
        (["B", "a", "a "], [True, True, False]),
        (["a", "\xe9", "z"], [True, True, False]),
    ],
)
def test_stream_seq_is_compared_as_bytes(
    wire: Connection, path: str, sequence: list[str], accepted: list[bool]
) -> None:
    wire.ask("PUT", target(path), TEXT)
    for seq, good in zip(sequence, accepted, strict=True):
        answer = wire.ask("POST", target(path), TEXT | {"stream-seq": seq}, b"x")
        assert answer.status == (204 if good else 409)
        if not good:
            assert answer.code == "SEQUENCE_CONFLICT"
    assert len(wire.ask("GET", target(path)).body) == sum(accepted)


def test_a_stream_seq_that_is_too_long_is_refused(client: httpx.Client, path: str) -> None:
    client.put(path, headers=TEXT)
    answer = client.post(path, content=b"x", headers=TEXT | {"stream-seq": "a" * 257})
    assert (answer.status_code, error_of(answer)["code"]) == (400, "BAD_HEADER")


def test_one_of_many_appends_with_the_same_stream_seq_is_accepted(
    client: httpx.Client, path: str
) -> None:
    client.put(path, headers=TEXT)
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(
            lambda n: client.post(path, content=b"%d" % n, headers=TEXT | {"stream-seq": "1"}),
            range(8),
        )
    assert sorted(answer.status_code for answer in answers) == [204] + [409] * 7
    assert len(client.get(path).content) == 1


def test_concurrent_plain_appends_all_succeed(client: httpx.Client, path: str) -> None:
    client.put(path, headers=TEXT)
    bodies = [b"<%d>" % n for n in range(20)]
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda body: client.post(path, content=body, headers=TEXT), bodies))
    assert {answer.status_code for answer in answers} == {204}
    data = client.get(path).content
    assert len(data) == len(b"".join(bodies))
    ends = {
        answer.headers["stream-next-offset"]: body
        for answer, body in zip(answers, bodies, strict=True)
    }
    assert len(ends) == 20
    for offset, body in ends.items():
        end = int(offset[17:])
        assert data[:end].endswith(body)
        # Appends that came together share a slot; an offset may lie inside of it.
        assert client.get(path, params={"offset": offset}).content == data[end:]


def test_more_streams_than_are_kept_open_can_be_written(
    cramped_client: httpx.Client, path: str
) -> None:
    names = [f"{path}/{n}" for n in range(32)]

    def write(name: str) -> list[int]:
        answers = [cramped_client.put(name, headers=TEXT)]
        answers += [
            cramped_client.post(name, content=b"%d," % n, headers=TEXT | producer("p", 0, n))
            for n in range(6)
        ]
        return [answer.status_code for answer in answers]

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(write, names)) == [[201] + [200] * 6] * 32
    assert {cramped_client.get(name).content for name in names} == {b"0,1,2,3,4,5,"}


def test_an_acknowledged_append_is_read_at_once(client: httpx.Client, path: str) -> None:
    client.put(path, headers=TEXT)
    offset, expected = START, b""
    for n in range(20):
        body = b"%d," % n
        expected += body
        acknowledged = client.post(path, content=body, headers=TEXT)
        read = client.get(path, params={"offset": offset})
        assert read.content == body
        offset = read.headers["stream-next-offset"]
        assert offset == acknowledged.headers["stream-next-offset"]
    assert client.get(path).content == expected


# If-Match


def test_an_append_may_name_the_offset_that_it_expects(client: httpx.Client, path: str) -> None:
    client.put(path, headers=JSON)
    tag = client.head(path).headers["etag"]
    first = client.post(path, content=b"1", headers=JSON | {"if-match": tag})
    assert first.status_code == 204
    late = client.post(path, content=b"2", headers=JSON | {"if-match": tag})
    assert (late.status_code, error_of(late)["code"]) == (412, "OFFSET_MISMATCH")
    assert late.headers["etag"] == first.headers["etag"] == client.head(path).headers["etag"]
    assert late.headers["stream-next-offset"] == first.headers["stream-next-offset"]
    again = client.post(path, content=b"2", headers=JSON | {"if-match": late.headers["etag"]})
    assert again.status_code == 204
    assert client.get(path).content == b"[1,2]"


def test_closing_may_name_the_offset_that_it_expects(client: httpx.Client, path: str) -> None:
    client.put(path, content=b"x", headers=TEXT)
    tag = client.head(path).headers["etag"]
    early = client.post(path, headers=CLOSE | {"if-match": f'"{START}"'})
    assert early.status_code == 412
    assert client.post(path, headers=CLOSE | {"if-match": tag}).status_code == 204


def test_a_repeated_request_of_a_producer_wins_over_its_offset(
    client: httpx.Client, path: str
) -> None:
    client.put(path, headers=TEXT)
    headers = TEXT | producer("p", 0, 0) | {"if-match": client.head(path).headers["etag"]}
    assert [client.post(path, content=b"x", headers=headers).status_code for _ in "12"] == [
        200,
        204,
    ]


def test_a_repeated_request_has_a_tag_only_while_it_is_the_last(
    client: httpx.Client, path: str
) -> None:
    """With a tag of a later append its producer would overlook that append."""
    client.put(path, headers=TEXT)

    def send(seq: int) -> str | None:
        answer = client.post(path, content=b"x", headers=TEXT | producer("p", 0, seq))
        tag: str | None = answer.headers.get("etag")
        return tag

    first = send(0)
    assert first == send(0) == client.head(path).headers["etag"]
    client.post(path, content=b"y", headers=TEXT)
    assert send(0) is None
    assert send(1) == client.head(path).headers["etag"]
    assert send(0) is None


@pytest.mark.parametrize("tag", ["*", f'W/"{START}"', f'"{START}", "{START}"', START, '""', '"x"'])
def test_other_conditions_are_refused(client: httpx.Client, path: str, tag: str) -> None:
    client.put(path, headers=TEXT)
    answer = client.post(path, content=b"x", headers=TEXT | {"if-match": tag})
    assert answer.status_code == 400
    assert error_of(answer)["code"] in ("BAD_HEADER", "BAD_OFFSET")


def test_the_tag_of_the_end_is_that_of_no_read(client: httpx.Client, path: str) -> None:
    client.put(path, content=b"x", headers=TEXT)
    tag = client.head(path).headers["etag"]
    for offset in ("-1", client.head(path).headers["stream-next-offset"]):
        read = client.get(path, params={"offset": offset}, headers={"if-none-match": tag})
        assert (read.status_code, read.headers["etag"] == tag) == (200, False)


def test_of_writers_at_one_offset_exactly_one_wins(client: httpx.Client, path: str) -> None:
    client.put(path, headers=TEXT)
    for turn in range(5):
        headers = TEXT | {"if-match": client.head(path).headers["etag"]}
        with ThreadPoolExecutor(8) as pool:
            answers = pool.map(
                lambda n, sent=headers: client.post(path, content=b"%d" % n, headers=sent), range(8)
            )
        assert sorted(answer.status_code for answer in answers) == [204] + [412] * 7
        assert len(client.get(path).content) == turn + 1
