"""Authorization: every operation with every credential on every kind of path."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import jwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools.processes import ROOT
from tailrace.auth import authorizer
from tailrace.auth.authorizer import (
    CLOSING,
    TABLE,
    AccessRule,
    Authorizer,
    Decision,
    Operation,
)
from tailrace.auth.credentials import NONE, Credentials
from tailrace.auth.signed_names import sign
from tailrace.errors import (
    BadCredentials,
    BadSetting,
    CredentialsMissing,
    NotAllowed,
    TailraceError,
    TokenExpired,
)
from tailrace.settings import Settings
from tests.support.auth import NOW, SECONDS, SECRET, bearer, hex_mac

PAGE = ROOT / "docs" / "auth.md"

READS = (Operation.READ, Operation.HEAD)
WRITES = {Operation.CREATE, Operation.APPEND, Operation.CLOSE, Operation.DELETE}
BELOW = {Operation.LIST, Operation.ADMIN}

PRIVATE, FOREIGN, PUBLIC = "chat/room-1", "mail/inbox", "news/today"
CHAT = ["chat/**"]

AUTHORIZER = Authorizer(Settings(secret=SECRET, public_streams="news/*"))


def identity(ext: object = "ada-jid", secret: str = SECRET, **claims: Any) -> str:
    return jwt.encode({"ext": ext, **claims}, secret, "HS256")


def token(scope: str, streams: object = CHAT, **claims: Any) -> Credentials:
    return Credentials(bearer=bearer(scope=scope, streams=streams, **claims))


ADMIN_OF_ALL = Credentials(bearer=bearer(scope="admin", without="streams"))
BROADCAST_KEY = Credentials(bearer=hex_mac(SECRET, "broadcast-cable"))
API_KEY = Credentials(bearer=hex_mac(SECRET, "api-cable"))


def outcome(
    operation: Operation, path: str, credentials: Credentials, authorizer: Authorizer = AUTHORIZER
) -> str | type[TailraceError]:
    """The reason of the decision, or the error class."""
    try:
        decision = authorizer.authorize(operation, path, credentials, NOW)
    except TailraceError as refusal:
        return type(refusal)
    assert decision.private is (decision.reason not in ("open", "public"))
    return decision.reason


# The table, written out: the outcome of each credential for each operation, on a stream that the
# credential is for, on another one, and on a public one.

MISSING, BAD, EXPIRED, NOT = CredentialsMissing, BadCredentials, TokenExpired, NotAllowed

Row = tuple[object, object, object]

NOTHING_SHOWN: dict[str, Row] = {
    "read": (MISSING, MISSING, "public"),
    "write": (MISSING, MISSING, MISSING),
    "list": (MISSING, MISSING, MISSING),
    "broadcast": (MISSING, MISSING, MISSING),
    "admin": (MISSING, MISSING, MISSING),
    "api": (MISSING, MISSING, MISSING),
}


def rows(read: Row, write: Row, listing: Row, broadcast: Row, admin: Row) -> dict[str, Row]:
    tokens = {"read": read, "write": write, "list": listing, "broadcast": broadcast}
    return {**tokens, "admin": admin, "api": admin}


ALL_BAD = rows(*[(BAD, BAD, BAD)] * 5)
ALL_NOT = (NOT, NOT, NOT)
ONLY_PUBLIC = (NOT, NOT, "public")
BEARER_THERE = ("bearer", NOT, NOT)
READ_BEARER = ("bearer", NOT, "public")

EXPECTED: dict[str, tuple[Credentials, dict[str, Row]]] = {
    "nothing": (NONE, NOTHING_SHOWN),
    "a read token": (
        token("read"), rows(READ_BEARER, ALL_NOT, BEARER_THERE, ALL_NOT, ALL_NOT)
    ),
    "a write token": (
        token("write"), rows(ONLY_PUBLIC, BEARER_THERE, ALL_NOT, BEARER_THERE, ALL_NOT)
    ),
    "a token for both": (
        token("read write"),
        rows(READ_BEARER, BEARER_THERE, BEARER_THERE, BEARER_THERE, ALL_NOT),
    ),
    "an admin token of some streams": (
        token("admin"),
        rows(READ_BEARER, BEARER_THERE, BEARER_THERE, BEARER_THERE, BEARER_THERE),
    ),
    "an admin token of all": (
        ADMIN_OF_ALL, rows(("bearer", "bearer", "public"), *[("bearer", "bearer", "bearer")] * 4)
    ),
    "a token without a scope": (
        token(""), rows(ONLY_PUBLIC, ALL_NOT, ALL_NOT, ALL_NOT, ALL_NOT)
    ),
    "a token without streams": (
        Credentials(bearer=bearer(scope="read write", without="streams")),
        rows(ONLY_PUBLIC, ALL_NOT, ALL_NOT, ALL_NOT, ALL_NOT),
    ),
    "an expired token": (
        token("admin", exp=SECONDS), rows(*[(EXPIRED, EXPIRED, EXPIRED)] * 5)
    ),
    "a forged token": (Credentials(bearer=bearer(scope="admin", secret=SECRET[1:])), ALL_BAD),
    "a token that is none": (Credentials(bearer="x"), ALL_BAD),
    "the broadcast key": (
        BROADCAST_KEY, ALL_BAD | {"broadcast": ("broadcast key",) * 3}
    ),
    "the API key": (API_KEY, ALL_BAD | {"api": ("API key",) * 3}),
    "the secret itself": (Credentials(bearer=SECRET), ALL_BAD),
    "a signed name": (
        Credentials(signed=sign(PRIVATE, SECRET)),
        rows(("signed", BAD, BAD), *[(NOT, BAD, BAD)] * 4),
    ),
    "a forged name": (Credentials(signed=sign(PRIVATE, SECRET[1:])), ALL_BAD),
    "a name that is not signed": (Credentials(signed=PRIVATE), ALL_BAD),
    "an identity": (Credentials(jid=identity()), NOTHING_SHOWN),
    "an expired identity": (
        Credentials(jid=identity(exp=SECONDS)), rows(*[(EXPIRED, EXPIRED, EXPIRED)] * 5)
    ),
    "a forged identity": (Credentials(jid=identity(secret=SECRET[1:])), ALL_BAD),
    "an identity without a name": (Credentials(jid=identity(ext=7)), ALL_BAD),
    "a signed name and an identity": (
        Credentials(signed=sign(PRIVATE, SECRET), jid=identity()),
        rows(("signed", BAD, BAD), *[(NOT, BAD, BAD)] * 4),
    ),
    "a signed name and a write token": (
        replace(token("write"), signed=sign(PRIVATE, SECRET)),
        rows(("signed", BAD, BAD), ("bearer", BAD, BAD), (NOT, BAD, BAD), ("bearer", BAD, BAD),
             (NOT, BAD, BAD)),
    ),
    "a good token and a forged name": (
        replace(ADMIN_OF_ALL, signed=sign(PRIVATE, SECRET[1:])), ALL_BAD
    ),
    "a good token and a forged identity": (replace(ADMIN_OF_ALL, jid="x"), ALL_BAD),
    "the broadcast key and a forged identity": (replace(BROADCAST_KEY, jid="x"), ALL_BAD),
    "an identity as a bearer token": (Credentials(bearer=identity()), ALL_BAD),
    "a bearer token as an identity": (Credentials(jid=bearer(scope="admin")), ALL_BAD),
    "something twice": (Credentials(fault="signed is sent twice"), ALL_BAD),
    "something good and something twice": (replace(ADMIN_OF_ALL, fault="x"), ALL_BAD),
}  # fmt: skip

KIND = {
    **dict.fromkeys(READS, "read"),
    **dict.fromkeys(WRITES, "write"),
    Operation.LIST: "list",
    Operation.BROADCAST: "broadcast",
    Operation.ADMIN: "admin",
    Operation.API: "api",
    # Of a single stream, as here, it is a read that needs a token.
    Operation.SUBSCRIBE: "list",
}


def test_every_operation_is_in_the_table() -> None:
    assert set(TABLE) == set(KIND) == set(Operation)


@pytest.mark.parametrize("credential", EXPECTED)
def test_the_table(credential: str) -> None:
    credentials, expected = EXPECTED[credential]
    for operation in Operation:
        outcomes = tuple(
            outcome(operation, path, credentials) for path in (PRIVATE, FOREIGN, PUBLIC)
        )
        assert outcomes == expected[KIND[operation]], operation


@pytest.mark.parametrize(
    "text", [authorizer.__doc__ or "", PAGE.read_text()], ids=["module", "page"]
)
def test_documented_table_matches_the_code(text: str) -> None:
    assert written(text) == said()


def written(text: str) -> list[list[str]]:
    rows = re.findall(r"^\| ([A-Z]+) \| (.*) \|$", text, re.MULTILINE)
    return [[name, *rest.split(" | ")] for name, rest in rows]


def said() -> list[list[str]]:
    words = {True: "yes", False: "no"}
    return [
        [
            operation.name,
            rule.scope,
            _told_scope(rule),
            *(words[each] for each in (rule.signed, rule.public)),
            rule.key or "no",
        ]
        for operation, rule in TABLE.items()
    ]


def _told_scope(rule: AccessRule) -> str:
    if rule.follows:
        return "the streams and the pattern"
    return "all below the prefix" if rule.below else "the path"


PATTERNS = {
    "chat/*": ["chat/*", "chat/**", "**"],
    "chat/**": ["chat/**", "**"],
    "chat/7/*/new": ["chat/7/*/new", "chat/**", "chat/7/**", "**"],
    "chat/7": ["chat/7", "chat/*", "chat/**", "**"],
    "**": ["**"],
    "*": ["**"],
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_subscribing_to_a_pattern_needs_all_that_it_matches(pattern: str) -> None:
    granted = ["chat/*", "chat/**", "chat/7", "chat/7/**", "chat/7/*/new", "cha/**", "x/**", "**"]
    allowed = [
        each
        for each in granted
        if outcome(Operation.SUBSCRIBE, pattern, token("read", each)) == "bearer"
    ]
    assert sorted(allowed) == sorted(PATTERNS[pattern])


# Nothing else is allowed


class SentCredentials(NamedTuple):
    scope: str | None
    streams: tuple[str, ...]
    signed: str | None
    identified: bool


scopes = st.one_of(st.none(), st.sampled_from(["", "read", "write", "read write", "admin"]))
paths = st.sampled_from([PRIVATE, FOREIGN, PUBLIC, "chat", "chat/", "chat/room-1/x", "a%2Fb"])
patterns = st.sampled_from(
    [
        "chat/*",
        "chat/**",
        "**",
        "mail/inbox",
        "*",
        "news/*",
        "*/*",
        "chat%2Froom-1",
        "chat/room-%2A",
    ]
)
requests = st.builds(
    SentCredentials,
    scope=scopes,
    streams=st.lists(patterns, max_size=3).map(tuple),
    signed=st.one_of(st.none(), paths),
    identified=st.booleans(),
)
switches = st.fixed_dictionaries(
    {
        "enforce_jwt": st.booleans(),
        "skip_auth": st.booleans(),
        "public_streams": st.sampled_from(["", "true", "news/*", "chat/**, news/today"]),
    }
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(operation=st.sampled_from(Operation), path=paths, sent=requests, switched=switches)
def test_nothing_outside_the_table_is_allowed(
    operation: Operation, path: str, sent: SentCredentials, switched: dict[str, Any]
) -> None:
    authorizer = Authorizer(Settings(secret=SECRET, **switched))
    credentials = Credentials(
        bearer=None if sent.scope is None else bearer(scope=sent.scope, streams=list(sent.streams)),
        signed=None if sent.signed is None else sign(sent.signed, SECRET),
        jid=identity() if sent.identified else None,
    )
    try:
        decision = authorizer.authorize(operation, path, credentials, NOW)
    except (CredentialsMissing, BadCredentials, NotAllowed):
        return
    assert sent.signed in (None, path), "the name of another stream is never accepted"
    if operation in READS:
        if switched["enforce_jwt"] and not switched["skip_auth"]:
            assert sent.identified or sent.scope is not None
            assert decision.private
        public = switched["public_streams"]
        open_to_all = public == "true" or (
            (path == PUBLIC and public != "") or (path.startswith("chat/") and "chat" in public)
        )
        reads = sent.scope in ("read", "read write", "admin") and any(
            reaches(pattern, path) for pattern in sent.streams
        )
        assert open_to_all or reads or sent.signed == path
        assert decision.private or open_to_all
        enough = ["public"] if open_to_all else ["bearer", "signed"]
        assert decision.reason in enough
        return
    assert decision.reason == "bearer"
    assert decision.private
    assert sent.scope is not None
    needed = {Operation.LIST: "read", Operation.ADMIN: "admin"}.get(operation, "write")
    assert needed in sent.scope or sent.scope == "admin"
    if operation in BELOW:
        assert any(covers(pattern, path) for pattern in sent.streams)
    else:
        assert any(reaches(pattern, path) for pattern in sent.streams)


def reaches(pattern: str, path: str) -> bool:
    """The patterns above, matched independently of the code under test."""
    segments = path.split("/")
    match pattern:
        case "**":
            return True
        case "*":
            return len(segments) == 1
        case "*/*":
            return len(segments) == 2
        case "chat/*" | "news/*":
            return len(segments) == 2 and segments[0] == pattern[:-2]
        case "chat/**":
            return path.startswith("chat/")
        case _:
            return path == pattern == "mail/inbox"


def covers(pattern: str, prefix: str) -> bool:
    return pattern == "**" or (pattern == "chat/**" and prefix.startswith("chat/"))


# Signed names


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("chat/room-1", "chat/room-1"),
        ("комната/é", "%D0%BA%D0%BE%D0%BC%D0%BD%D0%B0%D1%82%D0%B0/%C3%A9"),
        ("my room", "my%20room"),
        ("100%", "100%25"),
        ("a?b#c", "a%3Fb%23c"),
        ("chat:2021", "chat:2021"),
        ("/chat/42/", "/chat/42/"),
    ],
)
def test_signed_name_is_the_decoded_path(name: str, path: str) -> None:
    signed = Credentials(signed=sign(name, SECRET))
    assert outcome(Operation.READ, path, signed) == "signed"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("chat/room-1", "chat/room-10"),
        ("chat/room-1", "chat/room-1/"),
        ("chat/room-1", "/chat/room-1"),
        ("chat/room-1", "chat"),
        ("chat/room-1", "Chat/room-1"),
        ("chat/*", "chat/room-1"),
        ("**", "chat/room-1"),
        ("a/b", "a%2Fb"),
        ("a%2Fb", "a%2Fb"),
        ("a%2Fb", "a/b"),
        ("my%20room", "my%20room"),
        ("e\u0301", "%C3%A9"),
        ("chat/room-1\n", "chat/room-1"),
        ("chat/room-1\0", "chat/room-1"),
    ],
)
def test_signed_name_of_another_path_is_refused(name: str, path: str) -> None:
    signed = Credentials(signed=sign(name, SECRET))
    assert outcome(Operation.READ, path, signed) is BadCredentials


def test_an_encoded_name_is_another_name() -> None:
    signed = Credentials(signed=sign("my%20room", SECRET))
    assert outcome(Operation.READ, "my%2520room", signed) == "signed"


def test_names_are_signed_with_the_secret_of_streams_and_not_with_those_of_turbo() -> None:
    authorizer = Authorizer(
        Settings(secret="a", streams_secret="b", turbo_streams_secret="c", cable_ready_secret="d")
    )
    for secret, expected in (("b", "signed"), *((each, BadCredentials) for each in "acd")):
        credentials = Credentials(signed=sign(PRIVATE, secret))
        assert outcome(Operation.READ, PRIVATE, credentials, authorizer) == expected


def test_without_a_secret_no_name_is_good() -> None:
    cleared = Settings(streams_secret="none", secret=SECRET)
    for each in (Authorizer(cleared), Authorizer(Settings(public_streams="true"))):
        for secret in (SECRET, "none"):
            credentials = Credentials(signed=sign(PRIVATE, secret))
            assert outcome(Operation.READ, PRIVATE, credentials, each) is BadCredentials


def test_two_secrets_allow_a_rotation() -> None:
    old, new = sign(PRIVATE, "old"), sign(PRIVATE, "new")
    during, after = Authorizer(Settings(secret="old new")), Authorizer(Settings(secret="new"))
    for signed in (old, new):
        credentials = Credentials(signed=signed)
        assert outcome(Operation.READ, PRIVATE, credentials, during) == "signed"
    assert outcome(Operation.READ, PRIVATE, Credentials(signed=old), after) is BadCredentials
    assert outcome(Operation.READ, PRIVATE, Credentials(signed=new), after) == "signed"


# Identity


def test_decision_names_the_client() -> None:
    def subject(credentials: Credentials) -> str | None:
        return AUTHORIZER.authorize(Operation.READ, PRIVATE, credentials, NOW).subject

    signed = Credentials(signed=sign(PRIVATE, SECRET))
    assert subject(signed) is None
    assert subject(replace(signed, jid=identity("ada-jid"))) == "ada-jid"
    assert subject(token("read")) == "ada"
    assert subject(replace(token("read"), jid=identity("ada-jid"))) == "ada"
    nameless = Credentials(bearer=bearer(without="sub"), jid=identity("ada-jid"))
    assert subject(nameless) == "ada-jid"
    assert AUTHORIZER.authorize(Operation.READ, PUBLIC, token("read"), NOW).subject == "ada"


def enforcing(**overrides: Any) -> Authorizer:
    return Authorizer(
        Settings(secret=SECRET, enforce_jwt=True, public_streams="news/*", **overrides)
    )


@pytest.mark.parametrize("operation", READS)
def test_reading_requires_an_identity_when_enforced(operation: Operation) -> None:
    signed = Credentials(signed=sign(PRIVATE, SECRET))
    authorizer = enforcing()
    assert outcome(operation, PRIVATE, signed, authorizer) is CredentialsMissing
    with_identity = replace(signed, jid=identity())
    assert outcome(operation, PRIVATE, with_identity, authorizer) == "signed"
    assert outcome(operation, PRIVATE, token("read"), authorizer) == "bearer"
    assert (
        outcome(operation, PRIVATE, Credentials(jid=identity()), authorizer) is CredentialsMissing
    )
    assert outcome(operation, PRIVATE, NONE, authorizer) is CredentialsMissing


def test_empty_identity_counts() -> None:
    credentials = Credentials(signed=sign(PRIVATE, SECRET), jid=identity(""))
    assert outcome(Operation.READ, PRIVATE, credentials, enforcing()) == "signed"


def test_public_stream_is_private_when_identities_are_enforced() -> None:
    """A shared cache would serve it to clients without an identity."""
    authorizer = enforcing()
    with pytest.raises(CredentialsMissing):
        authorizer.authorize(Operation.READ, PUBLIC, NONE, NOW)
    credentials = Credentials(jid=identity())
    assert authorizer.authorize(Operation.READ, PUBLIC, credentials, NOW) == Decision(
        True, "ada-jid", "public"
    )


def test_writing_requires_no_identity() -> None:
    assert outcome(Operation.APPEND, PRIVATE, token("write"), enforcing()) == "bearer"
    assert outcome(Operation.BROADCAST, PRIVATE, BROADCAST_KEY, enforcing()) == "broadcast key"


def test_skip_auth_ignores_identities_but_not_streams() -> None:
    authorizer = enforcing(skip_auth=True)
    signed = Credentials(signed=sign(PRIVATE, SECRET))
    for jid in (None, "x", identity(secret=SECRET[1:]), identity(exp=1)):
        assert outcome(Operation.READ, PRIVATE, replace(signed, jid=jid), authorizer) == "signed"
        assert outcome(Operation.READ, PUBLIC, Credentials(jid=jid), authorizer) == "public"
        assert (
            outcome(Operation.READ, PRIVATE, Credentials(jid=jid), authorizer) is CredentialsMissing
        )
        forged = Credentials(signed="x", jid=jid)
        assert outcome(Operation.READ, PRIVATE, forged, authorizer) is BadCredentials


def test_enforcing_identities_requires_a_key() -> None:
    enforced = Settings(enforce_jwt=True)
    for lacking in (
        enforced,
        replace(enforced, streams_secret="s"),
        replace(enforced, secret="s", jwt_secret="none"),
    ):
        with pytest.raises(BadSetting, match="TAILRACE_ENFORCE_JWT needs"):
            Authorizer(lacking)
    assert not Authorizer(replace(enforced, skip_auth=True)).open
    assert not Authorizer(replace(enforced, jwt_algorithm="EdDSA", jwks="keys.json")).open


# Public streams


@pytest.mark.parametrize("text", ["true", "True", "1", "yes", " true ", "**"])
def test_all_streams_may_be_public(text: str) -> None:
    authorizer = Authorizer(Settings(public_streams=text))
    for operation, path in product(READS, (PRIVATE, FOREIGN, "a%2Fb", "true")):
        assert authorizer.authorize(operation, path, NONE, NOW) == Decision(False, None, "public")
    for operation in set(Operation) - set(READS):
        assert outcome(operation, PRIVATE, NONE, authorizer) is CredentialsMissing


@pytest.mark.parametrize("text", ["false", "FALSE", "0", "no", " ", ",", "none/*"])
def test_no_stream_may_be_public(text: str) -> None:
    authorizer = Authorizer(Settings(public_streams=text))
    assert not authorizer.open
    assert outcome(Operation.READ, PRIVATE, NONE, authorizer) is CredentialsMissing


def test_streams_may_be_public_by_pattern() -> None:
    authorizer = Authorizer(Settings(public_streams="news/*, status/** a"))
    for path in ("news/today", "status/a/b", "a"):
        assert outcome(Operation.READ, path, NONE, authorizer) == "public"
    for path in ("news", "news/a/b", "statuses", "b", "news%2Ftoday"):
        assert outcome(Operation.READ, path, NONE, authorizer) is CredentialsMissing


@pytest.mark.parametrize(
    "credentials",
    [
        Credentials(bearer="x"),
        Credentials(signed="x"),
        Credentials(jid="x"),
        Credentials(fault="x"),
    ],
    ids=repr,
)
def test_bad_credential_is_refused_even_if_none_is_needed(credentials: Credentials) -> None:
    assert outcome(Operation.READ, PUBLIC, credentials) is BadCredentials
    without_secrets = Authorizer(Settings(public_streams="true"))
    assert outcome(Operation.READ, PUBLIC, credentials, without_secrets) is BadCredentials


# Open and closed


def test_a_server_without_secrets_is_open() -> None:
    authorizer = Authorizer(Settings())
    assert authorizer.open
    for operation, path in product(Operation, (PRIVATE, "")):
        for credentials in (NONE, Credentials(bearer="x"), Credentials(fault="x"), token("read")):
            assert authorizer.authorize(operation, path, credentials, NOW) == Decision(
                False, None, "open"
            )


SOME = {
    "secret": "s", "streams_secret": "s", "turbo_streams_secret": "s", "cable_ready_secret": "s",
    "broadcast_key": "s", "api_secret": "s", "public_streams": "false", "jwt_secret": "s",
    "jwt_algorithm": "HS512", "jwt_audience": "a", "jwt_issuer": "i", "jwt_max_age": 60,
    "jwt_param": "p",
}  # fmt: skip


@pytest.mark.parametrize("name", SOME)
def test_one_setting_closes_the_server(name: str) -> None:
    overrides: dict[str, Any] = {name: SOME[name]}
    assert not Authorizer(Settings(**overrides)).open
    assert Authorizer(Settings(**overrides, access="open")).open


def test_every_access_setting_closes_the_server() -> None:
    assert set(CLOSING) == {*SOME, "jwks", "enforce_jwt"}
    assert not Authorizer(Settings(jwt_algorithm="EdDSA", jwks="keys.json")).open
    assert not Authorizer(Settings(enforce_jwt=True, skip_auth=True)).open


@pytest.mark.parametrize("name", ["secret", "jwt_secret", "streams_secret"])
def test_removing_a_secret_does_not_open_the_server(name: str) -> None:
    for value in ("none", " "):
        overrides: dict[str, Any] = {name: value}
        assert (
            outcome(Operation.READ, PRIVATE, NONE, Authorizer(Settings(**overrides)))
            is CredentialsMissing
        )


def test_closed_server_without_secrets_refuses_everyone() -> None:
    authorizer = Authorizer(Settings(access="closed"))
    assert not authorizer.open
    candidates = [
        NONE,
        *(credentials for credentials, _ in EXPECTED.values()),
        token("admin", secret="x" * 32),
    ]
    for operation, credentials in product(Operation, candidates):
        assert isinstance(outcome(operation, PRIVATE, credentials, authorizer), type)


def test_other_settings_leave_the_server_open() -> None:
    assert Authorizer(Settings(skip_auth=True, allowed_origins="https://a.example", port=1)).open


# Errors


def test_a_listing_needs_all_below_its_prefix() -> None:
    one_level = token("read", streams="chat/*")
    assert AUTHORIZER.authorize(Operation.READ, "chat/1", one_level, NOW).reason == "bearer"
    with pytest.raises(NotAllowed):
        AUTHORIZER.authorize(Operation.LIST, "chat/", one_level, NOW)
    every_level = token("read", streams="chat/**")
    assert AUTHORIZER.authorize(Operation.LIST, "chat/", every_level, NOW).reason == "bearer"


def test_each_error_has_its_own_challenge() -> None:
    kinds = (CredentialsMissing, BadCredentials, TokenExpired, NotAllowed)
    assert len({kind.challenge for kind in kinds}) == len({kind.code for kind in kinds}) == 4
    for kind in kinds:
        assert kind.challenge.startswith('Bearer realm="tailrace"')
        assert kind.challenge.isascii()
        assert kind.challenge.isprintable()


def test_error_names_the_requirement_and_not_the_credentials() -> None:
    with pytest.raises(NotAllowed, match=r"a bearer token with the scope write for the stream$"):
        AUTHORIZER.authorize(Operation.APPEND, PRIVATE, token("read"), NOW)
    with pytest.raises(CredentialsMissing, match=r"scope read for the stream, or its signed name$"):
        AUTHORIZER.authorize(Operation.READ, PRIVATE, NONE, NOW)
    with pytest.raises(CredentialsMissing, match=r"scope read for everything below the prefix$"):
        AUTHORIZER.authorize(Operation.LIST, "", NONE, NOW)
    forged = sign(PRIVATE, "forger")
    with pytest.raises(BadCredentials) as refusal:
        AUTHORIZER.authorize(Operation.READ, PRIVATE, Credentials(signed=forged), NOW)
    assert forged.split("--")[0] not in str(refusal.value)


def test_authorizer_does_not_expose_secrets() -> None:
    assert SECRET not in f"{AUTHORIZER!r} {vars(AUTHORIZER)}"
