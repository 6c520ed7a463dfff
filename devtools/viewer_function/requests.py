"""Requests of readers: good ones, and bad ones of every kind that somebody thought of."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final
from urllib.parse import quote

from devtools.tokens import SECONDS, SECRET, by_hand, hex_mac
from tailrace.auth.jws import sign_token
from tailrace.auth.keys import Keys
from tailrace.settings import Settings

OTHER: Final = "another-secret-of-more-than-thirty-two-bytes"
LONG: Final = "long-" * 25

AUTHORIZERS: Final = [
    Settings(access="closed", secret=SECRET),
    Settings(access="closed", streams_secret=OTHER, jwt_secret=f"{SECRET} {LONG}"),
    Settings(access="closed", secret=f"{OTHER} {SECRET} {LONG}"),
    Settings(access="closed", secret=f"geheimnis-für-alle-{OTHER} {SECRET}"),
    Settings(
        access="closed", secret=SECRET, jwt_audience="streams", jwt_issuer="https://a.example"
    ),
    Settings(access="closed", secret=SECRET, jwt_audience="ströme"),
    Settings(access="closed", secret=SECRET, enforce_jwt=True),
    Settings(access="closed", secret=SECRET, public_streams="news/*, status/**, a%2Fb, x*y, one"),
    Settings(access="closed", secret=SECRET, public_streams="true", enforce_jwt=True),
    Settings(access="closed", secret=SECRET, skip_auth=True, enforce_jwt=True, jwt_param="token"),
    Settings(access="closed", secret=SECRET, jwt_algorithm="HS512", jwt_max_age=600),
    Settings(access="closed", public_streams="news/**"),
    Settings(access="closed", streams_secret="none", secret=SECRET, jwt_max_age=7200),
]

PATHS: Final = [
    "chat/room-1", "chat/room-1", "chat/room-1", "chat/room-2", "news/today", "news/2026/may",
    "one",
    "status/a/b/c", "x-y", "it's(a)+b,c;d=e:f@g!h~i$j&k", "a.b", "a*b", "chat/*", "chat/**",
    "caf%C3%A9", "a%2Fb", "%63hat/room-1", "chat%2froom-1", "chat//room-1", "chat/", "/chat",
    "chat/./room-1", "chat/../room-1", "a..b", ".a", "a/.b", "__ds/x", "__proto__", "x" * 1025, "",
]  # fmt: skip


TOKEN: Final = "0042000000000007_0000000000000123"
STARTS: Final = [
    "", "offset=-1", "offset=%2D1", "offset=0", "offset=", "offset", "offset=now", "%6Fffset=n%6Fw",
    f"offset={TOKEN}", "offset=7", "offset=-1&offset=-1", "offset=0&offset=now", "last=5",
    "last=%35", "last=", "last=5&last=5", "since=0", "since=2030-01-31T12:00:00+01:00",
    "since=2030-01-31T12%3A00%3A00%2B01:00", "since=today", "last=5&offset=-1", "since=0&last=5",
]  # fmt: skip
LIVES: Final = [
    "", "live=", "live=false", "live=long-poll", "live=sse", "live=%73se", "live=ws",
    "live=sse&live=false", "live=&live=long-poll",
]  # fmt: skip
CURSORS: Final = ["", "cursor=12", "cursor=%312", "cursor=x", "cursor=12&cursor=", "utm=1"]
EVENT_IDS: Final = [None, TOKEN.replace("7", "9"), "now", ""]
MOUNTS: Final = ["/v1/stream/", "/ds/"]


@dataclass(slots=True)
class Shown:
    """A request to read."""

    authorizer: int
    path: str
    method: str = "GET"
    prefix: str = "/v1/stream/"
    headers: list[tuple[str, str]] = field(default_factory=list)
    query: list[str] = field(default_factory=list)

    def as_case(self) -> dict[str, Any]:
        return {
            "store": self.authorizer,
            "method": self.method,
            "path": self.prefix + self.path,
            "query": "&".join(self.query),
            "headers": self.headers,
        }


def reads() -> Iterator[Shown]:
    """Every way to say where a read begins and how it goes on, without credentials."""
    for mount, start, live, cursor, event_id in product(MOUNTS, STARTS, LIVES, CURSORS, EVENT_IDS):
        headers = [] if event_id is None else [("last-event-id", event_id)]
        query = [part for part in (cursor, live, start) if part]
        yield Shown(0, "chat/room-1", prefix=mount, headers=headers, query=query)


def requests(seed: int, count: int) -> list[Shown]:
    found = [*_tampered(), *_borders(), *_refused()]
    chance = random.Random(seed)
    found += [_any(chance) for _ in range(count - len(found))]
    return found


def _tampered() -> Iterator[Shown]:
    """Good credentials, and the same with one character another, each in turn."""
    claims = {"scope": "read", "streams": ["chat/*"], "exp": SECONDS + 60}
    tokens = {
        "authorization": sign_token(claims, SECRET.encode(), "HS256"),
        "x-signed": _signed("chat/room-1", SECRET),
        "x-jid": sign_token({"ext": "{}"}, SECRET.encode(), "HS256"),
    }
    for name, token in tokens.items():
        for at in range(-1, len(token)):
            for new in ("A", "-") if at >= 0 else ("",):
                bad = token if at < 0 else token[:at] + new + token[at + 1 :]
                shown = Shown(0, "chat/room-1", headers=[(name, bad)])
                if name == "authorization":
                    shown.headers = [(name, f"Bearer {bad}")]
                if name == "x-jid":
                    shown.headers.append(("x-signed", tokens["x-signed"]))
                yield shown


def _borders() -> Iterator[Shown]:
    """Times at which a token begins or ends to count, and one second beside them."""
    for authorizer in (0, 6, 12):
        age = AUTHORIZERS[authorizer].jwt_max_age
        for beside in (-1, 0, 1):
            for claim, at in (("exp", 0), ("exp", age), ("nbf", 0), ("nbf", 30), ("iat", 30)):
                claims = {"scope": "read", "streams": "**", "exp": SECONDS + 60, "ext": "who"}
                claims[claim] = SECONDS + at + beside
                token = sign_token(claims, SECRET.encode(), "HS256")
                yield Shown(
                    authorizer, "chat/room-1", headers=[("authorization", f"Bearer {token}")]
                )
                named = ("x-signed", _signed("chat/room-1", SECRET))
                yield Shown(authorizer, "chat/room-1", headers=[named, ("x-jid", token)])


def _refused() -> Iterator[Shown]:
    """Properly signed, but with a header that nobody takes, or too long."""
    claims = b'{"scope":"read","streams":"**","exp":%d,"ext":""}' % (SECONDS + 60)
    named = ("x-signed", _signed("chat/room-1", SECRET))
    for name in ("crit", "b64", "jwk", "jku", "x5c", "x5u", "kid"):
        header = json.dumps({"alg": "HS256", name: "x"}, separators=(",", ":")).encode()
        token = by_hand(header, claims)
        yield Shown(0, "chat/room-1", headers=[("authorization", f"Bearer {token}")])
        yield Shown(0, "chat/room-1", headers=[named, ("x-jid", token)])
    for length in (5000, 7000):
        long = sign_token({**json.loads(claims), "sub": "x" * length}, SECRET.encode(), "HS256")
        yield Shown(0, "chat/room-1", headers=[("authorization", f"Bearer {long}")])
        spelling = '"chat/room-1"' + " " * length
        signed = _signed("chat/room-1", SECRET, spelling)
        yield Shown(0, "chat/room-1", headers=[("x-signed", signed)])


def _any(chance: random.Random) -> Shown:
    shown = Shown(
        chance.randrange(len(AUTHORIZERS)),
        chance.choice(PATHS) if chance.random() < 0.3 else chance.choice(PATHS[:8]),
        chance.choice(["GET", "GET", "GET", "HEAD"]),
        chance.choice(MOUNTS),
        query=[chance.choice(STARTS), chance.choice(LIVES), chance.choice(CURSORS)],
    )
    settings = AUTHORIZERS[shown.authorizer]
    keys = Keys.from_settings(settings)
    if chance.random() < 0.5:
        _place(chance, shown, "x-signed", "signed", _any_signed(chance, shown.path, keys))
    if chance.random() < 0.45:
        token = _any_bearer(chance, shown.path, settings)
        scheme = chance.choice(["Bearer "] * 12 + ["bearer ", "BEARER ", "Bearer  ", "Basic ", ""])
        shown.headers.append(("authorization", scheme + token))
        if chance.random() < 0.03:
            shown.headers.append(("authorization", scheme + token))
    if chance.random() < (0.7 if settings.enforce_jwt else 0.15):
        param = settings.jwt_param if chance.random() < 0.9 else "jid"
        _place(chance, shown, f"x-{param}", param, _any_jid(chance, keys))
    return shown


def _place(chance: random.Random, shown: Shown, header: str, parameter: str, value: str) -> None:
    name = parameter if chance.random() < 0.95 else f"%{ord(parameter[0]):02X}{parameter[1:]}"
    quoted = quote(value, safe="") if chance.random() < 0.95 else value
    match chance.choices(range(6), [40, 40, 8, 4, 4, 4])[0]:
        case 0:
            shown.headers.append((header, value))
        case 1:
            shown.query.append(f"{name}={quoted}")
        case 2:
            shown.headers.append((header, value))
            shown.query.append(f"{name}={quoted}")
        case 3:
            shown.headers.append((header, value))
            shown.query.append(f"{name}={quoted[:-1]}")
        case 4:
            shown.query += [f"{parameter}={quoted}", f"{name}={quoted}"]
        case _:
            shown.headers += [(header, value), (header, value)]
            shown.query.append(f"{name}=")


def _signed(name: str, secret: str, spelling: str | None = None) -> str:
    text = json.dumps(name) if spelling is None else spelling
    encoded = b64encode(text.encode()).decode()
    return f"{encoded}--{hex_mac(secret, encoded)}"


def _secret(chance: random.Random, keys: tuple[bytes, ...]) -> str:
    known = [key.decode() for key in keys]
    return chance.choice(known) if known and chance.random() < 0.9 else chance.choice([OTHER, "no"])


def _any_signed(chance: random.Random, path: str, keys: Keys) -> str:
    name = path if chance.random() < 0.85 else chance.choice(PATHS)
    spellings = [None] * 12 + [
        json.dumps(name).replace("/", "\\/"),
        f" {json.dumps(name)} ",
        json.dumps([name]),
        json.dumps(name)[:-1],
        json.dumps(name + "é", ensure_ascii=False),
        json.dumps(name).replace("c", "\\u0063"),
    ]
    token = _signed(name, _secret(chance, keys.streams), chance.choice(spellings))
    changes = [token] * 20 + [
        token.upper(), token[:-1], token + " ", "=" + token, token.replace("--", "-"), "",
        "x" * 9000,
    ]  # fmt: skip
    return chance.choice(changes)


def _any_bearer(chance: random.Random, path: str, settings: Settings) -> str:
    claims: dict[str, Any] = {
        "scope": chance.choice(
            ["read"] * 6 + ["admin", "write", "read write", "", "reader", "x\tread"]
        ),
        "streams": _any_streams(chance, path),
        "exp": SECONDS + chance.choice([60, 300, 300, 300, 3600]),
    }
    if settings.jwt_audience:
        claims["aud"] = settings.jwt_audience
    if settings.jwt_issuer:
        claims["iss"] = settings.jwt_issuer
    strange: list[dict[str, Any]] = [
        {"exp": SECONDS - 1}, {"exp": SECONDS}, {"exp": SECONDS + 40_000_000}, {"exp": 60},
        {"exp": SECONDS + 60.5}, {"exp": str(SECONDS + 60)}, {"exp": None}, {"exp": True},
        {"exp": 1e300},
        {"nbf": SECONDS - 5}, {"nbf": SECONDS + 29}, {"nbf": SECONDS + 31}, {"nbf": "0"},
        {"nbf": None},
        {"iat": SECONDS}, {"iat": SECONDS + 90}, {"iat": [SECONDS]}, {"iat": 1.5}, {"iat": -1},
        {"aud": "streams"}, {"aud": ["a", "streams"]}, {"aud": []}, {"aud": ""}, {"aud": None},
        {"aud": 1},
        {"aud": "other"}, {"iss": "other"}, {"iss": ""}, {"iss": None}, {"sub": "ada"}, {"sub": 7},
        {"sub": None}, {"scope": None}, {"scope": ["read"]}, {"scope": "read\u00a0admin"},
        {"x": "é"},
        {"streams": None}, {"streams": {}}, {"streams": [path, 1]},
        {"__proto__": {"scope": "admin"}},
        {"constructor": 1, "toString": 2}, {"1": 2}, {"x": "\x7f"}, {"ext": "who"},
    ]  # fmt: skip
    if chance.random() < 0.3:
        claims |= chance.choice(strange)
    for name in list(claims):
        if chance.random() < 0.02:
            del claims[name]
    return _token(chance, claims, Keys.from_settings(settings), settings.jwt_algorithm)


def _any_streams(chance: random.Random, path: str) -> Any:
    first, _, rest = path.partition("/")
    patterns = [
        path, f"{first}/*", f"{first}/**", "**", "*", f"{path}*", f"{path}**", f"*{path}",
        f"{path}/*",
        f"{first}/*{rest[1:]}", f"{first}***", "", path.upper(), quote(path, safe=""),
        f"%63{path[1:]}",
        f"{first}/{rest} ", "caf\u00e9", f"{path},x", "other/**",
    ]  # fmt: skip
    good, others = patterns[:4], patterns[4:]
    one = chance.choice(good) if chance.random() < 0.7 else chance.choice(others)
    return chance.choice([one, one, [one], ["other", one], []])


def _any_jid(chance: random.Random, keys: Keys) -> str:
    claims: dict[str, Any] = {"ext": '{"user":7}'}
    strange: list[dict[str, Any]] = [
        {"exp": SECONDS + 60}, {"exp": SECONDS}, {"exp": SECONDS + 10**9}, {"exp": "1"},
        {"exp": None},
        {"nbf": SECONDS}, {"nbf": SECONDS + 1}, {"ext": {"user": 7}}, {"ext": None}, {"ext": ""},
        {"ext": "é"}, {"aud": "whoever"}, {"iat": SECONDS + 999}, {"exp": SECONDS + 0.5},
    ]  # fmt: skip
    if chance.random() < 0.35:
        claims |= chance.choice(strange)
    if chance.random() < 0.03:
        del claims["ext"]
    return _token(chance, claims, keys, "HS256")


def _token(chance: random.Random, claims: dict[str, Any], keys: Keys, algorithm: str) -> str:
    secret = _secret(chance, keys.jwt)
    if chance.random() < 0.75:
        return sign_token(claims, secret.encode(), algorithm)
    headers: list[Any] = [
        {"typ": "JWT", "alg": "HS256"}, {"alg": "HS256", "kid": "1"}, {"alg": "hs256"},
        {"alg": "none"},
        {"alg": "HS512"}, {"alg": ["HS256"]}, {"alg": "HS256", "crit": []},
        {"alg": "HS256", "jku": "x"},
        {"alg": "HS256", "cty": "JWT"}, {}, [], b"null", b'{"alg":"none","alg":"HS256"}',
        b'{"alg":"HS256","alg":"none"}', b'{"alg":"HS256"} ', b'{"\\u0061lg":"HS256"}', b"\xff",
    ]  # fmt: skip
    compact = json.dumps(claims, separators=(",", ":")).encode()
    payloads: list[Any] = [
        compact, claims, compact[:-1] + b',"exp":1}', compact[:-1] + b',"scope":"admin"}', b"[]",
        b"7",
        compact.replace(b'"exp":', b'"exp":1,"exp":'), compact + b"\n", b"\xef\xbb\xbf" + compact,
        compact.replace(b"60}", b"60.0}"), compact.replace(b"60}", b"6e1}"), b"", compact + b"x",
    ]  # fmt: skip
    plain = {"alg": "HS256", "typ": "JWT"}
    header = plain if chance.random() < 0.5 else chance.choice(headers)
    if isinstance(header, dict):
        header = json.dumps(header, separators=(",", ":")).encode()
    token = by_hand(header, chance.choice(payloads), secret)
    return chance.choice(
        [token] * 8 + [token + "=", token[:-1], token + ".x", token.replace(".", "")]
    )
