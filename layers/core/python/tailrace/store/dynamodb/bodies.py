"""Large bodies: each is an S3 object of its own, which is there before the entry that names it.

An upload intent is written before the object, and removed in the transaction of the entry that
names the object. So an object has an intent, or an entry, or is swept. The sweep revokes an old
intent before it removes the object, and an entry can only end an intent that is not revoked.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from tailrace.aws.client.failures import ConditionFailed
from tailrace.clock import Clock
from tailrace.errors import DamagedData, StoreUnavailable
from tailrace.limits import UPLOAD_INTENT_SECONDS
from tailrace.store.damage import Damage
from tailrace.store.dynamodb import actions
from tailrace.store.dynamodb.layout import Key, number
from tailrace.store.dynamodb.table import Table

T = TypeVar("T")

THREADS: Final = 16
"""Objects read or written at once: boto3 blocks, and a chunk has few large bodies."""

DELETE_OBJECTS: Final = 1000
"""Most keys that S3 takes in one DeleteObjects."""

logger = logging.getLogger("tailrace")


class Bucket(Protocol):
    async def put(self, key: str, body: bytes) -> None:
        """Store an object under a key that no other has had."""

    async def get(self, key: str, begin: int = 0, end: int | None = None) -> bytes:
        """Return the object, or those of its bytes from `begin` up to `end` that it has.

        Raises `DamagedData` when there is no such object."""

    async def delete(self, keys: Sequence[str]) -> None: ...


class S3Bucket:
    """A bucket through boto3, which is loaded when the first large body comes."""

    def __init__(self, name: str, connect: Callable[[str], Any]) -> None:
        """`connect` gives a boto3 client for the bucket, which is there then."""
        self._name = name
        self._connect = connect
        self._client: Any = None
        self._connecting = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS, "tailrace-s3")

    async def put(self, key: str, body: bytes) -> None:
        await self._run(partial(self._put, key, body))

    async def get(self, key: str, begin: int = 0, end: int | None = None) -> bytes:
        part = {} if end is None else {"Range": f"bytes={begin}-{end - 1}"}
        return await self._run(partial(self._get, key, part))

    async def delete(self, keys: Sequence[str]) -> None:
        for begin in range(0, len(keys), DELETE_OBJECTS):
            objects = [{"Key": key} for key in keys[begin : begin + DELETE_OBJECTS]]
            await self._run(partial(self._delete, objects))

    def _get(self, key: str, part: Mapping[str, str], s3: Any) -> bytes:
        from botocore.exceptions import ClientError

        try:
            return bytes(s3.get_object(Bucket=self._name, Key=key, **part)["Body"].read())
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code == "InvalidRange":
                return b""  # The object ends before.
            if code != "NoSuchKey":
                raise
            raise DamagedData(key, f"the object {key} is missing") from error

    def _put(self, key: str, body: bytes, s3: Any) -> None:
        from botocore.exceptions import ClientError

        for last in (False, True):
            try:
                s3.put_object(Bucket=self._name, Key=key, Body=body, IfNoneMatch="*")
                return
            except ClientError as error:
                # No key is used twice: it is this object, of which only the answer was lost.
                code = error.response["Error"]["Code"]
                if code == "PreconditionFailed":
                    return
                # It is still being written then, and may yet fail.
                if last or code != "ConditionalRequestConflict":
                    raise

    def _delete(self, objects: Sequence[dict[str, str]], s3: Any) -> None:
        s3.delete_objects(Bucket=self._name, Delete={"Objects": objects, "Quiet": True})

    def close(self) -> None:
        self._threads.shutdown()

    async def _run(self, operation: Callable[[Any], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._with_client, operation)

    def _with_client(self, operation: Callable[[Any], T]) -> T:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            with self._connecting:
                if self._client is None:
                    self._client = self._connect(self._name)
            return operation(self._client)
        except (BotoCoreError, ClientError) as error:
            logger.warning("%s", error)
            raise StoreUnavailable("S3 did not do its part; the log says why") from error


async def read_body(bucket: Bucket, key: str) -> bytes:
    """Read a body; `DamagedData` when it is not as it was written."""
    body = await bucket.get(key)
    # Objects of earlier versions have no checksum.
    _, dash, checksum = key.rpartition("-")
    if dash and zlib.crc32(body) != int(checksum, 16):
        raise DamagedData(key, f"the object {key} has another checksum than when written")
    return body


class Bodies:
    def __init__(self, table: Table, bucket: Bucket, clock: Clock) -> None:
        self._table = table
        self._bucket = bucket
        self._clock = clock
        self.damage = Damage()

    async def upload(self, folder: str, body: bytes) -> str:
        """Store an object, which an entry has to name within an hour; return its key, which ends
        with the checksum of the body."""
        key = f"{folder}/{secrets.token_hex(12)}-{zlib.crc32(body):08x}"
        # A transaction, for its token makes it happen once: an intent that was written a second
        # time, by a late retry, would have the sweep remove what an entry names by then.
        due = self._clock() + UPLOAD_INTENT_SECONDS * 1000
        await self._table.transact([actions.put_upload_intent(key, due)])
        await self._bucket.put(key, body)
        return key

    async def read(self, key: str) -> bytes:
        """As `read_body`."""
        try:
            return await read_body(self._bucket, key)
        except DamagedData as error:
            self.damage.note(error)
            raise

    async def remove(self, keys: Sequence[str]) -> None:
        await self._bucket.delete(keys)

    async def revoke(self, intent: Key) -> None:
        """Remove an object that no entry named in time."""
        try:
            await self._table.update(
                intent, "SET revoked = :yes", "attribute_exists(p)", {":yes": number(1)}
            )
        except ConditionFailed:
            return  # An entry names the object after all.
        await self._bucket.delete([intent["s"]["S"]])
        await self._table.delete(intent)
