"""`tailrace glue`: run a job that keeps history, on Glue or on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import click

from tailrace.cli.failures import Exit, Failure
from tailrace.configuration import load_settings
from tailrace.errors import BadSetting, TailraceError

JOBS: Final = {
    "compact-history": "Move older entries from the table into segments in the bucket.",
    "export-history": (
        "Export what is in segments as Parquet, for Athena and whoever else reads it."
    ),
    "sweep": "Remove what expired, what is not to be kept, and what belongs to nothing.",
    "audit": "Prove that the table and the bucket are as they should be; changes nothing.",
}
"""Their own words: to ask the jobs is to load Spark."""

SPARK: Final = frozenset({"pyspark", "py4j", "pyarrow", "pandas", "numpy", "glue_jobs"})
"""What is there only where it was asked for."""

PAUSE: Final = 5.0
"""Seconds between two looks at a run."""

ENDS: Final = ("SUCCEEDED", "FAILED", "STOPPED", "TIMEOUT", "ERROR", "EXPIRED")

CODES: Final = {
    "EntityNotFoundException": Exit.NOT_FOUND,
    "ConcurrentRunsExceededException": Exit.CONFLICT,
    "AccessDeniedException": Exit.REFUSED,
    "UnrecognizedClientException": Exit.REFUSED,
    "ExpiredTokenException": Exit.REFUSED,
}


@click.group(subcommand_metavar="JOB [FLAGS]")
def glue() -> None:
    """Run a job that keeps history: on Glue, or here.

    A deployed job is started and followed to its end; --local runs it in this process. All flags
    but those of this command are the job's own, each with a value: --trim-grace 3600.
    """


def _command(job: str, about: str) -> click.Command:
    params: list[click.Parameter] = [
        click.Option(["--local"], is_flag=True, help="Run it here, with plain pyspark."),
        click.Option(
            ["--stage"],
            default="dev",
            show_default=True,
            help="Start that of this deployment: tailrace-STAGE-JOB.",
        ),
        click.Option(["-h", "--help", "helped"], is_flag=True, help="Show this message and exit."),
        click.Argument(["flags"], nargs=-1, type=click.UNPROCESSED, metavar="[FLAGS]"),
    ]
    if job == "sweep":
        told = "Remove it: the same as --dry-run false."
        params.insert(2, click.Option(["--apply"], is_flag=True, help=told))

    @click.pass_context
    def run(
        ctx: click.Context,
        *,
        local: bool,
        stage: str,
        helped: bool,
        flags: Sequence[str],
        apply: bool = False,
    ) -> None:
        if helped:
            if local:
                ctx.exit(_run_here(job, ["--help"]))
            click.echo(ctx.get_help())
            ctx.exit()
        if apply:
            if any(flag.partition("=")[0] == "--dry-run" for flag in flags):
                raise click.UsageError("--apply is --dry-run false: give only one of them", ctx)
            flags = [*flags, "--dry-run", "false"]
        if local:
            ctx.exit(_run_here(job, flags))
        _run_there(f"tailrace-{stage}", job, _pairs(flags, ctx))

    return click.Command(
        job,
        params=params,
        callback=run,
        help=f"{about}\n\nThe flags of the job are shown by: tailrace glue {job} --local --help",
        short_help=about,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True},
    )


for _name, _about in JOBS.items():
    glue.add_command(_command(_name, _about))


# Here


def _run_here(job: str, flags: Sequence[str]) -> int:
    try:
        module = import_module(f"glue_jobs.{job.replace('-', '_')}")
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in SPARK:
            raise
        raise Failure(
            f"--local needs pyspark, pyarrow and pandas, and there is no {missing} here:"
            " `make setup` brings them, and so does pip install 'tailrace[glue]'",
            Exit.UNEXPECTED,
            code="NO_SPARK",
        ) from None
    main: Callable[[Sequence[str]], int] = module.main
    try:
        return main(flags)
    except TailraceError as error:
        raise _failure(error) from None


def _failure(error: TailraceError) -> Failure:
    code = Exit.USAGE if isinstance(error, BadSetting) else Exit.UNEXPECTED
    return Failure(str(error), code, code=error.code)


# On Glue


def _pairs(flags: Sequence[str], ctx: click.Context) -> dict[str, str]:
    """Flags as Glue takes them."""
    pairs: dict[str, str] = {}
    rest = iter(flags)
    for flag in rest:
        name, equals, value = flag.partition("=")
        if not name.startswith("--"):
            raise click.UsageError(f"'{flag}' is no flag of a job, such as --trim-grace 3600", ctx)
        found = value if equals else next(rest, None)
        if found is None or (not equals and found.startswith("--")):
            raise click.UsageError(
                f"{name} has no value; those of switches are true and false", ctx
            )
        pairs[name] = found
    return pairs


def _run_there(service: str, name: str, arguments: Mapping[str, str]) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    from tailrace.aws.client.endpoint import boto_client

    job, given = f"{service}-{name}", dict(arguments)
    # The deployed job has its own; this is about where to find it.
    region = given.pop("--region", None)
    if region:
        os.environ["AWS_REGION"] = os.environ["AWS_DEFAULT_REGION"] = region
    try:
        client = boto_client("glue", load_settings())
        run: str = client.start_job_run(JobName=job, Arguments=given)["JobRunId"]
    except TailraceError as error:
        raise _failure(error) from None
    except ClientError as error:
        raise _refused(job, error.response["Error"]) from None
    except BotoCoreError as error:
        raise Failure(f"cannot start {job}: {error}", Exit.UNREACHABLE) from None
    click.echo(f"{job}: started run {run}")
    try:
        state, why = _follow(client, job, run)
    except KeyboardInterrupt:
        stop = f"aws glue batch-stop-job-run --job-name {job} --job-run-ids {run}"
        click.echo(f"{job}: run {run} goes on; to stop it: {stop}", err=True)
        raise
    except (ClientError, BotoCoreError) as error:
        message = f"run {run} of {job} goes on, but nothing is seen of it: {error}"
        raise Failure(message, Exit.UNREACHABLE) from None
    log = f"its output: aws logs tail /{service}/{name}/output --log-stream-name-prefix {run}"
    if state != "SUCCEEDED":
        ended = f"run {run} of {job} ended {state}{f': {why}' if why else ''}"
        raise Failure(f"{ended}; {log}", Exit.UNEXPECTED, code=state)
    click.echo(f"{job}: succeeded; {log}")


def _follow(client: Any, job: str, run: str) -> tuple[str, str]:
    """How it ended, and why if it says so."""
    begun, state = time.monotonic(), ""
    while True:
        found = client.get_job_run(JobName=job, RunId=run)["JobRun"]
        if found["JobRunState"] != state:
            state = found["JobRunState"]
            click.echo(f"{job}: {state} after {time.monotonic() - begun:.0f} s", err=True)
        if state in ENDS:
            return state, (found.get("ErrorMessage") or "").strip()
        time.sleep(PAUSE)


def _refused(job: str, error: Mapping[str, str]) -> Failure:
    code = error["Code"]
    fix = {
        "EntityNotFoundException": "; deploy the stack, name its --stage, or run it here: --local",
        "ConcurrentRunsExceededException": "; wait for the run that is under way",
    }.get(code, "")
    message = f"cannot start {job}: {error.get('Message') or code}{fix}"
    return Failure(message, CODES.get(code, Exit.UNEXPECTED))
