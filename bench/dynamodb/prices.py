"""List prices of AWS: us-east-1 as of November 2024, in dollars per million.

From https://aws.amazon.com/dynamodb/pricing/on-demand/, https://aws.amazon.com/s3/pricing/
(S3 Standard) and https://aws.amazon.com/lambda/pricing/ (arm64). Transactions cost twice as much,
which the units they consume already say.
"""

from __future__ import annotations

from typing import Final

WHERE_AND_WHEN: Final = "us-east-1, November 2024"

WRITE_UNITS: Final = 0.625
READ_UNITS: Final = 0.125
S3_PUTS: Final = 5.0
S3_GETS: Final = 0.4
LAMBDA_GIGABYTE_SECONDS: Final = 13.3334
LAMBDA_REQUESTS: Final = 0.2


def dynamodb(write_units: float, read_units: float) -> float:
    """Dollars for a million of what consumes so many units."""
    return write_units * WRITE_UNITS + read_units * READ_UNITS


def s3(puts: float, gets: float) -> float:
    """Dollars for a million of what makes so many requests."""
    return puts * S3_PUTS + gets * S3_GETS


def function(seconds: float, megabytes: int, requests: float) -> float:
    """Dollars for a million of what runs a function for so long."""
    return seconds * megabytes / 1024 * LAMBDA_GIGABYTE_SECONDS + requests * LAMBDA_REQUESTS
