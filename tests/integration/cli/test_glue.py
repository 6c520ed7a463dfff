"""`tailrace glue`: starts and follows jobs on Glue, or runs them locally."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from click.testing import CliRunner, Result
from pyspark import SparkContext

from devtools.engines.ministack import Engine
from devtools.processes import ROOT, fresh_name
from tailrace.cli import main
from tailrace.cli.commands import glue as command
from tailrace.cli.commands.glue import JOBS
from tailrace.settings import Settings
from tests.support.sleeps import replace_sleep

PAGE = ROOT / "docs" / "cli.md"

Deploy = Callable[..., str]


def glue(*args: str) -> Result:
    return CliRunner().invoke(main, ["glue", *args], prog_name="tailrace", catch_exceptions=False)


def process(*args: str, before: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a separate process, after some lines of Python."""
    script = (
        f"{before}\nfrom tailrace.cli import main\nmain({['glue', *args]!r}, prog_name='tailrace')"
    )
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture
def aws_env(aws: Engine, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    env = {**aws.env, "AWS_ENDPOINT_URL_GLUE": aws.s3_url}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(command, "PAUSE", 0.05)
    return env


@pytest.fixture
def deploy(aws_env: dict[str, str]) -> Iterator[Deploy]:  # noqa: ARG001
    """Deploy a job with a script, or one that does nothing, and return its stage."""
    client, s3 = boto3.client("glue"), boto3.client("s3")
    created: list[str] = []

    def deploy(name: str, script: str | None = None) -> str:
        stage = fresh_name("x").replace("-", "")
        where = "s3://none/none.py"
        kind = "glueetl"
        if script is not None:
            s3.create_bucket(Bucket=stage)
            s3.put_object(Bucket=stage, Key="job.py", Body=script.encode())
            kind, where = "pythonshell", f"s3://{stage}/job.py"
        created.append(f"tailrace-{stage}-{name}")
        client.create_job(
            Name=created[-1],
            Role="role",
            Command={"Name": kind, "ScriptLocation": where},
            DefaultArguments={"--table": "deployed", "--dry-run": "true"},
        )
        return stage

    yield deploy
    for job in created:
        client.delete_job(JobName=job)


def run_until(stop_file: Path) -> str:
    """The script of a job that ends when a file exists."""
    return f"import os, time\nwhile not os.path.exists({str(stop_file)!r}):\n    time.sleep(0.01)"


def runs(job: str) -> list[dict[str, Any]]:
    job_runs: list[dict[str, Any]] = boto3.client("glue").get_job_runs(JobName=job)["JobRuns"]
    return job_runs


def test_help_lists_the_jobs_with_their_descriptions() -> None:
    help_text = " ".join(glue("--help").stdout.split())
    for job, about in JOBS.items():
        module = __import__(f"glue_jobs.{job.replace('-', '_')}", fromlist=["x"])
        assert (job, about) == (module.NAME, module.ABOUT)
        assert f"{job} {about}" in help_text


@pytest.mark.parametrize("job", JOBS)
def test_a_job_has_help_without_spark_and_its_own_with_it(
    job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = glue(job, "--help")
    assert done.exit_code == 0
    assert f"tailrace glue {job} --local --help" in " ".join(done.stdout.split())
    assert ("--apply" in done.stdout) == (job == "sweep")
    with pytest.raises(SystemExit) as ended:
        main(["glue", job, "--local", "--help"], prog_name="tailrace")
    assert ended.value.code == 0
    assert "--segment-max-messages VALUE" in capsys.readouterr().out


def test_spark_is_loaded_for_local_jobs_only() -> None:
    script = "import atexit, sys; atexit.register(lambda: print('pyspark' in sys.modules))"
    assert process("sweep", "--region", "none", "--dry-run", "true", before=script).stdout.endswith(
        "False\n"
    )


def test_the_page_has_every_job_and_option() -> None:
    page = PAGE.read_text()
    for job in JOBS:
        assert f"`{job}`" in page
        options = [
            each
            for each in command.glue.commands[job].params
            if each.name not in ("flags", "show_help")
        ]
        assert not [flag for each in options for flag in each.opts if f"`{flag}" not in page]


# On Glue


def test_a_job_is_started_with_its_flags_and_followed(
    deploy: Deploy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_file = tmp_path / "end"
    stage = deploy("sweep", run_until(stop_file))
    sleep = time.sleep

    def stop(seconds: float) -> None:
        stop_file.touch()
        sleep(seconds)

    replace_sleep(monkeypatch, stop)
    done = glue("sweep", "--stage", stage, "--apply", "--trim-grace=3600", "--region", "us-east-1")
    job = f"tailrace-{stage}-sweep"
    (run,) = runs(job)
    assert done.exit_code == 0
    log = f"aws logs tail /tailrace-{stage}/sweep/output --log-stream-name-prefix {run['Id']}"
    assert done.stdout == f"{job}: started run {run['Id']}\n{job}: succeeded; its output: {log}\n"
    states = [line.split()[1] for line in done.stderr.splitlines()]
    assert states[-2:] == ["RUNNING", "SUCCEEDED"]
    assert run["Arguments"] == {
        "--table": "deployed", "--dry-run": "false", "--trim-grace": "3600",
    }  # fmt: skip


def test_a_job_that_fails_says_why(deploy: Deploy) -> None:
    stage = deploy("audit", "raise SystemExit('three problems')")
    done = glue("audit", "--stage", stage)
    assert done.exit_code == 1
    job = f"tailrace-{stage}-audit"
    why = f"tailrace: run {runs(job)[0]['Id']} of {job} ended FAILED: three problems; its output: "
    assert done.stderr.splitlines()[-1].startswith(why)


def test_ctrl_c_leaves_the_job_running_and_says_so(
    deploy: Deploy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_file = tmp_path / "end"
    stage = deploy("sweep", run_until(stop_file))

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        replace_sleep(patch, interrupt)
        done = glue("sweep", "--stage", stage)
    assert done.exit_code == 130
    (run,) = runs(f"tailrace-{stage}-sweep")
    stop_file.touch()
    assert run["JobRunState"] == "RUNNING"
    assert f"run {run['Id']} continues; to stop it: aws glue batch-stop-job-run" in done.stderr


def test_missing_job_is_exit_3_with_the_fixes(aws_env: dict[str, str]) -> None:  # noqa: ARG001
    done = glue("audit", "--stage", "none", "--json", "true")
    assert (done.exit_code, done.stdout) == (3, "")
    error = json.loads(done.stderr)["error"]
    assert error["message"] == (
        "cannot start tailrace-none-audit: Job tailrace-none-audit not found; deploy the stack,"
        " check --stage, or use --local"
    )


def test_glue_that_cannot_be_reached_is_exit_5(
    aws_env: dict[str, str],  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    done = glue("audit")
    assert done.exit_code == 5
    assert done.stderr.startswith("tailrace: cannot start tailrace-dev-audit: Could not connect")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["sweep", "--dry-run"], "--dry-run needs a value; for a switch, true or false"),
        (["sweep", "--dry-run", "--table", "x"], "--dry-run needs a value"),
        (["audit", "now"], "'now' is not a flag of a job, such as --trim-grace 3600"),
        (["audit", "--apply", "--json"], "--apply needs a value"),
        (["sweep", "--apply", "--dry-run=true"], "--apply means --dry-run false: pass only one"),
    ],
)
def test_wrong_flags_start_nothing(args: list[str], message: str) -> None:
    done = glue(*args)
    assert done.exit_code == 2
    assert message in done.stderr


# Here


@pytest.mark.usefixtures("aws_env")
def test_missing_table_is_one_sentence() -> None:
    ran = glue("audit", "--local", "--table", "none", "--bucket", "none")
    assert ran.exit_code == 2
    assert ran.stderr.startswith("audit: there is no DynamoDB table 'none'")


def test_without_pyspark_one_sentence_names_the_fix() -> None:
    ran = process("sweep", "--local", before="import sys; sys.modules['pyspark'] = None")
    assert ran.returncode == 1
    assert ran.stderr == (
        "tailrace: --local needs pyspark, pyarrow and pandas, but pyspark is not installed; run"
        " `make setup` or pip install 'tailrace[spark]'\n"
    )


@pytest.mark.usefixtures("aws_env")
def test_without_java_one_sentence_names_the_fix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from glue_jobs.shared import job, spark

    # Another test of this process may have one.
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(spark, "OUR_JAVA", tmp_path / "none")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", "")

    async def there(_: Settings) -> None: ...

    monkeypatch.setattr(job, "require", there)
    ran = glue("audit", "--local", "--table", "none", "--bucket", "none")
    assert ran.exit_code == 1
    assert ran.stderr.endswith(
        "tailrace: Spark needs Java 17 to 20 (none was found). Install one with `make setup`, or"
        " set JAVA_HOME to one.\n"
    )
