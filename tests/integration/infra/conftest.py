"""The stacks, as they are synthesised before the tests."""

from __future__ import annotations

from functools import cache

import pytest

from devtools import templates
from tests.integration.infra.stacks import Stacks


@cache
def stacks_of(variant: str) -> Stacks:
    return Stacks(templates.folder(variant))


@pytest.fixture(scope="session")
def dev() -> Stacks:
    return stacks_of("dev")


@pytest.fixture(scope="session")
def prod() -> Stacks:
    return stacks_of("prod")


@pytest.fixture(scope="session")
def afar() -> Stacks:
    """In another region than CloudFront's, under a name of one's own."""
    return stacks_of("afar")


@pytest.fixture(scope="session")
def bare() -> Stacks:
    """With everything left out that can be."""
    return stacks_of("bare")
