"""Costs of the service on AWS: calls and units of an operation, times their prices.

`docs/deploying.md` has the tables. Tests assert the calls, units and sizes that are assumed here
against the code and the templates, and that the tables are what this module computes. What nobody
can assert without an account is an assumption, and named as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Final

from tailrace.aws import prices
from tailrace.limits import (
    GATEWAY_CONNECTION_SHARDS,
    GATEWAY_DELIVERY_PARTS,
    GATEWAY_INDEX_SHARDS,
    GATEWAY_PART_PINGS,
    GATEWAY_PART_SUBSCRIBERS,
)

MILLION: Final = 1_000_000
MONTH_SECONDS: Final = 730 * 3600
MEGABYTE: Final = 1 / 1024
"""In the gigabytes that Lambda bills."""

# The deployment. Tests compare these with the templates.

HTTP_MEGABYTES: Final = 1024
WAIT_MEGABYTES: Final = 256
WAIT_SECONDS: Final = 25
LONGEST_WAIT_SECONDS: Final = 116
LIVE_MEGABYTES: Final = 512
DISPATCH_MEGABYTES: Final = 512
WEBHOOKS_MEGABYTES: Final = 256
HEARTBEAT_MEGABYTES: Final = 256
EDGE_FUNCTIONS: Final = 2
"""CloudFront functions that run for each request to a stream."""
FIREWALL_RULES: Final = 2
SSE_SECONDS: Final = 50
PING_SECONDS: Final = 3

CONTAINER_PROCESSORS: Final = 0.5
CONTAINER_GIGABYTES: Final = 1
CONTAINER_CONNECTIONS: Final = 5_000
CONTAINERS_MIN: Final = 2
CONTAINER_BUSY: Final = 0.6
"""The use of processors above which another container is added."""
CONTAINER_SECONDS: Final = 900
"""How long a response of a container lasts."""
INTERFACES: Final = 4
ZONES: Final = 2

# Units. Tests of the store and of observability assert them.

APPEND_WRITES: Final = 1
STALE_TAIL_READS: Final = 2
"""When another environment may have written since: the name and the tail."""
TRIM_WRITES: Final = 1
SHORT_LIFE: Final[Mapping[str, tuple[float, float]]] = {
    "create": (5.0, 1.0),
    "erase": (3.0, 5.0),
}
"""Write and read units of a stream that expires with one entry, by what is done to it."""
SEGMENT_ENTRIES: Final = 1000
SEGMENT_WRITES: Final = 4
MERGE_WRITES: Final = 64 / 8
"""For each of eight segments that are merged."""
DISPATCH_READS: Final = 1
"""For a batch of one entry that nobody has subscribed to."""
ROUND_WRITES: Final = 1
ROUND_READS: Final = 2 * GATEWAY_INDEX_SHARDS / 2
"""For a round of a heartbeat that serves all connections: their partitions of the index."""
PARTS_READS: Final = 1
"""More for a round of each of several heartbeats: their leases."""
DELIVERY_WRITES: Final = 2
PART_WRITES: Final = 1
PART_READS: Final = 2
"""For a part of a delivery with few subscribers: it reads them, and the entries."""
SUBSCRIPTION_READS: Final = 1
"""For the same batch, if subscriptions are deployed and none follows the stream."""
LINE_BYTES: Final = 680
"""Of the line of one plain append, with the names of stages and streams."""
VALUE_BYTES: Final = 10
"""More for each further append that shares the line."""
LINE_SECONDS: Final = 10
KEY_READS: Final = 1
"""Reads of the edge's key-value store for a verified read."""

# Assumptions.

