from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.cli.input import InputBatch, batch_lines
from tailrace.log.content import Mode
from tailrace.log.json_mode import split


@pytest.fixture
def pipe() -> Iterator[tuple[io.BufferedReader, int]]:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source:
        yield source, writing


def batches(source: io.BufferedReader, mode: Mode = Mode.TEXT) -> Iterator[InputBatch]:
    return batch_lines(source, mode, "input", most_bytes=100, most_lines=100)


def test_a_line_is_passed_on_while_the_pipe_stays_open(
    pipe: tuple[io.BufferedReader, int],
) -> None:
    source, writing = pipe
    received = batches(source)
    os.write(writing, b"one\ntwo\nunfinished")
    assert next(received) == InputBatch(b"one\ntwo\n", 2, 8, last=False)
    os.write(writing, b" line\n")
    assert next(received) == InputBatch(b"unfinished line\n", 1, 16, last=False)
    os.close(writing)
    assert list(received) == []


def test_the_end_of_input_marks_the_last_batch(
    pipe: tuple[io.BufferedReader, int],
) -> None:
    source, writing = pipe
    os.write(writing, b"one\ntwo")
    os.close(writing)
    assert list(batches(source)) == [InputBatch(b"one\ntwo\n", 2, 8, last=True)]


def test_lines_are_batched_between_reads(pipe: tuple[io.BufferedReader, int]) -> None:
    source, writing = pipe
    received = batches(source)
    os.write(writing, b"0\n")
    next(received)
    for _ in range(39):
        os.write(writing, b"1\n")
    assert next(received).messages == 39
    os.close(writing)


def test_a_long_line_arrives_whole(pipe: tuple[io.BufferedReader, int]) -> None:
    source, writing = pipe
    line = b"x" * (3 << 20)

    def write() -> None:
        with os.fdopen(writing, "wb") as sink:
            sink.write(line + b"\n")

    thread = threading.Thread(target=write)
    thread.start()
    assert b"".join(batch.body for batch in batches(source)) == line + b"\n"
    thread.join()


@settings(deadline=None)
@given(
    st.lists(st.binary(max_size=30).map(lambda text: text.replace(b"\n", b" "))),
    st.integers(1, 50),
    st.integers(1, 5),
    st.booleans(),
)
def test_text_lines_are_complete_and_within_the_limits(
    texts: list[bytes], most_bytes: int, most_lines: int, ended: bool
) -> None:
    whole = b"".join(text + b"\n" for text in texts)
    given_text = whole if ended or not texts or not texts[-1] else whole[:-1]
    source = io.BytesIO(given_text)
    batchs = list(batch_lines(source, Mode.TEXT, "-", most_bytes=most_bytes, most_lines=most_lines))
    assert b"".join(batch.body for batch in batchs) == whole
    assert sum(batch.size for batch in batchs) == len(whole)
    assert [batch.last for batch in batchs] == [False] * (len(batchs) - 1) + [True] * bool(batchs)
    for batch in batchs:
        assert 1 <= batch.messages <= most_lines
        assert len(batch.body) <= most_bytes or batch.messages == 1


def test_json_lines_keep_their_text() -> None:
    texts = [b"12345678901234567890", b"1.50", b'{"a":1,"a":2}', b'"\\u00e9"', b"[ 1 ]"]
    source = io.BytesIO(b"\xef\xbb\xbf" + b"\r\n".join(texts) + b"\r\n  \r\n")
    batchs = list(batch_lines(source, Mode.JSON, "-", most_bytes=30, most_lines=10))
    assert [text for batch in batchs for text in split(batch.body[1:-1])] == texts
