"""The black box: what it proves, what it finds with how many samples, and that it does not accuse."""

import math

import numpy as np
import pytest

from reticent.audit import black_box
from reticent.audit.outputs import as_rows, as_sampler, last_digit, row_codes
from reticent.audit.statistics import share_above, share_below
from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms.gaussian import simulated
from reticent.randomness import SimulationStream


def coin(epsilon, rng):
    """A bit that is told truly with e^epsilon / (1 + e^epsilon)."""
    keep = 1.0 / (1.0 + math.exp(-epsilon))
    return lambda value, size: np.where(rng.units(size) - 1.0 < keep, value, 1 - value)


def test_clopper_pearson_against_the_binomial():
    # 3 of 10 at 5 %: bounds 0.0873 and 0.6066 (one-sided 95 %).
    assert share_below(3, 10, 0.05) == pytest.approx(0.08726, abs=1e-5)
    assert share_above(3, 10, 0.05) == pytest.approx(0.60662, abs=1e-5)
    assert share_below(0, 10, 0.05) == 0.0
    assert share_above(10, 10, 0.05) == 1.0
    assert share_above(0, 10, 0.05) == pytest.approx(1 - 0.05**0.1)


@pytest.mark.parametrize("true_epsilon", [0.3, 1.0, 3.0])
def test_the_bound_is_below_the_truth_and_near_it(true_epsilon, rng):
    found = black_box(coin(true_epsilon, rng), [0, 1], epsilon=true_epsilon, samples=200_000)
    assert found.passed
    assert 0.85 * true_epsilon < found.lower < true_epsilon


@pytest.mark.parametrize(
    ("true_epsilon", "samples"), [(2.0, 2_000), (1.5, 6_000), (1.2, 40_000), (1.1, 150_000)]
)
def test_excess_over_a_claim_of_one_is_found(true_epsilon, samples, rng):
    found = black_box(coin(true_epsilon, rng), [0, 1], epsilon=1.0, samples=samples)
    assert not found.passed
    assert 1.0 < found.lower <= true_epsilon
    assert "more than the claimed" in found.detail


def test_delta_is_taken_off(rng):
    """With delta = 0.2 the coin of epsilon 1 is (0.64, 0.2)-private and no better."""
    found = black_box(coin(1.0, rng), [0, 1], epsilon=0.7, delta=0.2, samples=100_000)
    assert found.passed
    assert not black_box(coin(1.0, rng), [0, 1], epsilon=0.5, delta=0.2, samples=100_000).passed


def test_gaussian_noise_in_the_notion_mu(rng):
    """sigma / 1.41, which an (epsilon, delta) audit does not find, is found as mu."""

    def gaussian(sigma):
        return lambda value, size: value + simulated(sigma, size, rng)

    fine = black_box(gaussian(1000.0), [0, 1000], epsilon=1.0, gaussian=True, samples=100_000)
    bad = black_box(gaussian(1000.0 / 1.41), [0, 1000], epsilon=1.0, gaussian=True, samples=100_000)
    assert fine.passed
    assert fine.lower > 0.9
    assert not bad.passed
    hidden = black_box(gaussian(1000.0 / 1.41), [0, 1000], epsilon=4.377, delta=1e-5, samples=100_000)
    assert hidden.passed


def test_distances_divide(rng):
    found = black_box(coin(1.0, rng), [0, 1], epsilon=0.5, distances=[[0, 2], [2, 0]], samples=50_000)
    assert found.passed
    assert found.lower == pytest.approx(0.45, abs=0.06)


@pytest.mark.parametrize(
    "dressed",
    [
        lambda bits: bits.astype(float),
        lambda bits: bits.astype(bool),
        lambda bits: [("yes", 1) if bit else ("no", 2) for bit in bits],
        lambda bits: ["yes" if bit else "no" for bit in bits],
        lambda bits: [{"answer": int(bit)} for bit in bits],
        lambda bits: np.stack([bits, 1 - bits], axis=1),
        lambda bits: np.stack([bits * 0.25, bits * 0.0], axis=1),
        lambda bits: np.rec.fromarrays([bits, bits], names="a,b"),
    ],
)
def test_outputs_of_any_kind(dressed, rng):
    inner = coin(2.0, rng)
    found = black_box(lambda value, size: dressed(inner(value, size)), [0, 1], epsilon=1.0, samples=8_000)
    assert not found.passed
    assert found.event


