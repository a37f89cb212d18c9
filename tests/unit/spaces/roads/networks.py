"""Road networks for tests: random ones, street grids, and San Francisco where its files are."""

from functools import lru_cache

import numpy as np
import pytest

from reticent.experiments.data import directory
from reticent.spaces.roads import Graph, RoadMap, Roads, Street, cut, read_map

KM_PER_DEGREE = 6371.0088 * np.pi / 180.0


def random_graph(rng, size, *, directed=False, arcs=2.0):
    """Strongly connected: a ring there and back, or one way, and arcs across it."""
    ring = np.arange(size)
    begin, end = [ring], [np.roll(ring, -1)]
    lengths = [rng.integers(1, 40, size) / 64.0]
    many = int(arcs * size)
    begin.append(rng.integers(0, size, many))
    end.append(rng.integers(0, size, many))
    lengths.append(rng.integers(1, 80, many) / 64.0)
    begin, end, lengths = (np.concatenate(one) for one in (begin, end, lengths))
    if not directed:
        begin, end = np.concatenate([begin, end]), np.concatenate([end, begin])
        lengths = np.concatenate([lengths, lengths])
    return Graph.of(size, begin, end, lengths)


def random_roads(rng, size, *, horizon=np.inf, directed=False):
    """Places whose distances are those of a random graph; where they lie does not matter."""
    street = random_graph(rng, size)
    driving = random_graph(rng, size, directed=True) if directed else street
    points = np.stack([37.7 + 0.1 * rng.random(size), -122.5 + 0.1 * rng.random(size)], axis=1)
    return Roads(points, street, driving, driving, horizon_km=max(horizon, street.longest))


def long_street(size, *, spacing_km=0.125, horizon_km=np.inf):
    """Places along one street, the same distance apart."""
    begin, end = np.arange(size - 1), np.arange(1, size)
    lengths = np.full(2 * (size - 1), spacing_km)
    street = Graph.of(size, np.concatenate([begin, end]), np.concatenate([end, begin]), lengths)
    points = np.stack([np.full(size, 37.7), -122.5 + 0.001 * np.arange(size)], axis=1)
    return Roads(points, street, street, street, horizon_km=horizon_km)


def lattice(side, *, spacing_m=100.0, one_way=False, south=37.7, west=-122.5):
    """A map of side x side junctions; every other street one way if asked for."""
    step = spacing_m / 1000.0 / KM_PER_DEGREE
    nodes = {
        (row, column): (south + row * step, west + column * step / np.cos(np.radians(south)))
        for row in range(side)
        for column in range(side)
    }
    streets = []
    for row in range(side):
        for column in range(side):
            for to in ((row + 1, column), (row, column + 1)):
                if to in nodes:
                    along = row if to[0] == row else column
                    forward, backward = (along % 2 == 0, along % 2 == 1) if one_way else (True, True)
                    streets.append(Street((row, column), to, None, spacing_m * 1.01, forward, backward))
    return RoadMap.of(nodes, streets)


def grid_graph(side):
    """Junctions as places, one unit apart: the street grid of the golden values."""
    at = np.arange(side * side).reshape(side, side)
    begin = np.concatenate([at[:-1].ravel(), at[:, :-1].ravel()])
    end = np.concatenate([at[1:].ravel(), at[:, 1:].ravel()])
    return Graph.of(
        side * side, np.concatenate([begin, end]), np.concatenate([end, begin]), np.ones(2 * len(begin))
    )


def all_distances(graph):
    return np.stack([graph.distances(place) for place in range(graph.size)])


def city_file(name):
    path = directory() / name
    if not path.exists():
        pytest.skip(f"{name} is not in ../shared/data")
    return path


@lru_cache(maxsize=1)
def city():
    """San Francisco in segments of about 100 m."""
    return cut(read_map(city_file("sf_road_edges.csv.gz")), 100.0)
