"""Aviso with a schema in S3, and in a process without the optional packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import boto3
import pytest

from devtools.engines.ministack import Engine
from devtools.processes import ROOT, fresh_name
from tailrace.errors import BadSetting
from tailrace.protocols.aviso.config import AvisoConfig
from tailrace.settings import Settings
from tests.support.aviso import SCHEMA


async def test_the_schema_can_be_read_from_s3(aws: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in aws.env.items():
        monkeypatch.setenv(name, value)
    s3, bucket = boto3.client("s3"), fresh_name("schemas")
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="a/b.yaml", Body=SCHEMA.read_bytes())
    config = AvisoConfig.load(Settings(aviso_schema=f"s3://{bucket}/a/b.yaml"))
    assert len(config.events) == 6
    with pytest.raises(BadSetting, match=rf"cannot read s3://{bucket}/nothing: .*NoSuchKey"):
        AvisoConfig.load(Settings(aviso_schema=f"s3://{bucket}/nothing"))
    s3.close()


ALONE = """
import asyncio, sys
for name in ("fastapi", "starlette", "pydantic", "shapely", "numpy", "boto3", "uvicorn", "click"):
    sys.modules[name] = None
from tests.support.aviso import SQUARE, Aviso, make_settings

async def main():
    aviso = Aviso(make_settings(data=sys.argv[1]))
    await aviso.application.start()
    await aviso.notify(event_type="area", identifier={"name": "here", "polygon": SQUARE})
    watch = await aviso.watch(event_type="area", identifier={"name": "here"}, from_id="0")
    await aviso.notify(event_type="area", identifier={"name": "here", "polygon": SQUARE})
    await watch.until(lambda sink: sink.sequences() == [1, 2])
    await watch.leave()
    await aviso.application.stop()

asyncio.run(main())
"""


def test_optional_packages_are_not_imported(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(tmp_path / "data")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
