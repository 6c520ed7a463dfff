"""`tailrace glue --local` in a process of its own."""

from __future__ import annotations

from devtools.processes import fresh_name
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.settings import Settings
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.streams import Streams
from tests.integration.cli.test_glue import aws_env, process

__all__ = ["aws_env"]


async def test_a_job_runs_here_and_its_exit_code_is_passed_on(aws_env: dict[str, str]) -> None:
    settings = Settings(store="dynamodb", table=fresh_name("cli"), bucket=fresh_name("cli"))
    store = DynamoStore(settings)
    await store.open()
    streams = Streams(store, settings)
    await streams.create("a", Create(content_type="text/plain"))
    for i in range(6):
        await streams.append("a", Append(b"%d" % i, "text/plain"))
    flags = ["--table", settings.table, "--bucket", settings.bucket, "--cores", "1"]
    few = ["--segment-max-messages", "2"]
    env = {**aws_env, "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    ran = process("compact-history", "--local", *flags, *few, **env)
    assert ran.returncode == 0, ran.stderr
    assert "archived 6 entries (6 bytes) of 1 streams in 1 segments" in ran.stdout
    assert "compact-history: archiving …" in ran.stderr
    assert list((await streams.view("a", 0)).bodies) == [b"%d" % i for i in range(6)]
    await store.close()
