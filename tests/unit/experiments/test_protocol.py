"""The paired protocol: unbiased, fair, independent of the number of processes, and able to fail."""

import math

import numpy as np
import pytest

from reticent.experiments import contenders, protocol
from reticent.experiments.data import People
from reticent.experiments.ours import learning_waves, waves
from reticent.experiments.paired import biased, paired, squared_errors, t_quantile
from reticent.experiments.protocol import Plan, simulate
from reticent.experiments.zhao_2022.chapter_3 import continuous
from reticent.experiments.zhao_2022.chapter_3.means import (
    DEFAULT,
    NAMES,
    best_k,
    compare,
    expected_errors,
    variants,
)
from reticent.mechanisms.numeric import Optimal
from reticent.randomness import SimulationStream

N, TIMES = 3_000, 60


@pytest.fixture(scope="module")
def people():
    units = SimulationStream(5).units(3 * N).reshape(N, 3) - 1.0
    return People("made", np.stack([0.3 * units[:, 0], 2.0 * units[:, 1] - 1.0, -units[:, 2]], axis=1))


class Biased:
    """A planted bug: Duchi's mechanism with everything moved by a little."""

    def __init__(self, epsilon):
        self._right = contenders.BY_NAME["Duchi"].make(epsilon, 1.0)

    def perturb(self, values, rng):
        return self._right.perturb(values, rng) + 0.25


@pytest.fixture
def planted(monkeypatch):
    bug = contenders.Contender("Biased", False, lambda epsilon, rho: Biased(epsilon), lambda e: 1.0)
    monkeypatch.setitem(contenders.BY_NAME, "Biased", bug)


@pytest.mark.parametrize(("freedom", "quantile"), [(4, 2.7764), (9, 2.2622), (99, 1.9842), (399, 1.9659)])
def test_t_quantile(freedom, quantile):
    assert t_quantile(0.975, freedom) == pytest.approx(quantile, rel=5e-3 if freedom == 4 else 1e-4)


def test_every_mechanism_is_unbiased_and_has_its_expected_error(people):
    plans = [variant.plan for variant in variants(2.0, people.dimensions)]
    found = simulate(people.numbers, plans, TIMES, 1)
    truth = people.numbers.mean(axis=0)
    for plan, estimates in found.items():
        for means, expected in zip(
            (estimates.design, estimates.realised), expected_errors(people, plan), strict=True
        ):
            assert biased(means, truth) is False
            if not math.isnan(expected):
                # 180 squared errors of about a normal number each: five standard errors.
                ratio = squared_errors(means, truth).mean() / expected
                assert abs(ratio - 1.0) < 5.0 * math.sqrt(2.0 / (TIMES * 3)), plan


@pytest.mark.usefixtures("planted")
def test_a_biased_mechanism_is_flagged_and_loses(people):
    plans = [Plan("Biased", 2.0, 1), Plan("Duchi", 2.0, 1)]
    found = simulate(people.numbers, plans, TIMES, 1)
    truth = people.numbers.mean(axis=0)
    wrong, right = (found[plan].realised for plan in plans)
    assert biased(wrong, truth) is True
    assert biased(right, truth) is False
    gap = paired(squared_errors(wrong, truth), squared_errors(right, truth))
    assert gap.verdict == "ours smaller"
    assert gap.low > 0.0


def test_bias_is_not_judged_from_few_repetitions():
    assert biased(np.ones((10, 2)), np.zeros(2)) is None


def test_verdicts():
    ours = np.array([1.0, 1.1, 0.9, 1.0])
    clear, mixed = np.array([0.5, 0.6, 0.5, 0.4]), np.array([0.5, -0.5, 0.4, -0.4])
    assert paired(ours + clear, ours).verdict == "ours smaller"
    assert paired(ours - clear, ours).verdict == "ours larger"
    assert paired(ours + mixed, ours).verdict == "equal"


def test_results_do_not_depend_on_the_number_of_processes(people):
    plans = [Plan("PM", 1.0, 1), Plan(protocol.WAVES, 1.0, 1)]
    one, two = (simulate(people.numbers[:200], plans, 4, 3, workers=workers) for workers in (1, 2))
    for plan in plans:
        np.testing.assert_array_equal(one[plan].realised, two[plan].realised)


