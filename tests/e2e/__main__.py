"""`make aws-local`: the AWS deployment on this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from bench.servers import stop_cleanly_when_terminated
from tailrace.auth.jws import made
from tailrace.auth.signing import sign
from tests.e2e.stack import AwsLocal, Missing

LOOK_SECONDS = 0.2
DAY_SECONDS = 86_400

TRY = """
Ready: {url}   (docs: {url}/docs)

Create a stream, append to it, read it:
  curl -i -X PUT  {url}/v1/stream/hello -H 'content-type: application/json'{writer}
  curl -i -X POST {url}/v1/stream/hello -H 'content-type: application/json'{writer} -d '{{"n":1}}'
  curl -i '{url}/v1/stream/hello?offset=-1{signed}'
Follow it, in as many terminals as you like, and append meanwhile:
  curl -N '{url}/v1/stream/hello?offset=-1&live=sse{signed}'
Ask the function itself, past the edge, and be refused:
  curl -i {function}/v1/stream/hello
"""

CLOSED = """
Without the token nobody writes, without the signed name nobody reads. Sign for other streams:
  export TAILRACE_SECRET={secret}
  tailrace sign chat/room-1
  tailrace token --scope 'read write' --streams 'chat/*'
"""

END = """
Every part is a process of this machine: viewer-request function and policies of the
distribution, cache, function URLs, packaged functions, DynamoDB on ministack. Ctrl-C ends all.
"""


def hints(stack: AwsLocal, secret: str | None) -> str:
    """What to try, with credentials that work where there is a secret."""
    given = {"url": stack.url, "function": stack.urls["http"].url}
    if secret is None:
        return TRY.format(**given, writer="", signed="") + END
    claims = {"scope": "read write", "streams": "**", "exp": int(time.time()) + DAY_SECONDS}
    writer = f" -H 'authorization: Bearer {made(claims, secret.encode(), 'HS256')}'"
    signed = f"&signed={quote(sign('hello', secret), safe='')}"
    return TRY.format(**given, writer=writer, signed=signed) + CLOSED.format(secret=secret) + END


def main() -> int:
    parser = argparse.ArgumentParser(prog="make aws-local", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port of the edge; 0 picks a free one")
    parser.add_argument("--verbose", action="store_true", help="show what the functions print")
    parser.add_argument("--open", action="store_true", help="let everybody do everything")
    given = parser.parse_args()
    secret = None if given.open else secrets.token_hex(32)
    access = None if secret is None else {"secret": secret}
    stop_cleanly_when_terminated()
    try:
        with AwsLocal(port=given.port, access=access, say=say) as stack:
            say(hints(stack, secret))
            stay(stack, given.verbose)
    except KeyboardInterrupt:
        return 130
    except (Missing, AssertionError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def stay(stack: AwsLocal, verbose: bool) -> None:
    logs = Logs(stack)
    try:
        while True:
            time.sleep(LOOK_SECONDS)
            if verbose:
                logs.show()
    except KeyboardInterrupt:
        say("\nStopping …")


class Logs:
    """What the functions print, from the beginning."""

    def __init__(self, stack: AwsLocal) -> None:
        self._stack = stack
        self._open: dict[Path, BinaryIO] = {}

    def show(self) -> None:
        for name, function in self._stack.functions.items():
            for log in function.logs():
                if log not in self._open:
                    self._open[log] = log.open("rb")
                for line in self._open[log].read().decode(errors="replace").splitlines():
                    say(f"{name}/{log.name} {line}")


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
