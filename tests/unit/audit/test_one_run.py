"""One-run audits: the bound against its definition, no false accusations, planted trainings."""

import math
from dataclasses import replace

import numpy as np
import pytest

from reticent.audit import audit_run, audit_training
from reticent.audit.one_run import judged, least_delta, least_epsilon, p_value
from reticent.audit.planted.trainings import DELTA, DPSGD, NoiseOfTheMean
from reticent.errors import ParameterError
from reticent.federated import models
from reticent.federated.tasks import designed
from reticent.randomness import SimulationStream

MANY = 1000


def response(epsilon, rng, m=MANY):
    """Randomised response on whether each canary is in: the training that leaks as much as epsilon allows."""
    keep = 1.0 / (1.0 + math.exp(-epsilon))
    return lambda included: np.where((rng.units(m) - 1.0 < keep) == included, 1, -1)


def of_response(seed, epsilon=1.0, claimed=None, **options):
    train = response(epsilon, SimulationStream(2 * seed))
    claimed = epsilon if claimed is None else claimed
    found = audit_run(train, MANY, epsilon=claimed, rng=SimulationStream(2 * seed + 1), **options)
    return found.black_box


# The bound


@pytest.mark.parametrize(("m", "r", "v"), [(20, 12, 9), (20, 20, 20), (7, 7, 1), (9, 5, 0)])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (1.0, 0.0), (0.3, 0.01), (2.0, 1e-4)])
def test_the_p_value_is_that_of_the_theorem_summed_directly(m, r, v, epsilon, delta):
    q = 1.0 / (1.0 + math.exp(-epsilon))
    law = [math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    alpha = max((sum(law[v - i : v]) / i for i in range(1, v + 1)), default=0.0)
    expected = min(1.0, sum(law[v:]) + 2 * m * delta * alpha)
    assert p_value(m, r, v, epsilon, delta) == pytest.approx(expected, rel=1e-9)


def test_one_canary_is_bounded_by_what_the_best_attack_reaches():
    """With chance delta all is told, else randomised response: right with q + delta (1 - q)."""
    for epsilon, delta in [(0.5, 0.1), (2.0, 0.3)]:
        q = 1.0 / (1.0 + math.exp(-epsilon))
        assert q + delta * (1.0 - q) <= p_value(1, 1, 1, epsilon, delta)


def test_bounds_on_epsilon_and_delta_are_where_the_p_value_reaches_the_error():
    low = least_epsilon(MANY, MANY, 800, delta=1e-6, error=0.05)
    assert p_value(MANY, MANY, 800, low, 1e-6) < 0.05 <= p_value(MANY, MANY, 800, low + 1e-6, 1e-6)
    least = least_delta(MANY, MANY, 800, epsilon=1.0, error=0.05)
    assert p_value(MANY, MANY, 800, 1.0, least) == pytest.approx(0.05)
    assert least_delta(MANY, MANY, 600, epsilon=1.0, error=0.05) == 0.0
    assert least_epsilon(MANY, MANY, 500, delta=0.0, error=0.05) == 0.0
    assert least_epsilon(MANY, 100, 100, delta=0.0, error=0.05) == pytest.approx(
        -math.log(1 / 0.05 ** (1 / 100) - 1)
    )


def test_what_a_typical_run_of_randomised_response_proves():
    """731 of 1,000 guesses are right on average."""
    assert least_epsilon(MANY, MANY, 731, delta=0.0, error=0.05) >= 0.88
    assert least_epsilon(MANY, MANY, 731, delta=0.0, error=1e-6) >= 0.66
    found = [of_response(seed) for seed in range(20)]
    proved = sorted(one.likely for one in found)
    print(f"epsilon 1, 1,000 canaries, 95 %: median {np.median(proved):.3f}, worst of 20 {proved[0]:.3f}")
    assert np.median(proved) >= 0.8
    assert all(one.passed for one in found)


def test_half_the_randomness_is_found():
    found = of_response(1, epsilon=2.0, claimed=1.0)
    assert not found.passed
    assert 1.4 < found.lower < found.likely < 2.0
    assert "more than the claimed 1 (" in found.detail
    assert 0.0 < found.least_delta < 1e-6 < found.likely_delta
    assert "delta is at least" in found.detail


# Guesses


def test_scores_are_ordered_and_those_that_are_not_numbers_come_last():
    included = np.arange(100) < 30
    for guesses, right in [(20, 20), (81, 70), (100, 80)]:
        found = judged(included, -np.arange(100.0), epsilon=1.0, guesses=[guesses])
        assert (found.guesses, found.right) == (guesses, right)
    included = np.arange(100) % 2 == 0
    scores = np.where(included, math.inf, -math.inf)
    scores[:30] = math.nan
    found = judged(included, scores, epsilon=1.0, guesses=[70])
    assert (found.guesses, found.right) == (70, 70)


def test_scores_of_three_values_are_guesses_unless_delta_makes_their_number_matter():
    included = np.arange(100) < 50
    scores = np.where(np.arange(100) < 40, 1, 0)
    assert judged(included, scores, epsilon=1.0).guesses == 40
    assert judged(included, scores, epsilon=1.0, delta=1e-9).guesses in (50, 100)


def test_with_a_large_delta_it_is_said_that_nothing_can_be_proved():
    found = judged(np.ones(100, bool), np.ones(100), epsilon=1.0, delta=1e-3)
    assert found.passed
    assert "with that chance all may be told" in found.detail


def test_records_and_others_are_handed_on_in_order():
    given = []

    def train(records):
        given.append(records)
        return [0.5] * 50

    audit_run(train, [f"a{i}" for i in range(50)], others=["b"] * 50, epsilon=1.0)
    assert all(one in (f"a{i}", "b") for i, one in enumerate(given[0]))
    audit_run(train, [f"a{i}" for i in range(50)], epsilon=1.0)
    assert 5 < len(given[1]) < 45  # fair coins
    assert set(given[1]) <= {f"a{i}" for i in range(50)}


def test_a_training_that_changes_what_it_is_given_changes_no_verdict():
    def train(included):
        included[:] = True
        return np.ones(MANY)

    assert audit_run(train, MANY, epsilon=0.0, rng=SimulationStream(4)).passed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"canaries": 3}, "canaries must be"),
        ({"epsilon": -1.0}, "epsilon must be"),
        ({"delta": 2.0}, "delta must be"),
        ({"guesses": [0]}, "guesses must be"),
        ({"guesses": [51]}, "guesses must be"),
        ({"guesses": []}, "guesses must hold"),
        ({"others": ["b"] * 50}, "others must come with"),
        ({"canaries": ["a"] * 50, "others": ["b"]}, "others must be as many"),
        ({"train": lambda included: [1.0]}, "scores must be one number for each of 50"),
        ({"train": lambda included: ["x"] * 50}, "scores must be one number for each canary"),
    ],
)
def test_bad_arguments_are_named(change, words):
    given = {"train": lambda included: [0.0] * 50, "canaries": 50, "epsilon": 1.0} | change
    train, canaries = given.pop("train"), given.pop("canaries")
    with pytest.raises(ParameterError, match=words):
        audit_run(train, canaries, **given)


