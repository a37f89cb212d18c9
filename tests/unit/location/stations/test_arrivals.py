"""Forecasts: arrivals within their intervals, connectors by Erlang, and the best place for a station."""

import math

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.location.stations import Companions, forecast, free_on_arrival, new_sites
from reticent.location.stations.arrivals import _interval
from reticent.mechanisms.location import ElasticChannel
from reticent.randomness import SimulationStream
from reticent.spaces.roads import Stations

from ...spaces.roads.networks import all_distances, random_roads
from .town import crowds, library, town

SITES = 6


def sites():
    return Stations(town(), np.linspace(10, town().size - 10, SITES).astype(int))


def covered(m, *, planted=False, repetitions=8, seeds=12):
    """The share of sites and runs whose next period is within the interval."""
    roads, law = town().within(1.5), Companions(town(), library()).law(3)
    channel, stations = ElasticChannel(roads, np.ones(roads.size), 4.0), sites()
    people, cells = crowds(town()) / crowds(town()).sum(), stations.nearest(1)[0][:, 0]
    within, queries = [], 600
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        counts = rng.multinomial(queries, channel.forward(people) / channel.forward(people).sum())
        other = channel.forward(law)
        counts = counts + rng.multinomial((m - 1) * queries, other / other.sum())
        found = forecast(
            stations, channel, counts, law=law, m=m, repetitions=repetitions, rng=SimulationStream(seed)
        )
        assert found.arrivals.sum() == pytest.approx(queries)
        following = rng.poisson(queries * np.bincount(cells, people, minlength=SITES))
        low, high = (found.arrivals, found.arrivals + 1.0) if planted else (found.low, found.high)
        within.append((low <= following) & (following <= high))
    return float(np.mean(within))


def test_intervals_hold_the_next_period():
    """At 95 %, over 72 sites and runs: fewer than 58 by chance once in 10^6, if they were independent."""
    assert covered(1) >= 58 / 72


def test_planted_intervals_without_width_are_found():
    assert covered(1, planted=True) < 0.5


def test_intervals_of_known_means_are_those_of_poisson():
    low, high = _interval(np.array([[0.0, 3.0, 400.0]]), 0.95)
    np.testing.assert_array_equal(low, [0, 0, 361])
    np.testing.assert_array_equal(high, [0, 7, 440])


def erlang(connectors, load):
    terms = [load**j / math.factorial(j) for j in range(connectors + 1)]
    return terms[-1] / sum(terms)


@pytest.mark.parametrize(("connectors", "load"), [(1, 1.0), (5, 3.0), (20, 18.0), (3, 0.0)])
def test_the_long_run_is_erlangs_formula(connectors, load):
    found = free_on_arrival(connectors, rate=load / 30.0, stay_minutes=30.0)
    assert found == pytest.approx(1.0 - erlang(connectors, load), abs=1e-12)
    later = free_on_arrival(connectors, rate=load / 30.0, stay_minutes=30.0, busy=connectors, minutes=3000.0)
    assert later == pytest.approx(found, abs=1e-9)


def test_from_what_is_taken_now():
    assert free_on_arrival(2, rate=0.1, stay_minutes=30.0, busy=2, minutes=0.0) == pytest.approx(0.0)
    assert free_on_arrival(2, rate=0.1, stay_minutes=30.0, busy=1, minutes=0.0) == pytest.approx(1.0)
    rate, stay, minutes = 0.05, 40.0, 12.0  # one connector: two states, solved by hand
    total = rate + 1.0 / stay
    free = (1.0 / stay) / total * (1.0 - math.exp(-total * minutes))
    assert free_on_arrival(1, rate=rate, stay_minutes=stay, busy=1, minutes=minutes) == pytest.approx(free)
    chances = [free_on_arrival(4, rate=0.1, stay_minutes=30.0, busy=4, minutes=t) for t in (0, 5, 20, 60)]
    assert chances == sorted(chances)
    assert free_on_arrival(0, rate=0.0, stay_minutes=1.0) == 0.0


def test_free_connectors_of_a_forecast():
    channel = ElasticChannel(town().within(1.5), np.ones(town().size), 4.0)
    counts = np.random.default_rng(1).multinomial(300, np.full(town().size, 1.0 / town().size))
    found = forecast(sites(), channel, counts, repetitions=4, rng=SimulationStream(1))
    chances = found.free([2] * SITES, period_minutes=60.0, stay_minutes=5.0)
    assert chances.shape == (3, SITES)
    assert (chances[1] <= chances[0]).all()
    assert (chances[0] <= chances[2]).all()
    assert found.free(2, period_minutes=60.0, stay_minutes=5.0, busy=0, minutes=0.0).min() == pytest.approx(
        1.0
    )


@pytest.mark.parametrize("seed", range(8))
def test_new_sites_are_the_best_of_all_places(seed):
    rng = np.random.default_rng(seed)
    roads = random_roads(rng, 30, directed=seed % 2 == 1)
    stations = Stations(roads, rng.integers(0, 30, 3))
    mass, ways = rng.dirichlet(np.full(30, 0.5)), all_distances(roads.driving)
    least = ways[:, stations.places].min(axis=1)
    for site in new_sites(stations, mass, 2):
        gains = [float(mass @ np.maximum(0.0, least - ways[:, place])) for place in range(30)]
        assert site.saved == pytest.approx(max(gains))
        assert gains[site.place] == pytest.approx(max(gains))
        assert site.share == pytest.approx(float(mass[ways[:, site.place] < least].sum()))
        least = np.minimum(least, ways[:, site.place])


def test_planted_ways_back_are_found(monkeypatch):
    """From the station instead of to it."""
    rng = np.random.default_rng(1)
    stations = Stations(random_roads(rng, 30, directed=True), rng.integers(0, 30, 3))
    mass = rng.dirichlet(np.full(30, 0.5))
    true = new_sites(stations, mass)[0].saved
    monkeypatch.setattr(type(stations.graph), "backward", property(lambda self: self))
    assert new_sites(stations, mass)[0].saved != pytest.approx(true)


def test_bad_questions():
    with pytest.raises(ParameterError, match="connectors must be >= 0, got -1"):
        free_on_arrival(-1, rate=1.0, stay_minutes=1.0)
    with pytest.raises(ParameterError, match="busy must be <= 2, got 3"):
        free_on_arrival(2, rate=1.0, stay_minutes=1.0, busy=3)
    with pytest.raises(ParameterError, match="free site that all places reach"):
        new_sites(sites(), np.ones(town().size), free=np.zeros(SITES, dtype=bool))
    channel = ElasticChannel(town().within(1.5), np.ones(town().size), 4.0)
    with pytest.raises(ParameterError, match="repetitions must be >= 2, got 1"):
        forecast(sites(), channel, np.ones(town().size, dtype=int), repetitions=1)
