"""More filters and notifications than the unit tests have time for."""

from __future__ import annotations

import pytest

from tests.unit.aviso.test_filter_index import index_agrees


@pytest.mark.parametrize("seed", range(7, 35))
def test_the_index_agrees_with_each_filter(seed: int) -> None:
    index_agrees(seed)
