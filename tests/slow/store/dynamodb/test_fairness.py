"""The fewest and the most writers on one stream; see tests/unit for eight of them."""

from __future__ import annotations

import pytest

from tests.unit.store.dynamodb.test_fairness import none_starves


@pytest.mark.parametrize("writers", [2, 16])
def test_of_many_busy_writers_none_starves(writers: int) -> None:
    none_starves(writers)
