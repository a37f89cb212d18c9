"""Demand: the mixture that a provider sees, and an estimate that is never worse than the raw counts."""

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.estimation.transport import earth_movers_distance
from reticent.location.stations import Companions
from reticent.location.stations.demand import Accompanied, demand_of, halved, started, stopping
from reticent.mechanisms.location import ElasticChannel, TruncatedLaplace
from reticent.randomness import SimulationStream

from .town import crowds, library, town, trips

QUERIES = 1500


def channels():
    roads = town().within(1.5)
    return {
        "pure": ElasticChannel(roads, np.ones(roads.size), 4.0),
        "truncated": TruncatedLaplace(town(), 6.0, 0.8, most_delta=1.0),
    }


def seen(channel, m, seed, law):
    """True places, and the counts that a provider has of them."""
    rng = np.random.default_rng(seed)
    others = [point for one in trips(200, 99) for point in one]
    true = np.bincount(rng.choice(others, QUERIES), minlength=town().size) / QUERIES
    counts = rng.multinomial(QUERIES, shares(channel.forward(true)))
    return true, counts + rng.multinomial((m - 1) * QUERIES, shares(channel.forward(law)))


def shares(law):
    return law / law.sum()


@pytest.mark.parametrize("kind", ["pure", "truncated"])
def test_the_mixture_is_its_table(kind):
    channel, rng = channels()[kind], np.random.default_rng(1)
    table = np.stack([channel.probabilities(place) for place in range(town().size)])
    law, theta, values = rng.dirichlet(np.ones(town().size), 3)
    mixed = table / 5 + 0.8 * (law @ table)
    both = Accompanied(channel, law, 5)
    np.testing.assert_allclose(both.forward(theta), theta @ mixed, atol=1e-12)
    np.testing.assert_allclose(both.back(values), mixed @ values, atol=1e-12)
    np.testing.assert_allclose(both.factors(theta, values), mixed @ (values / (theta @ mixed)), rtol=1e-9)


def test_halves():
    counts = np.array([3, 0, 7, 1, 0, 40])
    first, second = halved(counts, SimulationStream(2))
    np.testing.assert_array_equal(first + second, counts)
    assert first.min() >= 0
    assert abs(int(first.sum()) - int(second.sum())) <= 1
    assert not np.array_equal(first, halved(counts, SimulationStream(3))[0])


def gain(kind, m, seed, updates=None, law=None):
    """How much nearer to the truth the estimate is than the raw counts, as a share of their distance."""
    channel, known = channels()[kind], Companions(town(), library()).law(3)
    true, counts = seen(channel, m, seed, known)
    found = demand_of(
        channel, counts, law=known if law is None else law, m=m, updates=updates, rng=SimulationStream(seed)
    )
    raw = earth_movers_distance(town(), counts, true).value
    return 1.0 - earth_movers_distance(town(), found.distribution, true).value / raw


@pytest.mark.parametrize("m", [1, 3, 10])
@pytest.mark.parametrize("kind", ["pure", "truncated"])
def test_never_worse_than_the_raw_counts(kind, m):
    """People where companions are: the hardest case, since the raw counts are right already, but for chance.

    Chance alone may then make the distance a twentieth longer.
    """
    gains = [gain(kind, m, seed) for seed in range(4)]
    assert min(gains) >= -0.05
    if (kind, m) == ("pure", 1):
        assert min(gains) > 0.05


def test_planted_fitting_to_the_end_is_found():
    """Without a stopping rule the noise is fitted."""
    for kind, m in (("pure", 10), ("truncated", 1)):
        assert gain(kind, m, 0, updates=400) < -0.1


def test_people_who_are_elsewhere_than_companions_are_found():
    """Then the rule makes updates, and they help."""
    channel, known = channels()["pure"], shares(crowds(town())[::-1] ** 2)
    true, counts = seen(channel, 4, 5, known)
    found = demand_of(channel, counts, law=known, m=4, rng=SimulationStream(1))
    assert found.updates > 5
    far = [earth_movers_distance(town(), one, true).value for one in (found.distribution, counts)]
    assert far[0] < 0.8 * far[1]


def test_planted_companions_taken_for_people_are_found():
    """As if all reports were true: nothing is taken off, so the estimate is that of the companions."""
    channel, known = channels()["pure"], crowds(town())[::-1] ** 2
    true, counts = seen(channel, 4, 5, shares(known))
    told = demand_of(channel, counts, law=known, m=4, updates=60).distribution
    blind = demand_of(channel, counts, m=1, updates=60).distribution
    far = [earth_movers_distance(town(), one, true).value for one in (told, blind)]
    assert far[0] < 0.6 * far[1]


def test_more_reports_carry_more_updates():
    channel = channels()["pure"]
    few, many = (np.random.default_rng(3).multinomial(n, shares(channel.forward(shares(crowds(town())))))
                 for n in (100, 100_000))  # fmt: skip
    assert stopping(channel, few, rng=SimulationStream(1)) < stopping(channel, many, rng=SimulationStream(1))


def test_no_update_leaves_the_raw_counts_and_the_start_is_near_them():
    """Whatever the number of places: with a thousandth of a report each, a city lost 40 m by it."""
    channel, counts = channels()["pure"], np.zeros(town().size, dtype=int)
    counts[[3, 50]] = 2, 1
    found = demand_of(channel, counts, updates=0).distribution
    np.testing.assert_array_equal(found, counts / 3)
    begun = started(channel, counts)
    assert begun.min() > 0.0
    assert np.abs(begun - counts / 3).sum() < 3e-4


def test_one_report_and_bad_questions():
    channel, one = channels()["pure"], np.zeros(town().size, dtype=int)
    one[7] = 1
    found = demand_of(channel, one)
    assert (found.updates, found.queries, int(found.distribution.argmax())) == (0, 1.0, 7)
    with pytest.raises(ParameterError, match="law must be given for companions, since m is 10"):
        demand_of(channel, one, m=10)
    with pytest.raises(ParameterError, match="m must be >= 1, got 0"):
        demand_of(channel, one, m=0)
    with pytest.raises(ParameterError, match="counts"):
        demand_of(channel, np.zeros(town().size, dtype=int))
