"""wrk, a load generator in C: one that is not the limit where servers are fast."""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from devtools.load.client import Address, WrongAnswer

PROGRAM: Final = shutil.which("wrk")
"""The program; None where it is not installed."""

_TOTALS: Final = re.compile(r"TOTALS (\d+) (\d+) (\d+) (\d+)")

_SCRIPT: Final = """\
local posts = {%(posts)s}
local at = 0
request = function()
  at = at %% #posts + 1
  return posts[at]
end
done = function(summary, latency, requests)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.timeout
  print(string.format("TOTALS %%d %%d %%d %%d",
    summary.requests, summary.duration, errors.status, failed))
end
"""


class Pace(NamedTuple):
    requests: int
    per_second: float


async def closed_loop(
    address: Address, requests: Sequence[bytes], connections: int, seconds: float
) -> Pace:
    """Send rendered requests in turns, one at a time on each connection."""
    assert PROGRAM is not None
    posts = ", ".join(_quote(request) for request in requests)
    with tempfile.TemporaryDirectory(prefix="wrk-") as folder:
        script = Path(folder) / "requests.lua"
        script.write_text(_SCRIPT % {"posts": posts}, encoding="latin-1")
        process = await asyncio.create_subprocess_exec(
            PROGRAM, "--threads", "1", "--connections", str(connections),
            "--duration", f"{max(1, round(seconds))}s", "--script", str(script),
            f"http://{address.host}:{address.port}/",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await process.communicate()
    totals = _TOTALS.search(output.decode())
    if totals is None:
        raise WrongAnswer(f"wrk says: {output.decode()[-300:]}")
    total, microseconds, refused, failed = map(int, totals.groups())
    if refused or failed:
        raise WrongAnswer(f"wrk counted {refused} errors, and {failed} that were not answered")
    return Pace(total, total / (microseconds / 1e6))


def _quote(request: bytes) -> str:
    """A string of Lua."""
    return '"' + "".join(_escape(byte) for byte in request) + '"'


def _escape(byte: int) -> str:
    plain = 32 <= byte < 127 and chr(byte) not in '"\\'
    return chr(byte) if plain else f"\\{byte:03d}"
