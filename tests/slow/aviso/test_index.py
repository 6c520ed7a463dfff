"""More filters and notifications than tests/unit has time for."""

from __future__ import annotations

import pytest

from tests.unit.aviso.test_index import index_agrees


@pytest.mark.parametrize("seed", range(2, 30))
def test_the_index_agrees_with_asking_each_filter(seed: int) -> None:
    index_agrees(seed)
