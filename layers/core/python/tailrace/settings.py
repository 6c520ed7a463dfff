"""All settings, in groups by component.

A setting is a field of `Settings`. Its name is its key in the config file; its environment variable
is `TAILRACE_` and the name in capitals, its command line flag the name with dashes.
`docs/settings.md` lists all settings, and a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Final, NamedTuple

from tailrace.errors import BadSetting

PREFIX = "TAILRACE_"

_ROUTE: Final = re.compile(r"(?:/[A-Za-z0-9._~-]+)+")
_URL: Final = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(?:/[A-Za-z0-9._~-]+)*/?")
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
    fallback: str = "",
) -> Any:
    """Define a setting: its default, its sentence in the docs and in `--help`, and valid values.

    `least`, `most`: bounds of a number.
    `check` raises `BadSetting` for an invalid value; its message follows the setting's name.
    `serve`: whether `tailrace serve` has a flag for it; the others are for a deployment on AWS.
    `secret`: the value is never shown, and has no flag, because every user of a machine can read
    the command lines of its processes.
    `fallback`: a variable to use if the setting's own is not set."""
    metadata = {
        "doc": doc, "least": least, "most": most, "choices": choices, "check": check,
        "serve": serve and not secret, "secret": secret, "fallback": fallback,
    }  # fmt: skip
    return field(default=default, metadata=metadata, repr=not secret)


def check_route(path: str) -> None:
    """Raise BadSetting unless the text is empty or a path such as /cable."""
    if path and not _ROUTE.fullmatch(path):
        raise BadSetting(f"must be empty or a path such as /cable, not {path!r}")


def check_url(url: str) -> None:
    """Raise BadSetting unless the text is empty or the URL of an application."""
    if url and not _URL.fullmatch(url):
        raise BadSetting("must be empty or a URL such as http://127.0.0.1:3000/_anycable")


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """The HTTP server."""

    host: str = setting("127.0.0.1", "Address to listen on.")
    port: int = setting(4437, "Port to listen on; 0 picks a free one.", least=0, most=65535)
    public_url: str = setting(
        "",
        "Base URL at which clients reach the server, used for `Location`; empty: taken from "
        "`Host`.",
    )
    console: bool = setting(True, "Serve the console to browsers at `/`.")
    ds_path: str = setting(
        "/ds",
        "Second path below which streams are served, as AnyCable's clients expect it: a stream "
        "that does not exist yet reads as empty there; empty: disabled.",
        check=check_route,
    )
    long_poll_timeout: float = setting(
        25.0,
        "How long a long-poll waits for data before it is answered with 204, in seconds.",
        least=0.01,
        most=3600,
    )
    sse_lifetime: float = setting(
        60.0,
        "How long an SSE response lasts, in seconds; its client then reconnects, so that "
        "caches can collapse readers.",
        least=0.1,
        most=3600,
    )
    chunk_bytes: int = setting(
        1 << 20,
        "Chunk size: a catch-up response ends after the first entry that passes a multiple of "
        "it, in bytes.",
        least=1024,
        most=1 << 30,
    )
    max_body_bytes: int = setting(
        32 << 20, "Largest request body, in bytes; a larger one gets 413.", least=1024, most=1 << 30
    )
    body_memory: int = setting(
        256 << 20,
        "Memory for the request bodies in progress, over all clients, in bytes; when it is "
        "used up, requests get 503.",
        least=1 << 20,
    )
    append_rate: float = setting(
        0.0,
        "Appends and creations per second that one client may send, with bursts of twice that;"
        " 0: unlimited.",
        least=0,
        most=1_000_000,
    )
    live_connections: int = setting(
        0,
        "Long-polls and SSE responses that one client may have open at once; 0: unlimited.",
        least=0,
    )
    streams_per_prefix: str = setting(
        "",
        "Maximum number of streams below a prefix, as rules such as users/*/=100; chat/=5000.",
    )
    shutdown_grace: float = setting(
        5.0,
        "How long requests in progress may take to finish after SIGTERM, in seconds.",
        least=0,
        most=3600,
    )
    read_only: bool = setting(
        False, "Serve reads only: writes get 405, nothing is swept, and reads do not renew a TTL."
    )
    log_level: str = setting(
        "info",
        "Log level: debug, info, warning or error.",
        choices=("debug", "info", "warning", "error"),
    )
    log_format: str = setting(
        "auto",
        "Format of the log: text, json, or auto: text on a terminal, JSON elsewhere.",
        choices=("auto", "text", "json"),
    )
    log_sample: float = setting(
        0.01,
        "Share of the successful requests that get a line in a log in JSON, 0 to 1; errors and "
        "slow requests always get one, and in text every request does.",
        least=0,
        most=1,
    )
    log_slow: float = setting(
        1.0,
        "Duration from which on a request counts as slow, in seconds; waiting for data is no "
        "delay.",
        least=0.001,
        most=3600,
    )
    metrics_key: str = setting(
        "",
        "Key for GET /metrics, as a bearer token; empty: it needs a token that may list all "
        "streams, unless access is open.",
        secret=True,
    )


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """Storage of the log."""

    data: str = setting("./data", "Directory of the embedded store; created if missing.")
    store: str = setting(
        "sqlite",
        "Storage backend: sqlite (embedded) or dynamodb.",
        choices=("sqlite", "dynamodb"),
    )
    table: str = setting("tailrace", "DynamoDB table that holds the log.")
    bucket: str = setting(
        "",
        "S3 bucket for large bodies; empty: none, or `tailrace` if the endpoint is local.",
    )
    endpoint_url: str = setting(
        "", "Endpoint of DynamoDB and S3; empty: resolved as every AWS SDK does."
    )
    create_table: bool = setting(
        False,
        "Create the table and the bucket if they are missing; always done on a local endpoint.",
    )
    poll_fastest: float = setting(
        0.025,
        "Pause between two polls of DynamoDB for the waiting readers of a stream that had news in "
        "the last five minutes, in seconds.",
        least=0.005,
        most=60,
    )
    poll_slowest: float = setting(
        0.25,
        "Longest such pause, after hours of silence, in seconds; never below the shortest.",
        least=0.005,
        most=60,
    )
    hot_bytes: int = setting(
        128 << 20,
        "Memory for the newest entries of all streams, kept ready to send, in bytes.",
        least=0,
    )
    open_streams: int = setting(
        100_000, "Number of streams whose tail is kept in memory between requests.", least=16
    )
    inline_bytes: int = setting(
        64 << 10,
        "Largest body stored in the database, in bytes; a larger one gets its own file or S3 "
        "object.",
        least=1024,
        most=1 << 30,
    )
    sweep_interval: float = setting(
        30.0,
        "How often expired streams and orphaned files are removed, in seconds; 0: never.",
        least=0,
        most=86_400,
    )