def test_sampled_attributes_are_nested_and_even(people):
    batch = protocol.Batch(people.numbers, 2, SimulationStream(1))
    _, one, counts = batch.sampled(1)
    _, two, _ = batch.sampled(2)
    np.testing.assert_array_equal(one, two.reshape(-1, 2)[:, 0])
    assert counts.sum() == 2 * N
    assert np.all(np.abs(counts - N / 3) < 6.0 * math.sqrt(N * 2 / 9))


def test_every_contender_is_compared_both_ways(people):
    listed = variants(2.0, people.dimensions)
    found = simulate(people.numbers[:300], [variant.plan for variant in listed], 3, 1)
    rows = compare(People("some", people.numbers[:300]), 2.0, found, listed)
    assert {row["mechanism"] for row in rows} == set(NAMES)
    assert {(row["rule"], row["weights"]) for row in rows} == {
        (rule, weights) for rule in ("best", "documents") for weights in ("design", "realised")
    }
    (ours,) = [row for row in rows if row["mechanism"] == DEFAULT and row["weights"] == "realised"]
    assert (ours["ratio"], ours["verdict"]) == (1.0, "equal")


def test_best_k_is_better_than_the_printed_rule_at_4():
    assert best_k("Duchi", 4.0, 10) == 2  # the rule floor(4/2.5) says 1
    assert best_k(protocol.VECTOR, 4.0, 10) == 10


@pytest.mark.parametrize("name", continuous.NAMES)
@pytest.mark.parametrize("epsilon", [0.5, 0.65, 1.0, 3.0])
def test_continuous_has_the_documents_mean_and_variance(name, epsilon):
    count, x = 40_000, 0.4
    ideal = continuous.Continuous(name, epsilon)
    reports = ideal.perturb(np.full(count, x), SimulationStream(2))
    wire = contenders.BY_NAME[name.removesuffix(continuous.SUFFIX)].make(epsilon, 1.0)
    variance = float(wire.variance(x))
    assert abs(reports.mean() - x) < 5.0 * math.sqrt(variance / count)
    assert reports.var() == pytest.approx(variance, rel=0.06)


def test_learning_waves_shape_each_attribute(people):
    """Mean and deviation of each attribute, at the precision of a tenth of the people."""
    two = learning_waves.LearningWaves(2.0, 1, 2)
    values = np.stack([np.full(3000, -0.5), np.full(3000, 0.75)], axis=1)
    symbols = two.first.sample(values, SimulationStream(1))
    chosen = two.shaped(symbols.reshape(-1), np.tile([0, 1], 3000))
    assert [one.mean for one in chosen.shapes] == pytest.approx([-0.5, 0.75], abs=0.13)
    assert max(one.deviation for one in chosen.shapes) <= 0.18
    assert two.wrong_guess(values) <= 1.5


def test_the_expected_error_of_learning_waves_is_met():
    """Squared errors of 80 repetitions against what is expected: within 5 of their standard errors."""
    numbers = np.clip(np.random.default_rng(3).normal(0.4, 0.25, (6000, 1)), -1.0, 1.0)
    two, batch = learning_waves.LearningWaves(2.0, 1, 1), protocol.Batch(numbers, 80, SimulationStream(5))
    _, found = two.collect(batch, 1, SimulationStream(6))
    errors = np.mean((found - numbers.mean(axis=0)) ** 2, axis=1)
    some = protocol.Batch(numbers, 4, SimulationStream(7))
    expected = two.expected_error(numbers, some, SimulationStream(8))
    assert abs(errors.mean() - expected) < 5.0 * errors.std(ddof=1) / math.sqrt(errors.size)
    assert abs(errors.mean() - 3.0 * expected) > 5.0 * errors.std(ddof=1) / math.sqrt(errors.size)


def test_two_waves_choose_by_the_mean_square():
    two = waves.TwoWaves(2.0)
    assert two.choice(0.0) != 0
    assert two.choice(1.0) == 0
    assert isinstance(two.first, type(Optimal(epsilon=2.0)))
    reports = two.first.perturb(np.full((2, 50_000), 0.5), SimulationStream(1))
    assert two.mean_squares(reports) == pytest.approx([0.25, 0.25], abs=0.03)
    assert waves.TwoWaves(0.3).choice(0.0) == 0  # at a small epsilon nothing beats OneBit anywhere
