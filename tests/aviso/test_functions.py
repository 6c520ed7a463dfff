"""Aviso in the packaged functions, with event types of one's own: `http` publishes, `live` streams
and may only read."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pyaviso
import pytest

from tailrace.aviso.config import Config
from tailrace.errors import BadSetting
from tailrace.settings import Settings
from tests.aviso.clients import listening, replayed
from tests.aviso.tools import SCHEMA, SQUARE, WORKING
from tests.conftest import ROOT
from tests.e2e.private import ACCESS, bearer
from tests.e2e.stack import AwsLocal, Missing
from tests.engines import Engine, Ministack, fresh_name

GUARDED = """
  guarded:
    identifier: {name: {type: StringHandler, required: false}}
    auth: {required: true, read_roles: {lab: ["*"]}, write_roles: {lab: [producer]}}
"""


@pytest.fixture(scope="module")
def deployed(ministack: Ministack) -> Iterator[AwsLocal]:
    """With a schema in a bucket, and roles."""
    s3, bucket = boto3.client("s3", **_reach(ministack)), fresh_name("schemas")
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="own.yaml", Body=(SCHEMA.read_text() + GUARDED).encode())
    s3.close()
    variables = {
        "TAILRACE_AVISO_SCHEMA": f"s3://{bucket}/own.yaml",
        "TAILRACE_AVISO_ADMIN_ROLES": "ops=admin",
        "TAILRACE_AVISO_MAX_DURATION": "3",
    }
    try:
        with AwsLocal(variables=variables, ministack=ministack, access=ACCESS) as stack:
            yield stack
            print(stack.output())
    except Missing as missing:
        pytest.skip(str(missing))


def _reach(ministack: Ministack) -> dict[str, str]:
    return {
        "endpoint_url": ministack.url,
        "region_name": "us-east-1",
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
    }


def known(stack: AwsLocal, scope: str = "", **claims: Any) -> Any:
    token = bearer(scope, "aviso/**", **claims)["Authorization"].removeprefix("Bearer ")
    return pyaviso.AvisoClient(base_url=stack.url, auth=pyaviso.Bearer(token))


def test_pyaviso_talks_to_the_functions(deployed: AwsLocal) -> None:
    client = known(deployed, "read write admin")

    def publish(step: int) -> None:
        client.notify(event_type="product", identifier={**WORKING, "step": step})

    assert set(client.schema().event_types) == {
        "product", "area", "cloud", "strict", "latest", "capped", "guarded",
    }  # fmt: skip
    publish(1)
    with listening(client, "product", start_from=0) as listener:
        assert listener.next(1) == [1]
        # Longer than a watch lasts: it comes back, and goes on.
        for sequence in range(2, 10):
            publish(sequence)
            assert listener.next(1) == [sequence]
            time.sleep(0.5)
    constraint = {"step": {"between": [4, 6]}}
    assert replayed(client, "product", start_from=0, filter=constraint) == [4, 5, 6]
    client.notify(event_type="area", identifier={"name": "here", "polygon": SQUARE})
    near = client.listen("area", filter={"point": "5,5"}, start_from=0, mode="replay_only")
    assert [notification.identifier["name"] for notification in near] == ["here"]
    client.wipe_all()
    assert replayed(client, "product", start_from=0, filter={"time": "6"}) == []


def test_roles_count_in_the_functions(deployed: AwsLocal) -> None:
    producer = known(deployed, sub="p", realm="lab", roles=["producer"])
    reader = known(deployed, sub="r", realm="lab", roles=["other"])
    admin = known(deployed, sub="a", realm="ops", roles=["admin"])
    stranger = known(deployed, sub="s", realm="shop", roles=["producer", "admin"])
    one = {"event_type": "guarded", "identifier": {"name": "a"}}
    producer.notify(**one)
    assert replayed(reader, "guarded", start_from=0) == [1]
    for refused in (reader, stranger):
        with pytest.raises(pyaviso.AvisoError, match="403"):
            refused.notify(**one)
        with pytest.raises(pyaviso.AvisoError, match="403"):
            refused.wipe_stream("guarded")
    with pytest.raises(pyaviso.AvisoError, match="403"):
        replayed(stranger, "guarded", start_from=0)
    admin.notify(**one)
    admin.delete_notification("guarded@1")
    assert replayed(reader, "guarded", start_from=0, filter={"name": "a"}) == [2]


async def test_a_schema_may_be_in_s3(aws: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in aws.env.items():
        monkeypatch.setenv(name, value)
    s3, bucket = boto3.client("s3"), fresh_name("schemas")
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="a/b.yaml", Body=SCHEMA.read_bytes())
    config = Config.load(Settings(aviso_schema=f"s3://{bucket}/a/b.yaml"))
    assert len(config.events) == 6
    with pytest.raises(BadSetting, match=rf"cannot read s3://{bucket}/nothing: .*NoSuchKey"):
        Config.load(Settings(aviso_schema=f"s3://{bucket}/nothing"))
    s3.close()


ALONE = """
import asyncio, sys
for name in ("fastapi", "starlette", "pydantic", "shapely", "numpy", "boto3", "uvicorn", "click"):
    sys.modules[name] = None
from tests.aviso.tools import SQUARE, Aviso, settings

async def main():
    aviso = Aviso(settings(data=sys.argv[1]))
    await aviso.application.start()
    await aviso.notify(event_type="area", identifier={"name": "here", "polygon": SQUARE})
    watch = await aviso.watch(event_type="area", identifier={"name": "here"}, from_id="0")
    await aviso.notify(event_type="area", identifier={"name": "here", "polygon": SQUARE})
    await watch.until(lambda sink: sink.sequences() == [1, 2])
    await watch.leave()
    await aviso.application.stop()

asyncio.run(main())
"""


def test_only_who_asks_for_a_shape_needs_numpy_and_nobody_needs_fastapi(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(tmp_path / "data")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
