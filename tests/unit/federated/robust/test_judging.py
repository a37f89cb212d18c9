"""A round judged as a whole, under every attack."""

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.federated.robust import Evaluation, Grid, judge, mean, multi_krum
from reticent.federated.robust.attacks import ATTACKS, Seen, other_labels

GRID = Grid(60, 1 << 12, 1 << 15, floor=1 << 8)
HONEST, LIARS = 14, 6


def seen(seed=0):
    draw = np.random.default_rng(seed)
    way = draw.normal(size=60)
    way *= 2.0 / np.linalg.norm(way)
    everybody = way + 0.1 * draw.normal(size=(HONEST + LIARS, 60))
    placed = np.stack([GRID.values(GRID.placed(one)) for one in everybody])
    before = np.stack([GRID.values(GRID.placed(2 * one)) for one in everybody])
    flipped = np.stack([GRID.values(GRID.placed(one[::-1].copy())) for one in everybody[:LIARS]])
    return Seen(GRID, placed[:LIARS], placed[LIARS:], before[LIARS:], flipped)


def sent(numbers):
    """As clients send it: on the grid if it can be, else as it is."""
    steps = numbers * GRID.steps
    return steps.astype(np.int64) if np.isfinite(steps).all() else steps


def round_of(attack, known):
    return [sent(one) for one in [*attack(known), *known.others]]


CAUGHT = {"sign flip", "label flip", "scaling", "replayed"}
REFUSED = {"too long", "not finite"}
REMAINING = {"a little is enough", "copied", "zero"}  # what Multi-Krum cannot see


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack(name):
    known = seen()
    found = judge(GRID, round_of(ATTACKS[name], known), LIARS)
    liars = set(range(LIARS))
    assert len(found.accepted) == HONEST
    if name in REFUSED:
        assert set(found.refused) == liars
        assert name != "not finite" or "must be finite" in found.refused[0]
    else:
        assert found.refused == {}
    if name in CAUGHT | REFUSED:
        assert not liars & set(found.accepted)
        assert {found.evaluations[place] for place in liars} == {Evaluation.LOW}
    assert name in CAUGHT | REFUSED | REMAINING
    assert np.isfinite(GRID.values(found.update)).all()
    assert found.slight == (frozenset(liars) if name == "zero" else frozenset())
    assert Evaluation.LOW not in found.evaluations[LIARS:], "honest ones keep their reputation"


def test_what_remains_is_said_plainly():
    """A little is enough, and copies are accepted: the reason for commitments, and for the table."""
    known = seen()
    for name in ("a little is enough", "copied"):
        found = judge(GRID, round_of(ATTACKS[name], known), LIARS)
        assert set(range(LIARS)) & set(found.accepted), name


def test_the_update_is_the_mean_of_the_accepted():
    updates = round_of(ATTACKS["sign flip"], seen(1))
    found = judge(GRID, updates, LIARS)
    assert np.array_equal(found.update, mean([updates[place].astype(np.int32) for place in found.accepted]))
    assert found.bits == sum(2**place for place in found.accepted)


def test_places_stay_those_of_the_senders_when_others_are_refused():
    honest = [sent(one) for one in seen(2).others]
    mixed = [None, honest[0], np.zeros(3), *honest[1:5], "x", *honest[5:]]
    found = judge(GRID, mixed, 3)
    assert set(found.refused) == {0, 2, 7}
    alone = judge(GRID, honest, 0)
    places = [place for place in range(len(mixed)) if place not in found.refused]
    assert found.accepted == tuple(places[at] for at in alone.accepted)
    assert np.array_equal(found.update, alone.update)


def test_too_few_that_hold_are_not_judged():
    with pytest.raises(ParameterError, match="updates must be >= 5, got 4"):
        judge(GRID, [sent(one) for one in seen().others[:4]], 1)
    with pytest.raises(ParameterError, match="updates must be >= 3, got 2"):
        judge(GRID, [*[sent(one) for one in seen().others[:2]], *[None] * 9], 1)


def test_nobody_stops_a_round_by_what_is_refused():
    """15 are the least for 6 liars; 6 of them are refused, so none is left to fear among 9."""
    honest = [sent(one) for one in seen(3).others[:9]]
    assert judge(GRID, [*[None] * 6, *honest], 6).accepted == tuple(range(6, 15))


def test_planted_counting_the_refused_twice_stops_it():
    honest = [sent(one).astype(np.int32) for one in seen(3).others[:9]]
    with pytest.raises(ParameterError, match="updates must be >= 15, got 9"):
        multi_krum(honest, 6)


def test_other_labels():
    assert other_labels(np.arange(10), 10).tolist() == list(range(9, -1, -1))
