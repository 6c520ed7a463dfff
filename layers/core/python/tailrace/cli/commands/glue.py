"""`tailrace glue`: run a maintenance job of a deployment, on Glue or on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import click

from tailrace.cli.exit_codes import Exit, Failure
from tailrace.configuration import find_config, load_settings
from tailrace.errors import BadSetting, TailraceError

JOBS: Final = {
    "compact-history": "Move older entries from the table into segments in the bucket.",
    "export-history": "Export segments as Parquet, for Athena and other tools.",
    "sweep": "Remove expired and orphaned data, and data past its retention.",
    "audit": "Verify the table and the bucket; changes nothing.",
}
"""The first sentence of each job's help; importing the jobs to get it would load Spark."""

SPARK: Final = frozenset({"pyspark", "py4j", "pyarrow", "pandas", "numpy"})
"""Packages that are only installed with the extra `spark`."""

PAUSE: Final = 5.0
"""Seconds between two polls of a run."""

FINAL_STATES: Final = ("SUCCEEDED", "FAILED", "STOPPED", "TIMEOUT", "ERROR", "EXPIRED")

EXIT_CODES: Final = {
    "EntityNotFoundException": Exit.NOT_FOUND,
    "ConcurrentRunsExceededException": Exit.CONFLICT,
    "AccessDeniedException": Exit.REFUSED,
    "UnrecognizedClientException": Exit.REFUSED,
    "ExpiredTokenException": Exit.REFUSED,
}


@click.group(subcommand_metavar="JOB [FLAGS]")
def glue() -> None:
    """Run a maintenance job: on Glue, or here.

    Starts a deployed job and follows it to its end; --local runs it in this process. All other
    flags are those of the job, each with a value: --trim-grace 3600.
    """


def _command(job: str, about: str) -> click.Command:
    params: list[click.Parameter] = [
        click.Option(["--local"], is_flag=True, help="Run the job here, with plain pyspark."),
        click.Option(
            ["--stage"],
            default="dev",
            show_default=True,
            help="Deployment whose job is started: tailrace-STAGE-JOB.",
        ),
        click.Option(
            ["-h", "--help", "show_help"], is_flag=True, help="Show this message and exit."
        ),
        click.Argument(["flags"], nargs=-1, type=click.UNPROCESSED, metavar="[FLAGS]"),
    ]
    if job == "sweep":
        params.insert(
            2,
            click.Option(
                ["--apply"],
                is_flag=True,
                help="Remove what the job finds: the same as --dry-run false.",
            ),
        )

    @click.pass_context
    def run(
        ctx: click.Context,
        *,
        local: bool,
        stage: str,
        show_help: bool,
        flags: Sequence[str],
        apply: bool = False,
    ) -> None:
        if show_help:
            if local:
                ctx.exit(_run_locally(job, ["--help"]))
            click.echo(ctx.get_help())
            ctx.exit()
        if apply:
            if any(flag.partition("=")[0] == "--dry-run" for flag in flags):
                raise click.UsageError("--apply means --dry-run false: pass only one of them", ctx)
            flags = [*flags, "--dry-run", "false"]
        if local:
            ctx.exit(_run_locally(job, flags))
        _run_on_glue(f"tailrace-{stage}", job, _parse_flags(flags, ctx))

    return click.Command(
        job,
        params=params,
        callback=run,
        help=f"{about}\n\nTo list the flags of the job: tailrace glue {job} --local --help",
        short_help=about,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True},
    )


for _name, _about in JOBS.items():
    glue.add_command(_command(_name, _about))


# On this machine


def _run_locally(job: str, flags: Sequence[str]) -> int:
    try:
        module = import_module(f"glue_jobs.{job.replace('-', '_')}")
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "glue_jobs":
            raise Failure(
                "--local needs a checkout of the repository, with the jobs; without it they run on"
                " Glue",
                Exit.UNEXPECTED,
                code="NO_JOBS",
            ) from None
        if missing not in SPARK:
            raise
        raise Failure(
            f"--local needs pyspark, pyarrow and pandas, but {missing} is not installed; run"
            " `make setup` or pip install 'tailrace[spark]'",
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


def _parse_flags(flags: Sequence[str], ctx: click.Context) -> dict[str, str]:
    """Parse flags into the arguments of a Glue job."""
    pairs: dict[str, str] = {}
    rest = iter(flags)
    for flag in rest:
        name, equals, value = flag.partition("=")
        if not name.startswith("--"):
            raise click.UsageError(
                f"'{flag}' is not a flag of a job, such as --trim-grace 3600", ctx
            )
        argument = value if equals else next(rest, None)
        if argument is None or (not equals and argument.startswith("--")):
            raise click.UsageError(f"{name} needs a value; for a switch, true or false", ctx)
        pairs[name] = argument
    return pairs


def _run_on_glue(service: str, name: str, arguments: Mapping[str, str]) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    from tailrace.aws.client.service_access import boto_client

    job, job_arguments = f"{service}-{name}", dict(arguments)
    # --region is where to look for the job, not an argument of the deployed job.
    region = job_arguments.pop("--region", None)
    if region:
        os.environ["AWS_REGION"] = os.environ["AWS_DEFAULT_REGION"] = region
    try:
        client = boto_client("glue", load_settings(file=find_config()))
        run: str = client.start_job_run(JobName=job, Arguments=job_arguments)["JobRunId"]
    except TailraceError as error:
        raise _failure(error) from None
    except ClientError as error:
        raise _start_failure(job, error.response["Error"]) from None
    except BotoCoreError as error:
        raise Failure(f"cannot start {job}: {error}", Exit.UNREACHABLE) from None
    click.echo(f"{job}: started run {run}")
    try:
        state, reason = _follow(client, job, run)
    except KeyboardInterrupt:
        stop = f"aws glue batch-stop-job-run --job-name {job} --job-run-ids {run}"
        click.echo(f"{job}: run {run} continues; to stop it: {stop}", err=True)
        raise
    except (ClientError, BotoCoreError) as error:
        message = f"run {run} of {job} continues, but its state cannot be read: {error}"
        raise Failure(message, Exit.UNREACHABLE) from None
    log = f"its output: aws logs tail /{service}/{name}/output --log-stream-name-prefix {run}"
    if state != "SUCCEEDED":
        ended = f"run {run} of {job} ended {state}{f': {reason}' if reason else ''}"
        raise Failure(f"{ended}; {log}", Exit.UNEXPECTED, code=state)
    click.echo(f"{job}: succeeded; {log}")


def _follow(client: Any, job: str, run: str) -> tuple[str, str]:
    """Follow a run to its end; returns its final state and the error message, if any."""
    started, state = time.monotonic(), ""
    while True:
        job_run = client.get_job_run(JobName=job, RunId=run)["JobRun"]
        if job_run["JobRunState"] != state:
            state = job_run["JobRunState"]
            click.echo(f"{job}: {state} after {time.monotonic() - started:.0f} s", err=True)
        if state in FINAL_STATES:
            return state, (job_run.get("ErrorMessage") or "").strip()
        time.sleep(PAUSE)


def _start_failure(job: str, error: Mapping[str, str]) -> Failure:
    code = error["Code"]
    fix = {
        "EntityNotFoundException": "; deploy the stack, check --stage, or use --local",
        "ConcurrentRunsExceededException": "; wait until the current run has ended",
    }.get(code, "")
    message = f"cannot start {job}: {error.get('Message') or code}{fix}"
    return Failure(message, EXIT_CODES.get(code, Exit.UNEXPECTED))
