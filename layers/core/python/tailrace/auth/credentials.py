"""What a request shows of who sent it.

| credential | header | query parameter |
|---|---|---|
| bearer token | `Authorization: Bearer …` | |
| signed stream name | `X-Signed` | `signed` |
| identification token | `X-JID` (`X-` and `jwt_param`) | `jid` (`jwt_param`) |

Nothing is verified here. But a request that shows one kind twice, or another one in its header than
in its query, has none of that kind that anybody could rely on: two readers of the same request must
not see two different senders in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tailrace.errors import BadSetting

_PARAMETER: Final = re.compile(r"[a-z0-9_-]{1,64}")
_TAKEN: Final = ("offset", "live", "cursor", "signed")
_VISIBLE: Final = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    bearer: str | None = None
    signed: str | None = None
    jid: str | None = None
    fault: str | None = None
    """Why what is shown counts for nothing, whatever it is."""

    def __repr__(self) -> str:
        kinds = ("bearer", "signed", "jid")
        shown = [kind for kind in kinds if getattr(self, kind) is not None]
        return f"<Credentials: {', '.join(shown) or 'none'}{' (bad)' if self.fault else ''}>"


NONE: Final = Credentials()


class _Ambiguous(Exception):
    pass


def parse_credentials(
    headers: Iterable[tuple[bytes, bytes]],
    query: Mapping[str, Sequence[str]],
    jwt_param: str = "jid",
) -> Credentials:
    """From header fields with lower-case names, and query parameters without their encoding."""
    jid_header = f"x-{jwt_param}".encode()
    found: dict[bytes, list[str]] = {b"authorization": [], b"x-signed": [], jid_header: []}
    for name, value in headers:
        if name in found:
            found[name].append(value.decode("latin-1").strip(" \t"))
    try:
        return Credentials(
            bearer=_bearer(found[b"authorization"]),
            signed=_one("signed", found[b"x-signed"], query.get("signed", ())),
            jid=_one(jwt_param, found[jid_header], query.get(jwt_param, ())),
        )
    except _Ambiguous as fault:
        return Credentials(fault=str(fault))


def _bearer(values: list[str]) -> str | None:
    value = _one("Authorization", values, ())
    scheme, _, token = (value or "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    token = token.strip(" ")
    if not _VISIBLE.fullmatch(token):
        raise _Ambiguous("Authorization: Bearer must be followed by one token")
    return token


def _one(name: str, in_header: Sequence[str], in_query: Sequence[str]) -> str | None:
    if len(in_header) > 1 or len(in_query) > 1:
        raise _Ambiguous(f"{name} is given twice")
    given = {value for value in (*in_header, *in_query) if value}
    if len(given) > 1:
        raise _Ambiguous(f"{name} is not the same in the header and in the query")
    return given.pop() if given else None


def check_parameter(name: str) -> None:
    if not _PARAMETER.fullmatch(name) or name in _TAKEN:
        raise BadSetting(
            f"TAILRACE_JWT_PARAM must have lower-case letters, digits, - and _ only, and be none of"
            f" {', '.join(_TAKEN)}; not {name!r}"
        )
