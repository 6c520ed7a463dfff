"""List prices of AWS in dollars per million. Transactions cost twice as much, which the units they
consume already say."""

from __future__ import annotations

from typing import Final

from tailrace.aws import prices

WHERE_AND_WHEN: Final = f"{prices.REGION}, {prices.AS_OF}"

WRITE_UNITS: Final = prices.WRITE_UNIT.of(1e6)
READ_UNITS: Final = prices.READ_UNIT.of(1e6)
S3_PUTS: Final = prices.S3_PUT.of(1e6)
S3_GETS: Final = prices.S3_GET.of(1e6)
LAMBDA_GIGABYTE_SECONDS: Final = prices.GIGABYTE_SECOND.of(1e6)
LAMBDA_REQUESTS: Final = prices.INVOCATION.of(1e6)


def dynamodb(write_units: float, read_units: float) -> float:
    """Dollars for a million of what consumes so many units."""
    return write_units * WRITE_UNITS + read_units * READ_UNITS


def s3(puts: float, gets: float) -> float:
    """Dollars for a million of what makes so many requests."""
    return puts * S3_PUTS + gets * S3_GETS


def function(seconds: float, megabytes: int, requests: float) -> float:
    """Dollars for a million of what runs a function for so long."""
    return seconds * megabytes / 1024 * LAMBDA_GIGABYTE_SECONDS + requests * LAMBDA_REQUESTS
