"""Shortest ways: the same doubles by every engine, those of networkx, and never a full matrix."""

import math

import networkx
import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.spaces.roads import Graph
from reticent.spaces.roads import graph as graph_module

from .networks import all_distances, random_graph

SEEDS = range(25)


def as_dicts(rows):
    return [dict(zip(*(one.tolist() for one in rows.row(x)), strict=True)) for x in range(len(rows))]


def by_networkx(graph, limit):
    peer = networkx.DiGraph()
    peer.add_nodes_from(range(graph.size))
    peer.add_weighted_edges_from(
        zip(graph.begins.tolist(), graph.ends.tolist(), graph.lengths.tolist(), strict=True)
    )
    return [
        networkx.single_source_dijkstra_path_length(peer, x, cutoff=limit, weight="weight")
        for x in range(graph.size)
    ]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("limit", [0.0, 0.3, 1.0, math.inf])
def test_rows_are_those_of_networkx_by_every_engine(directed, limit):
    for seed in SEEDS:
        graph = random_graph(np.random.default_rng(seed), 5 + seed, directed=directed)
        expected = by_networkx(graph, None if limit == math.inf else limit)
        assert as_dicts(graph.rows(limit, compiled=True)) == expected
        assert as_dicts(graph.rows(limit, compiled=False)) == expected
        for place in range(graph.size):
            far = graph.distances(place, limit)
            assert {y: d for y, d in enumerate(far.tolist()) if d < math.inf} == expected[place]
            assert graph._plain_distances(place, limit).tolist() == far.tolist()


def test_lengths_that_are_no_neat_numbers_too():
    """Tiny and long arcs: wide buckets, in which places wait more than once."""
    rng = np.random.default_rng(3)
    begin, end = rng.integers(0, 60, (2, 400))
    lengths = 10.0 ** rng.uniform(-7, 1, 400)
    graph = Graph.of(60, begin, end, lengths)
    for limit in (0.01, 1.0, 30.0, math.inf):
        assert as_dicts(graph.rows(limit, compiled=True)) == as_dicts(graph.rows(limit, compiled=False))


def test_planted_a_queue_that_never_looks_again_is_found(monkeypatch):
    """Wide buckets need places that wait again; with one bucket and no second look ways come out too long."""
    monkeypatch.setattr(graph_module, "_BUCKETS", 1)
    rng = np.random.default_rng(3)
    graph = Graph.of(60, *rng.integers(0, 60, (2, 400)), 10.0 ** rng.uniform(-3, 0, 400))
    assert as_dicts(graph.rows(5.0, compiled=True)) == as_dicts(graph.rows(5.0, compiled=False))

    def once(limit):
        far = {0: 0.0}
        order = [0]
        for at in order:
            for arc in range(graph.starts[at], graph.starts[at + 1]):
                to, through = int(graph.ends[arc]), far[at] + graph.lengths[arc]
                if to not in far and through <= limit:
                    far[to] = through
                    order.append(to)
        return far

    assert once(5.0) != as_dicts(graph.rows(5.0, compiled=True))[0]


def test_rows_of_some_places_and_growing_room(monkeypatch):
    graph = random_graph(np.random.default_rng(1), 300)
    whole = as_dicts(graph.rows(0.5))
    some = [5, 5, 299, 0]
    assert as_dicts(graph.rows(0.5, some)) == [whole[x] for x in some]
    monkeypatch.setattr(graph_module, "_SAMPLE", 1)  # a bad guess: room is made again
    assert as_dicts(graph.rows(0.5)) == whole
    monkeypatch.setattr(graph_module, "MOST_ENTRIES", 1000)
    for compiled in (True, False):
        with pytest.raises(ParameterError, match="rows must have at most 1,000 entries, got"):
            graph.rows(math.inf, compiled=compiled)


def test_twelve_bytes_an_entry():
    rows = random_graph(np.random.default_rng(1), 300).rows(0.5)
    assert rows.places.itemsize + rows.far.itemsize == 12


def test_symmetric_distances_are_exactly_symmetric_and_triangles_hold():
    for seed in SEEDS:
        far = all_distances(random_graph(np.random.default_rng(seed), 30))
        assert (far == far.T).all()
        assert all((far <= far[:, through, None] + far[through]).all() for through in range(30))


def test_parallel_arcs_loops_and_what_is_refused():
    graph = Graph.of(3, [0, 0, 1, 2, 2], [1, 1, 2, 2, 0], [5.0, 2.0, 1.0, 1.0, 1.0])
    assert (graph.begins.tolist(), graph.ends.tolist(), graph.lengths.tolist()) == (
        [0, 1, 2],
        [1, 2, 0],
        [2, 1, 1],
    )
    assert not graph.is_symmetric
    assert graph.backward.backward.lengths.tolist() == graph.lengths.tolist()
    for bad, message in [
        ((3, [0], [3], [1.0]), "arcs must join places below 3"),
        ((3, [0], [1], [0.0]), "lengths of arcs must be finite and > 0"),
        ((3, [0], [1], [math.nan]), "lengths of arcs must be finite"),
        ((3, [0, 1], [1], [1.0]), "as many begins"),
    ]:
        with pytest.raises(ParameterError, match=message):
            Graph.of(*bad)
    with pytest.raises(ParameterError, match="limit must be >= 0, got -1"):
        graph.rows(-1.0)