APPEND_MS: Final = 10
"""Of processor time it takes 0.6 ms, measured on this machine. The rest is for DynamoDB (5 ms), for
having only a share of a processor, and for Lambda's own part."""
DISPATCH_MS: Final = 10
POLL_SECONDS: Final = 0.025 + 0.005
"""The pause and the round trip."""
QUIET_POLL_SECONDS: Final = 0.25 + 0.005
POLL_READS: Final = 0.5
NEWS_READS: Final = 2
ORIGIN_REQUESTS: Final = 3
"""To a function for each write, whatever the audience."""
IDLE_ORIGIN_REQUESTS: Final = 2
"""For each wait of an idle stream: two intervals of the cursor overlap."""
FREE_GIGABYTES: Final = 1024
"""Data to viewers each month that CloudFront does not charge, for any account."""
CONNECTION_BYTES: Final = 200
"""Of the item of a WebSocket connection, each of which a heartbeat reads when it takes over."""
SUBSCRIBER_BYTES: Final = 350
"""Of the item of a subscription, all of which a delivery to its stream reads."""
ANSWER_BYTES: Final = 600
"""Of a response to a live read, most of it headers."""
ENTRY_BYTES: Final = 350
"""Of an entry of 100 B in the table, as DynamoDB counts a scan."""
SCANS: Final = 2
"""Daily compaction reads an entry until it is trimmed, a day after it was archived."""
POST_SECONDS: Final = 0.00015
"""Of a whole processor, to send a frame. Measured on this machine with TLS: 0.00004 s."""
PROCESSOR_MEGABYTES: Final = 1769
"""The memory with which a function has a whole processor."""
PART_SECONDS: Final = 0.05
"""How long it takes to invoke a function for a part of a delivery, and to read its subscribers."""
ROUND_SECONDS: Final = 5
TAKE_OVER_SECONDS: Final = 285
"""How long a heartbeat runs before the next one takes over."""
API_CALLS_PER_SECOND: Final = 10_000
"""Of an account in a region, to all its APIs, until more is granted: every frame is one."""
EVENT_BYTES: Final = 290
"""Of a message of 100 B to a reader of server-sent events, as `make bench-containers` counts."""
EVENT_SECONDS: Final = 20e-6
"""Of a processor for a message to one reader: more than `make bench-containers` measures."""
KEEP_ALIVE_BYTES: Final = 20
KEEP_ALIVE_SECONDS: Final = 10
FRAME_BYTES: Final = 250
"""Of a message of 100 B to a client of a cable."""
PING_BYTES: Final = 45
CONNECTION_SECONDS: Final = 3600
"""How long clients of cables stay connected."""
UNIT_CONNECTIONS: Final = 3_000
"""Connections that one capacity unit of a load balancer carries; or one GB an hour."""
TRACED: Final = 0.05
SWEPT_PER_SECOND: Final = 200
"""Streams that expire, by a sweep with two workers."""

Bill = dict[str, float]
"""Dollars by what they are paid for."""


def total(bill: Mapping[str, float]) -> float:
    return sum(bill.values())


def invocations(count: float, megabytes: float, seconds: float) -> float:
    """The dollars for invocations of a function, each for so many seconds."""
    held = megabytes * MEGABYTE * seconds
    return prices.INVOCATION.of(count) + prices.GIGABYTE_SECOND.of(held * count)


def edge_requests(count: float, *, firewall: bool, verified: bool = False) -> Bill:
    bill = {
        "CloudFront": prices.EDGE_REQUEST.of(count),
        "its functions": prices.EDGE_FUNCTION.of(count * EDGE_FUNCTIONS),
    }
    if verified:
        bill["its key-value store"] = prices.EDGE_KEYS_READ.of(count * KEY_READS)
    if firewall:
        bill["firewall"] = prices.FIREWALL_REQUEST.of(count)
    return bill


def data(answers: float) -> float:
    """The dollars for the bytes of responses in a month."""
    return prices.EDGE_GIGABYTE.of(max(0, answers * ANSWER_BYTES / 1e9 - FREE_GIGABYTES))


def log_lines(appends: float, per_second: float) -> float:
    """The dollars for the lines of plain appends, that come to one environment so often."""
    shared = 1 + LINE_SECONDS * per_second
    each = (LINE_BYTES + VALUE_BYTES * (shared - 1)) / shared
    return prices.LOG_GIGABYTE.of(appends * each / 1e9)