def test_rows_with_one_telling_pair_of_columns(rng):
    def unary(value, size):
        bits = rng.units(size * 30).reshape(size, 30) - 1.0 < 0.2
        bits[:, value] = rng.units(size) - 1.0 < 0.7
        return bits

    # p(1-q) / (q(1-p)) = 28/3: epsilon 2.23.
    found = black_box(unary, [3, 17], epsilon=1.5, samples=60_000)
    assert not found.passed
    assert "weighted sum" in found.event


def test_a_function_of_the_value_alone_and_one_that_takes_a_stream(rng):
    units = iter(rng.units(40_000) - 1.0)
    flipped = lambda value: value if next(units) < 0.9 else 1 - value  # noqa: E731
    found = black_box(flipped, [0, 1], epsilon=1.0, samples=4_000)
    assert not found.passed

    def with_stream(value, size, rng=None):
        return coin(0.5, rng)(value, size)

    seeded = SimulationStream(3)
    assert black_box(with_stream, [0, 1], epsilon=0.5, samples=4_000, rng=seeded).passed
    assert as_sampler(with_stream, seeded)(1, 5).shape == (5,)


def test_refusals():
    with pytest.raises(ParameterTypeError, match="callable"):
        black_box(3, [0, 1], epsilon=1.0)
    with pytest.raises(ParameterError, match="at least two"):
        black_box(lambda value, size: [0] * size, [0], epsilon=1.0)
    with pytest.raises(ParameterError, match="one output per draw"):
        black_box(lambda value, size: [0] * (size - 1), [0, 1], epsilon=1.0, samples=200)
    with pytest.raises(ParameterError, match="distances"):
        black_box(
            lambda value, size: [0] * size, [0, 1], epsilon=1.0, samples=200, distances=[[0, 0], [0, 0]]
        )


def test_a_constant_tells_nothing():
    found = black_box(lambda value, size: [7] * size, [0, 1], epsilon=1.0, samples=200)
    assert found.passed
    assert found.lower == 0.0


def test_it_does_not_accuse(rng):
    """300 audits at a false-alarm rate of 0.05, of a coin with exactly its claim."""
    fair = coin(1.0, rng)
    alarms = sum(
        not black_box(fair, [0, 1], epsilon=1.0, samples=400, false_alarm=0.05).passed for _ in range(300)
    )
    assert alarms <= 28  # 15 expected at most; more than 28 has probability 1e-3


def test_helpers():
    assert last_digit(np.array([1.0, 0.75, 3.0, 2.0**-60, 0.1])).tolist() == [0, -2, 0, -60, -55]
    assert row_codes(np.array([[1, 2], [1, 2], [2, 1]])).tolist()[0] == row_codes(np.array([[1, 2]]))[0]
    assert len(set(row_codes(np.arange(30_000).reshape(-1, 3)).tolist())) == 10_000
    assert as_rows(5).shape == (1,)


def above_the_claim(audits, samples=2000):
    """How many bounds of 95 % are above the claim: randomised response, and numbers that say nothing."""
    above = 0
    for seed in range(audits):
        rng = SimulationStream(seed)
        told = black_box(coin(1.0, rng), [0, 1], epsilon=1.0, samples=samples)
        nothing = black_box(
            lambda value, size, rng=rng: ((rng.units(size) - 1.0) * 1e6).astype(np.int64),
            [0, 1],
            epsilon=0.0,
            samples=samples,
        )
        above += (told.likely > 1.0) + (nothing.likely > 0.0)
    return above


def test_bounds_of_95_percent_are_seldom_above_a_true_claim():
    """At most 5 % and three standard errors; false alarm 1e-3 if they were above in 5 %."""
    assert above_the_claim(150) <= 26  # of 300


def test_planted_an_event_that_is_tested_where_it_was_chosen_is_too_often_above(monkeypatch):
    monkeypatch.setattr(np, "array_split", lambda array, parts: [array[: len(array) // 2]] * 2)
    assert above_the_claim(30) > 8  # of 60
