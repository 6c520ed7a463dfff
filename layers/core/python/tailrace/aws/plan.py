"""Estimate of a workload on AWS: its monthly bill, the limit it comes nearest to, the best way to
wait for news.

The model is that of `costs`, whose tables are for single operations: here a whole deployment with
many streams is added up by service.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple

from tailrace.aws import costs, prices
from tailrace.aws.costs import MONTH_SECONDS, Bill, total

ITEM_BYTES: Final = 160
"""Of an entry in the table, beside its body: key, state and attempt."""
EVENT_MESSAGE_BYTES: Final = 100
"""Of the message in `costs.EVENT_BYTES`."""
DAY_SECONDS: Final = 86_400
HOT_DAYS: Final = 2
"""How long an entry is in the table: daily compaction, and a day until it is trimmed."""

SERVICES: Final[Mapping[str, str]] = {
    "CloudFront": "CloudFront",
    "its functions": "CloudFront",
    "its key-value store": "CloudFront",
    "data": "CloudFront",
    "Origin Shield": "CloudFront",
    "edge metrics": "CloudFront",
    "purges": "CloudFront",
    "firewall": "WAF",
    "Lambda": "Lambda",
    "dispatch": "Lambda",
    "heartbeat": "Lambda",
    "snapshot of `http`": "Lambda",
    "keys of the edge": "Lambda",
    "DynamoDB": "DynamoDB",
    "DynamoDB: write": "DynamoDB",
    "DynamoDB: read the tail first": "DynamoDB",
    "DynamoDB: polls": "DynamoDB",
    "DynamoDB: trim": "DynamoDB",
    "DynamoDB: storage": "DynamoDB",
    "scans by compaction": "DynamoDB",
    "segments": "S3",
    "S3: storage": "S3",
    "connections": "API Gateway",
    "pings": "API Gateway",
    "messages": "API Gateway",
    "containers": "ECS",
    "load balancer": "ELB",
    "endpoints": "VPC",
    "logs": "CloudWatch",
    "alarms": "CloudWatch",
    "secrets": "Secrets Manager",
    "subscriptions": "Lambda",
}
"""The service that each item of a bill is paid to; jobs are paid to Glue."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Streams that are alike."""

    streams: int = 100
    rate: float = 0.1
    """Messages per second that are appended to each stream."""
    writers: int = 1
    """Clients that append to each stream."""
    readers: int = 10
    """Clients that wait for news of each stream, all month."""
    size: int = 200
    """Bytes of a message."""
    retention: float = 30.0
    """Days for which messages are kept."""
    firewall: bool = False

    @property
    def appends(self) -> float:
        """Appends in a month."""
        return self.streams * self.rate * MONTH_SECONDS

    @property
    def entry_bytes(self) -> int:
        return self.size + ITEM_BYTES

    @property
    def write_units(self) -> int:
        """Of one append that shares its slot with no other."""
        return ceil(self.entry_bytes / 1024)


class LiveMode(NamedTuple):
    """A way to wait for news."""

    bill: Callable[..., Bill]
    concurrency: Callable[[Workload], float]
    """The environments of functions that it keeps busy."""
    switch: str
    """The settings that select it."""


def _shared(workload: Workload) -> float:
    return workload.streams * (costs.ORIGIN_REQUESTS if workload.rate else 2)


MODES: Final[Mapping[str, LiveMode]] = {
    "long-poll": LiveMode(costs.long_poll, _shared, "the default"),
    f"long-poll of {costs.LONGEST_WAIT_SECONDS} s": LiveMode(
        costs.longest_poll, _shared, f"-c long_poll_timeout={costs.LONGEST_WAIT_SECONDS}"
    ),
    "SSE, shared": LiveMode(costs.shared_sse, _shared, "-c sse=shared"),
    "SSE, held": LiveMode(costs.held_sse, lambda work: work.streams * work.readers, "-c sse=held"),
    "WebSocket": LiveMode(
        costs.websockets,
        lambda work: costs.posts(work.streams * work.rate * work.readers, costs.DISPATCH_MEGABYTES),
        "-c cable=true",
    ),
    "containers": LiveMode(costs.containers, lambda _: 0.0, "-c live=containers"),
}


class ServiceLimit(NamedTuple):
    """A limit, and how much of it a workload uses."""

    what: str
    used: float
    most: float
    remedy: str

    @property
    def share(self) -> float:
        return self.used / self.most


class CostPlan(NamedTuple):
    mode: str
    services: Bill
    """Dollars a month by service, with the mode."""
    modes: dict[str, float]
    """Dollars a month in all, by mode."""
    limits: list[ServiceLimit]
    """The one that is met first is the first."""

    @property
    def total(self) -> float:
        return total(self.services)


def plan(workload: Workload, mode: str | None = None) -> CostPlan:
    """Plan a deployment; with the cheapest mode, or the one given."""
    bills = {name: by_service(_bill(workload, each)) for name, each in MODES.items()}
    totals = {name: total(bill) for name, bill in bills.items()}
    chosen = mode or min(totals, key=totals.__getitem__)
    return CostPlan(chosen, bills[chosen], totals, find_limits(workload, MODES[chosen]))