def million_appends(
    *, firewall: bool = False, cables: bool = False, traces: bool = False, stale: bool = False
) -> Bill:
    """A million appends of 100 B over the life of their entries, evenly over a month.

    `stale`: environments take turns, so that each append reads the tail first."""
    bill = edge_requests(MILLION, firewall=firewall)
    bill["Lambda"] = invocations(MILLION, HTTP_MEGABYTES, APPEND_MS / 1000)
    bill["DynamoDB: write"] = prices.WRITE_UNIT.of(MILLION * APPEND_WRITES)
    if stale:
        bill["DynamoDB: read the tail first"] = prices.READ_UNIT.of(MILLION * STALE_TAIL_READS)
    if cables:
        bill["dispatch"] = invocations(MILLION, DISPATCH_MEGABYTES, DISPATCH_MS / 1000)
        reads = DISPATCH_READS + SUBSCRIPTION_READS
        bill["dispatch"] += prices.READ_UNIT.of(MILLION * reads)
    bill["logs"] = log_lines(MILLION, MILLION / MONTH_SECONDS)
    if traces:
        bill["traces"] = prices.TRACE.of(MILLION * TRACED * (2 if cables else 1))
    segments = MILLION / SEGMENT_ENTRIES
    bill["segments"] = prices.S3_PUT.of(segments * 9 / 8)
    bill["segments"] += prices.WRITE_UNIT.of(segments * (SEGMENT_WRITES + MERGE_WRITES))
    bill["scans by compaction"] = prices.READ_UNIT.of(MILLION * SCANS * ENTRY_BYTES / 4096 / 2)
    bill["DynamoDB: trim"] = prices.WRITE_UNIT.of(MILLION * TRIM_WRITES)
    return bill


def polls(seconds: float, pause: float) -> float:
    return prices.READ_UNIT.of(seconds / pause * POLL_READS)


def waiting_stream(*, quiet: bool = False) -> Bill:
    """A stream with a reader by long-poll all month, who gets data within 50 ms; or a quiet one."""
    waits = MONTH_SECONDS / WAIT_SECONDS
    return {
        "Lambda": invocations(waits, WAIT_MEGABYTES, WAIT_SECONDS),
        "DynamoDB: polls": polls(MONTH_SECONDS, QUIET_POLL_SECONDS if quiet else POLL_SECONDS),
        **edge_requests(waits, firewall=False, verified=True),
    }


def shared_readers(
    readers: int, writes: float, *, firewall: bool, megabytes: int, seconds: float
) -> Bill:
    """A month of readers who share responses: by long-poll, or by SSE that ends after data.

    `writes`: per second; 0: the stream is idle. `seconds`: how long a response waits."""
    answers = max(writes, 1 / seconds)
    held = 1 / answers
    requests = readers * answers * MONTH_SECONDS
    at_once = ORIGIN_REQUESTS if writes else IDLE_ORIGIN_REQUESTS
    origin = at_once * answers * MONTH_SECONDS
    bill = edge_requests(requests, firewall=firewall, verified=True)
    bill["data"] = data(requests)
    bill["Origin Shield"] = prices.SHIELD_REQUEST.of(origin)
    bill["Lambda"] = invocations(origin, megabytes, held)
    pause = POLL_SECONDS if writes else QUIET_POLL_SECONDS
    bill["DynamoDB"] = polls(MONTH_SECONDS * at_once, pause)
    bill["DynamoDB"] += prices.READ_UNIT.of(origin * NEWS_READS)
    return bill


def long_poll(
    readers: int, writes: float, *, firewall: bool = False, seconds: float = WAIT_SECONDS
) -> Bill:
    return shared_readers(
        readers, writes, firewall=firewall, megabytes=WAIT_MEGABYTES, seconds=seconds
    )


def longest_poll(readers: int, writes: float, *, firewall: bool = False) -> Bill:
    """The same with `long_poll_timeout=116`, so that idle readers ask rarely."""
    return long_poll(readers, writes, firewall=firewall, seconds=LONGEST_WAIT_SECONDS)


def shared_sse(readers: int, writes: float, *, firewall: bool = False) -> Bill:
    return shared_readers(
        readers, writes, firewall=firewall, megabytes=LIVE_MEGABYTES, seconds=WAIT_SECONDS
    )


