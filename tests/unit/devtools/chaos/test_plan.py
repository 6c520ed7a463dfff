"""The plan of a campaign: repeatable, within its rounds, and of the chosen faults only."""

from __future__ import annotations

from itertools import islice

import pytest

from devtools.chaos.plan import FAULTS, ROUND_SECONDS, Kind, Place, Round, rounds


def plan(seed: int, *kinds: Kind, count: int = 40) -> list[Round]:
    return list(islice(rounds(seed, kinds or tuple(Kind)), count))


def test_a_seed_repeats_its_plan() -> None:
    assert plan(7) == plan(7)
    assert plan(7) != plan(8)


def test_a_seed_repeats_the_chance_of_a_part_of_the_load() -> None:
    (one,), (again,), (other,) = plan(7, count=1), plan(7, count=1), plan(8, count=1)
    assert one.chance("plain").random() == again.chance("plain").random()
    assert one.chance("plain").random() != one.chance("producer").random()
    assert one.chance("plain").random() != other.chance("plain").random()


def test_faults_are_over_when_their_round_is() -> None:
    faults = [fault for each in plan(7) for fault in each.faults]
    assert {fault.kind for fault in faults} == {*Kind} - {Kind.DAMAGE}
    assert all(0 <= fault.at <= fault.at + fault.seconds <= ROUND_SECONDS for fault in faults)


def test_faults_fit_the_place() -> None:
    for each in plan(7):
        assert {fault.kind for fault in each.faults} <= {*FAULTS[each.place]}
        assert {fault.server for fault in each.faults} <= (
            {0, 1} if each.place is Place.SHARED else {0}
        )
        assert bool(each.damages) is (each.place is Place.DAMAGED)


@pytest.mark.parametrize(
    ("kinds", "places"),
    [
        ([Kind.KILL, Kind.PAUSE], {Place.EMBEDDED}),
        ([Kind.KILL, Kind.ENGINE], {Place.EMBEDDED, Place.SHARED}),
        ([Kind.OUTAGE], {Place.SHARED}),
        ([Kind.DAMAGE], {Place.DAMAGED}),
        ([*Kind], {*Place}),
    ],
)
def test_only_chosen_faults_happen(kinds: list[Kind], places: set[Place]) -> None:
    found = plan(7, *kinds)
    assert {each.place for each in found} == places
    assert {fault.kind for each in found for fault in each.faults} <= {*kinds}


def test_a_campaign_needs_faults() -> None:
    with pytest.raises(ValueError, match="no round has only these faults"):
        next(rounds(7, []))
