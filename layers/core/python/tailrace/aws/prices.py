"""List prices of AWS in us-east-1, in dollars, each with the page that has it.

Without free tiers and volume discounts. `verified` is the month of the page, or of a quotation of
it, that the price was compared with; None: it is from memory, so look it up before you rely on it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

REGION: Final = "us-east-1"
AS_OF: Final = "November 2026"

MILLION: Final = 1e6


class Price(NamedTuple):
    dollars: float
    """For one unit."""
    unit: str
    page: str
    verified: str | None

    def of(self, units: float) -> float:
        """The dollars for a number of units."""
        return self.dollars * units


_DYNAMODB: Final = "https://aws.amazon.com/dynamodb/pricing/on-demand/"
WRITE_UNIT: Final = Price(0.625 / MILLION, "write request unit", _DYNAMODB, "2024-11")
READ_UNIT: Final = Price(0.125 / MILLION, "read request unit", _DYNAMODB, "2024-11")
TABLE_GIGABYTE: Final = Price(0.25, "GB in a table, a month", _DYNAMODB, None)

_S3: Final = "https://aws.amazon.com/s3/pricing/"
S3_PUT: Final = Price(5.0 / MILLION, "PUT request", _S3, "2024-11")
S3_GET: Final = Price(0.4 / MILLION, "GET request", _S3, "2024-11")
S3_GIGABYTE: Final = Price(0.023, "GB in S3 Standard, a month", _S3, None)

_LAMBDA: Final = "https://aws.amazon.com/lambda/pricing/"
INVOCATION: Final = Price(0.20 / MILLION, "invocation", _LAMBDA, "2026-05")
GIGABYTE_SECOND: Final = Price(0.0000133334, "GB-second on arm64", _LAMBDA, "2026-05")

_CLOUDFRONT: Final = "https://aws.amazon.com/cloudfront/pricing/"
EDGE_REQUEST: Final = Price(1.00 / MILLION, "HTTPS request, US", _CLOUDFRONT, "2026-06")
EDGE_FUNCTION: Final = Price(0.10 / MILLION, "invocation of a function", _CLOUDFRONT, "2026-06")
EDGE_KEYS_READ: Final = Price(0.03 / MILLION, "read of a key-value store", _CLOUDFRONT, None)
EDGE_GIGABYTE: Final = Price(0.085, "GB to viewers, US and Europe", _CLOUDFRONT, "2026-06")
SHIELD_REQUEST: Final = Price(0.75 / MILLION, "request to Origin Shield", _CLOUDFRONT, None)
PURGE: Final = Price(0.005, "path or tag, after 1,000 a month", _CLOUDFRONT, "2026-06")
EDGE_METRICS: Final = Price(2.40, "additional metrics, a month", _CLOUDFRONT, None)

_FIREWALL: Final = "https://aws.amazon.com/waf/pricing/"
FIREWALL: Final = Price(5.0, "web ACL, a month", _FIREWALL, None)
FIREWALL_RULE: Final = Price(1.0, "rule, a month", _FIREWALL, None)
FIREWALL_REQUEST: Final = Price(0.60 / MILLION, "request", _FIREWALL, None)

_GATEWAY: Final = "https://aws.amazon.com/api-gateway/pricing/"
CONNECTION_MINUTE: Final = Price(0.25 / MILLION, "connection minute", _GATEWAY, "2026-06")
WEBSOCKET_MESSAGE: Final = Price(1.00 / MILLION, "message of up to 32 KB", _GATEWAY, "2025-05")

_FARGATE: Final = "https://aws.amazon.com/fargate/pricing/"
PROCESSOR_HOUR: Final = Price(0.03238, "hour of a processor, arm64", _FARGATE, None)
MEMORY_HOUR: Final = Price(0.00356, "hour of a GB, arm64", _FARGATE, None)

_BALANCER: Final = "https://aws.amazon.com/elasticloadbalancing/pricing/"
BALANCER_HOUR: Final = Price(0.0225, "hour of an Application Load Balancer", _BALANCER, None)
CAPACITY_HOUR: Final = Price(0.008, "hour of a capacity unit", _BALANCER, None)
INTERFACE_HOUR: Final = Price(
    0.01,
    "hour of an interface endpoint in a zone",
    "https://aws.amazon.com/privatelink/pricing/",
    None,
)

_CLOUDWATCH: Final = "https://aws.amazon.com/cloudwatch/pricing/"
LOG_GIGABYTE: Final = Price(0.50, "GB of logs", _CLOUDWATCH, "2026-05")
ALARM: Final = Price(0.10, "alarm, after 10, a month", _CLOUDWATCH, None)
METRIC: Final = Price(0.30, "metric, after 10, a month", _CLOUDWATCH, None)
TRACE: Final = Price(5.00 / MILLION, "trace", "https://aws.amazon.com/xray/pricing/", None)

SECRET: Final = Price(
    0.40, "secret, a month", "https://aws.amazon.com/secrets-manager/pricing/", None
)
SECRET_READ: Final = Price(
    5.0 / MILLION, "call", "https://aws.amazon.com/secrets-manager/pricing/", None
)
WORKER_HOUR: Final = Price(0.44, "G.1X worker hour", "https://aws.amazon.com/glue/pricing/", None)
FLEX_WORKER_HOUR: Final = Price(
    0.29, "G.1X worker hour, FLEX", "https://aws.amazon.com/glue/pricing/", None
)
SNAPSHOT: Final = Price(4.0, "snapshot of 1 GB, a month, roughly", _LAMBDA, None)