def held_sse(readers: int, writes: float, *, firewall: bool = False) -> Bill:
    """A month of readers who have an environment each."""
    requests = readers * MONTH_SECONDS / SSE_SECONDS
    events = readers * writes * MONTH_SECONDS
    bill = edge_requests(requests, firewall=firewall, verified=True)
    bill["data"] = data(requests + events)
    bill["Lambda"] = invocations(requests, LIVE_MEGABYTES, SSE_SECONDS)
    pause = POLL_SECONDS if writes else QUIET_POLL_SECONDS
    bill["DynamoDB"] = polls(MONTH_SECONDS * readers, pause)
    bill["DynamoDB"] += prices.READ_UNIT.of(events * NEWS_READS)
    return bill


def websockets(
    readers: int, writes: float, *, firewall: bool = False, ping_seconds: float = PING_SECONDS
) -> Bill:
    """A month of connections; the firewall sees only their handshakes."""
    del firewall
    return {
        "connections": prices.CONNECTION_MINUTE.of(readers * MONTH_SECONDS / 60),
        "pings": prices.WEBSOCKET_MESSAGE.of(readers * MONTH_SECONDS / ping_seconds),
        "messages": prices.WEBSOCKET_MESSAGE.of(readers * writes * MONTH_SECONDS),
        "heartbeat": heartbeat(readers, ping_seconds),
        "dispatch": deliveries(readers, writes * MONTH_SECONDS),
    }


def posts(count: float, megabytes: float) -> float:
    """The seconds that a function takes to send so many frames."""
    return count * POST_SECONDS * PROCESSOR_MEGABYTES / megabytes


def heartbeats(connections: float, ping_seconds: float) -> int:
    """How many functions ping so many connections."""
    count = 1
    while (
        count < GATEWAY_CONNECTION_SHARDS
        and connections / ping_seconds > GATEWAY_PART_PINGS * count
    ):
        count *= 2
    return count


def heartbeat(connections: float, ping_seconds: float = PING_SECONDS) -> float:
    """The dollars for a month of pinging, without the pings themselves."""
    count = heartbeats(connections, ping_seconds)
    each = max(1.0, GATEWAY_INDEX_SHARDS / count) / GATEWAY_INDEX_SHARDS * ROUND_READS
    if ping_seconds < 60:
        rounds = count * MONTH_SECONDS / min(ping_seconds, ROUND_SECONDS)
        reading = TAKE_OVER_SECONDS
        dollars = invocations(count * MONTH_SECONDS / 300, HEARTBEAT_MEGABYTES, 300)
    else:
        rounds = count * MONTH_SECONDS / 60
        reading = 60
        seconds = HEARTBEAT_SECONDS + posts(connections / count, HEARTBEAT_MEGABYTES)
        dollars = invocations(rounds, HEARTBEAT_MEGABYTES, seconds)
    if count > 1:
        each += PARTS_READS
    dollars += prices.WRITE_UNIT.of(rounds * ROUND_WRITES) + prices.READ_UNIT.of(rounds * each)
    whole = connections * CONNECTION_BYTES / 4096
    return dollars + prices.READ_UNIT.of(whole * MONTH_SECONDS / reading)


def deliveries(subscribers: float, messages: float) -> float:
    """The dollars for sending messages to the subscribers of a stream, without the frames."""
    parts = 1
    if subscribers > 2 * GATEWAY_PART_SUBSCRIBERS:
        parts = min(ceil(subscribers / GATEWAY_PART_SUBSCRIBERS), GATEWAY_DELIVERY_PARTS)
    seconds = posts(subscribers / parts, DISPATCH_MEGABYTES)
    dollars = invocations(messages * parts, DISPATCH_MEGABYTES, seconds)
    writes, reads = DELIVERY_WRITES, subscribers * SUBSCRIBER_BYTES / 4096 + 1.0
    if parts > 1:
        # The function that has the lease waits for the others.
        dollars += invocations(messages, DISPATCH_MEGABYTES, PART_SECONDS + seconds)
        dollars += invocations(messages * parts, DISPATCH_MEGABYTES, PART_SECONDS)
        writes += parts * PART_WRITES
        reads += parts * PART_READS
    return dollars + prices.WRITE_UNIT.of(messages * writes) + prices.READ_UNIT.of(messages * reads)


def most_frames(megabytes: float = DISPATCH_MEGABYTES) -> float:
    """The frames a second that the functions of one delivery send."""
    return GATEWAY_DELIVERY_PARTS / posts(1, megabytes)