def explain(plan: CostPlan, workload: Workload) -> str:
    """Say why the mode of a plan costs less, or more, than the best of the others."""
    # Two modes cost the same if one has a wait that writes always cut short.
    others = {
        name: dollars
        for name, dollars in plan.modes.items()
        if abs(dollars - plan.modes[plan.mode]) >= 0.01
    }
    other = min(others, key=others.__getitem__)
    here, there = (by_service(_live(workload, MODES[name])) for name in (plan.mode, other))
    is_cheaper = total(here) <= total(there)
    more, less = (there, here) if is_cheaper else (here, there)
    service = max(more, key=lambda each: more[each] - less.get(each, 0))
    difference = f"${total(more) - total(less):,.2f} {'more' if is_cheaper else 'less'}"
    return f"{other} would cost {difference}, most of it for {service}"


def by_service(bill: Mapping[str, float]) -> Bill:
    services: defaultdict[str, float] = defaultdict(float)
    for item, dollars in bill.items():
        services[SERVICES.get(item, "Glue")] += dollars
    return dict(sorted(services.items(), key=lambda each: -each[1]))


def find_limits(workload: Workload, mode: LiveMode) -> list[ServiceLimit]:
    """Return the limits of a default account, and of the design; the first is met first."""
    writes = workload.streams * workload.rate
    environments = writes * costs.APPEND_MS / 1000 + mode.concurrency(workload)
    answers = workload.streams * workload.readers * max(workload.rate, 1 / costs.WAIT_SECONDS)
    limits = [
        ServiceLimit(
            "concurrent executions of Lambda",
            environments,
            1000,
            "ask for more in Service Quotas, or read by a mode that shares",
        ),
        ServiceLimit(
            "write units of one stream per second",
            workload.rate * workload.write_units,
            1000,
            "append batches, or spread the writers over several streams",
        ),
        ServiceLimit(
            "write units of the table per second",
            writes * workload.write_units,
            40_000,
            "ask for more in Service Quotas",
        ),
        ServiceLimit(
            "requests of CloudFront per second",
            answers + writes,
            250_000,
            "ask for more in Service Quotas",
        ),
        ServiceLimit(
            "bytes of a message", workload.size, 3 << 20, "split it, or store it elsewhere"
        ),
    ]
    if mode.bill is costs.websockets:
        frames = workload.rate * workload.readers
        connections = workload.streams * workload.readers
        limits += [
            ServiceLimit(
                "frames to the clients of one stream per second",
                frames,
                costs.most_frames(),
                "spread the readers over several streams, or read by another mode",
            ),
            ServiceLimit(
                "calls of API Gateway per second",
                workload.streams * frames + connections / costs.PING_SECONDS,
                costs.API_CALLS_PER_SECOND,
                "ask for more in Service Quotas, or ping less often",
            ),
        ]
    return sorted(limits, key=lambda limit: -limit.share)


def _bill(workload: Workload, mode: LiveMode) -> Bill:
    """A month of a deployment for production."""
    bill: defaultdict[str, float] = defaultdict(float)
    parts = [
        costs.idle_month("prod"),
        _appends(workload, mode),
        _live(workload, mode),
        _storage(workload),
    ]
    for part in parts:
        for item, dollars in part.items():
            if item != "firewall" or workload.firewall:
                bill[item] += dollars
    return bill


def _appends(workload: Workload, mode: LiveMode) -> Bill:
    million = costs.million_appends(
        firewall=workload.firewall,
        cables=mode.bill is costs.websockets,
        stale=workload.writers > 1,
    )
    bill = {item: dollars * workload.appends / costs.MILLION for item, dollars in million.items()}
    bill["DynamoDB: write"] *= workload.write_units
    bill["scans by compaction"] *= workload.entry_bytes / costs.ENTRY_BYTES
    bill["logs"] = costs.log_lines(workload.appends, workload.streams * workload.rate)
    return bill


def _live(workload: Workload, mode: LiveMode) -> Bill:
    """The readers of all streams."""
    if not workload.readers:
        return {}
    if mode.bill is costs.containers:
        return _contained(workload)
    one = mode.bill(workload.readers, workload.rate, firewall=workload.firewall)
    bill = {item: dollars * workload.streams for item, dollars in one.items()}
    if mode.bill is costs.websockets:
        # The same functions ping the connections of all streams.
        bill["heartbeat"] = costs.heartbeat(workload.streams * workload.readers)
    elif workload.rate:
        # The free gigabytes are those of the account, and messages have their size.
        readers = workload.streams * workload.readers
        answers = readers * workload.rate * MONTH_SECONDS
        sent = answers * (costs.ANSWER_BYTES + workload.size) / 1e9
        bill["data"] = prices.EDGE_GIGABYTE.of(max(0, sent - costs.FREE_GIGABYTES))
    return bill


def _contained(workload: Workload) -> Bill:
    """The readers of all streams, who share containers, load balancer and endpoints."""
    readers = workload.streams * workload.readers
    bill = costs.containers(readers, workload.rate, firewall=workload.firewall)
    bill["DynamoDB"] *= workload.streams
    more = max(0, workload.size - EVENT_MESSAGE_BYTES)
    bill["data"] += prices.EDGE_GIGABYTE.of(readers * workload.rate * MONTH_SECONDS * more / 1e9)
    return bill


def _storage(workload: Workload) -> Bill:
    """The storage of what is kept, once retention removes as much as is appended."""
    daily = workload.streams * workload.rate * DAY_SECONDS
    hot = daily * min(HOT_DAYS, workload.retention) * workload.entry_bytes / 1e9
    cold = daily * workload.retention * workload.size / 1e9
    return {
        "DynamoDB: storage": prices.TABLE_GIGABYTE.of(hot),
        "S3: storage": prices.S3_GIGABYTE.of(cold),
    }