@dataclass(frozen=True, kw_only=True)
class SegmentSettings:
    """Segments of older entries, and retention."""

    trim_grace: int = setting(
        86_400,
        "How long slots stay in DynamoDB after they are archived or deleted, in seconds.",
        least=120,
        most=31_536_000,
    )
    compact_interval: float = setting(
        3600.0,
        "How often full segments are moved from the database into files, in seconds; 0: never.",
        least=0,
        most=31_536_000,
    )
    segment_max_messages: int = setting(
        1000,
        "Number of entries that fill a segment; fewer stay in the database.",
        least=1,
        most=10_000,
    )
    segment_max_bytes: int = setting(
        4 << 20,
        "Number of bytes that fill a segment, even with fewer entries.",
        least=1024,
        most=64 << 20,
    )
    segment_target_bytes: int = setting(
        32 << 20,
        "Size up to which a stream's segments are merged, in bytes.",
        least=1024,
        most=256 << 20,
    )
    retention: str = setting(
        "",
        "What streams retain, as rules such as logs/*=7d,1GB; **=90d. Empty: everything, forever.",
    )


@dataclass(frozen=True, kw_only=True)
class AuthSettings:
    """Authorization."""

    access: str = setting(
        "auto",
        "Access control: open allows everyone everything, closed requires credentials. auto: "
        "closed as soon as a secret, a JWT setting or public streams are configured.",
        choices=("auto", "open", "closed"),
    )
    secret: str = setting(
        "", "Secret for every purpose that has no secret of its own.", secret=True
    )
    streams_secret: str = setting(
        "", "Secret for signed stream names; empty: TAILRACE_SECRET.", secret=True
    )
    turbo_streams_secret: str = setting(
        "", "Secret for Turbo's signed stream names; empty: TAILRACE_STREAMS_SECRET.", secret=True
    )
    cable_ready_secret: str = setting(
        "", "Secret for CableReady's signed names; empty: TAILRACE_STREAMS_SECRET.", secret=True
    )
    public_streams: str = setting(
        "", "Streams that anyone may read: true for all, or patterns such as news/*, status/**."
    )
    jwt_secret: str = setting(
        "",
        "Secret for tokens signed with HS256, HS384 or HS512; empty: TAILRACE_SECRET.",
        secret=True,
    )
    jwt_algorithm: str = setting(
        "HS256",
        "The only algorithm accepted for bearer tokens; RS256, ES256 and EdDSA need TAILRACE_JWKS.",
        choices=("HS256", "HS384", "HS512", "RS256", "ES256", "EdDSA"),
    )
    jwks: str = setting(
        "",
        "Public keys for bearer tokens: the https URL of a JWK set, or a file.",
    )
    jwt_audience: str = setting(
        "",
        "Audience (`aud`) that bearer tokens must have; empty: tokens with an audience are "
        "refused.",
    )
    jwt_issuer: str = setting(
        "", "Issuer (`iss`) that bearer tokens must have; empty: tokens with an issuer are refused."
    )
    jwt_max_age: int = setting(
        2_592_000,
        "How far ahead the `exp` of a bearer token may be, in seconds.",
        least=60,
        most=315_360_000,
    )
    jwt_param: str = setting(
        "jid",
        "Query parameter of identification tokens; their header is X- followed by this name.",
    )
    enforce_jwt: bool = setting(
        False,
        "Readers must also identify themselves, with an identification token or a bearer token.",
    )
    skip_auth: bool = setting(
        False,
        "Neither require nor check identification tokens; which streams may be read stays the "
        "same.",
    )
    allowed_hosts: str = setting(
        "",
        "Host names, besides those of loopback, accepted by a server that is open only because"
        " it listens on loopback, such as mybox.local, *.test; `*`: any.",
    )
    trusted_proxies: str = setting(
        "",
        "Addresses and networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are "
        "trusted, such as 10.0.0.0/8; empty: none.",
    )
    allowed_origins: str = setting(
        "",
        "Origins whose pages may use the server, such as https://a.example, *.b.example; "
        "empty: all.",
    )
    broadcast_key: str = setting(
        "", "Key for POST /_broadcast; empty: derived from TAILRACE_SECRET.", secret=True
    )
    api_secret: str = setting(
        "",
        "Key for the REST API of AnyCable; empty: derived from TAILRACE_SECRET. Without either, the"
        " API is disabled.",
        secret=True,
    )