def containers(
    readers: int, writes: float, *, firewall: bool = False, least: int = CONTAINERS_MIN
) -> Bill:
    """A month of readers of server-sent events from containers."""
    alive = 1 / KEEP_ALIVE_SECONDS if writes < 1 / KEEP_ALIVE_SECONDS else 0
    return _contained(
        readers,
        writes,
        each=writes * EVENT_BYTES + alive * KEEP_ALIVE_BYTES,
        lasting=CONTAINER_SECONDS,
        firewall=firewall,
        least=least,
    )


def contained_cables(readers: int, writes: float, *, firewall: bool = False) -> Bill:
    """A month of WebSockets to containers, by as many as they need."""
    return _contained(
        readers,
        writes + 1 / PING_SECONDS,
        each=writes * FRAME_BYTES + PING_BYTES / PING_SECONDS,
        lasting=CONNECTION_SECONDS,
        firewall=firewall,
        least=1,
    )


def containers_needed(readers: int, sent: float, least: int) -> int:
    """How many containers scaling keeps; `sent`: messages a second to each reader."""
    busy = readers * sent * EVENT_SECONDS / CONTAINER_PROCESSORS / CONTAINER_BUSY
    return max(least, ceil(readers / CONTAINER_CONNECTIONS), ceil(busy))


def _contained(
    readers: int, sent: float, *, each: float, lasting: float, firewall: bool, least: int
) -> Bill:
    """`each`: bytes a second to one reader. `lasting`: seconds of a connection."""
    count = containers_needed(readers, sent, least)
    hours = MONTH_SECONDS / 3600
    processor = prices.PROCESSOR_HOUR.of(CONTAINER_PROCESSORS)
    memory = prices.MEMORY_HOUR.of(CONTAINER_GIGABYTES)
    gigabytes = readers * each * MONTH_SECONDS / 1e9
    units = max(readers / UNIT_CONNECTIONS, gigabytes / hours)
    requests = readers * MONTH_SECONDS / lasting
    bill = edge_requests(requests, firewall=firewall, verified=True)
    bill["data"] = prices.EDGE_GIGABYTE.of(max(0, gigabytes - FREE_GIGABYTES))
    bill["containers"] = count * hours * (processor + memory)
    bill["load balancer"] = hours * (prices.BALANCER_HOUR.dollars + prices.CAPACITY_HOUR.of(units))
    bill["endpoints"] = prices.INTERFACE_HOUR.of(INTERFACES * ZONES * hours)
    pause = POLL_SECONDS if sent else QUIET_POLL_SECONDS
    bill["DynamoDB"] = polls(MONTH_SECONDS * count, pause)
    bill["DynamoDB"] += prices.READ_UNIT.of(sent * MONTH_SECONDS * count * NEWS_READS)
    return bill


def short_streams(*, firewall: bool = False) -> Bill:
    """A million streams that are created with one entry and closed, and expire."""
    bill = edge_requests(MILLION, firewall=firewall)
    bill["Lambda"] = invocations(MILLION, HTTP_MEGABYTES, APPEND_MS / 1000)
    for what, (written, read) in SHORT_LIFE.items():
        bill[f"DynamoDB: {what}"] = prices.WRITE_UNIT.of(MILLION * written)
        bill[f"DynamoDB: {what}"] += prices.READ_UNIT.of(MILLION * read)
    bill["logs"] = log_lines(MILLION, MILLION / MONTH_SECONDS)
    bill["sweep"] = prices.WORKER_HOUR.of(2 * MILLION / SWEPT_PER_SECOND / 3600)
    bill["purges"] = 0.0
    return bill


# An idle month. Tests compare these with the templates, too.

