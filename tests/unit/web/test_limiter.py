"""The limiter: appends, live reads and spinning clients, by a clock that the test moves."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import TooManyRequests
from tailrace.limits import (
    BURST_SECONDS,
    CLOSED_POLL_REQUESTS,
    CLOSED_POLL_SECONDS,
    LIVE_RETRY_SECONDS,
    RATE_LIMITED_CLIENTS,
)
from tailrace.web.limiter import Limiter, Recent, client_key
from tailrace.web.statuses import error_response

ADA, BOB = client_key("ada", ""), client_key("bob", "")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def accepted(limiter: Limiter, client: str, tries: int) -> int:
    """Count how many of several appends at once are accepted."""
    return sum(not _refused(limiter, client) for _ in range(tries))


def _refused(limiter: Limiter, client: str) -> bool:
    try:
        limiter.append(client)
    except TooManyRequests:
        return True
    return False


# Appends


def test_without_a_rate_there_is_no_limit(clock: Clock) -> None:
    assert accepted(Limiter(clock=clock), ADA, 10_000) == 10_000


@pytest.mark.parametrize("rate", [1, 3, 10, 7.5, 1000])
def test_a_burst_is_two_seconds_of_appends(clock: Clock, rate: float) -> None:
    limiter = Limiter(rate, clock=clock)
    assert accepted(limiter, ADA, 2500) == int(rate * BURST_SECONDS)


@pytest.mark.parametrize("rate", [1, 3, 10, 1000])
def test_after_a_burst_appends_come_back_at_the_rate(clock: Clock, rate: int) -> None:
    limiter = Limiter(rate, clock=clock)
    accepted(limiter, ADA, 2500)
    for _ in range(3):
        clock.now += 1
        assert accepted(limiter, ADA, 2500) == rate
    clock.now += 3600
    assert accepted(limiter, ADA, 2500) == rate * BURST_SECONDS


def test_a_client_that_keeps_to_the_rate_is_never_refused(clock: Clock) -> None:
    limiter = Limiter(7, clock=clock)
    accepted(limiter, ADA, 100)
    for _ in range(1_000):
        clock.now += 1 / 7
        limiter.append(ADA)


def test_clients_do_not_take_from_each_other(clock: Clock) -> None:
    limiter = Limiter(5, clock=clock)
    assert accepted(limiter, ADA, 100) == accepted(limiter, BOB, 100) == 10


def test_a_rate_below_one_is_an_append_every_few_seconds(clock: Clock) -> None:
    limiter = Limiter(0.1, clock=clock)
    assert accepted(limiter, ADA, 10) == 1
    clock.now += 9
    with pytest.raises(TooManyRequests) as error:
        limiter.append(ADA)
    assert error.value.retry_after == 1
    clock.now += 1
    limiter.append(ADA)
    with pytest.raises(TooManyRequests) as error:
        limiter.append(ADA)
    assert error.value.retry_after == 10


def test_a_refused_append_costs_nothing(clock: Clock) -> None:
    limiter = Limiter(1, clock=clock)
    accepted(limiter, ADA, 1_000)
    clock.now += 1
    limiter.append(ADA)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    rate=st.sampled_from([0.2, 1, 4, 30]),
    pauses=st.lists(st.sampled_from([0, 0, 0, 0.01, 0.3, 1, 1.9, 2, 5, 40]), max_size=200),
)
def test_no_interval_has_more_appends_than_rate_and_burst_allow(
    rate: float, pauses: list[float]
) -> None:
    clock = Clock()
    limiter = Limiter(rate, clock=clock)
    done: list[float] = []
    for pause in pauses:
        clock.now += pause
        try:
            limiter.append(ADA)
        except TooManyRequests as error:
            # Retry-After is long enough.
            clock.now += error.retry_after
            limiter.append(ADA)
        done.append(clock.now)
    burst = max(1, rate * BURST_SECONDS)
    for first, start in enumerate(done):
        for last, end in enumerate(done[first:], first):
            assert last - first + 1 <= burst + (end - start) * rate + 0.01


def test_429_has_retry_after(clock: Clock) -> None:
    limiter = Limiter(0.25, clock=clock)
    limiter.append(ADA)
    with pytest.raises(TooManyRequests) as error:
        limiter.append(ADA)
    answer = error_response(error.value)
    assert answer.status == 429
    assert (b"retry-after", b"4") in answer.headers
    assert b"0.25 times a second" in answer.body


# Live reads


def test_live_reads_of_a_client_are_limited(clock: Clock) -> None:
    limiter = Limiter(live_connections=2, clock=clock)
    limiter.admit(ADA)
    with limiter.live(ADA), limiter.live(ADA):
        with pytest.raises(TooManyRequests) as error:
            limiter.admit(ADA)
        assert error.value.retry_after == LIVE_RETRY_SECONDS
        limiter.admit(BOB)
    limiter.admit(ADA)


def test_without_the_setting_live_reads_are_unlimited(clock: Clock) -> None:
    limiter = Limiter(clock=clock)
    with limiter.live(ADA), limiter.live(ADA):
        limiter.admit(ADA)


async def test_cancelled_and_failed_live_reads_are_no_longer_counted(clock: Clock) -> None:
    limiter = Limiter(live_connections=1, clock=clock)

    async def read() -> None:
        with limiter.live(ADA):
            await asyncio.sleep(60)

    for _ in range(3):
        limiter.admit(ADA)
        reading = asyncio.ensure_future(read())
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests):
            limiter.admit(ADA)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    with pytest.raises(ZeroDivisionError), limiter.live(ADA):
        _ = 1 / 0
    limiter.admit(ADA)
    assert not limiter._live


# Spinning clients


def spun(limiter: Limiter, client: str, path: str, tries: int) -> int:
    count = 0
    for _ in range(tries):
        try:
            limiter.check_closed_poll(client, path)
        except TooManyRequests:
            continue
        count += 1
    return count


def test_a_client_that_spins_at_the_end_of_a_closed_stream_gets_429(clock: Clock) -> None:
    limiter = Limiter(clock=clock)
    assert spun(limiter, ADA, "done", 1_000) == CLOSED_POLL_REQUESTS
    clock.now += CLOSED_POLL_SECONDS - 2.5
    with pytest.raises(TooManyRequests, match="'done' is closed") as error:
        limiter.check_closed_poll(ADA, "done")
    assert error.value.retry_after == 3
    clock.now += 3
    assert spun(limiter, ADA, "done", 1_000) == CLOSED_POLL_REQUESTS


def test_spinning_is_counted_per_client_and_stream(clock: Clock) -> None:
    limiter = Limiter(clock=clock)
    spun(limiter, ADA, "done", 1_000)
    limiter.check_closed_poll(ADA, "other")
    limiter.check_closed_poll(BOB, "done")


def test_one_poll_a_second_is_no_spinning(clock: Clock) -> None:
    limiter = Limiter(clock=clock)
    for _ in range(1_000):
        limiter.check_closed_poll(ADA, "done")
        clock.now += 1


# Keys of clients


def test_a_token_names_the_client_at_any_address() -> None:
    assert client_key("ada", "10.0.0.1") == client_key("ada", "10.0.0.2")
    assert client_key("ada", "10.0.0.1") != client_key("bob", "10.0.0.1")


def test_a_subject_that_looks_like_an_address_is_another_client() -> None:
    assert client_key("10.0.0.1", "") != client_key(None, "10.0.0.1")
    assert client_key("peer 10.0.0.1", "") != client_key(None, "10.0.0.1")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("", "", True),
        ("", "testclient", False),
    ],
)
def test_without_a_token_a_client_is_its_address(one: str, other: str, same: bool) -> None:
    assert (client_key(None, one) == client_key(None, other)) is same


# Memory


def test_inactive_clients_are_forgotten(clock: Clock) -> None:
    limiter = Limiter(5, clock=clock)
    for n in range(1_000):
        limiter.append(f"peer {n}")
        limiter.check_closed_poll(f"peer {n}", "done")
    clock.now += 2 * CLOSED_POLL_SECONDS
    limiter.append(ADA)
    limiter.check_closed_poll(ADA, "done")
    assert len(limiter._used_until) == len(limiter._spins) == 1


def test_the_number_of_remembered_clients_is_bounded(clock: Clock) -> None:
    limiter = Limiter(5, live_connections=5, clock=clock)
    for n in range(2 * RATE_LIMITED_CLIENTS + 2):
        client = f"peer {n}"
        limiter.append(client)
        limiter.check_closed_poll(client, "done")
        limiter.admit(client)
        with limiter.live(client):
            pass
        clock.now += 0.00001
    assert len(limiter._used_until) <= 2 * RATE_LIMITED_CLIENTS
    assert len(limiter._spins) <= 2 * RATE_LIMITED_CLIENTS
    assert not limiter._live


def test_an_active_client_is_remembered_among_many_others(clock: Clock) -> None:
    limiter = Limiter(1, clock=clock)
    done = 0
    for n in range(3 * RATE_LIMITED_CLIENTS):
        limiter.append(f"peer {n}")
        if n % 1_000 == 0:
            done += accepted(limiter, ADA, 1)
    assert done == BURST_SECONDS


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from([0, 0, 1, 3, 5, 9, 25])), max_size=60
    )
)
def test_entries_stay_at_least_for_their_period(steps: list[tuple[str, int]]) -> None:
    recent: Recent[str, int] = Recent(10)
    put_at: dict[str, int] = {}
    now = 0
    for key, pause in steps:
        now += pause
        for name, written_at in put_at.items():
            value = recent.get(name, now)
            assert value == written_at or (value is None and now - written_at >= 10)
        recent.put(key, now, now)
        put_at[key] = now
