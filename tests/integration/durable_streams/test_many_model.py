"""Reads of many streams agree with a plain model, whatever happens to the streams between them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from devtools.engines.ministack import Engine
from devtools.server import Server
from tests.conftest import on_dynamodb
from tests.integration.durable_streams.conftest import SECONDS
from tests.support.many_streams import ManyReader, Model

COLD = {
    "TAILRACE_HOT_BYTES": "0",
    "TAILRACE_SEGMENT_MAX_MESSAGES": "2",
    "TAILRACE_COMPACT_INTERVAL": "0.05",
}


@pytest.fixture(params=["hot", "cold", "dynamodb"])
def http(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[httpx.Client]:
    """A client of a server with small chunks, which keeps its data in one of the places."""
    settings = {"TAILRACE_CHUNK_BYTES": "1024", "TAILRACE_LONG_POLL_TIMEOUT": "0.1"}
    if request.param == "dynamodb":
        aws: Engine = request.getfixturevalue("aws")
        settings |= on_dynamodb(aws)
    elif request.param == "cold":
        settings |= COLD
    with (
        Server(tmp_path / "data", settings) as server,
        httpx.Client(base_url=server.url, timeout=SECONDS, trust_env=False) as client,
    ):
        yield client


def test_readers_of_many_streams_agree_with_a_model(
    http: httpx.Client, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(request.node.name)
    models = [Model(f"many/{number}") for number in range(6)]
    readers = [
        ManyReader(http, [each.path for each in chance.sample(models, count)], chance)
        for count in (2, 4, 6)
    ]
    for _ in range(40):
        for _ in range(chance.randint(1, 6)):
            chance.choice(models).change(http, chance)
        reader = chance.choice(readers)
        match chance.choice(("catch up", "poll", "follow")):
            case "poll":
                reader.poll()
                reader.catch_up()
            case "follow":
                reader.follow()
            case _:
                reader.catch_up()
        reader.check(models)