# Trainings


def dp_sgd(seed, kind=DPSGD):
    training = kind(MANY, rng=SimulationStream(seed))
    return audit_run(
        training,
        range(MANY),
        score=training.along,
        epsilon=training.epsilon,
        delta=DELTA,
        rng=SimulationStream(seed + 10**6),
    )


def test_dp_sgd_in_numpy_passes_and_with_too_little_noise_it_does_not():
    assert dp_sgd(1).passed
    wrong = dp_sgd(1, NoiseOfTheMean)
    assert not wrong.passed
    assert wrong.notion == "epsilon at delta 1e-09"


def task(epsilon, model=models.Logistic, mechanism=None):
    return designed(
        "audit", model(5), epsilon=epsilon, purpose="to be audited", rounds=10, group=100, rate=0.1,
        mechanism=mechanism,
    )  # fmt: skip


@pytest.mark.parametrize("model", [models.Linear, models.Logistic, models.SVM])
def test_a_simulated_training_keeps_its_epsilon_and_uses_most_of_it(model):
    found = audit_training(task(4.0, model), 500, rng=SimulationStream(5))
    assert found.passed, found.verdict
    assert found.black_box.likely > 2.0
    assert found.name == "training audit"


def test_planted_a_simulated_training_that_claims_half_its_epsilon_is_found():
    asked = task(4.0, mechanism="Duchi")
    asked.mechanism.epsilon /= 2.0  # what the task believes of it
    found = audit_training(replace(asked, epsilon=2.0), 500, rng=SimulationStream(5))
    assert not found.passed
    assert found.black_box.claimed == 2.0


def test_a_training_without_a_model_is_refused():
    bare = designed("x", 5, epsilon=1.0, purpose="to be audited", rounds=10, group=100, rate=0.1)
    with pytest.raises(ParameterError, match="must have a model"):
        audit_training(bare)


# No false accusations


def right_runs(count):
    """Audits of right trainings: (accused, bounds of 95 % above the claim)."""
    accused, above = 0, 0
    for seed in range(count):
        found = dp_sgd(seed).black_box if seed % 10 == 0 else of_response(seed, (0.5, 1.0, 4.0)[seed % 3])
        accused += not found.passed
        above += found.likely > found.claimed
    return accused, above


def most(count):
    """5 % of so many, and three standard errors."""
    return 0.05 * count + 3.0 * math.sqrt(count * 0.05 * 0.95)


def test_a_hundred_right_runs():
    """False alarm: an accusation 1e-4 at most, too many bounds of 95 % about 2e-3."""
    accused, above = right_runs(100)
    assert accused == 0
    assert above <= most(100)


def test_planted_bounds_that_are_chosen_after_the_fact_are_too_often_above_the_claim():
    """The best of many numbers of guesses, each at the whole 5 %."""
    above = 0
    for seed in range(100):
        rng = SimulationStream(seed)
        included = rng.words(MANY) & np.uint64(1) == 1
        scores = response(1.0, rng)(included) + 1e-3 * rng.units(MANY)
        bounds = [judged(included, scores, epsilon=1.0, guesses=[r]).likely for r in range(50, MANY, 100)]
        above += max(bounds) > 1.0
    assert above > most(100)


@pytest.mark.slow
def test_a_thousand_right_runs():
    accused, above = right_runs(1000)
    print(f"1,000 right runs: {accused} accused, {above} bounds of 95 % above the claim")
    assert accused == 0
    assert above <= most(1000)


@pytest.mark.slow
def test_a_hundred_right_trainings_of_every_kind():
    kinds = [
        (model, mechanism)
        for model in (models.Linear, models.Logistic, models.SVM)
        for mechanism in (None, "PM")
    ]
    found = [
        audit_training(task(1.0, *kinds[seed % len(kinds)]), rng=SimulationStream(seed)).black_box
        for seed in range(100)
    ]
    above = sum(one.likely > one.claimed for one in found)
    print(f"100 right trainings: {above} bounds of 95 % above the claim")
    assert all(one.passed for one in found)
    assert above <= most(100)
