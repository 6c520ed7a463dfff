"""`tailrace keys`: show and rotate the keys of subscriptions."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tailrace.cli.exit_codes import Exit, Failure
from tailrace.cli.options import Output, data_option, format_table, json_option
from tailrace.configuration import load_settings
from tailrace.errors import BadSetting, TailraceError

if TYPE_CHECKING:
    from tailrace.protocols.subscriptions.key_file import KeyFile, StoredSecret

EXIT_CODES: Final = {
    "ResourceNotFoundException": Exit.NOT_FOUND,
    "AccessDeniedException": Exit.REFUSED,
    "UnrecognizedClientException": Exit.REFUSED,
    "ExpiredTokenException": Exit.REFUSED,
}

HEADINGS: Final = ("KEY", "STATE", "SIGNS FROM")


@click.group(subcommand_metavar="show|rotate [OPTIONS]")
def keys() -> None:
    """Show or rotate the keys that sign webhooks.

    They are in the data directory of a server; it may be running. On AWS they are in Secrets
    Manager.
    """


@keys.command()
@data_option
@json_option
def show(data: str | None, as_json: bool) -> None:
    """Show the ids of the published keys, the newest last."""
    now = int(time.time() * 1000)
    try:
        stored = _open(data, must_exist=True).read()
    except TailraceError as error:
        raise _failure(error) from None
    _print(Output(as_json), stored, now)


@keys.command()
@click.option(
    "--revoke",
    is_flag=True,
    help="Drop all other keys at once, because they were disclosed: their signatures and the tokens"
    " of wakes become invalid.",
)
@click.option(
    "--secret",
    metavar="ARN",
    help="Rotate the keys of a deployment instead, in this secret; takes ten minutes.",
)
@data_option
@json_option
def rotate(revoke: bool, secret: str | None, data: str | None, as_json: bool) -> None:
    """Add a key, which signs after 15 minutes.

    Until then it is only published, so that all receivers know it. The previous one stays published
    for a day, so that nothing fails.
    """
    if secret is not None:
        _rotate_secret(Output(as_json), secret, revoke=revoke)
        return
    now = int(time.time() * 1000)
    try:
        stored = _open(data, must_exist=False).rotate(now, revoke=revoke)
    except TailraceError as error:
        raise _failure(error) from None
    _print(Output(as_json), stored, now)


def _rotate_secret(out: Output, arn: str, *, revoke: bool) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    from tailrace.aws.handlers.rotate_signing_keys import RotateSigningKeysHandler

    try:
        rotation = RotateSigningKeysHandler(arn)
        if not revoke:
            out.note("publishing the new key for ten minutes before it signs; Ctrl-C leaves it")
        # Secrets Manager keeps the previous value, too: the second rotation drops it.
        for _ in range(2 if revoke else 1):
            version = str(uuid.uuid4())
            for step in ("createSecret", *(() if revoke else ("testSecret",)), "finishSecret"):
                rotation({"Step": step, "SecretId": arn, "ClientRequestToken": version})
    except TailraceError as error:
        raise _failure(error) from None
    except ClientError as error:
        reason = error.response["Error"]
        code = EXIT_CODES.get(reason.get("Code", ""), Exit.UNEXPECTED)
        message = f"cannot rotate {arn}: {reason.get('Message')}"
        raise Failure(message, code, code=reason.get("Code", "")) from None
    except BotoCoreError as error:
        raise Failure(f"cannot rotate {arn}: {error}", Exit.UNREACHABLE) from None
    out.result(
        "the new key signs, within five minutes everywhere"
        + ("; the others are revoked" if revoke else "; the previous one stays published"),
        secret=arn,
        rotated=True,
        revoked=revoke,
    )


def _open(data: str | None, *, must_exist: bool) -> KeyFile:
    from tailrace.protocols.subscriptions.key_file import KeyFile

    directory = Path(load_settings(data=data).data)
    file = KeyFile(directory)
    if not directory.is_dir():
        raise Failure(f"data directory '{directory}' does not exist; check --data", Exit.NOT_FOUND)
    if must_exist and not file.exists():
        raise Failure(
            f"'{directory}' has no keys yet: a server makes them when the first subscription needs"
            " them, or 'tailrace keys rotate'",
            Exit.NOT_FOUND,
        )
    return file


def _print(out: Output, stored: list[StoredSecret], now: int) -> None:
    from tailrace.protocols.subscriptions.key_file import select_secrets
    from tailrace.protocols.subscriptions.signing import SigningKey

    needed = select_secrets(stored, now)
    rows: list[dict[str, Any]] = [
        {
            "kid": SigningKey(each.secret.encode()).kid,
            "state": _state(each, needed[0]),
            "signs_from": datetime.fromtimestamp(each.signs_from / 1000, UTC).strftime(
                "%Y-%m-%dT%H:%M:%SZ"
            ),
        }
        for each in stored
        if each in needed
    ]
    out.result(
        format_table([HEADINGS, *((row["kid"], row["state"], row["signs_from"]) for row in rows)]),
        keys=rows,
    )


def _state(each: StoredSecret, current: StoredSecret) -> str:
    if each is current:
        return "signs"
    return "next" if each.signs_from > current.signs_from else "previous"


def _failure(error: TailraceError) -> Failure:
    code = Exit.USAGE if isinstance(error, BadSetting) else Exit.UNEXPECTED
    return Failure(str(error), code, code=error.code)
