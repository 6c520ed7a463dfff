"""Fuzzed requests and frames: repeatable, about every operation, and sound where they say so."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from devtools.chaos.fuzz import corpus
from devtools.chaos.fuzz.frames import encode, frame
from devtools.chaos.fuzz.requests import Requests, spoil, vary
from devtools.chaos.fuzz.run import OPEN
from devtools.load.frames import unframed
from devtools.load.wire import HEAD_END, header_of
from tailrace.configuration import load_settings

SETTINGS = load_settings(OPEN)
OPERATIONS = [*corpus.streams(SETTINGS), *corpus.aviso(SETTINGS)]


def requests(seed: int) -> Requests:
    return Requests(OPERATIONS, random.Random(seed))


def test_a_seed_repeats_its_requests() -> None:
    one, again, other = requests(1), requests(1), requests(2)
    assert [one.next() for _ in range(50)] == [again.next() for _ in range(50)]
    assert one.next() != other.next()


def test_every_documented_path_is_fuzzed() -> None:
    paths = {operation.path for operation in OPERATIONS}
    assert paths >= {
        "/v1/stream/{path}",
        "/_broadcast",
        "/events",
        "/cable",
        "/health",
        "/api/v1/notification",
        "/api/v1/watch",
    }
    bodies = {operation.path for operation in OPERATIONS if operation.bodies}
    assert bodies >= {*corpus.AVISO_BODIES, "/v1/stream/{path}", "/_broadcast"}


def test_most_requests_are_sound_and_complete() -> None:
    source, sound = requests(3), 0
    for _ in range(1000):
        request = source.next()
        assert all(0 <= cut < len(request.raw) for cut in request.cuts)
        if request.sound:
            sound += 1
            head, _, body = request.raw.partition(HEAD_END)
            assert int(header_of(head, "Content-Length") or 0) == len(body)
    assert sound > 500


def test_varied_json_is_json() -> None:
    chance, original = random.Random(4), {"a": [1, {"b": "c"}], "d": None}
    varied = [vary(original, chance) for _ in range(200)]
    assert original == {"a": [1, {"b": "c"}], "d": None}
    assert len({json.dumps(each) for each in varied}) > 20


def test_spoiled_bytes_differ_most_often() -> None:
    chance = random.Random(5)
    assert Counter(spoil(b"GET / HTTP/1.1", chance) for _ in range(200)).most_common(1)[0][1] < 40


@pytest.mark.parametrize("size", [0, 125, 126, 70_000])
def test_frames_are_encoded(size: int) -> None:
    data = encode(1, b"x" * size, masked=False)
    assert data[0] == 0x81
    assert data.endswith(b"x" * size)
    if size < 1 << 16:
        assert unframed(data) == ([b"x" * size], b"")


def test_a_seed_repeats_its_frames() -> None:
    one, again = random.Random(6), random.Random(6)
    assert [frame(one) for _ in range(50)] == [frame(again) for _ in range(50)]