@dataclass(frozen=True, kw_only=True)
class CableSettings:
    """Action Cable."""

    cable_path: str = setting(
        "/cable", "Path of the Action Cable WebSocket; empty: disabled.", check=check_route
    )
    broadcast_path: str = setting(
        "/_broadcast",
        "Path to which applications post broadcasts; empty: disabled.",
        check=check_route,
    )
    api_path: str = setting(
        "/api",
        "Path below which the REST API of AnyCable is; empty: disabled.",
        check=check_route,
    )
    events_path: str = setting(
        "",
        "Path that serves cable messages as server-sent events, such as /events; empty: disabled.",
        check=check_route,
    )
    events_lifetime: float = setting(
        0.0,
        "How long a response with cable messages lasts, in seconds; its client then "
        "reconnects. 0: unlimited.",
        least=0,
        most=3600,
    )
    rpc_url: str = setting(
        "",
        "URL of an application that serves its channels by AnyCable's RPC over HTTP, such as"
        " http://127.0.0.1:3000/_anycable; empty: none.",
        check=check_url,
    )
    http_rpc_secret: str = setting(
        "", "Key sent to that application; empty: derived from TAILRACE_SECRET.", secret=True
    )
    rpc_concurrency: int = setting(
        28,
        "Number of calls of that application at the same time: fewer than it has threads.",
        least=1,
        most=10_000,
    )
    rpc_request_timeout: float = setting(
        3.0,
        "How long that application may take to answer a call, in seconds.",
        least=0.01,
        most=60,
    )
    rpc_headers: str = setting(
        "cookie", "Headers of a client's handshake that are passed on to that application."
    )
    turbo_streams: bool = setting(
        False, "Accept Turbo's signed stream names on Turbo::StreamsChannel."
    )
    cable_ready: bool = setting(False, "Accept CableReady's signed names on CableReady::Stream.")
    streams_whisper: bool = setting(
        False,
        "Let subscribers of signed streams whisper; subscribers of public streams always may.",
    )
    whisper_rate: float = setting(
        50.0,
        "Whispers per second that one cable client may send, with bursts of twice that; 0: "
        "unlimited.",
        least=0,
        most=1_000_000,
    )
    streams_presence: bool = setting(True, "Let subscribers of streams join their presence lists.")
    ping_interval: float = setting(
        3.0,
        "Interval between pings to cable clients, in seconds; they reconnect after 6 seconds "
        "without one.",
        least=0.1,
        most=3600,
    )
    sessions_ttl: int = setting(
        300,
        "How long a cable client that dropped may resume its session, in seconds.",
        least=0,
        most=86_400,
    )
    presence_ttl: int = setting(
        15,
        "How long a client that dropped without leaving stays in the presence list, in seconds.",
        least=0,
        most=86_400,
    )
    cable_ttl: int = setting(
        0,
        "How long a stream created by a broadcast may go unused before it expires, in seconds;"
        " 0: forever.",
        least=0,
        most=31_536_000,
    )


