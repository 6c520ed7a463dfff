"""Idempotent producers: the answer to each kind of request over HTTP.

Every row of the protocol's table is in tests/unit/log/test_producers.py.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support.wire import MOST, TEXT, Connection, error_of, producer, request, target

Sent = tuple[int, int]

TABLE: list[tuple[list[Sent], Sent, int, dict[str, str]]] = [
    ([], (MOST, 0), 200, {"producer-epoch": str(MOST), "producer-seq": "0"}),
    ([], (0, MOST), 409, {"producer-expected-seq": "0", "producer-received-seq": str(MOST)}),
    ([(5, 0)], (4, 1), 403, {"producer-epoch": "5"}),
    ([(5, 0)], (6, 1), 400, {}),
    ([(5, 0), (5, 1), (5, 2)], (5, 0), 204, {"producer-epoch": "5", "producer-seq": "2"}),
    ([(5, 0)], (5, 1), 200, {"producer-epoch": "5", "producer-seq": "1"}),
]


@pytest.mark.parametrize(("before", "sent", "status", "headers"), TABLE)
def test_the_answers_to_a_producer(
    client: httpx.Client,
    path: str,
    before: list[Sent],
    sent: Sent,
    status: int,
    headers: dict[str, str],
) -> None:
    client.put(path, headers=TEXT)
    for epoch, seq in before:
        accepted = client.post(path, content=b"a", headers=TEXT | producer("p", epoch, seq))
        assert accepted.status_code == 200
    tail = client.head(path).headers["stream-next-offset"]
    answer = client.post(path, content=b"bb", headers=TEXT | producer("p", *sent))
    assert answer.status_code == status
    echoed = {name: value for name, value in answer.headers.items() if name.startswith("producer-")}
    assert echoed == headers
    if status in (200, 204):
        now = client.head(path).headers["stream-next-offset"]
        assert answer.headers["stream-next-offset"] == now
        assert (now == tail) == (status == 204)
    else:
        error_of(answer)
    expected = b"a" * len(before) + (b"bb" if status == 200 else b"")
    assert client.get(path).content == expected


@pytest.mark.parametrize("name", ["producer-epoch", "producer-seq"])
@pytest.mark.parametrize(
    "value",
    ["", "0, 0", "\xb2", str(MOST + 1)],
)
def test_a_malformed_epoch_or_sequence_is_refused(
    wire: Connection, path: str, name: str, value: str
) -> None:
    wire.ask("PUT", target(path), TEXT)
    answer = wire.ask("POST", target(path), TEXT | producer("p", 0, 0) | {name: value}, b"x")
    assert (answer.status, answer.code) == (400, "BAD_HEADER")
    assert wire.ask("POST", target(path), TEXT | producer("p", 0, 0), b"x").status == 200


@pytest.mark.parametrize(
    "names",
    [
        ["producer-id"],
        ["producer-id", "producer-epoch"],
        ["producer-id", "producer-seq"],
        ["producer-epoch", "producer-seq"],
    ],
)
def test_producer_headers_come_together_or_not_at_all(
    client: httpx.Client, path: str, names: list[str]
) -> None:
    client.put(path, headers=TEXT)
    some = {name: value for name, value in producer("p", 0, 0).items() if name in names}
    for body in (b"x", b""):
        answer = client.post(path, content=body, headers=TEXT | some | {"stream-closed": "true"})
        assert (answer.status_code, error_of(answer)["code"]) == (400, "BAD_HEADER")
    assert "stream-closed" not in client.head(path).headers


@pytest.mark.parametrize(
    ("name", "status"),
    [("", 400), ("p" * 256, 200), ("p" * 257, 400), ("\xff\xfe", 200), ('"{}\\', 200)],
)
def test_names_of_producers(wire: Connection, path: str, name: str, status: int) -> None:
    wire.ask("PUT", target(path), TEXT)
    assert wire.ask("POST", target(path), TEXT | producer(name, 0, 0), b"x").status == status
    if status == 200:
        assert wire.ask("POST", target(path), TEXT | producer(name, 0, 0), b"x").status == 204


def test_a_retry_with_stream_closed_does_not_close(client: httpx.Client, path: str) -> None:
    client.put(path, headers=TEXT)
    headers = TEXT | producer("p", 0, 0)
    client.post(path, content=b"x", headers=headers)
    for body in (b"x", b""):
        retry = client.post(path, content=body, headers=headers | {"stream-closed": "true"})
        assert retry.status_code == 204
        assert "stream-closed" not in retry.headers
    assert "stream-closed" not in client.head(path).headers


def test_one_of_many_concurrent_retries_is_stored(client: httpx.Client, path: str) -> None:
    client.put(path, headers=TEXT)
    with ThreadPoolExecutor(10) as pool:
        answers = pool.map(
            lambda n: client.post(path, content=b"%d" % n, headers=TEXT | producer("p", 0, 0)),
            range(10),
        )
    assert sorted(answer.status_code for answer in answers) == [200] + [204] * 9
    assert len(client.get(path).content) == 1


def test_pipelined_sequences_are_stored_in_order(wire: Connection, path: str) -> None:
    wire.ask("PUT", target(path), TEXT)
    bodies = [b"%d;" % n for n in range(10)]
    wire.send(
        b"".join(
            request("POST", target(path), TEXT | producer("p", 0, n), body)
            for n, body in enumerate(bodies)
        )
    )
    answers = [wire.answer("POST") for _ in bodies]
    assert {answer.status for answer in answers} == {200}
    assert [answer.headers["producer-seq"] for answer in answers] == [str(n) for n in range(10)]
    assert wire.ask("GET", target(path)).body == b"".join(bodies)
