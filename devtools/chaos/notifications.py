"""Aviso: notifications with keys, so that each is stored once, and watches that resume."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

from devtools.chaos.calls import PREFIX, Caller, Unexpected
from devtools.chaos.ledger import Ledger, message, name_of
from devtools.chaos.message_stream import JSON, PAUSE, SEEN, connection_seconds
from devtools.chaos.plan import Round
from devtools.chaos.report import Report

EVENT_TYPE: Final = "chaos"
PATH: Final = f"aviso/{EVENT_TYPE}"
SCHEMA: Final = f"""\
notification_schema:
  {EVENT_TYPE}:
    topic:
      base: {EVENT_TYPE}
      key_order: [writer]
    identifier:
      writer: {{type: StringHandler, required: false}}
"""
NOTIFY, WATCH = "/api/v1/notification", "/api/v1/watch"


def write_schema(folder: Path) -> Path:
    file = folder / "schema.yaml"
    file.write_text(SCHEMA)
    return file


class Notifications:
    """Writers and watchers of one event type; its stream is created by the first notification."""

    def __init__(self, caller: Caller, report: Report, plan: Round) -> None:
        self.ledger = Ledger(PATH)
        self.done = asyncio.Event()
        """Set when no more is to be written."""
        self._caller = caller
        self._report = report
        self._chance = plan.chance

    async def content(self) -> list[str]:
        """All notifications, from the stream that holds them."""
        return [
            name_of(event["data"]["payload"])
            async for body in self._caller.bodies(0, PREFIX + PATH)
            for event in json.loads(body)
        ]

    async def notify(self, writer: str) -> None:
        """Publish notification after notification, each again until it is acknowledged."""
        chance = self._chance(writer)
        number = 0
        while not self.done.is_set():
            name = f"{writer}.{number}"
            self.ledger.sent.add(name)
            request = {
                "event_type": EVENT_TYPE,
                "identifier": {"writer": writer},
                "payload": message(name),
            }
            await self._caller.insist(
                chance.randrange(len(self._caller.ports)), "POST", NOTIFY,
                {**JSON, "Idempotency-Key": name}, json.dumps(request).encode(), expected=(200,),
            )  # fmt: skip
            self.ledger.acknowledged.append(name)
            self._report.count("notifications acknowledged")
            number += 1
            await asyncio.sleep(chance.uniform(0, 4 * PAUSE))

    async def watch(self, reader: str, *, stays: bool) -> None:
        """Watch from the first notification on, and resume after the last one."""
        chance, sighting = self._chance(reader), self.ledger.sighting(reader, follows=True)
        while True:
            request = {
                "event_type": EVENT_TYPE,
                "identifier": {},
                "from_id": str(sighting.end + 1),
            }
            server = chance.randrange(len(self._caller.ports))
            async for event in self._caller.events(
                server, "POST", WATCH, connection_seconds(chance, stays=stays), JSON,
                json.dumps(request).encode(),
            ):  # fmt: skip
                frame: dict[str, Any] = json.loads(event.data)
                if "specversion" not in frame:
                    continue
                sighting.names.append(name_of(frame["data"]["payload"]))
                self._report.count(SEEN)
                if frame["id"] != f"{EVENT_TYPE}@{sighting.end}":
                    raise Unexpected(f"{reader} got {frame['id']} after {sighting.end - 1}")