@dataclass(frozen=True, kw_only=True)
class SubscriptionSettings:
    """Subscriptions."""

    subscription_runner: bool = setting(
        True,
        "Wake the subscriptions to streams that this server appends to, and do what is due of"
        " all; off: something else does, such as the functions of a deployment.",
    )
    webhook_loopback: bool = setting(
        False,
        "Accept webhooks on this machine, also by http, for development; always on if the server"
        " is open only because it listens on loopback.",
    )


@dataclass(frozen=True, kw_only=True)
class AvisoSettings:
    """Aviso."""

    aviso_schema: str = setting(
        "",
        "Event types of Aviso: a YAML file or s3://bucket/key; empty: the built-in ones.",
        fallback="AVISOSERVER_CONFIG_FILE",
    )
    aviso_heartbeat: float = setting(
        30.0,
        "Interval between heartbeats on a watch, in seconds.",
        least=0.1,
        most=3600,
        fallback="AVISOSERVER_WATCH_ENDPOINT__SSE_HEARTBEAT_INTERVAL_SEC",
    )
    aviso_max_duration: float = setting(
        3600.0,
        "How long a watch or replay lasts, in seconds; its client then reconnects.",
        least=0.1,
        most=86_400,
        fallback="AVISOSERVER_WATCH_ENDPOINT__CONNECTION_MAX_DURATION_SEC",
    )
    aviso_batch: int = setting(
        100,
        "Number of notifications that a replay sends at once.",
        least=1,
        most=10_000,
        fallback="AVISOSERVER_WATCH_ENDPOINT__REPLAY_BATCH_SIZE",
    )
    aviso_replay_limit: int = setting(
        10_000,
        "Maximum number of notifications in one replay; one with more ends with a limit frame.",
        least=1,
        fallback="AVISOSERVER_WATCH_ENDPOINT__MAX_HISTORICAL_NOTIFICATIONS",
    )
    aviso_base_url: str = setting(
        "",
        "The `source` of Aviso's events; empty: TAILRACE_PUBLIC_URL, or http://localhost.",
        fallback="AVISOSERVER_APPLICATION__BASE_URL",
    )
    aviso_admin_roles: str = setting(
        "", "Roles that may delete notifications, by realm, such as ops=admin,lead; lab=*."
    )


@dataclass(frozen=True, kw_only=True)
class AwsSettings:
    """Settings that the stacks pass to Lambda functions and containers."""

    origin_secret: str = setting(
        "",
        "Secret that CloudFront sends with every request: the ARN of a secret in Secrets "
        "Manager, or the value itself.",
        serve=False,
        secret=True,
    )
    access_secret: str = setting(
        "",
        "Access settings as a JSON object: the ARN of a secret in Secrets Manager that holds "
        "it, or the object itself.",
        serve=False,
        secret=True,
    )
    subscription_keys: str = setting(
        "",
        "Secret from which the keys of subscriptions are derived: the ARN of a secret in Secrets "
        "Manager, or the value itself; empty: the data directory has a file with one.",
        serve=False,
        secret=True,
    )
    edge_keys: str = setting(
        "", "ARN of the key-value store from which the edge function reads its keys.", serve=False
    )
    distribution: str = setting(
        "",
        "Id of the CloudFront distribution whose cache is purged of deleted streams.",
        serve=False,
    )
    missing_waits: int = setting(
        100,
        "Number of reads that may wait at once for streams that do not exist, in all functions"
        " together: each keeps one busy.",
        serve=False,
        least=1,
        most=10_000,
    )
    cable_endpoint: str = setting(
        "",
        "Management URL of the WebSocket API through which broadcasts are delivered.",
        serve=False,
    )
    webhooks: str = setting(
        "", "Name of the function that sends the webhooks of subscriptions.", serve=False
    )
    heartbeat: str = setting(
        "", "Name of the function that pings the clients of that WebSocket API.", serve=False
    )
    read_only_renews: bool = setting(
        False, "Let reads renew a TTL even if only reads are served.", serve=False
    )
    cursor_interval: float = setting(
        0.0,
        "Length of the intervals in which the cache in front counts the cursors that it sends, in "
        "seconds; 0: it sends those of readers.",
        least=0,
        most=3600,
        serve=False,
    )
    metrics_interval: float = setting(
        0.0,
        "Interval between the lines in which a container logs its metrics, in seconds; 0: none.",
        least=0,
        most=3600,
        serve=False,
    )
    sse_shared: bool = setting(
        False,
        "End an SSE response after the first data, or after `long_poll_timeout` without, so that "
        "the cache in front gives it to all readers that wait.",
        serve=False,
    )


