"""Cursors of readers that share long-polls, in virtual time, with a model of the edge."""

from __future__ import annotations

import json
import random
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from devtools.load.edge_model import Audience, given_cursor, key_cursor
from devtools.node import find_node
from infra.viewer_functions import request_code, response_code
from tailrace.protocols.durable_streams.caching import EPOCH_MS, INTERVAL_S

PAIRS = """
import { readFileSync } from "node:fs"
import { fromRequest, toEvent, toResponseEvent } from "./devtools/local_aws/viewer_event.mjs"
import { loadFunction } from "./devtools/local_aws/viewer_runtime.mjs"

const given = JSON.parse(readFileSync(process.argv[1], "utf8"))
let now = 0
const before = loadFunction(given.request, { origins: ["wait"], now: () => now })
const after = loadFunction(given.response)
const made = []
for (const [held, at, answer] of given.cases) {
  now = at
  const query = `offset=now&live=long-poll&cursor=${held}`
  const headers = [["host", "a.example"]]
  const event = toEvent({ method: "GET", path: "/v1/stream/a", query, headers })
  const changed = fromRequest((await before.run(event)).request, event, query)
  const answered = new Map([["stream-cursor", [answer]]])
  const { response } = await after.run(toResponseEvent(changed, { statusCode: 204 }, answered))
  const cursor = Object.fromEntries(response.headers)["stream-cursor"]
  made.push([changed.query.split("cursor=")[1], cursor])
}
process.stdout.write(JSON.stringify(made))
"""


@pytest.mark.parametrize("wait", [2, 20, 110])
def test_the_model_counts_as_the_functions_do(tmp_path: Path, wait: int) -> None:
    chance = random.Random(wait)
    cases = []
    for _ in range(300):
        at = EPOCH_MS + chance.randrange(10**11)
        current = (at - EPOCH_MS) // (INTERVAL_S * 1000)
        held = current + chance.choice([-1000, -1, 0, 1, 2, 1000, 10**15 - 1 - current])
        cases.append((str(max(0, held)), at, str(current + chance.randrange(2))))
    file = tmp_path / "cases.json"
    source = {"request": request_code("open", wait=wait), "response": response_code()}
    file.write_text(json.dumps({**source, "cases": cases}))
    command = [find_node(), "--input-type=module", "--eval", PAIRS, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [
        [str(key_cursor(int(held), at / 1000, wait)), str(given_cursor(int(answer), int(held)))]
        for held, at, answer in cases
    ]


@pytest.mark.parametrize("wait", [2, 20, 110])
@pytest.mark.parametrize("writes", [0, 0.05, 1])
@pytest.mark.parametrize("skew", [0.0, 0.4, -0.4])
def test_no_reader_meets_its_own_204_again_and_again(wait: int, writes: float, skew: float) -> None:
    audience = Audience(seed=wait, wait=wait, skew=skew)
    audience.run(seconds=900, arrivals=0.5, stay=120, writes=writes)
    times = Counter(n for reader in audience.readers for n in reader.got.values())
    assert audience.answers > 300
    # Once more at most: an interval of 20 s may begin between an answer and the next request.
    assert max(times) <= 2
    assert times[2] <= sum(times.values()) * 0.05


@pytest.mark.parametrize("wait", [20, 110])
@pytest.mark.parametrize(("writes", "stay"), [(1, 60), (1, 600), (0.2, 600)])
def test_readers_that_come_at_any_time_share_a_few_requests(
    wait: int, writes: float, stay: float
) -> None:
    audience = Audience(seed=7, wait=wait)
    audience.run(seconds=300, arrivals=1, stay=stay, writes=writes)
    print(f"{audience.origin_requests / audience.tail:.2f} origin requests per write")
    assert audience.origin_requests <= 4 * audience.tail
    assert audience.answers > 10 * audience.origin_requests


@pytest.mark.parametrize("wait", [20, 110])
def test_a_quiet_stream_has_two_origin_requests_at_a_time(wait: int) -> None:
    audience = Audience(seed=7, wait=wait)
    audience.run(seconds=2200, arrivals=0.5, stay=600, writes=0)
    assert audience.origin_requests <= 2 * 2200 / wait + 3
