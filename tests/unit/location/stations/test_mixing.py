"""The edge's batch: every reply finds its vehicle, no order is kept, and every batch is of one size."""

import itertools
import math

import numpy as np
import pytest

from reticent.errors import ParameterError, SourceError
from reticent.location.stations import mixing
from reticent.location.stations.mixing import Batch, Cover, permutation
from reticent.location.stations.sealing import POINT_BYTES, Kind, opened
from reticent.randomness import SimulationStream

from .asking_town import Anywhere, provider


def queries(count, m):
    return [[f"{query} {at}".encode() for at in range(m)] for query in range(count)]


def mixed(asked, cover, exchange, rng=None):
    """Exchange points for replies as the edge does."""
    batch = Batch.of(asked, cover, rng)
    return batch.told(exchange(batch.points))


@pytest.mark.parametrize(("count", "m", "cover"), [(1, 1, 0), (1, 4, 3), (7, 3, 0), (20, 10, 5)])
def test_every_reply_finds_its_query(count, m, cover):
    seen = []

    def exchange(points):
        seen.extend(points)
        return [point + b" answered" for point in points]

    asked, filling = queries(count, m), [f"cover {at}".encode() for at in range(cover)]
    found = mixed(asked, filling, exchange)
    assert found == [[point + b" answered" for point in query] for query in asked]
    assert sorted(seen) == sorted([*itertools.chain(*asked), *filling])


def test_a_provider_who_answers_some_is_refused():
    with pytest.raises(SourceError, match="did not answer each point"):
        mixed(queries(2, 2), [], lambda points: points[1:])


def by_position(asked, cover, exchange, rng=None):
    """Planted: replies are given back by the position of the point in the batch."""
    points = [*itertools.chain(*asked), *cover]
    replies = exchange([points[at] for at in permutation(len(points), rng).tolist()])
    return [replies[at : at + len(asked[0])] for at in range(0, len(asked) * len(asked[0]), len(asked[0]))]


def test_planted_replies_by_position_are_caught():
    asked = queries(5, 4)
    found = by_position(asked, [], lambda points: points, SimulationStream(1))
    assert found != asked


# The order


def in_order(asked, cover, exchange, rng=None):
    """Planted: the order is kept."""
    points = [*itertools.chain(*asked), *cover]
    replies = exchange(points)
    return [replies[at : at + len(asked[0])] for at in range(0, len(asked) * len(asked[0]), len(asked[0]))]


def together(mix, batches=100):
    """How many points of the first vehicle stand beside another one of its own, over some batches."""
    found = 0

    def exchange(points):
        nonlocal found
        owners = [point.split()[0] for point in points]
        found += sum(a == b == b"0" for a, b in itertools.pairwise(owners))
        return points

    for _ in range(batches):
        mix(queries(10, 5), [], exchange)
    return found


def test_no_order_is_kept():
    """The mean is 5 * 4 / 50 = 0.4 a batch, at most 4: by Hoeffding above 1.3 once in 10^4 times 25 runs."""
    most = 100 * (0.4 + 4.0 * math.sqrt(math.log(2.5e5) / 200.0))
    assert together(mixed) <= most
    assert together(in_order) == 400 > most


def test_planted_a_kept_order_is_caught_by_the_position_of_one_point():
    """Where a point stands: chi-square with 9 degrees of freedom, above 33.7 once in 10,000 runs."""

    def statistic(mix):
        places = np.zeros(10)

        def exchange(points):
            places[points.index(b"0 0")] += 1
            return points

        for _ in range(400):
            mix(queries(5, 2), [], exchange)
        return float(((places - 40.0) ** 2 / 40.0).sum())

    seeds = itertools.count()
    assert statistic(lambda *given: mixed(*given, SimulationStream(next(seeds)))) < 33.7
    assert statistic(in_order) > 33.7


def test_permutations_are_even():
    """Chi-square over the 24 orders of 4, 23 degrees of freedom: above 55.5 once in 10,000 runs."""
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    stream = SimulationStream(3)
    for _ in range(4800):
        counts[tuple(permutation(4, stream).tolist())] += 1
    assert sum((found - 200.0) ** 2 / 200.0 for found in counts.values()) < 55.5
    assert permutation(0).size == 0
    assert permutation(1).tolist() == [0]


def test_words_that_are_equal_are_drawn_again():
    class Twice:
        drawn = 0

        def words(self, count):
            self.drawn += 1
            return np.array([5, 5, 1] if self.drawn == 1 else [5, 6, 1], dtype=np.uint64)

    stream = Twice()
    mixing_stream, mixing.secure_or = mixing.secure_or, lambda rng: rng
    try:
        assert permutation(3, stream).tolist() == [2, 0, 1]
    finally:
        mixing.secure_or = mixing_stream
    assert stream.drawn == 2


# Cover


@pytest.fixture
def held(tmp_path):
    return provider(tmp_path / "provider")


def test_cover_looks_like_queries(held):
    cover = Cover(held.area, Anywhere(held.area.roads.size), stock=70)
    points = cover.points(9)
    found = [opened(one, held.service.id, held._sealing_key) for one in points]
    assert {len(one) for one in points} == {POINT_BYTES}
    assert all(one.kind is Kind.QUERY and 0 <= one.number < held.area.roads.size for one in found)
    assert len({one.key for one in found}) == 9
    assert len(set(points) & set(cover.points(9))) == 0


def test_cover_is_drawn_aside_until_there_is_enough(held):
    cover = Cover(held.area, Anywhere(held.area.roads.size), stock=70)
    cover.begin()
    cover.points(3)  # each time some more
    cover._thread.join()
    assert len(cover._places) == 70
    cover.end()


def test_bad_companions_of_cover_are_refused(held):
    class Nobody:
        def journeys(self, count, queries, rng=None):
            return np.zeros((0, 0), dtype=np.int64)

    with pytest.raises(ParameterError, match="as many journeys as are asked for"):
        Cover(held.area, Nobody()).points(1)