@dataclass(frozen=True, kw_only=True)
class Settings(
    AwsSettings,
    AvisoSettings,
    SubscriptionSettings,
    CableSettings,
    AuthSettings,
    SegmentSettings,
    StoreSettings,
    ServerSettings,
):
    """All settings; each component takes its own group."""

    @classmethod
    def from_values(cls, values: Iterator[Given]) -> Settings:
        """Parse the values that are given; everything else has its default."""
        return cls(
            **{each.setting.name: parse(each.setting, each.value, each.source) for each in values}
        )


GROUPS: Final = {
    "Server": ServerSettings,
    "Store": StoreSettings,
    "Segments and retention": SegmentSettings,
    "Access": AuthSettings,
    "Action Cable": CableSettings,
    "Subscriptions": SubscriptionSettings,
    "Aviso": AvisoSettings,
    "Functions on AWS": AwsSettings,
}
"""The groups of settings, by their titles in the documentation."""


class Given(NamedTuple):
    """The value of a setting, and its source: a flag, a variable, or a key of the config file."""

    setting: Field[Any]
    value: Any
    source: str


class ConfigFile(NamedTuple):
    """The values of a config file, by the names of their settings."""

    path: str
    values: Mapping[str, Any]


NO_FILE: Final = ConfigFile("", {})


def given(env: Mapping[str, str], file: ConfigFile, flags: Mapping[str, Any]) -> Iterator[Given]:
    """The values that are given. A flag precedes a variable, a variable the config file."""
    for setting in fields(Settings):
        fallback = setting.metadata["fallback"]
        if flags.get(setting.name) is not None:
            yield Given(setting, flags[setting.name], flag(setting))
        elif variable(setting) in env:
            yield Given(setting, env[variable(setting)], variable(setting))
        elif fallback in env:
            yield Given(setting, env[fallback], fallback)
        elif setting.name in file.values:
            yield Given(setting, file.values[setting.name], f"{setting.name} in {file.path}")


def variable(setting: Field[Any]) -> str:
    """The environment variable of a setting."""
    return PREFIX + setting.name.upper()


def flag(setting: Field[Any]) -> str:
    """The flag of a setting."""
    return "--" + setting.name.replace("_", "-")


def parse(setting: Field[Any], value: Any, source: str) -> Any:
    """Parse a setting's value, or raise `BadSetting` with its source and what it must be."""
    shown = "the given value" if setting.metadata["secret"] else repr(value)
    kind: type[Any] = type(setting.default)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    try:
        parsed = _SWITCH[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        expected = {bool: "true or false", int: "a whole number"}.get(kind, "a number")
        raise BadSetting(f"{source} must be {expected}, not {shown}") from None
    choices = setting.metadata["choices"]
    if choices and parsed not in choices:
        raise BadSetting(f"{source} must be one of {', '.join(choices)}, not {shown}")
    least, most = setting.metadata["least"], setting.metadata["most"]
    if least is not None and not parsed >= least:
        raise BadSetting(f"{source} must be at least {least}, not {shown}")
    if most is not None and not parsed <= most:
        raise BadSetting(f"{source} must be at most {most}, not {shown}")
    check = setting.metadata["check"]
    if check is not None:
        try:
            check(parsed)
        except BadSetting as error:
            raise BadSetting(f"{source} {error}") from None
    return parsed
