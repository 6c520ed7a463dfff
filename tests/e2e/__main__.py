"""`make aws-local`: the AWS deployment on this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import BinaryIO

from bench.servers import stop_cleanly_when_terminated
from tests.e2e.stack import AwsLocal, Missing

LOOK_SECONDS = 0.2

TRY = """
Ready: {url}   (docs: {url}/docs)

Create a stream, append to it, read it:
  curl -i -X PUT  {url}/v1/stream/hello -H 'content-type: application/json'
  curl -i -X POST {url}/v1/stream/hello -H 'content-type: application/json' -d '{{"n":1}}'
  curl -i '{url}/v1/stream/hello?offset=-1'
Follow it, in as many terminals as you like, and append meanwhile:
  curl -N '{url}/v1/stream/hello?offset=-1&live=sse'
Ask the function itself, past the edge, and be refused:
  curl -i {function}/v1/stream/hello

Every part is a process of this machine: viewer-request function and policies of the
distribution, cache, function URLs, packaged functions, DynamoDB on ministack. Ctrl-C ends all.
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make aws-local", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port of the edge; 0 picks a free one")
    parser.add_argument("--verbose", action="store_true", help="show what the functions print")
    given = parser.parse_args()
    stop_cleanly_when_terminated()
    try:
        with AwsLocal(port=given.port, say=say) as stack:
            say(TRY.format(url=stack.url, function=stack.urls["http"].url))
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
