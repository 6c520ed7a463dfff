"""An agent that sleeps until its inbox has news.

`python examples/agent/agent.py` starts it for every stream `agents/<name>/inbox`. It follows a wake
stream by `tailrace work`, which runs this file again, with `--wake`, for the news of one inbox: the
agent takes what it has not answered yet, thinks, and appends its answers to `agents/<name>/outbox`.
While nothing happens, no agent runs.

Each answer says up to where the inbox was read, and is appended only if the outbox has not changed
since (If-Match). So an agent that is killed anywhere, or started twice, answers each message once.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

URL = os.environ.get("TAILRACE_URL", "http://127.0.0.1:4437")
STREAMS = f"{URL}/v1/stream"
SUBSCRIPTION = "agents"
WAKES = "wakes/agents"
JSON = {"Content-Type": "application/json"}
TOKEN = os.environ.get("TAILRACE_TOKEN")


def think(history: list[Any], message: Any) -> str:
    """Answer a message. AGENT_MODEL is a command that gets the conversation as JSON on stdin."""
    model = os.environ.get("AGENT_MODEL")
    if model is None:
        return f"You have sent {len(history) + 1} messages; the last one says: {message['text']}"
    conversation = json.dumps([*history, message])
    run = subprocess.run(model, shell=True, input=conversation, stdout=subprocess.PIPE, text=True)
    run.check_returncode()  # otherwise the message comes again
    return run.stdout.strip()


def answer_inbox(http: httpx.Client, inbox: str, until: str) -> None:
    """Answer what the inbox has up to an offset."""
    outbox = inbox.removesuffix("/inbox") + "/outbox"
    http.put(f"/{outbox}", headers=JSON).raise_for_status()
    answered, end = read(http, outbox, "-1")
    position = answered[-1]["inbox_offset"] if answered else "-1"
    if position >= until:
        return  # It was killed after it answered, and before that was acknowledged.
    messages, position = read(http, inbox, position)
    history: list[Any] = list(answered)
    answers = []
    for message in messages:
        text = think(history, message)
        history.append(message)
        answers.append({"to": message.get("from"), "text": text, "inbox_offset": position})
    appended = http.post(
        f"/{outbox}", headers={**JSON, "If-Match": f'"{end}"'}, content=json.dumps(answers)
    )
    if appended.status_code != 412:  # another run was faster, with the same answers
        appended.raise_for_status()


def read(http: httpx.Client, stream: str, offset: str) -> tuple[list[Any], str]:
    """The messages of a stream from an offset on, and where it ends."""
    messages: list[Any] = []
    while True:
        chunk = http.get(f"/{stream}", params={"offset": offset}).raise_for_status()
        messages += chunk.json()
        offset = chunk.headers["Stream-Next-Offset"]
        if "Stream-Up-To-Date" in chunk.headers:
            return messages, offset


def subscribe(http: httpx.Client) -> None:
    """Create the subscription of all inboxes, unless it exists."""
    http.put(f"/{WAKES}", headers=JSON).raise_for_status()
    subscription = {"type": "pull-wake", "pattern": "agents/*/inbox", "wake_stream": WAKES}
    http.put(f"/__ds/subscriptions/{SUBSCRIPTION}", json=subscription).raise_for_status()


def main() -> None:
    parser = argparse.ArgumentParser(description="Answer the inboxes of agents.")
    parser.add_argument("--wake", action="store_true", help="answer one inbox, and end")
    wake = parser.parse_args().wake
    headers = {"Authorization": f"Bearer {TOKEN}"} if TOKEN else {}
    with httpx.Client(base_url=STREAMS, headers=headers, timeout=60) as http:
        if wake:
            inbox, until = os.environ["TAILRACE_STREAM"], os.environ["TAILRACE_NEXT_OFFSET"]
            answer_inbox(http, inbox, until)
            return
        subscribe(http)
    command = shlex.join([sys.executable, str(Path(__file__).resolve()), "--wake"])
    worker = ["-m", "tailrace", "work", SUBSCRIPTION, "--url", URL, "--exec", command]
    os.execv(sys.executable, [sys.executable, *worker])


if __name__ == "__main__":
    main()
