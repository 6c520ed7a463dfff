"""Checks of single requests: the basics, names with special characters, renamed headers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Final

import httpx

from devtools.aws_smoke.findings import Finding, NotMeasured, judge
from devtools.aws_smoke.target import Client, Target, wait_until
from devtools.local_aws.replies import REMAPPED

APPENDS: Final = 20
SLOW_SECONDS: Final = 10.0
"""Slower than any cold start: a response without a body that hangs takes 20 s and more."""
SPECIAL: Final = "!$&'()*+,;=:@~-_"
"""Characters that may be in a path without percent-encoding."""
PREFIX: Final = "x-amzn-remapped-"
KEYS_SECONDS: Final = 300.0
"""The function `edge_keys` runs every minute, and the key-value store takes seconds."""


def measure_basics(target: Target) -> Finding:
    """Create, append, read, wait in vain and delete, through CloudFront."""
    path, seconds = target.stream("basics"), dict[str, float]()
    statuses: dict[str, int] = {}

    def timed(name: str, begun: float, status: int) -> None:
        seconds[name], statuses[name] = time.monotonic() - begun, status

    with target.viewer() as viewer:
        begun = time.monotonic()
        viewer.create(path)
        timed("PUT", begun, 201)
        appends = [_time_append(viewer, path) for _ in range(APPENDS)]
        tail = viewer.read(path)
        headers = {**viewer.bearer("read"), "if-none-match": tail.headers.get("etag", "")}
        for name, method, sent in (
            ("GET", "GET", viewer.bearer("read")),
            ("304", "GET", headers),
            ("HEAD", "HEAD", viewer.bearer("read")),
            ("DELETE", "DELETE", viewer.bearer("write")),
        ):
            begun = time.monotonic()
            timed(name, begun, viewer.send(method, path, sent).status_code)
        gone = viewer.read(path).status_code
    return judge_basics(statuses, seconds, appends, complete=tail.text == "a" * APPENDS, gone=gone)


def judge_basics(
    statuses: Mapping[str, int],
    seconds: Mapping[str, float],
    appends: list[float],
    *,
    complete: bool,
    gone: int,
) -> Finding:
    expected = {"PUT": 201, "GET": 200, "304": 304, "HEAD": 200, "DELETE": 204}
    wrong = [f"{name}: {status}" for name, status in statuses.items() if status != expected[name]]
    wrong += [f"{name} took {took:.0f} s" for name, took in seconds.items() if took > SLOW_SECONDS]
    wrong += [] if complete else ["the read is not what was appended"]
    wrong += [] if gone in (404, 410) else [f"GET after DELETE: {gone}"]
    return judge(
        not wrong,
        "; ".join(wrong) or "streams are created, appended to, read and deleted",
        append_p50_ms=statistics.median(appends) * 1_000,
        append_max_ms=max(appends) * 1_000,
        first_request_ms=seconds["PUT"] * 1_000,
    )


def _time_append(viewer: Client, path: str) -> float:
    begun = time.monotonic()
    viewer.append(path, "a")
    return time.monotonic() - begun


def is_verified(answer: httpx.Response) -> bool:
    """Whether the edge has verified the credentials of a read: only then it may be shared."""
    return "private" not in answer.headers.get("cache-control", "private")


def wait_for_edge(target: Target) -> None:
    """Wait until the edge verifies credentials; raises AssertionError if it never does."""
    path = target.stream("verified")
    with target.viewer() as viewer:
        viewer.create(path)
        verified = wait_until(lambda: is_verified(viewer.read(path)), KEYS_SECONDS)
    assert verified, f"after {KEYS_SECONDS:.0f} s the edge still verifies no credentials"


def measure_paths(target: Target) -> Finding:
    """Read private streams whose names have special characters.

    The edge token is an HMAC of the path, so a path that a function gets in another spelling than
    the edge function is refused with 403."""
    wait_for_edge(target)
    statuses, unverified = {}, []
    with target.viewer() as viewer:
        for character in SPECIAL:
            path = target.stream(f"raw{character}path")
            viewer.create(path)
            answer = viewer.read(path)
            statuses[character] = answer.status_code
            if answer.is_success and not is_verified(answer):
                unverified.append(character)
    return judge_paths(statuses, unverified)


def judge_paths(statuses: Mapping[str, int], unverified: list[str]) -> Finding:
    refused = [each for each, status in statuses.items() if status == 403]
    other = [each for each, status in statuses.items() if status not in (200, 403)]
    summary = "every name was verified at the edge and by the function"
    if refused or other or unverified:
        summary = "some names are spelled differently on their way"
    return judge(
        not (refused or other or unverified),
        summary,
        characters=len(statuses),
        refused=refused,
        other_errors=[f"{each} {statuses[each]}" for each in other],
        not_verified=unverified,
    )


def measure_remapped(target: Target) -> Finding:
    """Compare the headers that function URLs rename with those that the local AWS renames."""
    path = target.stream("remapped")
    seen: dict[str, set[str]] = {}
    with target.viewer() as viewer:
        viewer.create(path)
        viewer.append(path, "some")
    for function in target.function_urls:
        with target.direct(function) as client:
            query = "?offset=-1&live=sse" if function == "live" else ""
            refused = client.send("GET", f"{path}{query}", {})
            # A response without a body may hang on a streaming URL.
            for answer in (refused, client.read(path)):
                seen.setdefault(function, set()).update(renamed(answer.headers))
    with target.viewer() as viewer:
        outside = viewer.send("GET", path, {})
    if outside.status_code != 401:
        raise NotMeasured(f"a read without credentials gets {outside.status_code}, not 401")
    return judge_remapped(seen, challenged="www-authenticate" in outside.headers)


def renamed(headers: httpx.Headers) -> list[str]:
    return [name.removeprefix(PREFIX) for name in headers if name.startswith(PREFIX)]


def judge_remapped(seen: Mapping[str, set[str]], *, challenged: bool) -> Finding:
    unexpected = sorted(set().union(*seen.values()) - REMAPPED)
    return judge(
        not unexpected,
        f"function URLs also rename {', '.join(unexpected)}"
        if unexpected
        else "function URLs rename no header that was not expected",
        viewers_get_www_authenticate=challenged,
        **{f"renamed_by_{name}": sorted(found) for name, found in seen.items()},
    )
