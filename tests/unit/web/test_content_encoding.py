"""Compressed request bodies are refused, instead of being stored as the content."""

from __future__ import annotations

import gzip

import pytest

from tailrace.errors import UnsupportedEncoding
from tailrace.protocols.durable_streams.parse import refuse_encoding
from tailrace.web.messages import RawHeaders, Request
from tailrace.web.statuses import error_response


def post(*values: bytes) -> Request:
    headers: RawHeaders = [(b"content-encoding", value) for value in values]
    return Request("POST", "/v1/stream/a", "", headers, gzip.compress(b"x" * 10_000))


@pytest.mark.parametrize("values", [[], [b""], [b"identity"], [b"Identity"], [b" identity\t"]])
def test_an_uncompressed_body_is_accepted(values: list[bytes]) -> None:
    refuse_encoding(post(*values))


@pytest.mark.parametrize(
    "values",
    [[b"gzip"], [b"GZIP"], [b"br"], [b"zstd"], [b"gzip, identity"], [b"identity", b"gzip"],
     [b"x" * 5_000], [b"\xff"]],
)  # fmt: skip
def test_a_compressed_body_is_refused(values: list[bytes]) -> None:
    with pytest.raises(UnsupportedEncoding, match="only identity is taken") as refused:
        refuse_encoding(post(*values))
    answer = error_response(refused.value)
    assert answer.status == 415
    assert (b"accept-encoding", b"identity") in answer.headers
    assert len(answer.body) < 500
