"""`make aws-local`: the AWS deployment on this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from devtools.local_aws.stack import AwsLocal, Missing
from devtools.processes import stop_cleanly_when_terminated
from infra.names import CONTAINERS, PLACES
from tailrace.auth.jws import sign_token
from tailrace.auth.keys import Keys
from tailrace.auth.signed_names import sign
from tailrace.settings import Settings

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

Action Cable: listen to that stream as a page does, and broadcast to it as an app does:
  {node} -e '{page}'
  curl -i {url}/_broadcast{publisher} -d '{{"stream":"hello","data":"{{\\"n\\":2}}"}}'

Aviso: watch, and notify:
  curl -N {url}/api/v1/watch -H 'content-type: application/json'{writer} -d '{watch}'
  curl -i {url}/api/v1/notification -H 'content-type: application/json'{writer} -d '{notify}'
"""

PAGE = """\
const socket = new (require("ws"))("{cable}", "actioncable-v1-json");\
 const identifier = JSON.stringify({identifier});\
 socket.onmessage = ({{data}}) => {{ console.log(data);\
 if (JSON.parse(data).type === "welcome")\
 socket.send(JSON.stringify({{command: "subscribe", identifier}})) }};"""

WATCH = {"event_type": "mars", "identifier": {"class": "od"}, "from_id": "0"}
NOTIFY = {
    "event_type": "mars",
    "identifier": {
        "class": "od", "expver": "1", "domain": "g", "date": "20260131", "time": "6",
        "stream": "oper", "step": 1,
    },
    "payload": {"location": "s3://products/42"},
}  # fmt: skip

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
    """Example commands, with valid credentials if the deployment has a secret."""
    # `make setup` installs one there if the machine has none.
    own = Path(sys.executable).parent / "node"
    given = {
        "url": stack.url,
        "function": stack.urls["http"].url,
        "node": os.path.relpath(own) if own.exists() else "node",
        "watch": json.dumps(WATCH),
        "notify": json.dumps(NOTIFY),
    }
    if secret is None:
        page = page_of(stack, stream_name="hello")
        return TRY.format(**given, writer="", publisher="", signed="", page=page) + END
    claims = {"scope": "read write", "streams": "**", "exp": int(time.time()) + DAY_SECONDS}
    writer = f" -H 'authorization: Bearer {sign_token(claims, secret.encode(), 'HS256')}'"
    (key,) = Keys.from_settings(Settings(secret=secret)).broadcast
    publisher = f" -H 'authorization: Bearer {key.decode()}'"
    name = sign("hello", secret)
    signed = f"&signed={quote(name, safe='')}"
    page = page_of(stack, signed_stream_name=name)
    tried = TRY.format(**given, writer=writer, publisher=publisher, signed=signed, page=page)
    return tried + CLOSED.format(secret=secret) + END


def page_of(stack: AwsLocal, **stream: str) -> str:
    """A Node program that listens to a stream, without single quotes, for use in a shell."""
    cable = f"{stack.url.replace('http', 'ws', 1)}/cable"
    return PAGE.format(cable=cable, identifier=json.dumps({"channel": "$pubsub", **stream}))


def main() -> int:
    parser = argparse.ArgumentParser(prog="make aws-local", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port of the edge; 0 picks a free one")
    parser.add_argument("--verbose", action="store_true", help="show what the functions print")
    parser.add_argument("--open", action="store_true", help="let everybody do everything")
    parser.add_argument(
        "--live",
        choices=PLACES,
        default=PLACES[0],
        help="what serves live reads: functions, or containers as processes of this machine",
    )
    given = parser.parse_args()
    secret = None if given.open else secrets.token_hex(32)
    access = None if secret is None else {"secret": secret}
    stop_cleanly_when_terminated()
    try:
        variant = "local-open" if given.open else "local-closed"
        if given.live == CONTAINERS:
            variant = f"{variant}-{CONTAINERS}"
        with AwsLocal(port=given.port, access=access, variant=variant, say=say) as stack:
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
    """The whole output of functions and containers."""

    def __init__(self, stack: AwsLocal) -> None:
        self._stack = stack
        self._open: dict[Path, BinaryIO] = {}

    def show(self) -> None:
        for name, function in self._stack.functions.items():
            for log in function.logs():
                self._show(name, log)
        if self._stack.containers is not None:
            for server in self._stack.containers.servers:
                self._show(CONTAINERS, server.log)

    def _show(self, name: str, log: Path) -> None:
        if log not in self._open:
            self._open[log] = log.open("rb")
        for line in self._open[log].read().decode(errors="replace").splitlines():
            say(f"{name}/{log.name} {line}")


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
