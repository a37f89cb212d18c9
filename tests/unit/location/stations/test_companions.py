"""Companions: drawn by their law, from the library alone, and not its journeys again."""

from itertools import pairwise

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.location.stations import Companions
from reticent.randomness import SimulationStream

from .town import library, town, trips

DRAWS = 20_000
Z = 5.3  # standard errors: over all places of all tests false alarms below 1e-3


def allowed(law):
    """How far from a law draws may be; queries of one companion count as one draw: they are alike."""
    return Z * (np.sqrt(law / DRAWS) + 2.0 / DRAWS)


def fits(companions, queries, law, rng):
    """Whether draws are by a law of places, place by place."""
    drawn = companions.journeys(DRAWS, queries, rng)
    assert drawn.shape == (DRAWS, queries)
    counts = np.stack([np.bincount(column, minlength=town().size) for column in drawn.T])
    found = counts.sum(axis=0) / queries / DRAWS
    return bool((np.abs(found - law) <= allowed(law)).all())


@pytest.mark.parametrize(("stride", "neighbours", "queries"), [(1, 8, 1), (1, 8, 4), (2, 3, 3), (1, 1, 4)])
def test_draws_are_by_the_law(stride, neighbours, queries):
    companions = Companions(town(), library(), stride=stride, neighbours=neighbours)
    law = companions.law(queries)
    assert law.sum() == pytest.approx(1.0)
    assert fits(companions, queries, law, SimulationStream(3))


def test_planted_other_laws_are_found():
    companions = Companions(town(), library(), stride=2)
    first = np.bincount([one[0] for one in trips()], minlength=town().size) / len(trips())
    assert not fits(companions, 4, first, SimulationStream(4))
    even = np.full(town().size, 1.0 / town().size)
    assert not fits(companions, 4, even, SimulationStream(5))


def test_companions_that_outlast_the_library_begin_anywhere():
    """Planted: only the longest journeys, which are few: all companions would begin in one corner."""
    companions = Companions(town(), library(), stride=100)
    lengths = np.diff(companions.library.starts)
    law = np.bincount(companions.places, companions.beginnings(3), minlength=town().size)
    longest = companions.places[companions.library.starts[np.flatnonzero(lengths == lengths.max())]]
    assert np.count_nonzero(law) == len(np.unique(companions.places))
    assert np.count_nonzero(law) > 10 * len(np.unique(longest))
    assert fits(companions, 3, companions.law(3), SimulationStream(9))


def test_the_law_of_pairs_is_that_of_the_chain():
    """Where a companion is at two queries together: by the chain, and by draws."""
    companions = Companions(town(), library(), stride=2, neighbours=4)
    drawn = companions.journeys(DRAWS, 2, SimulationStream(6))
    begun = companions.beginnings(2)
    here = int(np.bincount(companions.places, begun).argmax())
    second = companions.moved(np.where(companions.places == here, begun, 0.0))
    law = np.bincount(companions.places, second, minlength=town().size)
    found = np.bincount(drawn[drawn[:, 0] == here, 1], minlength=town().size) / DRAWS
    assert (np.abs(found - law) <= allowed(law)).all()


def test_replayed_journeys_are_those_of_the_library():
    companions = Companions(town(), library(), neighbours=1)
    parts = {one[first : first + 4] for one in trips() for first in range(len(one) - 3)}
    drawn = {tuple(one) for one in companions.journeys(500, 4, SimulationStream(7)).tolist()}
    assert drawn <= parts


def test_companions_repeat_nobody_for_long():
    companions = Companions(town(), library())
    parts = {one[first : first + 12] for one in trips() for first in range(len(one) - 11)}
    drawn = [tuple(one) for one in companions.journeys(500, 12, SimulationStream(8)).tolist()]
    assert parts
    assert sum(one in parts for one in drawn) < 50


def test_steps_are_short():
    """Nobody drives farther in a step than the library does, but for what a change of journeys adds."""
    companions, roads = Companions(town(), library()), town()
    drawn = companions.journeys(300, 6, SimulationStream(9))
    fastest = max(
        float(np.hypot(*(roads.seen[a] - roads.seen[b]))) for one in trips() for a, b in pairwise(one)
    )
    steps = np.hypot(*np.moveaxis(np.diff(roads.seen[drawn], axis=1), 2, 0))
    assert steps.max() <= fastest + 0.5


def test_few_and_many_choose_among_the_same(monkeypatch):
    """By sorting and by a tree; points of one motion may stand for each other."""
    few, many = (Companions(town(), library(trips()[:60]), neighbours=5) for _ in range(2))
    monkeypatch.setattr("reticent.location.stations.companions._FEW", 1 << 30)
    plain = few.followers
    monkeypatch.setattr("reticent.location.stations.companions._FEW", 0)
    tree = many.followers
    motion = few._motion
    far = [
        np.sort(np.linalg.norm(motion[one - 1] - motion[:, None], axis=2), axis=1) for one in (plain, tree)
    ]
    np.testing.assert_allclose(far[0], far[1], atol=1e-12)


def test_long_journeys_and_none():
    companions = Companions(town(), library())
    assert companions.journeys(3, 200, SimulationStream(10)).shape == (3, 200)
    assert companions.journeys(0, 3).shape == (0, 3)
    assert companions.journeys(2, 3).max() < town().size  # secure randomness


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"count": -1, "queries": 1}, "count must be >= 0, got -1"),
        ({"count": 1, "queries": 0}, "queries must be >= 1, got 0"),
        ({"count": 1, "queries": 20_000}, "queries must be at most 10000, got 20000"),
    ],
)
def test_bad_questions(given, message):
    with pytest.raises(ParameterError, match=message):
        Companions(town(), library()).journeys(**given)
