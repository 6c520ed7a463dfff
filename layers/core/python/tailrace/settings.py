"""Every setting of Tailrace, once, in groups by component.

A setting is a field of `Settings`. Its environment variable is `TAILRACE_` and the field's name in
capitals, its command line flag is the name with dashes; both are derived, never written down twice.
`docs/settings.md` lists them all, and a test fails when it does not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Final

from tailrace.errors import BadSetting

PREFIX = "TAILRACE_"

_ROUTE: Final = re.compile(r"(?:/[A-Za-z0-9._~-]+)+")
_SWITCH: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def setting(
    default: Any,
    doc: str,
    *,
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
    check: Callable[[Any], object] | None = None,
    serve: bool = True,
    secret: bool = False,
    also: str = "",
) -> Any:
    """One setting: its default, the sentence the docs and `--help` show, and what it may be.

    `check` raises `BadSetting` for what it may not be.
    `serve`: whether `tailrace serve` has a flag for it; the others are for Lambda functions.
    `secret`: its value is shown nowhere, and it has no flag, for every user of a machine can read
    the command lines of all.
    `also`: another variable that counts where its own is not given."""
    metadata = {
        "doc": doc, "least": least, "most": most, "choices": choices, "check": check,
        "serve": serve and not secret, "secret": secret, "also": also,
    }  # fmt: skip
    return field(default=default, metadata=metadata, repr=not secret)


def check_route(path: str) -> None:
    if path and not _ROUTE.fullmatch(path):
        raise BadSetting(f"a path of a route is such as /cable, not {path!r}")


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """The local server, and what HTTP and its clients get."""

    host: str = setting("127.0.0.1", "Address to listen on.")
    port: int = setting(4437, "Port to listen on; 0 picks a free one.", least=0, most=65535)
    public_url: str = setting(
        "", "Base URL clients reach the server at, for `Location`; empty: the request's Host."
    )
    long_poll_timeout: float = setting(
        25.0, "Seconds a long-poll waits for data before it answers 204.", least=0.01, most=3600
    )
    sse_lifetime: float = setting(
        60.0,
        "Seconds after which an SSE response ends so that caches can collapse readers.",
        least=0.1,
        most=3600,
    )
    sse_keep_alive: float = setting(
        15.0,
        "Seconds of silence after which an SSE response gets a comment line.",
        least=0.1,
        most=3600,
    )
    chunk_bytes: int = setting(
        1 << 20,
        "A catch-up response ends at the first entry past a multiple of this many bytes.",
        least=1024,
        most=1 << 30,
    )
    cold_max_age: int = setting(
        86_400,
        "Seconds that caches may keep a chunk of history; less than 60 is taken for 60.",
        least=0,
        most=31_536_000,
    )
    max_body_bytes: int = setting(
        32 << 20, "Largest request body; more gets 413.", least=1024, most=1 << 30
    )
    body_memory: int = setting(
        256 << 20,
        "Memory for request bodies under way, of all clients together; beyond it they get 503.",
        least=1 << 20,
    )
    append_rate: float = setting(
        0.0,
        "Appends and creations a second that one client may send, in bursts twice that; 0: any.",
        least=0,
        most=1_000_000,
    )
    live_connections: int = setting(
        0, "Long-polls and SSE responses that one client may have at once; 0: any.", least=0
    )
    streams_per_prefix: str = setting(
        "",
        "How many streams there may be below prefixes, such as users/*/=100; chat/=5000.",
    )
    compress_bytes: int = setting(
        1024, "Smallest response body that is compressed; 0 turns compression off.", least=0
    )
    shutdown_grace: float = setting(
        5.0, "Seconds that requests under way get to finish after SIGTERM.", least=0, most=3600
    )
    read_only: bool = setting(
        False, "Only read: writes get 405, nothing is swept, and no read renews a TTL."
    )
    log_level: str = setting(
        "info",
        "How much the log says: debug, info, warning or error.",
        choices=("debug", "info", "warning", "error"),
    )


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """Where the log lives."""

    data: str = setting("./data", "Directory of the embedded store; created when missing.")
    store: str = setting(
        "sqlite",
        "Where the log lives: sqlite (embedded) or dynamodb.",
        choices=("sqlite", "dynamodb"),
    )
    table: str = setting("tailrace", "DynamoDB table of the log.")
    bucket: str = setting(
        "",
        "S3 bucket of large bodies; empty: none, or `tailrace` when the endpoint is local.",
    )
    endpoint_url: str = setting(
        "", "Endpoint of DynamoDB and S3; empty: as every AWS SDK finds it."
    )
    create_table: bool = setting(
        False, "Create the table and the bucket when missing; on a local endpoint always done."
    )
    check_table: bool = setting(
        True,
        "Look at the table when starting: that it is there, and made for Tailrace.",
        serve=False,
    )
    connections: int = setting(
        64, "Most connections to DynamoDB, and so calls under way at once.", least=1, most=4096
    )
    poll_fastest: float = setting(
        0.05,
        "Seconds between two looks at DynamoDB for a waiting reader, right after activity.",
        least=0.005,
        most=60,
    )
    poll_slowest: float = setting(
        0.5,
        "Seconds between two looks at DynamoDB for a waiting reader of an idle stream.",
        least=0.005,
        most=60,
    )
    hot_bytes: int = setting(
        128 << 20, "Memory for the newest entries of all streams, kept ready to send.", least=0
    )
    open_streams: int = setting(
        100_000, "Streams whose tail is kept in memory between requests.", least=16
    )
    inline_bytes: int = setting(
        64 << 10,
        "Bodies larger than this get a file, or an S3 object, of their own beside the database.",
        least=1024,
        most=1 << 30,
    )
    sweep_interval: float = setting(
        30.0,
        "Seconds between two sweeps for expired streams and orphaned files; 0: never.",
        least=0,
        most=86_400,
    )


@dataclass(frozen=True, kw_only=True)
class SegmentSettings:
    """How older entries move to segments, and how long they are kept."""

    trim_grace: int = setting(
        86_400,
        "Seconds that slots are kept in DynamoDB after they were archived or deleted.",
        least=120,
        most=31_536_000,
    )
    compact_interval: float = setting(
        3600.0,
        "Seconds between two compactions: full segments leave the database for files; 0: never.",
        least=0,
        most=31_536_000,
    )
    segment_max_messages: int = setting(
        1000,
        "Entries of a stream that make a segment; fewer stay in the database.",
        least=1,
        most=10_000,
    )
    segment_max_bytes: int = setting(
        4 << 20,
        "Bytes of a stream that make a segment, even of fewer entries.",
        least=1024,
        most=64 << 20,
    )
    segment_target_bytes: int = setting(
        32 << 20,
        "Bytes up to which segments of a stream are merged into one.",
        least=1024,
        most=256 << 20,
    )
    retention: str = setting(
        "",
        "What streams keep, by rules such as logs/*=7d,1GB; **=90d. Empty: all, forever.",
    )
    index_slots: int = setting(
        1_000_000,
        "Entries whose place in segments is kept in memory, at 24 bytes each.",
        least=0,
    )


@dataclass(frozen=True, kw_only=True)
class AuthSettings:
    """Who may do what."""

    access: str = setting(
        "auto",
        "Who may do what: open is everybody everything, closed is as credentials say. auto: closed"
        " once a secret, a jwt setting or public streams are given.",
        choices=("auto", "open", "closed"),
    )
    secret: str = setting(
        "", "Secret that the more special ones are taken from when they are not given.", secret=True
    )
    streams_secret: str = setting(
        "", "Secret of signed stream names; empty: TAILRACE_SECRET.", secret=True
    )
    turbo_streams_secret: str = setting(
        "", "Secret of Turbo's signed stream names; empty: TAILRACE_STREAMS_SECRET.", secret=True
    )
    cable_ready_secret: str = setting(
        "", "Secret of CableReady's signed names; empty: TAILRACE_STREAMS_SECRET.", secret=True
    )
    public_streams: str = setting(
        "", "Streams that everybody may read: true for all, or patterns such as news/*, status/**."
    )
    jwt_secret: str = setting(
        "", "Secret of tokens, HS256 to HS512; empty: TAILRACE_SECRET.", secret=True
    )
    jwt_algorithm: str = setting(
        "HS256",
        "The one algorithm of bearer tokens; RS256, ES256 and EdDSA need TAILRACE_JWKS.",
        choices=("HS256", "HS384", "HS512", "RS256", "ES256", "EdDSA"),
    )
    jwks: str = setting(
        "",
        "Public keys of bearer tokens: an https URL of a JWK set, or a file.",
    )
    jwt_audience: str = setting("", "The `aud` that bearer tokens must have; empty: none at all.")
    jwt_issuer: str = setting("", "The `iss` that bearer tokens must have; empty: none at all.")
    jwt_max_age: int = setting(
        2_592_000,
        "Seconds that the `exp` of a bearer token may be ahead.",
        least=60,
        most=315_360_000,
    )
    jwt_param: str = setting(
        "jid",
        "Query parameter of identification tokens; their header is X- and this.",
    )
    enforce_jwt: bool = setting(
        False, "Reading also takes an identification token, or a bearer token."
    )
    skip_auth: bool = setting(
        False, "Identification tokens are neither needed nor looked at; streams stay as they are."
    )
    allowed_hosts: str = setting(
        "",
        "Names, besides those of loopback, by which a server that is open only because it listens"
        " on loopback may be asked, such as mybox.local, *.test; `*`: any.",
    )
    trusted_proxies: str = setting(
        "",
        "Addresses and networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are"
        " believed, such as 10.0.0.0/8; empty: none.",
    )
    allowed_origins: str = setting(
        "",
        "Origins whose pages may use it, such as https://a.example, *.b.example; empty: all.",
    )
    broadcast_key: str = setting(
        "", "Key of POST /_broadcast; empty: derived from TAILRACE_SECRET.", secret=True
    )


@dataclass(frozen=True, kw_only=True)
class CableSettings:
    """Action Cable."""

    cable_path: str = setting(
        "/cable", "Path of Action Cable's WebSocket; empty: none.", check=check_route
    )
    broadcast_path: str = setting(
        "/_broadcast", "Path that applications post broadcasts to; empty: none.", check=check_route
    )
    events_path: str = setting(
        "",
        "Path of cable messages as server-sent events, such as /events; empty: none.",
        check=check_route,
    )
    events_lifetime: float = setting(
        0.0,
        "Seconds after which an answer with cable messages ends; its client comes back. 0: never.",
        least=0,
        most=3600,
    )
    turbo_streams: bool = setting(False, "Turbo::StreamsChannel takes Turbo's signed stream names.")
    cable_ready: bool = setting(False, "CableReady::Stream takes CableReady's signed names.")
    streams_whisper: bool = setting(
        False, "Subscribers of signed streams may whisper; those of public ones always may."
    )
    whisper_rate: float = setting(
        50.0,
        "Whispers a second that one cable client may send, in bursts twice that; 0: any.",
        least=0,
        most=1_000_000,
    )
    streams_presence: bool = setting(True, "Subscribers of streams may say that they are there.")
    ping_interval: float = setting(
        3.0,
        "Seconds between two pings on a cable; clients give up after twice 3.",
        least=0.1,
        most=3600,
    )
    sessions_ttl: int = setting(
        300, "Seconds after a drop in which a cable client may resume.", least=0, most=86_400
    )
    presence_ttl: int = setting(
        15, "Seconds that who dropped without leaving still counts as there.", least=0, most=86_400
    )
    cable_ttl: int = setting(
        0,
        "Seconds without use after which streams that broadcasts have created expire; 0: never.",
        least=0,
        most=31_536_000,
    )


@dataclass(frozen=True, kw_only=True)
class AvisoSettings:
    """Aviso."""

    aviso_schema: str = setting(
        "",
        "Event types of Aviso: a YAML file, or s3://bucket/key; empty: those that come along.",
        also="AVISOSERVER_CONFIG_FILE",
    )
    aviso_heartbeat: float = setting(
        30.0,
        "Seconds between two heartbeats of a watch.",
        least=0.1,
        most=3600,
        also="AVISOSERVER_WATCH_ENDPOINT__SSE_HEARTBEAT_INTERVAL_SEC",
    )
    aviso_max_duration: float = setting(
        3600.0,
        "Seconds after which a watch or replay ends and its client comes back.",
        least=0.1,
        most=86_400,
        also="AVISOSERVER_WATCH_ENDPOINT__CONNECTION_MAX_DURATION_SEC",
    )
    aviso_batch: int = setting(
        100,
        "Notifications that a replay sends at once.",
        least=1,
        most=10_000,
        also="AVISOSERVER_WATCH_ENDPOINT__REPLAY_BATCH_SIZE",
    )
    aviso_replay_limit: int = setting(
        10_000,
        "Most notifications of one replay; more end it with a limit frame.",
        least=1,
        also="AVISOSERVER_WATCH_ENDPOINT__MAX_HISTORICAL_NOTIFICATIONS",
    )
    aviso_base_url: str = setting(
        "",
        "The `source` of Aviso's events; empty: TAILRACE_PUBLIC_URL, or http://localhost.",
        also="AVISOSERVER_APPLICATION__BASE_URL",
    )
    aviso_admin_roles: str = setting(
        "", "Who may delete notifications, by realm and roles, such as ops=admin,lead; lab=*."
    )


@dataclass(frozen=True, kw_only=True)
class AwsSettings:
    """What only Lambda functions are told, by their stacks."""

    origin_secret: str = setting(
        "",
        "What CloudFront has to show: the ARN of a secret in Secrets Manager, or the value itself.",
        serve=False,
        secret=True,
    )
    access_secret: str = setting(
        "",
        "Who may do what: the ARN of a secret in Secrets Manager with a JSON object of access"
        " settings, or that object.",
        serve=False,
        secret=True,
    )
    edge_keys: str = setting(
        "", "ARN of the key-value store in which the edge finds its keys.", serve=False
    )
    distribution: str = setting(
        "",
        "Id of the CloudFront distribution that forgets what it has of deleted streams.",
        serve=False,
    )
    cable_endpoint: str = setting(
        "",
        "Management URL of the WebSocket API whose clients get what is broadcast.",
        serve=False,
    )
    heartbeat: str = setting(
        "", "Name of the function that pings clients of that API.", serve=False
    )


@dataclass(frozen=True, kw_only=True)
class Settings(
    AwsSettings,
    AvisoSettings,
    CableSettings,
    AuthSettings,
    SegmentSettings,
    StoreSettings,
    ServerSettings,
):
    """All settings. A component takes the group that is its own."""

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None, **given: Any) -> Settings:
        """Settings from the environment; what is `given` (and not None) wins."""
        env = os.environ if env is None else env
        values: dict[str, Any] = {}
        for setting in fields(cls):
            value = given.get(setting.name)
            if value is None:
                value = env.get(variable(setting), env.get(setting.metadata["also"]))
            if value is not None:
                values[setting.name] = parse(setting, value)
        return cls(**values)


def variable(setting: Field[Any]) -> str:
    return PREFIX + setting.name.upper()


def parse(setting: Field[Any], value: Any) -> Any:
    """The setting's value from text, or `BadSetting` naming the setting and what it takes."""
    given = "what was given" if setting.metadata["secret"] else repr(value)
    kind: type[Any] = type(setting.default)
    try:
        parsed = _SWITCH[str(value).lower()] if kind is bool else kind(value)
    except (KeyError, ValueError):
        wanted = {bool: "true or false", int: "a whole number"}.get(kind, "a number")
        raise BadSetting(f"{variable(setting)} must be {wanted}, not {given}") from None
    choices = setting.metadata["choices"]
    if choices and parsed not in choices:
        raise BadSetting(f"{variable(setting)} must be one of {', '.join(choices)}, not {given}")
    least, most = setting.metadata["least"], setting.metadata["most"]
    if least is not None and not parsed >= least:
        raise BadSetting(f"{variable(setting)} must be at least {least}, not {given}")
    if most is not None and not parsed <= most:
        raise BadSetting(f"{variable(setting)} must be at most {most}, not {given}")
    check = setting.metadata["check"]
    if check is not None:
        check(parsed)
    return parsed
