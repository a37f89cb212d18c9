"""The bounds, the attacks that reach them, and the figures known of them."""

from fractions import Fraction

import numpy as np
import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.estimation import frequency_estimate, frequency_shift, mean_estimate, mean_shift
from reticent.mechanisms.numeric.hybrid import PM, Duchi, ThreeOutputs


def test_figures_of_the_threat_model():
    # Algorithm 6, epsilon 1, d = 90, k = 1: each report counts 90-fold. C = 2.41847846225.
    channel = ThreeOutputs(epsilon=1.0)
    assert round(mean_shift(channel, 0.001, scale=90, honest=0.0).by_outputs, 3) == 0.218
    assert round(mean_shift(channel, 0.01, scale=90, honest=0.0).by_outputs, 2) == 2.18
    assert mean_shift(channel, 0.01, scale=90).by_inputs == pytest.approx(0.02)
    # The worst liar would truthfully have said the opposite.
    assert mean_shift(channel, 0.001, scale=90).by_outputs == pytest.approx(
        0.001 * (90 * 2.41847846225 + 1), rel=1e-6
    )


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (0.0, 100.0)])
def test_an_attack_reaches_the_bound_and_none_exceeds_it(bounds):
    channel = PM(epsilon=1.0, levels=21, bounds=bounds)
    honest = channel.probabilities(bounds[0])  # everyone at the lower bound
    n = 10**12
    before = mean_estimate(channel, np.round(honest * n).astype(int)).value
    shifts = []
    for symbol in range(channel.size):
        lie = np.eye(channel.size)[symbol]
        counts = np.round((0.99 * honest + 0.01 * lie) * n).astype(int)
        shifts.append(abs(mean_estimate(channel, counts).value - before))
    assert max(shifts) == pytest.approx(mean_shift(channel, 0.01).by_outputs, rel=1e-6)


def test_input_lies_move_a_mean_by_the_range():
    channel = Duchi(epsilon=1.0, bounds=(0.0, 100.0))
    assert mean_shift(channel, 0.1).by_inputs == pytest.approx(10.0)
    assert mean_shift(channel, 0.1, honest=40.0).by_inputs == pytest.approx(6.0)
    assert mean_shift(channel, 0.0).by_outputs == 0.0


@pytest.mark.parametrize(("p", "q"), [(Fraction(1, 2), Fraction(1, 4)), (0.9, 0.3), (0.6, 0.5)])
def test_attacks_on_a_frequency_reach_the_bound(p, q):
    n = 1000
    for_none, for_all = round(float(q) * n), round(float(p) * n)  # honest supports at f = 0 and f = 1
    share = Fraction(1, 10)
    up = round(float((1 - share) * for_none + share * n)), for_none
    down = round(float((1 - share) * for_all)), for_all
    found = max(abs(np.diff(frequency_estimate(pair, n, p=p, q=q).frequencies)[0]) for pair in (up, down))
    assert found == pytest.approx(frequency_shift(p, q, float(share)).by_outputs)
    assert frequency_shift(p, q, 0.1).by_inputs == 0.1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_shift(Duchi(epsilon=1.0), 1.5), "share must be >= 0 and <= 1, got 1.5"),
        (lambda: mean_shift(Duchi(epsilon=1.0), 0.1, scale=0.5), "scale must be >= 1, got 0.5"),
        (lambda: mean_shift(Duchi(epsilon=1.0), 0.1, honest=2.0), "honest must be >= -1 and <= 1, got 2.0"),
        (lambda: frequency_shift(0.5, 0.2, -0.1), "share must be >= 0 and <= 1, got -0.1"),
        (lambda: frequency_shift(0.2, 0.2, 0.1), "p must be > q"),
    ],
)
def test_bad_parameters(call, message):
    with pytest.raises(ParameterError, match=message):
        call()


def test_bad_types():
    with pytest.raises(ParameterTypeError, match="channel must be a NumericChannel, got float"):
        mean_shift(1.0, 0.1)
    with pytest.raises(ParameterTypeError, match="share must be a number, got True"):
        frequency_shift(0.5, 0.2, True)
