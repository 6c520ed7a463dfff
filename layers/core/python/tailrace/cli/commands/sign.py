"""`tailrace sign` and `tailrace token`: credentials, made with the secrets that a server has."""

from __future__ import annotations

import time
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, Final

import click

from tailrace.cli.failures import Exit, Failure
from tailrace.cli.options import Seconds
from tailrace.cli.output import Output
from tailrace.configuration import load_settings

if TYPE_CHECKING:
    from tailrace.auth.keys import Keys
    from tailrace.settings import Settings

SCOPES: Final = ("read", "write", "admin")


class Scopes(click.ParamType[tuple[str, ...]]):
    """Scopes with spaces between them, as a token has them."""

    name = "|".join(SCOPES)

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        choice = click.Choice(SCOPES)
        words = str(value).split() or [str(value)]
        return tuple(choice.convert(word, param, ctx) for word in words)


secret_file = click.option(
    "--secret-file",
    type=click.File("r"),
    metavar="FILE",
    help="File with the secret, - for stdin; without it the environment has the secret.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")


@click.command()
@click.argument("name")
@secret_file
@as_json
def sign(name: str, secret_file: IO[str] | None, as_json: bool) -> None:
    """Sign NAME, so that whoever has the result may read that stream.

    The secret is TAILRACE_STREAMS_SECRET or else TAILRACE_SECRET; of several the first.
    """
    from tailrace.auth.signed_names import sign as signed
    from tailrace.errors import CannotSign

    _, keys = _given()
    secret = _secret(secret_file, keys.streams, "TAILRACE_STREAMS_SECRET")
    try:
        token = signed(name, secret)
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
    help="What it allows; may be given several times, or as 'read write'.",
)
@click.option(
    "--streams",
    multiple=True,
    metavar="PATTERN",
    help="Which streams it is for, such as 'chat/*' or 'logs/**'; may be given several times.",
)
@click.option(
    "--ttl",
    type=Seconds(),
    default="1h",
    show_default=True,
    help="How long it is good: 90 (seconds), 15m, 12h, 7d.",
)
@click.option("--subject", metavar="TEXT", help="Who it is for: the claim sub.")
@secret_file
@as_json
def token(
    scopes: tuple[tuple[str, ...], ...],
    streams: tuple[str, ...],
    ttl: int,
    subject: str | None,
    secret_file: IO[str] | None,
    as_json: bool,
) -> None:
    """Make a bearer token for --token, or for any client.

    The secret is TAILRACE_JWT_SECRET or else TAILRACE_SECRET; of several the first.
    """
    from tailrace.auth.jws import HASHES, made

    settings, keys = _given()
    allowed = dict.fromkeys(chain.from_iterable(scopes))
    algorithm = settings.jwt_algorithm
    if algorithm not in HASHES:
        raise Failure(
            f"tokens of {algorithm} are made by whoever has the private key, not here", Exit.USAGE
        )
    if not streams and "admin" not in allowed:
        raise click.UsageError("name the streams that it is for with --streams, such as 'chat/*'")
    if not 0 < ttl <= settings.jwt_max_age:
        raise click.UsageError(
            f"--ttl is at least a second and at most TAILRACE_JWT_MAX_AGE, {settings.jwt_max_age}"
        )
    secret = _secret(secret_file, keys.jwt, "TAILRACE_JWT_SECRET")
    now = int(time.time())
    given = {
        "sub": subject,
        "aud": settings.jwt_audience,
        "iss": settings.jwt_issuer,
        "scope": " ".join(allowed),
        "streams": list(streams),
        "iat": now,
        "exp": now + ttl,
    }
    claims = {name: value for name, value in given.items() if value}
    made_token = made(claims, secret, algorithm)
    Output(as_json).result(made_token, token=made_token, claims=claims)


def _given() -> tuple[Settings, Keys]:
    from tailrace.auth.keys import Keys
    from tailrace.errors import BadSetting

    try:
        settings = load_settings()
        return settings, Keys.of(settings)
    except BadSetting as error:
        raise Failure(str(error), Exit.USAGE, code=error.code) from None


def _secret(file: IO[str] | None, keys: tuple[bytes, ...], variable: str) -> bytes:
    found = tuple(each.encode() for each in file.read().split()) if file else keys
    if not found:
        where = f"'{file.name}' is empty" if file else f"set {variable} or TAILRACE_SECRET"
        raise Failure(f"no secret to sign with: {where}", Exit.USAGE)
    return found[0]
