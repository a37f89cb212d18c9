"""The choice of a mechanism: best at what is known, and private whatever is known."""

from fractions import Fraction

import numpy as np
import pytest

from reticent.audit import check_channel
from reticent.errors import ParameterError
from reticent.federated import choice
from reticent.federated.choice import chosen, guessed_variance, typical_variance
from reticent.mechanisms.numeric import HM, HMTP, PM, Duchi, OneBit, Optimal, PMOpt, PMSub, ThreeOutputs
from reticent.mechanisms.numeric.priors import as_prior
from reticent.mechanisms.sampling import best_sample_size, documents_sample_size, epsilon_each

DOCUMENTS = (Duchi, PM, HM, ThreeOutputs, PMOpt, PMSub, HMTP)
CASES = [(10, 0.5, 0.1), (10, 2.0, 0.05), (30, 1.0, 0.3), (100, 4.0, 0.1), (3, 3.0, 1.0)]


def is_best(channel, k, d, epsilon, typical):
    """Whether no mechanism of the documents, with any k up to theirs, has less variance there."""
    mine = typical_variance(channel, k / d, typical)
    return all(
        mine <= typical_variance(kind(epsilon=epsilon_each(epsilon, size)), size / d, typical) * (1 + 1e-12)
        for kind in DOCUMENTS
        for size in {1, documents_sample_size(epsilon, d), best_sample_size(epsilon, d)}
    )


@pytest.mark.parametrize(("d", "epsilon", "typical"), CASES)
def test_no_mechanism_of_the_documents_is_better_at_typical_gradients(d, epsilon, typical):
    channel, k = chosen(epsilon, d, typical=typical)
    assert is_best(channel, k, d, epsilon, typical)
    assert Fraction(channel.epsilon) * k <= Fraction(epsilon)


def test_planted_the_worst_case_choice_is_not_best_at_small_gradients():
    channel, k = chosen(4.0, 100)
    assert not is_best(channel, k, 100, 4.0, 0.1)
    small, size = chosen(4.0, 100, typical=0.1)
    assert typical_variance(channel, k / 100, 0.1) > 10.0 * typical_variance(small, size / 100, 0.1)


@pytest.mark.parametrize("epsilon", [0.8, 1.0, 1.5])
def test_at_nothing_a_window_of_three_is_best(epsilon):
    """E[Y^2 | 0] = 2 (c + 2) / (c - 1)^2 for c = e^epsilon, at least 2."""
    channel, k = chosen(epsilon, 50, typical=1e-9)
    c = np.exp(epsilon)
    assert (type(channel).__name__, channel.size, k) == ("Window", 3, 1)
    assert typical_variance(channel, 1.0, 1e-9) == pytest.approx(2.0 * (c + 2.0) / (c - 1.0) ** 2, rel=1e-9)


def test_the_mean_is_that_of_the_law():
    """ThreeOutputs at epsilon 2: E[Y^2 | x] is linear in |x|, whose mean is typical/2."""
    channel, t = ThreeOutputs(epsilon=2.0), 0.4
    at = [float(channel.variance(x)) + x * x for x in (0.0, 1.0)]
    exact = (at[0] + (at[1] - at[0]) * t / 2.0) / 0.25 - t * t / 3.0
    assert typical_variance(channel, 0.25, t) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize(("epsilon", "d"), [(0.5, 10), (4.0, 10), (1.0, 1), (4.0, 3)])
def test_without_knowledge_it_is_the_worst_case_choice(epsilon, d):
    channel, k = chosen(epsilon, d)
    assert k == best_sample_size(epsilon, d)
    best = OneBit(epsilon=epsilon / k, rho=k / d) if k / d <= 0.5 else Optimal(epsilon=epsilon / k)
    assert type(channel) is type(best)
    assert np.array_equal(channel.alphabet, best.alphabet)


def test_what_is_settled_stays():
    channel, k = chosen(4.0, 10, kind="OneBit", sample_size=3, typical=0.1)
    assert (type(channel), k, channel.epsilon) == (OneBit, 3, epsilon_each(4.0, 3))
    channel, k = chosen(4.0, 10, kind="Duchi", typical=0.1)
    assert type(channel) is Duchi
    assert k in range(1, 5)


@pytest.mark.parametrize("typical", [0.01, 0.3, 1.0])
def test_privacy_does_not_depend_on_it(typical):
    assert check_channel(chosen(2.0, 20, typical=typical)[0]).passed
    assert set(choice.KINDS) >= {kind.__name__ for kind in DOCUMENTS}


# For a guess of where coordinates lie


@pytest.mark.parametrize(("epsilon", "share"), [(1.0, 1.0), (4.0, 0.65)])
def test_no_mechanism_has_less_variance_under_a_guess(epsilon, share):
    """Against all kinds and k; at epsilon 4 it is 0.61 of what `typical` has."""
    d, guess = 100, as_prior("small gradients")
    channel, k = chosen(epsilon, d, prior="small gradients")
    mine = guessed_variance(channel, k / d, guess)
    assert type(channel).__name__ == "Tailored"
    for kind in DOCUMENTS:
        for size in {1, documents_sample_size(epsilon, d)}:
            assert mine < guessed_variance(kind(epsilon=epsilon_each(epsilon, size)), size / d, guess)
    typical, size = chosen(epsilon, d, typical=0.1)
    assert mine < share * guessed_variance(typical, size / d, guess)
    assert check_channel(channel).passed
    assert Fraction(channel.epsilon) * k <= Fraction(epsilon)


def test_planted_a_wrong_guess_costs_accuracy_alone():
    guess = choice.pilot(np.full((10, 3), 5.0), 5.0)  # all at their bounds
    channel, _ = chosen(2.0, 3, sample_size=1, prior=guess)
    assert check_channel(channel).passed
    small = as_prior("small gradients")
    right, _ = chosen(2.0, 3, sample_size=1, prior=small)
    assert guessed_variance(channel, 1 / 3, small) > 1.2 * guessed_variance(right, 1 / 3, small)
    assert guessed_variance(channel, 1 / 3, guess) < guessed_variance(right, 1 / 3, guess)


def test_a_pilot_is_where_clipped_coordinates_lie():
    found = choice.pilot([[0.0, np.nan], [np.inf, -3.0]], np.array([1.0, 2.0]))
    half = 1.0 / found.masses.size
    assert found.masses[np.abs(found.points) < 2e-3].sum() == pytest.approx(0.5)
    assert (found.masses[found.points > 0.99].sum(), found.masses[found.points < -0.99].sum()) == (0.25, 0.25)
    assert found.mean == pytest.approx(half, abs=2e-3)


def test_a_guess_and_a_size_are_not_given_together():
    with pytest.raises(ParameterError, match="typical and prior must not be given together"):
        chosen(1.0, 3, typical=0.1, prior="uniform")
