"""Credentials: parse them from the headers and the query of a request.

| credential | header | query parameter |
|---|---|---|
| bearer token | `Authorization: Bearer …` | |
| signed stream name | `X-Signed` | `signed` |
| identification token | `X-JID` (`X-` and `jwt_param`) | `jid` (`jwt_param`) |

Nothing is verified here. A request with two credentials of one kind, or with different ones in its
header and its query, is ambiguous and gets none: two readers of the same request, such as the edge
and the origin, must not see different clients in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tailrace.errors import BadSetting

_PARAMETER: Final = re.compile(r"[a-z0-9_-]{1,64}")
_RESERVED: Final = ("offset", "live", "cursor", "signed")
_VISIBLE: Final = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    bearer: str | None = None
    signed: str | None = None
    jid: str | None = None
    fault: str | None = None
    """Why the credentials are not accepted, if they are ambiguous or malformed."""

    def __repr__(self) -> str:
        kinds = ("bearer", "signed", "jid")
        present = [kind for kind in kinds if getattr(self, kind) is not None]
        return f"<Credentials: {', '.join(present) or 'none'}{' (bad)' if self.fault else ''}>"


NONE: Final = Credentials()


class _Ambiguous(Exception):
    pass


def parse_credentials(
    headers: Iterable[tuple[bytes, bytes]],
    query: Mapping[str, Sequence[str]],
    jwt_param: str = "jid",
) -> Credentials:
    """Parse header fields with lower-case names, and decoded query parameters."""
    jid_header = f"x-{jwt_param}".encode()
    values: dict[bytes, list[str]] = {b"authorization": [], b"x-signed": [], jid_header: []}
    for name, value in headers:
        if name in values:
            values[name].append(value.decode("latin-1").strip(" \t"))
    try:
        return Credentials(
            bearer=_parse_bearer(values[b"authorization"]),
            signed=_single_value("signed", values[b"x-signed"], query.get("signed", ())),
            jid=_single_value(jwt_param, values[jid_header], query.get(jwt_param, ())),
        )
    except _Ambiguous as fault:
        return Credentials(fault=str(fault))


def _parse_bearer(values: list[str]) -> str | None:
    value = _single_value("Authorization", values, ())
    scheme, _, token = (value or "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    token = token.strip(" ")
    if not _VISIBLE.fullmatch(token):
        raise _Ambiguous("Authorization must be Bearer followed by one token")
    return token


def _single_value(name: str, in_header: Sequence[str], in_query: Sequence[str]) -> str | None:
    if len(in_header) > 1 or len(in_query) > 1:
        raise _Ambiguous(f"{name} is sent twice")
    distinct = {value for value in (*in_header, *in_query) if value}
    if len(distinct) > 1:
        raise _Ambiguous(f"{name} differs between the header and the query")
    return distinct.pop() if distinct else None


def check_parameter(name: str) -> None:
    """Raise BadSetting unless the query parameter can carry identification tokens."""
    if not _PARAMETER.fullmatch(name) or name in _RESERVED:
        raise BadSetting(
            "TAILRACE_JWT_PARAM must have lower-case letters, digits, - and _ only, and must not be"
            f" one of {', '.join(_RESERVED)}; it is {name!r}"
        )
