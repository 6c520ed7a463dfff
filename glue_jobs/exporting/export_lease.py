"""The lease that allows one export at a time, and its plan, in one object of the bucket.

Every write of the object is conditional on its ETag, so one of two concurrent writers fails. The
holder renews the lease every few seconds; once it has expired, the next run takes over lease and
plan. A previous holder that was only slow does no harm: two runs of a plan produce the same files.
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
"""When the lease expires without renewal: the longest that a killed run blocks the next."""

CONFLICTS: Final = (404, 409, 412)
"""S3's responses to a failed condition or a concurrent change."""

POLL_SECONDS: Final = 1.0
"""Pause between two reads of another run's lease."""

logger = logging.getLogger("tailrace")


class ExportUnderWay(TailraceError):
    code = "EXPORT_UNDER_WAY"


class Plan(NamedTuple):
    """The plan of a run."""

    run: str
    state: Literal["planning", "planned", "done"]
    buckets: int
    parts: tuple[str, ...] = ()
    """Objects that list segments, see `glue_jobs.exporting.plans`."""
    streams: int = 0
    segments: int = 0


class _LeaseState(NamedTuple):
    plan: Plan
    owner: str
    """The holder's id."""
    tag: str
    age: float
    """Seconds since the last write, by S3's clock."""


class ExportLease:
    """The right to export, held from `acquire` to the end of the block or a take-over."""

    def __init__(self, s3: Any, bucket: str, lease: float = LEASE_SECONDS) -> None:
        self._s3 = s3
        self._bucket = bucket
        self._lease = lease
        self._owner = secrets.token_hex(8)
        self._changes = 0
        self._plan: Plan | None = None
        self._tag: str | None = None
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="export-lease", daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._released.set()
        if self._thread.is_alive():
            self._thread.join()

    def acquire(self, new: Plan, say: Callable[[str], None]) -> Plan:
        """Wait for the lease; return a previous run's unfinished plan, or else the new one."""
        state = self._wait(say)
        if state is not None and state.plan.buckets != new.buckets:
            raise BadSetting(
                f"earlier exports have {state.plan.buckets} buckets, and the number cannot change:"
                f" pass --buckets {state.plan.buckets}"
            )
        plan = new
        if state is not None:
            self._tag = state.tag
            # A run whose planning was not completed has exported nothing.
            plan = state.plan if state.plan.state == "planned" else new
        if not self._store(plan):
            raise ExportUnderWay(
                "another export has started at the same time: wait until it has finished"
            )
        self._thread.start()
        return plan

    def write(self, plan: Plan) -> None:
        """Update the plan; raise ExportUnderWay if another run has taken over."""
        with self._lock:
            if not self._store(plan):
                raise ExportUnderWay(
                    f"another export has taken over and continues run {plan.run}: wait until it has"
                    " finished"
                )

    def _wait(self, say: Callable[[str], None]) -> _LeaseState | None:
        """Wait until the lease is free or has expired; return its last state."""
        initial: _LeaseState | None = None
        while True:
            state = self._read()
            if state is None or state.plan.state == "done" or state.age >= self._lease:
                return state
            if initial is None:
                initial = state
                say(f"waiting to see whether run {state.plan.run} is still running")
            elif state.tag != initial.tag:
                raise ExportUnderWay(
                    f"another export is running, run {state.plan.run}: wait until it has finished"
                )
            time.sleep(min(POLL_SECONDS, self._lease / 4))

    def _renew(self) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        while not self._released.wait(self._lease / 4):
            try:
                with self._lock:
                    if self._plan is None or not self._store(self._plan):
                        return
            except (BotoCoreError, ClientError) as error:
                logger.warning("cannot renew the export lease: %s", error)

    def _store(self, plan: Plan) -> bool:
        self._changes += 1
        value = {"by": self._owner, "change": self._changes, **plan._asdict()}
        while True:
            tag = self._put(orjson.dumps(value))
            if tag is not None:
                self._plan, self._tag = plan, tag
                return True
            state = self._read()
            if state is not None and state.owner == self._owner:
                # The response to this or an earlier write was lost.
                self._tag = state.tag
            elif state is None or state.tag != self._tag:
                return False

    def _put(self, text: bytes) -> str | None:
        """Write the object and return its ETag; None if the condition failed."""
        from botocore.exceptions import ClientError

        condition = {"IfNoneMatch": "*"} if self._tag is None else {"IfMatch": self._tag}
        try:
            response = self._s3.put_object(Bucket=self._bucket, Key=KEY, Body=text, **condition)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] not in CONFLICTS:
                raise
            return None
        tag: str = response["ETag"]
        return tag

    def _read(self) -> _LeaseState | None:
        try:
            response = self._s3.get_object(Bucket=self._bucket, Key=KEY)
        except self._s3.exceptions.NoSuchKey:
            return None
        value = orjson.loads(response["Body"].read())
        plan = Plan(**{name: value[name] for name in Plan._fields})
        now = parsedate_to_datetime(response["ResponseMetadata"]["HTTPHeaders"]["date"])
        return _LeaseState(
            plan._replace(parts=tuple(plan.parts)),
            value["by"],
            response["ETag"],
            (now - response["LastModified"]).total_seconds(),
        )
