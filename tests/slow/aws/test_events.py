"""The sample events of a rotation, which waits until every function has the new secret."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.aws.conftest import (
    aws_env,
    cloudfront,
    distribution,
    secret,
    secrets_manager,
)
from tests.integration.aws.test_events import Start, event, start, whole

__all__ = ["aws_env", "cloudfront", "distribution", "secret", "secrets_manager", "start"]


async def test_the_rotate_function_answers_each_of_its_events(
    start: Start, secret: str, distribution: str, secrets_manager: Any
) -> None:
    function = await start(
        "rotate_secret", TAILRACE_ORIGIN_SECRET=secret, TAILRACE_DISTRIBUTION=distribution
    )
    for case in ("create", "set", "test", "finish"):
        result = await whole(
            await function.invoke({**event("rotate_secret", case), "SecretId": secret})
        )
        assert json.loads(result) is None
    assert secrets_manager.get_secret_value(SecretId=secret)["SecretString"] != "first"
