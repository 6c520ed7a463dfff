from __future__ import annotations

import pytest

from tailrace.protocols.action_cable.in_process.conversation import Rate


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_is_followed_by_the_rate() -> None:
    time = Time()
    rate = Rate(10, 20, time)
    assert [rate.take() for _ in range(20)] == [0] * 20
    assert rate.take() == pytest.approx(0.1)
    assert rate.take() == pytest.approx(0.1), "nothing was counted"
    time.now += 0.1
    assert rate.take() == 0
    assert rate.take() > 0
    time.now += 1000
    assert [rate.take() for _ in range(20)] == [0] * 20
    assert rate.take() > 0


def test_the_rate_itself_is_always_admitted() -> None:
    time = Time()
    rate = Rate(0.1, 0.2, time)
    assert rate.take() == 0
    assert rate.take() == pytest.approx(10)


def test_a_rate_of_0_refuses_nothing() -> None:
    rate = Rate(0, 0, Time())
    assert [rate.take() for _ in range(1000)] == [0] * 1000
