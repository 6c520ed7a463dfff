"""Damages the files of a stopped server: what is served after that is right, or an error.

Every case begins with the same files, so that one kind of damage does not hide another.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

from devtools.chaos.calls import (
    ANSWER_SECONDS,
    PREFIX,
    Caller,
    error_code,
    eventually,
    required,
)
from devtools.chaos.plan import Damage, Round
from devtools.chaos.report import Report
from devtools.chaos.site import Site, check_log, credentials, embedded
from devtools.linearizability.checker import offset_of
from devtools.load.wire import Response
from tailrace.log.offsets import START

BYTES: Final = {"Content-Type": "application/octet-stream"}
SMALL, LARGE = "damage/small", "damage/large"
SMALL_APPENDS: Final = 130
"""More than fill three segments."""
LARGE_APPENDS: Final = 8
"""Fewer than fill a segment, so that the bodies stay in files of their own."""
LARGE_BYTES: Final = 9000
FLIPPED_BYTES: Final = 16
HEAD_BYTES: Final = 100
"""The header of an SQLite file."""
OFFSETS: Final = 3
"""Places in a stream from which it is read, besides its beginning."""
MAY_BE_OLDER: Final = ("tailrace.db", "tailrace.db-wal")
"""Files that SQLite takes for complete ones of an earlier time when they are damaged."""
CHECK: Final = "reads of damaged files"


async def run(plan: Round, folder: Path, settings: Mapping[str, str], report: Report) -> None:
    """Damage copies of a server's files in every planned way."""
    source = folder / "source"
    source.mkdir()
    async with embedded(plan, source, settings, report) as site:
        truth = await _write(site, plan.chance("damage"))
    for number, case in enumerate(plan.damages):
        copy = folder / str(number)
        shutil.copytree(source, copy)
        apply(case, copy / "data")
        report.count("damages")
        async with embedded(plan, copy, settings, report, start=False) as site:
            await _read_damaged(case, site, truth, plan.chance(f"damage {number}"), report)


def apply(case: Damage, data: Path) -> None:
    """Damage one file."""
    file = data / case.what
    if file.is_dir():
        files = sorted(each for each in file.rglob("*") if each.is_file())
        file = files[int(case.where * len(files))]
    size = file.stat().st_size
    match case.how:
        case "remove":
            file.unlink()
        case "empty":
            file.write_bytes(b"")
        case "cut":
            file.write_bytes(file.read_bytes()[: int(size * case.where)])
        case "flip" | "head":
            content = bytearray(file.read_bytes())
            begin = int((HEAD_BYTES if case.how == "head" else size) * case.where)
            for at in range(begin, min(begin + FLIPPED_BYTES, size)):
                content[at] ^= 0xFF
            file.write_bytes(content)


async def _write(site: Site, chance: random.Random) -> dict[str, bytes]:
    """Write streams that are in segments, in the table and in files; leave the end in the WAL."""
    caller = site.caller(credentials())
    truth = {SMALL: b"", LARGE: b""}
    for path in truth:
        await caller.ask(0, "PUT", PREFIX + path, BYTES, b"", expected=(201,))
    data = site.nodes[0].server.data
    for path, appends, most in (
        (SMALL, SMALL_APPENDS, 300),
        (LARGE, LARGE_APPENDS, LARGE_BYTES),
        (SMALL, 1, 300),
    ):
        if path == LARGE:
            compacted = await eventually(lambda: any(data.glob("segments/*/*")), ANSWER_SECONDS)
            assert compacted, "no segment was written"
        for _ in range(appends):
            body = chance.randbytes(most if path == LARGE else chance.randint(1, most))
            await caller.ask(0, "POST", PREFIX + path, BYTES, body, expected=(204,))
            truth[path] += body
    caller.close()
    await site.nodes[0].kill()
    return truth


async def _read_damaged(
    case: Damage, site: Site, truth: Mapping[str, bytes], chance: random.Random, report: Report
) -> None:
    node = site.nodes[0]
    try:
        await node.start()
    except AssertionError:
        report.count("damaged: start refused")
        if "Traceback" in node.server.output():
            report.violation(CHECK, f"{case}: {node.server.output()}")
        return
    caller = Caller([node.server.port], report, credentials(), unnamed)
    try:
        for path, content in truth.items():
            offsets = [START]
            async for response in _read(caller, path, START):
                if found := wrong(case, content, offsets[-1], response):
                    report.violation(CHECK, f"{case}: {path} from {offsets[-1]}: {found}")
                if response.status == 200:
                    offsets.append(required(response, "Stream-Next-Offset"))
                else:
                    report.count(f"damaged: {response.status} {error_code(response)}")
            for offset in chance.sample(offsets, min(OFFSETS, len(offsets))):
                async for response in _read(caller, path, offset):
                    if found := wrong(case, content, offset, response):
                        report.violation(CHECK, f"{case}: {path} from {offset}: {found}")
                    break
    finally:
        caller.close()
        await node.kill()
        check_log(node.server, report, lenient=True)


async def _read(caller: Caller, path: str, offset: str) -> AsyncIterator[Response]:
    """Read on until the end, or the first error."""
    while True:
        response = await caller.ask(0, "GET", f"{PREFIX}{path}?offset={offset}")
        yield response
        if response.status != 200 or response.header("Stream-Up-To-Date"):
            return
        offset = required(response, "Stream-Next-Offset")


def unnamed(response: Response) -> str | None:
    """Damage may be answered by any error that names it."""
    if response.status < 500 or error_code(response) not in ("", "INTERNAL"):
        return None
    return f"{response.status} {response.body[:300]!r} is no named error"


def wrong(case: Damage, content: bytes, offset: str, response: Response) -> str | None:
    """Say what is wrong with an answer, given what the stream held before the damage."""
    may_be_older = case.what in MAY_BE_OLDER
    if response.status >= 500 or (may_be_older and response.status == 404):
        return None
    if response.status != 200:
        return f"{response.status} {response.body[:300]!r}"
    begin, end = offset_of(offset), offset_of(required(response, "Stream-Next-Offset"))
    if response.body != content[begin:end]:
        return f"200 with other bytes than those from {begin} to {end}"
    if response.header("Stream-Up-To-Date") and end < len(content) and not may_be_older:
        return f"200 that ends at {end} instead of {len(content)}"
    return None
