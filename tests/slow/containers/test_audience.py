"""A thousand readers of containers that end."""

from __future__ import annotations

import pytest

from devtools.local_aws.stack import AwsLocal
from devtools.processes import fresh_name
from tests.e2e.test_containers import disturb_readers


@pytest.mark.timeout(1800)
async def test_a_thousand_readers_lose_and_repeat_nothing_when_a_container_ends(
    containers_local: AwsLocal,
) -> None:
    path = f"/v1/stream/{fresh_name('thousand')}"
    audience = await disturb_readers(containers_local, path, 1000)
    print(audience.endings)
