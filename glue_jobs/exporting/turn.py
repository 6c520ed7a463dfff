"""One export at a time: whose turn it is, and what it is about, is in one object of the bucket.

Every change of the object names the one that it follows, so that of two who try one fails. Who
has the turn changes it every few seconds; after a while without that, the next takes over both the
turn and the plan. Who was only slow does no harm then: whatever two do about one plan comes to
the same.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self

import orjson

from tailrace.errors import BadSetting, TailraceError

KEY: Final = "export/_plan"

LEASE_SECONDS: Final = 60.0
"""Silence after which a turn is over: a run that was killed holds up the next for no longer."""

CONFLICTS: Final = (404, 409, 412)
"""What S3 answers when an object is not what it was, or is being changed."""

LOOK_SECONDS: Final = 1.0
"""Pause between two looks at somebody else's turn."""

logger = logging.getLogger("tailrace")


class ExportUnderWay(TailraceError):
    code = "EXPORT_UNDER_WAY"


class Plan(NamedTuple):
    """What a run exports."""

    run: str
    state: Literal["planning", "planned", "done"]
    buckets: int
    parts: tuple[str, ...] = ()
    """Objects that say which segments, see `glue_jobs.exporting.plans`."""
    streams: int = 0
    segments: int = 0


class _Found(NamedTuple):
    plan: Plan
    by: str
    """Who has the turn."""
    tag: str
    age: float
    """Seconds since it was changed, by the clock of S3."""


class Turn:
    """The right to export; `take` it first. It ends with the block, or when somebody takes over."""

    def __init__(self, s3: Any, bucket: str, lease: float = LEASE_SECONDS) -> None:
        self._s3 = s3
        self._bucket = bucket
        self._lease = lease
        self._me = secrets.token_hex(8)
        self._changes = 0
        self._plan: Plan | None = None
        self._tag: str | None = None
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="turn", daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def take(self, new: Plan, say: Callable[[str], None]) -> Plan:
        """The plan that somebody left unfinished, or else the new one."""
        found = self._wait(say)
        if found is not None and found.plan.buckets != new.buckets:
            raise BadSetting(
                f"what was exported is in {found.plan.buckets} buckets, and the rest has to follow:"
                f" pass --buckets {found.plan.buckets}"
            )
        plan = new
        if found is not None:
            self._tag = found.tag
            # What was not planned to its end has not been begun.
            plan = found.plan if found.plan.state == "planned" else new
        if not self._change(plan):
            raise ExportUnderWay("another export has begun at the same moment: wait for its end")
        self._thread.start()
        return plan

    def write(self, plan: Plan) -> None:
        """Change the plan, as long as it is this one's turn."""
        with self._lock:
            if not self._change(plan):
                raise ExportUnderWay(
                    f"another export has taken over from run {plan.run}, and finishes what was"
                    " begun here: wait for its end"
                )

    def _wait(self, say: Callable[[str], None]) -> _Found | None:
        """What is there when nobody has the turn any more."""
        first: _Found | None = None
        while True:
            found = self._read()
            if found is None or found.plan.state == "done" or found.age >= self._lease:
                return found
            if first is None:
                first = found
                say(f"waiting to see whether run {found.plan.run} is still under way")
            elif found.tag != first.tag:
                raise ExportUnderWay(
                    f"another export is under way, run {found.plan.run}: wait for its end"
                )
            time.sleep(min(LOOK_SECONDS, self._lease / 4))

    def _renew(self) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        while not self._end.wait(self._lease / 4):
            try:
                with self._lock:
                    if self._plan is None or not self._change(self._plan):
                        return
            except (BotoCoreError, ClientError) as error:
                logger.warning("the turn was not renewed: %s", error)

    def _change(self, plan: Plan) -> bool:
        self._changes += 1
        value = {"by": self._me, "change": self._changes, **plan._asdict()}
        while True:
            tag = self._put(orjson.dumps(value))
            if tag is not None:
                self._plan, self._tag = plan, tag
                return True
            found = self._read()
            if found is not None and found.by == self._me:
                # An earlier change of which only the answer was lost, or this very one.
                self._tag = found.tag
            elif found is None or found.tag != self._tag:
                return False

    def _put(self, text: bytes) -> str | None:
        """Its tag. None: it does not follow what is there."""
        from botocore.exceptions import ClientError

        follows = {"IfNoneMatch": "*"} if self._tag is None else {"IfMatch": self._tag}
        try:
            answer = self._s3.put_object(Bucket=self._bucket, Key=KEY, Body=text, **follows)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] not in CONFLICTS:
                raise
            return None
        tag: str = answer["ETag"]
        return tag

    def _read(self) -> _Found | None:
        try:
            answer = self._s3.get_object(Bucket=self._bucket, Key=KEY)
        except self._s3.exceptions.NoSuchKey:
            return None
        value = orjson.loads(answer["Body"].read())
        plan = Plan(**{name: value[name] for name in Plan._fields})
        now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        return _Found(
            plan._replace(parts=tuple(plan.parts)),
            value["by"],
            answer["ETag"],
            (now - answer["LastModified"]).total_seconds(),
        )
