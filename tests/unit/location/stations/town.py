"""A small town with invented traffic, for tests of companions, attackers and forecasts."""

from functools import lru_cache

import numpy as np

from reticent.location.stations import JourneyLibrary
from reticent.location.stations.traffic import invented
from reticent.randomness import SimulationStream
from reticent.spaces.roads import cut

from ...spaces.roads.networks import lattice


@lru_cache(maxsize=1)
def town(side=13):
    """Blocks of 200 m, cut into segments of 100 m: a little over 2 km wide."""
    return cut(lattice(side, spacing_m=200.0), 100.0)


def crowds(roads):
    """Two crowded quarters."""
    away = [np.hypot(*(roads.seen - spot).T) for spot in ((-0.7, -0.6), (0.8, 0.4))]
    return sum(np.exp(-far / 0.4) for far in away) + 0.02


@lru_cache(maxsize=4)
def trips(count=400, seed=1, seconds=10):
    """Invented journeys of the town."""
    roads = town()
    return tuple(
        tuple(one.tolist())
        for one in invented(
            roads, crowds(roads), count=count, seconds=seconds, least=6, rng=SimulationStream(seed)
        )
    )


def library(journeys=None, seconds=10):
    return JourneyLibrary.of(
        town(), trips() if journeys is None else journeys, seconds=seconds, name="town", purpose="companions"
    )
