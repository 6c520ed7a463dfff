"""`tailrace secret`, `sign` and `token`: create secrets, and credentials signed with them."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, Final

import click

from tailrace.cli.exit_codes import Exit, Failure
from tailrace.cli.options import Duration, Output, json_option
from tailrace.configuration import find_config, load_settings

if TYPE_CHECKING:
    from tailrace.auth.keys import Keys
    from tailrace.settings import Settings

SCOPES: Final = ("read", "write", "admin")


class Scopes(click.ParamType[tuple[str, ...]]):
    """Scopes separated by spaces, as in a token."""

    name = "|".join(SCOPES)

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        choice = click.Choice(SCOPES)
        words = str(value).split() or [str(value)]
        return tuple(choice.convert(word, param, ctx) for word in words)


secret_file = click.option(
    "--secret-file",
    type=click.File("r"),
    metavar="FILE",
    help="File with the secret, - for stdin; by default it is read from the environment.",
)


@click.command()
@json_option
def secret(as_json: bool) -> None:
    """Create a secret for TAILRACE_SECRET, from 32 random bytes."""
    from secrets import token_urlsafe

    value = token_urlsafe(32)
    Output(as_json).result(value, secret=value)


@click.command()
@click.argument("name", required=False)
@click.option(
    "--broadcast-key",
    is_flag=True,
    help="Print the key with which applications broadcast, as ANYCABLE_BROADCAST_KEY for Rails.",
)
@secret_file
@json_option
def sign(name: str | None, broadcast_key: bool, secret_file: IO[str] | None, as_json: bool) -> None:
    """Sign NAME: the result permits reading the stream of that name.

    The secret is TAILRACE_STREAMS_SECRET, or else TAILRACE_SECRET; the first one if it has several.
    """
    from tailrace.auth.signed_names import sign as sign_name
    from tailrace.errors import CannotSign

    _, keys = _load_keys(secret_file if broadcast_key else None)
    if broadcast_key:
        if name is not None:
            raise click.UsageError("--broadcast-key takes no NAME")
        if not keys.broadcast:
            raise Failure("no key: set TAILRACE_BROADCAST_KEY or TAILRACE_SECRET", Exit.USAGE)
        key = keys.broadcast[0].decode(errors="backslashreplace")
        Output(as_json).result(key, broadcast_key=key)
        return
    if name is None:
        raise click.UsageError("name the stream, such as chat/room-1")
    secret = _read_secret(secret_file, keys.streams, "TAILRACE_STREAMS_SECRET")
    try:
        token = sign_name(name, secret)
    except CannotSign as error:
        raise Failure(f"cannot sign: {error}", Exit.USAGE, code=error.code) from None
    Output(as_json).result(token, name=name, signed=token)


@click.command()
@click.option(
    "--scope",
    "scopes",
    type=Scopes(),
    metavar="[read|write|admin]",
    multiple=True,
    required=True,
    help="What the token permits; may be repeated, or given as 'read write'.",
)
@click.option(
    "--streams",
    multiple=True,
    metavar="PATTERN",
    help="Streams that the token is for, such as 'chat/*' or 'logs/**'; may be repeated.",
)
@click.option(
    "--ttl",
    type=Duration(),
    default="1h",
    show_default=True,
    help="How long the token is valid: 90 (seconds), 15m, 12h, 7d.",
)
@click.option("--subject", metavar="TEXT", help="The client that the token is for: the claim sub.")
@secret_file
@json_option
def token(
    scopes: tuple[tuple[str, ...], ...],
    streams: tuple[str, ...],
    ttl: int,
    subject: str | None,
    secret_file: IO[str] | None,
    as_json: bool,
) -> None:
    """Create a bearer token, for --token or for any client.

    The secret is TAILRACE_JWT_SECRET, or else TAILRACE_SECRET; the first one if it has several.
    """
    from tailrace.auth.jws import HASHES, sign_token

    settings, keys = _load_keys()
    unique_scopes = dict.fromkeys(chain.from_iterable(scopes))
    algorithm = settings.jwt_algorithm
    if algorithm not in HASHES:
        raise Failure(
            f"cannot create a token: TAILRACE_JWT_ALGORITHM {algorithm} needs the private key;"
            " create tokens where that key is",
            Exit.USAGE,
        )
    if not streams and "admin" not in unique_scopes:
        raise click.UsageError(
            "name the streams that the token is for with --streams, such as 'chat/*'"
        )
    if not 0 < ttl <= settings.jwt_max_age:
        raise click.UsageError(
            "--ttl must be at least 1 second and at most TAILRACE_JWT_MAX_AGE,"
            f" {settings.jwt_max_age}"
        )
    secret = _read_secret(secret_file, keys.jwt, "TAILRACE_JWT_SECRET")
    now = int(time.time())
    optional_claims = {
        "sub": subject,
        "aud": settings.jwt_audience,
        "iss": settings.jwt_issuer,
        "scope": " ".join(unique_scopes),
        "streams": list(streams),
        "iat": now,
        "exp": now + ttl,
    }
    claims = {name: value for name, value in optional_claims.items() if value}
    signed = sign_token(claims, secret, algorithm)
    Output(as_json).result(signed, token=signed, claims=claims)


def _load_keys(secret_file: IO[str] | None = None) -> tuple[Settings, Keys]:
    """Load the keys of the server; a file replaces its secrets."""
    from tailrace.auth.keys import Keys
    from tailrace.errors import BadSetting

    try:
        settings = load_settings(file=find_config())
        if secret_file is not None:
            settings = replace(settings, secret=secret_file.read(), broadcast_key="")
        return settings, Keys.from_settings(settings)
    except BadSetting as error:
        raise Failure(str(error), Exit.USAGE, code=error.code) from None


def _read_secret(file: IO[str] | None, keys: tuple[bytes, ...], variable: str) -> bytes:
    secrets = tuple(each.encode() for each in file.read().split()) if file else keys
    if not secrets:
        fix = f"'{file.name}' is empty" if file else f"set {variable} or TAILRACE_SECRET"
        raise Failure(f"no secret to sign with: {fix}", Exit.USAGE)
    return secrets[0]
