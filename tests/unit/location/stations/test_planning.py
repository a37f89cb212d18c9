"""Plans: what is wanted is given, exactly, and hardly less would do."""

import math

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.location.stations import Queries, level_for, plans, radius_for
from reticent.location.stations.cost import checked_target
from reticent.mechanisms.location.exposure import Law, delta_over_sets
from reticent.spaces.roads import Stations, cut

from ...spaces.roads.networks import lattice

TOWN = cut(lattice(8), 50.0)
SITES = Stations(TOWN, np.random.default_rng(3).integers(0, TOWN.size, 12))
EVEN = np.ones(TOWN.size)
QUERIES = Queries(SITES, EVEN, limit_km=1.0)


@pytest.mark.parametrize("radius", [None, 0.4])
def test_the_least_level_of_a_share_and_of_a_detour(radius):
    def cost(level):
        return QUERIES.pure(level / 2.0) if radius is None else QUERIES.truncated(level, radius)

    level = level_for(QUERIES, free=0.8, radius_km=radius)
    assert cost(level).share_free >= 0.8 - 1e-9
    assert cost(level * 0.99).share_free < 0.8
    level = level_for(QUERIES, detour=0.02, radius_km=radius)
    assert cost(level).mean_detour <= 0.02
    assert cost(level * 0.99).mean_detour > 0.02


def test_the_largest_radius():
    radius = radius_for(QUERIES, 6.0, free=0.8)
    assert QUERIES.truncated(6.0, radius).share_free >= 0.8 - 1e-9
    assert QUERIES.truncated(6.0, radius + 0.06).share_free < 0.8
    assert radius_for(QUERIES, 6.0, free=0.01) == QUERIES.limit_km


def test_there_and_back():
    """The level of the share that a level gives is that level."""
    for level in (4.0, 12.0):
        assert level_for(QUERIES, free=QUERIES.pure(level / 2.0).share_free) == pytest.approx(level, rel=1e-3)
        assert level_for(QUERIES, detour=QUERIES.pure(level / 2.0).mean_detour) == pytest.approx(
            level, rel=1e-3
        )


def test_plans_keep_what_they_say():
    found = plans(SITES, EVEN, free=0.9, ks=(1, 3), radii_km=(0.3,), horizon_km=1.0)
    assert [(one.channel, one.k) for one in sorted(found, key=lambda one: (one.channel, one.k))] == [
        ("pure", 1),
        ("pure", 3),
        ("truncated", 1),
        ("truncated", 3),
    ]
    assert all(one.share_free >= 0.9 - 1e-9 for one in found)
    assert [one.level for one in found] == sorted(one.level for one in found)
    by_k = {one.k: one.level for one in found if one.channel == "pure"}
    assert by_k[3] < by_k[1]
    for one in found:
        if one.channel == "pure":
            assert (one.delta, one.radius_km, one.reach_km) == (0.0, math.inf, math.inf)
        else:
            law = Law.truncated(TOWN, one.level, one.radius_km)
            assert one.delta == delta_over_sets(TOWN, law, one.level)
            assert one.reach_km == pytest.approx(-math.log(one.delta) / one.level)


def test_what_cannot_be_had():
    with pytest.raises(ParameterError, match="one of free and detour must be given"):
        checked_target(None, None)
    with pytest.raises(ParameterError, match=r"free must be > 0 and <= 1, got 1\.5"):
        level_for(QUERIES, free=1.5)
    with pytest.raises(ParameterError, match="no level up to 200 per km gives that with k = 1"):
        level_for(QUERIES, free=1.0)
    assert plans(SITES, EVEN, free=1.0, ks=(1,), horizon_km=1.0) == []
