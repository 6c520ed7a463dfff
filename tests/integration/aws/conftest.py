"""Secrets Manager and CloudFront on loopback."""

from __future__ import annotations

import functools
from typing import Any

import boto3
import pytest

from devtools.engines.ministack import Ministack
from devtools.processes import fresh_name


@pytest.fixture
def aws_env(ministack: Ministack, monkeypatch: pytest.MonkeyPatch) -> str:
    """The environment in which everything of AWS is ministack, whose address it is."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": ministack.url,
    }.items():
        monkeypatch.setenv(name, value)
    return ministack.url


@functools.cache
def client(service: str, url: str) -> Any:
    """One client for all tests: to make one takes longer than most of them."""
    return boto3.client(
        service,
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


@pytest.fixture
def secrets_manager(aws_env: str) -> Any:
    return client("secretsmanager", aws_env)


@pytest.fixture
def cloudfront(aws_env: str) -> Any:
    return client("cloudfront", aws_env)


@pytest.fixture
def secret(secrets_manager: Any) -> str:
    """The ARN of a secret with the value `first`."""
    arn: str = secrets_manager.create_secret(Name=fresh_name("origin"), SecretString="first")["ARN"]
    return arn


@pytest.fixture
def distribution(cloudfront: Any) -> str:
    """The id of a distribution with two origins that are shown the value `first`."""
    origins = [
        {
            "Id": name,
            "DomainName": f"{name}.lambda-url.us-east-1.on.aws",
            "OriginPath": "",
            "CustomHeaders": {
                "Quantity": 2,
                "Items": [
                    {"HeaderName": "x-other", "HeaderValue": "kept"},
                    {"HeaderName": "x-tailrace-origin", "HeaderValue": "first"},
                ],
            },
            "CustomOriginConfig": {
                "HTTPPort": 80,
                "HTTPSPort": 443,
                "OriginProtocolPolicy": "https-only",
            },
        }
        for name in ("http", "live")
    ]
    config = {
        "CallerReference": fresh_name("distribution"),
        "Comment": "",
        "Enabled": True,
        "Origins": {"Quantity": len(origins), "Items": origins},
        "DefaultCacheBehavior": {
            "TargetOriginId": "http",
            "ViewerProtocolPolicy": "redirect-to-https",
            "CachePolicyId": "4135ea2d-6df8-44a3-9df3-4b5a84be39ad",
        },
    }
    created = cloudfront.create_distribution(DistributionConfig=config)
    name: str = created["Distribution"]["Id"]
    return name