ALARMS: Final = {"dev": 28, "prod": 28}
FREE_ALARMS: Final = 10
JOB_RUNS: Final = {
    "dev": {"compact-history": 30, "sweep": 30},
    "prod": {"compact-history": 30, "export-history": 30, "sweep": 30, "audit": 4},
}
"""Runs a month."""
FLEX_JOBS: Final = ("export-history", "audit")
RUN_MINUTES: Final = 2
"""Of a run without work, with two workers: the start of Glue, of Python's packages and of Spark."""
KEYS_READS: Final = 2 * 60 * 730
"""Reads of secrets by `edge_keys`, every minute."""
HEARTBEAT_SECONDS: Final = 0.2
DUE_READS: Final = 4 * 0.5
"""Of the index, each time that the timer looks: one of each partition, eventually consistent."""
TIMER_RENEWAL_SECONDS: Final = 5
WEBHOOK_MS: Final = 100
"""Most of it is the receiver's time to answer."""
WAKE_UNITS: Final[Mapping[str, tuple[float, float]]] = {"webhook": (18, 15), "pull-wake": (19, 15)}
"""Read and write units of a wake for one append."""
WAKE_INVOCATIONS: Final[Mapping[str, tuple[float, float, float]]] = {
    "webhook": (4, 1, 0),
    "pull-wake": (5, 0, 2),
}
"""Invocations of `dispatch`, `webhooks` and `http` for a wake, if none shares a batch."""
IDLE_MINUTE_READS: Final = 4
"""Of the heartbeat, while no client is connected."""


def idle_subscriptions() -> float:
    """A month of looking for what subscriptions have due, every minute; without their secret."""
    minutes = MONTH_SECONDS / 60
    looks = invocations(minutes, WEBHOOKS_MEGABYTES, HEARTBEAT_SECONDS)
    return looks + prices.READ_UNIT.of(minutes * DUE_READS)


def million_wakes(kind: str) -> Bill:
    """A million wakes, each for one append, beside the price of the append; without the timer.

    `kind`: `webhook`, whose receiver answers at once, or `pull-wake`."""
    reads, writes = WAKE_UNITS[kind]
    calls = WAKE_INVOCATIONS[kind]
    bill = {
        "DynamoDB": prices.READ_UNIT.of(MILLION * reads) + prices.WRITE_UNIT.of(MILLION * writes),
        "`dispatch`": invocations(MILLION * calls[0], DISPATCH_MEGABYTES, DISPATCH_MS / 1000),
        "`webhooks`": invocations(MILLION * calls[1], WEBHOOKS_MEGABYTES, WEBHOOK_MS / 1000),
        "`http`": invocations(MILLION * calls[2], HTTP_MEGABYTES, APPEND_MS / 1000),
    }
    requests = edge_requests(MILLION * calls[2], firewall=False)
    return bill | {f"{name}, requests": price for name, price in requests.items()}


def busy_timer() -> float:
    """A month in which the timer never stops: it is one function for all subscriptions."""
    held = WEBHOOKS_MEGABYTES * MEGABYTE * MONTH_SECONDS
    reads = prices.READ_UNIT.of(MONTH_SECONDS * DUE_READS)
    renewals = prices.WRITE_UNIT.of(MONTH_SECONDS / TIMER_RENEWAL_SECONDS)
    return prices.GIGABYTE_SECOND.of(held) + reads + renewals


def idle_month(stage: str) -> Bill:
    """A month without requests, of a deployment with the defaults of a stage."""
    runs = JOB_RUNS[stage]
    bill = {
        "firewall": prices.FIREWALL.dollars + prices.FIREWALL_RULE.of(FIREWALL_RULES),
        "snapshot of `http`": prices.SNAPSHOT.dollars,
        "edge metrics": prices.EDGE_METRICS.dollars if stage == "prod" else 0.0,
        "secrets": prices.SECRET.of(3),
        "keys of the edge": prices.SECRET_READ.of(KEYS_READS)
        + invocations(KEYS_READS / 2, 256, HEARTBEAT_SECONDS),
        "alarms": prices.ALARM.of(ALARMS[stage] - FREE_ALARMS),
        "heartbeat": invocations(MONTH_SECONDS / 60, HEARTBEAT_MEGABYTES, HEARTBEAT_SECONDS)
        + prices.READ_UNIT.of(MONTH_SECONDS / 60 * IDLE_MINUTE_READS),
        "subscriptions": idle_subscriptions(),
    }
    hours = 2 * RUN_MINUTES / 60
    for job, times in runs.items():
        price = prices.FLEX_WORKER_HOUR if job in FLEX_JOBS else prices.WORKER_HOUR
        bill[f"`{job}`, {times} runs"] = price.of(times * hours)
    return bill
