"""The report of a round keeps epsilon: by exact arithmetic, and as an attacker without the code would see it.

What a client and a round are asked for is public, so the law of a report is that of its symbols for given
coordinates and dither levels. It is the product of the mechanism's exact laws.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from reticent.audit import black_box
from reticent.federated.client import _vector
from reticent.federated.payload import client_number
from reticent.federated.tasks import Task
from reticent.mechanisms.base import exp_below
from reticent.mechanisms.numeric import Duchi, OneBit
from reticent.randomness import SimulationStream, secure_or

from . import people

EPSILON, BOUNDS, ROUND = 1.5, (1.0, 2.0, 0.5), 3
CORNERS = [np.array(signs) * BOUNDS for signs in itertools.product((-1.0, 1.0), repeat=3)]
INPUTS = [
    *CORNERS,
    np.zeros(3),
    np.array([0.3, -1.9, 0.5]),
    np.array([5.0, -50.0, 5e300]),
    np.array([-math.inf, math.inf, math.nan]),
    [1.0],
    None,
]
KINDS = ("Duchi", "ThreeOutputs", "OneBit", "Window", "PM")


def task_of(kind, k, **changes):
    return people.task(kind, 3, k, epsilon=EPSILON, bounds=BOUNDS, **changes)


def law(task, client, gradient):
    """The exact probability of every report of a client in a round."""
    me = client_number(people.enrolment(client))
    asked = task.asked(me, ROUND)
    units = task.clipped(_vector(gradient, task.dimensions))[asked[0]]
    rows = [task.mechanism.exact_probabilities(x) for x in units]
    if isinstance(task.mechanism, OneBit):
        levels = task.dither(me, ROUND, asked)[0].tolist()
        both = [row[2 * level : 2 * level + 2] for row, level in zip(rows, levels, strict=True)]
        rows = [[share / sum(row) for share in row] for row in both]
    return [math.prod(shares, start=Fraction(1)) for shares in itertools.product(*rows)]


def ratio(laws):
    """The largest quotient of probabilities of one report under any two inputs; None if one is impossible."""
    assert all(sum(one) == 1 for one in laws)
    worst = Fraction(1)
    for shares in zip(*laws, strict=True):
        if max(shares) > 0 == min(shares):
            return None
        if max(shares) > 0:
            worst = max(worst, max(shares) / min(shares))
    return worst


def worst_ratio(task):
    found = [ratio([law(task, client, one) for one in INPUTS]) for client in range(4)]
    return None if None in found else max(found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 2])
def test_a_report_keeps_its_epsilon_exactly(kind, k):
    worst = worst_ratio(task_of(kind, k))
    assert worst is not None
    assert worst <= exp_below(EPSILON)
    assert worst > exp_below(EPSILON) * Fraction(9, 10)  # and spends it


# Planted bugs


class Unclamped(Duchi):
    """Without clamping of its own: a probability that is linear in x, wherever it leads."""

    def exact_probabilities(self, value):
        slope = Fraction(math.tanh(self.epsilon / 2.0)) / 2
        share = min(Fraction(1), max(Fraction(0), Fraction(1, 2) + slope * Fraction(value)))
        return [1 - share, share]

    def sample(self, values, rng=None):
        up = 0.5 + math.tanh(self.epsilon / 2.0) / 2.0 * values
        return (np.random.default_rng(secure_or(rng).words(1)[0]).random(values.shape) < up).astype(np.int64)


@pytest.fixture
def unclipped(monkeypatch):
    """A task whose gradients nothing clips."""
    task = task_of("Duchi", 1)
    object.__setattr__(task, "mechanism", Unclamped(epsilon=EPSILON))

    def scaled(self, gradients):
        return np.nan_to_num(np.asarray(gradients, dtype=float) / self.scale, posinf=1e300, neginf=-1e300)

    monkeypatch.setattr(Task, "clipped", scaled)
    return task


@pytest.fixture
def greedy():
    """A task of which each coordinate spends the whole epsilon."""
    task = task_of("Duchi", 2)
    object.__setattr__(task, "mechanism", Duchi(epsilon=EPSILON))
    return task


def test_planted_clipping_removed_is_found(unclipped):
    assert worst_ratio(unclipped) is None


def test_planted_a_report_that_spends_twice_is_found(greedy):
    assert worst_ratio(greedy) > exp_below(EPSILON)


def test_planted_coordinates_by_magnitude_are_found():
    """Where the report names the coordinate, the largest is told outright."""
    task = task_of("Duchi", 1)

    def by_magnitude(gradient):
        units = task.clipped(gradient)
        largest = int(np.argmax(abs(units)))
        both = task.mechanism.exact_probabilities(units[largest])
        return [share if place == largest else Fraction(0) for place in range(3) for share in both]

    assert ratio([by_magnitude([1.0, 0.0, 0.0]), by_magnitude([0.0, 2.0, 0.0])]) is None


# From outside


def attacked(task, samples=20_000):
    """What the black-box auditor finds in the symbols of one client and round: false alarms at most 1e-6."""

    def symbols(gradient, size, rng):
        ids = np.repeat(client_number(people.enrolment(1)), size)
        return people.drawn(task, ids, ROUND, gradient, rng)[1]

    extremes = [10.0 * CORNERS[0], 10.0 * CORNERS[-1]]
    return black_box(
        symbols, extremes, epsilon=EPSILON, samples=samples, false_alarm=1e-6, rng=SimulationStream(4)
    )


@pytest.mark.parametrize(("kind", "k"), [("OneBit", 2), ("Window", 1), ("Duchi", 2)])
def test_an_attacker_finds_no_more_than_epsilon(kind, k):
    finding = attacked(task_of(kind, k))
    assert finding.passed, finding.detail
    assert finding.lower > 0.7 * EPSILON  # and nearly all of it


def test_planted_the_attacker_finds_clipping_removed(unclipped):
    assert not attacked(unclipped).passed


def test_planted_the_attacker_finds_a_report_that_spends_twice(greedy):
    assert not attacked(greedy).passed
