"""The law of points that are nobody's, fitted to reports of companions at several queries and of cover."""

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.location.stations.companions import Companions
from reticent.location.stations.demand import demand_of
from reticent.location.stations.library import JourneyLibrary
from reticent.location.stations.other_points import fitted_law, kinds
from reticent.location.stations.traffic import invented
from reticent.mechanisms.location import exponential
from reticent.randomness import SimulationStream, uniform_below

from .asking_town import town

TRUE, SHARES = 400, (0.8, 0.05, 0.05, 0.1)  # companions at three queries, and cover


@pytest.fixture(scope="module")
def companions():
    roads = town(side=10).within(4.0)
    ways = invented(roads, count=30, seconds=20, least=4, rng=SimulationStream(1))
    ways = [one.tolist() for one in ways]
    library = JourneyLibrary.of(roads, ways, seconds=20, name="some", purpose="A test.")
    return Companions(roads, library, stride=2)


@pytest.fixture(scope="module")
def seen(companions):
    """Reports: of people in one corner, of companions, and of cover."""
    stream, roads = SimulationStream(2), companions.roads
    channel = exponential(roads, 8.0)
    corner = np.argsort(np.hypot(*(roads.seen - roads.seen.min(axis=0)).T))[:20]
    true = corner[uniform_below(20, TRUE, stream)]
    many = 9 * TRUE
    along = companions.journeys(many, 3, stream)
    which = np.searchsorted(np.cumsum(SHARES), stream.units(many) - 1.0)
    nobody = np.where(
        which == 3, companions.journeys(many, 1, stream)[:, 0], along[np.arange(many), which % 3]
    )
    reports = channel.sample(np.concatenate([true, nobody]), stream)
    return channel, np.bincount(reports, minlength=roads.size), corner


def apart(channel, one, other):
    """Total variation of what is reported."""
    return 0.5 * float(np.abs(channel.forward(one) - channel.forward(other)).sum())


def test_every_kind_is_a_law(companions):
    laws = kinds(companions, 3)
    assert laws.shape == (4, companions.roads.size)
    assert laws.sum(axis=1) == pytest.approx(1.0)
    assert laws[:3].mean(axis=0) == pytest.approx(companions.law(3))
    assert laws[3] == pytest.approx(companions.law(1))


def test_shares_are_fitted_where_one_law_for_all_is_wrong(companions, seen):
    """Planted: the law of a whole journey, as if all queries and no cover were alike."""
    channel, counts, corner = seen
    due = np.asarray(SHARES) @ kinds(companions, 3)
    fitted = fitted_law(channel, companions, counts, m=10.0, queries=3)
    assert apart(channel, fitted, due) < 0.05 < apart(channel, companions.law(3), due)
    found = demand_of(channel, counts, law=fitted, m=10, rng=SimulationStream(3))
    assert found.queries == pytest.approx(TRUE)
    even = len(corner) / companions.roads.size
    assert found.distribution[corner].sum() > 2.0 * even, "people are seen where they are"


def test_without_others_there_is_no_law(companions, seen):
    with pytest.raises(ParameterError, match="m must be > 1, got 1"):
        fitted_law(seen[0], companions, seen[1], m=1.0, queries=3)
