"""Roads: rows within a limit against scipy and networkx, delta over sets, estimates against sparse products.

All of San Francisco in segments of about 100 m: 21,343 places, 26.5 million pairs within 2 km.
"""

from __future__ import annotations

import resource
from functools import lru_cache

import networkx
import numpy as np
from scipy.sparse.csgraph import dijkstra

from benchmarks.measure import Figure, cpu_ratio
from reticent.estimation.locations import estimated
from reticent.experiments.data import directory
from reticent.mechanisms.location import ElasticChannel, exposure
from reticent.spaces import cut, read_map
from reticent.spaces.roads import Roads

SCIPY_ROWS = 256  # that scipy gives at once, each as long as there are places
RUNS = 5
UPDATES = 5


@lru_cache(maxsize=1)
def city() -> Roads:
    return cut(read_map(directory() / "sf_road_edges.csv.gz"), 100.0)


def by_scipy(limit: float) -> None:
    """The distances of all places by scipy, a block at a time; nothing is kept."""
    graph = city().street
    for first in range(0, graph.size, SCIPY_ROWS):
        dijkstra(graph.matrix, indices=np.arange(first, min(first + SCIPY_ROWS, graph.size)), limit=limit)


def rows(limit: float, *, compiled: bool = True) -> float:
    """Time of all rows within a limit / of scipy's."""
    graph = city().street
    return 1.0 / cpu_ratio(
        lambda: by_scipy(limit), lambda: graph.rows(limit, compiled=compiled), repetitions=RUNS
    )


def against_networkx(limit: float = 2.0, sources: int = 60) -> float:
    """Rows a second / networkx's."""
    graph = city().street
    peer = networkx.DiGraph()
    peer.add_weighted_edges_from(
        zip(graph.begins.tolist(), graph.ends.tolist(), graph.lengths.tolist(), strict=True)
    )
    chosen = np.linspace(0, graph.size - 1, sources).astype(np.int64)
    many = np.tile(chosen, 20)

    def theirs() -> None:
        for one in chosen.tolist():
            networkx.single_source_dijkstra_path_length(peer, one, cutoff=limit, weight="weight")

    return cpu_ratio(
        theirs, lambda: graph.rows(limit, many), peer_work=sources, our_work=len(many), repetitions=RUNS
    )


def bytes_of_an_entry(limit: float = 2.0) -> float:
    """How much the process grows by the rows of the city / entries."""
    graph = city().street
    graph.rows(0.1)  # compiled
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = graph.rows(limit)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024.0 / len(found.far)


def delta() -> float:
    """Time of the city's delta over sets at 5 per km, radius 1 km / of scipy's rows within 2 km."""
    roads = city()

    def ours() -> None:
        law = exposure.Law.truncated(roads, 5.0, 1.0)
        assert abs(exposure.delta_over_sets(roads, law, 5.0) - 0.0817) < 1e-4

    return 1.0 / cpu_ratio(lambda: by_scipy(2.0), ours, repetitions=RUNS)


def updates() -> float:
    """Time of an update of the estimate on a channel with a horizon of 2 km / of two sparse products."""
    roads = city().within(2.0)
    channel = ElasticChannel(roads, np.ones(roads.size), 2.5)
    matrix, rng = channel.kernel.matrix, np.random.default_rng(0)  # type: ignore[attr-defined]
    people = rng.dirichlet(np.full(roads.size, 0.3))
    counts = rng.multinomial(100_000, channel.forward(people))

    def products() -> None:
        for _ in range(UPDATES):
            matrix @ people
            matrix @ people

    options = {"tolerance": 0.0, "max_iterations": UPDATES, "accelerated": False}
    return 1.0 / cpu_ratio(products, lambda: estimated([(channel, counts)], **options), repetitions=RUNS)


FIGURES = [
    Figure("road rows within 2 km", "scipy's dijkstra", 1.0, lambda: rows(2.0), at_most=True),
    Figure(
        "road rows within 2 km, no numba",
        "scipy's dijkstra",
        1.5,
        lambda: rows(2.0, compiled=False),
        at_most=True,
    ),
    Figure("road rows within 500 m", "scipy's dijkstra", 0.3, lambda: rows(0.5), at_most=True),
    Figure("road rows within 2 km, speed", "networkx", 10.0, against_networkx),
    Figure("road rows, bytes an entry", "16 bytes", 16.0, bytes_of_an_entry, at_most=True),
    Figure("delta over sets of a city", "scipy's dijkstra, 2 km", 3.0, delta, at_most=True),
    Figure("update on roads", "two sparse products", 1.3, updates, at_most=True),
]
