"""Where CloudFront offers Origin Shield, and which of these regions is nearest to each region.

https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/origin-shield.html has the list,
and the neighbors of eight regions; CloudFormation refuses any other region, after minutes.
"""

from __future__ import annotations

from typing import Final

OFFERED: Final = (
    "ap-northeast-1",
    "ap-northeast-2",
    "ap-south-1",
    "ap-southeast-1",
    "ap-southeast-2",
    "eu-central-1",
    "eu-west-1",
    "eu-west-2",
    "sa-east-1",
    "us-east-1",
    "us-east-2",
    "us-west-2",
)

NEIGHBORS: Final = {
    # As that page says.
    "af-south-1": "eu-west-1",
    "ap-east-1": "ap-southeast-1",
    "ca-central-1": "us-east-1",
    "eu-north-1": "eu-west-2",
    "eu-south-1": "eu-central-1",
    "eu-west-3": "eu-west-2",
    "me-south-1": "ap-south-1",
    "us-west-1": "us-west-2",
    # It does not mention these, so the nearest on the map.
    "ap-east-2": "ap-northeast-1",
    "ap-northeast-3": "ap-northeast-1",
    "ap-south-2": "ap-south-1",
    "ap-southeast-3": "ap-southeast-1",
    "ap-southeast-4": "ap-southeast-2",
    "ap-southeast-5": "ap-southeast-1",
    "ap-southeast-6": "ap-southeast-2",
    "ap-southeast-7": "ap-southeast-1",
    "ca-west-1": "us-west-2",
    "eu-central-2": "eu-central-1",
    "eu-south-2": "eu-west-1",
    "il-central-1": "eu-central-1",
    "me-central-1": "ap-south-1",
    "mx-central-1": "us-east-2",
}

NEAREST: Final = {region: region for region in OFFERED} | NEIGHBORS
"""The region of the shield, by that of the functions."""
