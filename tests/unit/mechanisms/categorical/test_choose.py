import math

import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms.categorical import KRR, OLH, OUE, best


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 4.0])
def test_krr_up_to_three_e_to_the_epsilon_plus_two(epsilon):
    """Wang et al. 2017, Section 4.5."""
    edge = 3 * math.exp(epsilon) + 2
    assert isinstance(best(epsilon, max(2, math.floor(edge))), KRR)
    assert isinstance(best(epsilon, math.floor(edge) + 1), OUE)


def test_nothing_else_has_less_variance():
    for epsilon in (0.01, 0.7, 1.3, 3.0, 9.0):
        for size in (2, 5, 30, 1000):
            chosen = best(epsilon, size).frequency_variance()
            for kind in (KRR, OUE, OLH):
                assert chosen <= kind(epsilon=epsilon, categories=size).frequency_variance()


def test_within_a_number_of_bits():
    assert isinstance(best(1.0, 1000), OUE)
    assert isinstance(best(1.0, 1000, bits=100), OLH)
    assert isinstance(best(1.0, 1000, bits=10), KRR)
    with pytest.raises(ParameterError, match="bits must be >= 10 for these categories, got 9"):
        best(1.0, 1000, bits=9)


def test_labels_fallback_and_many_categories():
    chosen = best(1.0, ["x", "y"], fallback="y")
    assert chosen.categories.fallback == 1
    assert isinstance(best(0.0001, 2**20, bits=66), OLH)


def test_bad_parameters():
    with pytest.raises(ParameterError, match="epsilon must be > 0, got -1"):
        best(-1, 5)
    with pytest.raises(ParameterTypeError, match=r"categories must be a whole number, got 1\.5"):
        best(1.0, 1.5)
