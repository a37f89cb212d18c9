"""Attackers: the laws that they compare, what they find among dummies and companions; planted dummies."""

import itertools
import math

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.location.stations import Companions
from reticent.location.stations.tracing import (
    Attacker,
    Driving,
    RandomDummies,
    chance_of_finding,
    sight,
)
from reticent.mechanisms.location import ElasticChannel, TruncatedLaplace
from reticent.randomness import SimulationStream

from .town import library, town, trips

QUERIES = 3


def pure(beta=6.0):
    roads = town().within(1.0)
    return ElasticChannel(roads, np.ones(roads.size), beta)


def windows(journeys, rng):
    """Three points in a row of each journey."""
    found = []
    for one in journeys:
        first = rng.integers(0, len(one) - QUERIES + 1)
        found.append(one[first : first + QUERIES])
    return np.array(found)


def case(channel, *, companions=None, neighbours=8, count=200, replayed=None, journeys=None):
    """Scores of true journeys that the library does not hold, and of companions."""
    ours, his, true = journeys or trips()[:200], trips()[200:], trips(150, 99)
    people = Driving(Companions(town(), library(his)), QUERIES)
    chain = Companions(town(), library(ours), neighbours=neighbours)
    law = Driving(chain, QUERIES) if companions is None else companions
    made = chain if companions is None else companions
    drawn = made.journeys(count, QUERIES, SimulationStream(3))
    truth = windows(true, np.random.default_rng(4))
    attacker = Attacker(channel, people, law)
    reports = channel.sample(truth, SimulationStream(5))
    others = drawn if companions is not None else channel.sample(drawn, SimulationStream(6))
    return attacker, truth, reports, others if replayed is None else replayed(truth, others)


@pytest.mark.parametrize("channel", [pure(), TruncatedLaplace(town(), 5.0, 0.5, most_delta=1.0)])
def test_sights_are_the_columns_of_the_channel(channel):
    for report in (0, 55, town().size - 1):
        column = [channel.probabilities(place)[report] for place in range(0, town().size, 7)]
        np.testing.assert_allclose(sight(channel, report)[::7], column, rtol=1e-9, atol=1e-15)


def test_the_forward_algorithm_is_the_sum_over_all_ways():
    chain = Companions(town(), library(trips()[:4]), neighbours=2)
    channel, reports = pure(), np.array([12, 40, 41])
    sights = [sight(channel, int(one)) for one in reports]
    begin, total = chain.beginnings(3), np.zeros(3)
    for first in np.flatnonzero(begin).tolist():
        for turns in itertools.product(range(2), repeat=2):
            way = [first]
            for turn in turns:
                way.append(int(chain.followers[way[-1], turn]))
            chance = begin[first]
            for query, at in enumerate(way):
                chance *= sights[query][chain.places[at]]
                total[query] += chance / 4.0
    np.testing.assert_allclose(np.exp(Driving(chain, 3).logs(reports, sights)), total, rtol=1e-9)


def test_chances_over_all_groups():
    """Against every group of two companions, one by one."""
    rng = np.random.default_rng(1)
    true, others = rng.normal(size=5), rng.normal(size=7) - 0.3
    groups = list(itertools.combinations(others, 2))
    found = np.mean([[one > max(group) for group in groups] for one in true])
    assert chance_of_finding(true, others, 3) == pytest.approx(found)
    assert chance_of_finding(true, others, 1) == 1.0
    with pytest.raises(ParameterError, match="companions must be at least 9, got 7"):
        chance_of_finding(true, others, 10)


def test_companions_hide_what_dummies_do_not():
    """m = 10: the documents' dummies are told apart, companions at most twice as well as by guessing.

    150 journeys against 200 companions: the standard error of the second is below 0.02.
    """
    channel = pure()
    dummies = RandomDummies(town(), 0.5)
    attacker, _, reports, others = case(channel, companions=dummies)
    told_apart = chance_of_finding(attacker.scores(reports)[:, -1], attacker.scores(others)[:, -1], 10)
    assert told_apart > 0.4
    attacker, _, reports, others = case(channel)
    true, made = attacker.scores(reports), attacker.scores(others)
    for query in range(QUERIES):
        assert chance_of_finding(true[:, query], made[:, query], 10) <= 0.2


def test_planted_dummies_around_the_true_point_are_found():
    """Noise about the true place a second time, not companions of their own: the middle gives it away.

    The score is by the true law of such dummies. Their law knows the true place, which no report may.
    """
    channel = pure()
    attacker, truth, reports, others = case(channel)
    _, _, _, planted = case(
        channel,
        replayed=lambda true, _: np.stack(
            [channel.sample(true, SimulationStream(20 + again)) for again in range(9)], axis=1
        ),
    )
    within = town().rows(0.3)
    hits = {"companions": 0, "planted": 0}
    for number in range(30):
        groups = {
            "companions": np.concatenate([reports[number : number + 1], others[9 * (number % 20) :][:9]]),
            "planted": np.concatenate([reports[number : number + 1], planted[number]]),
        }
        for name, group in groups.items():
            sights = [np.prod([sight(channel, int(one)) for one in column], axis=0) for column in group.T]
            if name == "companions":
                guess = attacker.guess(group, within)[0]
            else:
                law = attacker.people.last([one / one.max() for one in sights])
                guess = int(np.add.reduceat(law[within.places], within.starts[:-1]).argmax())
            hits[name] += town().distances(guess)[truth[number, -1]] <= 0.3
    assert hits["planted"] >= 20
    assert hits["companions"] <= 12


def test_guesses_are_as_good_as_they_claim():
    """Bayes' rule: over many journeys the share of hits is the mean of the claimed chances.

    The journeys are the attacker's own law, so he is right; 60 of them, 4.9 standard errors.
    """
    channel, chain = pure(), Companions(town(), library(trips()[200:]))
    companions = Companions(town(), library(trips()[:200]))
    attacker, within = Attacker(channel, Driving(chain, 2), Driving(companions, 2)), town().rows(0.4)
    hits, claims = [], []
    for number in range(60):
        true = chain.journeys(1, 2, SimulationStream(number))
        group = np.concatenate([true, companions.journeys(4, 2, SimulationStream(1000 + number))])
        guess, claim = attacker.guess(channel.sample(group, SimulationStream(2000 + number)), within)
        hits.append(town().distances(guess)[true[0, -1]] <= 0.4)
        claims.append(claim)
    error = math.sqrt(sum(one * (1.0 - one) for one in claims)) / len(claims)
    assert abs(np.mean(hits) - np.mean(claims)) <= 4.9 * error


def test_planted_a_library_of_few_journeys_is_recognised():
    """Six journeys, replayed as they are: whatever is none of them is true."""
    attacker, _, reports, others = case(pure(), neighbours=1, journeys=trips()[:6])
    true, made = attacker.scores(reports), attacker.scores(others)
    assert chance_of_finding(true[:, -1], made[:, -1], 10) > 0.4


def test_dummies_stay_within_reach():
    dummies = RandomDummies(town(), 0.5)
    drawn = dummies.journeys(20, 3, SimulationStream(1))
    for journey in drawn:
        for here, there in itertools.pairwise(journey.tolist()):
            assert town().distances(here)[there] <= 0.5
        assert np.isfinite(dummies.logs(journey, [])).all()
    far = int(town().distances(0).argmax())
    np.testing.assert_array_equal(np.isfinite(dummies.logs(np.array([0, far]), [])), [True, False])
