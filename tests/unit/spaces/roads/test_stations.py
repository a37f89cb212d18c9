"""Nearest sites and their cells, against the full table of costs."""

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.spaces.roads import Stations

from .networks import all_distances, city, city_file, random_roads


def case(seed, *, directed):
    rng = np.random.default_rng(seed)
    roads = random_roads(rng, int(rng.integers(8, 60)), directed=directed)
    sites = Stations(roads, rng.integers(0, roads.size, int(rng.integers(1, 9))))
    return rng, roads, sites


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_nearest_sites_are_those_of_the_whole_table(seed, directed):
    rng, roads, sites = case(seed, directed=directed)
    table = all_distances(roads.driving)[:, sites.places]
    np.testing.assert_array_equal(sites.costs, table)
    for k in (1, 2, 5):
        for free in (None, rng.random(sites.size) < 0.6):
            counted = np.where(np.ones(sites.size, bool) if free is None else free, table, np.inf)
            order = np.argsort(counted, axis=1, kind="stable")[:, :k]
            found, costs = sites.nearest(k, free)
            best = np.take_along_axis(counted, order, axis=1)
            np.testing.assert_array_equal(costs[:, : best.shape[1]], best)
            np.testing.assert_array_equal(found[:, : best.shape[1]], np.where(np.isinf(best), -1, order))
            assert np.isinf(costs[:, best.shape[1] :]).all()


def orientation_mixed(sites, k):
    """Cells by the way from the site to the place."""
    table = all_distances(sites.roads.driving)[sites.places].T
    return np.argsort(table, axis=1, kind="stable")[:, :k]


def test_planted_the_way_from_the_station_is_found():
    differ = 0
    for seed in range(10):
        _, _, sites = case(seed, directed=True)
        differ += (orientation_mixed(sites, 1) != sites.nearest(1)[0]).any()
    assert differ >= 5


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("seed", range(10))
def test_fenced_places_have_only_their_own_cell_about_them(seed, k):
    _, roads, sites = case(seed, directed=seed % 2 == 1)
    for radius in (0.1, 0.3, 0.8):
        near = all_distances(roads.street) <= radius
        answers, _ = sites.nearest(k)
        expected = [
            all(answers[x, 0] in answers[y] for y in np.flatnonzero(near[x])) for x in range(roads.size)
        ]
        assert sites.fenced(roads.rows(radius), k).tolist() == expected


def test_bad_stations():
    _, roads, sites = case(0, directed=False)
    for bad in ([], [-1], [roads.size]):
        with pytest.raises(ParameterError, match="places of stations must be below"):
            Stations(roads, bad)
    with pytest.raises(ParameterError, match="k must be >= 1"):
        sites.nearest(0)
    with pytest.raises(ParameterError, match="free must have one flag for each of"):
        sites.nearest(1, [True] * (sites.size + 1))
    with pytest.raises(ParameterError, match="cost must be one of"):
        Stations(roads, [0], "fuel")
    with pytest.raises(ParameterError, match="a row for each place"):
        sites.fenced(roads.rows(0.1, [0]))


def test_stations_of_the_city():
    import csv
    import gzip

    with gzip.open(city_file("sf_ev_stations.csv.gz"), "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    sites = Stations.at(city(), [float(one["lat"]) for one in rows], [float(one["lon"]) for one in rows])
    assert len(rows) == 378
    assert sites.size == 200
    assert 0.05 < sites.fenced(city().rows(1.0)).mean() < 0.15
