import math

import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms.categorical import KRR, OLH, OUE, Subset, best


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 4.0])
def test_krr_for_few_categories_and_subset_for_more(epsilon):
    """About k/(e^epsilon + 1) categories in a set: with one, it is KRR (Ye and Barg 2018, Section III)."""
    assert isinstance(best(epsilon, max(2, math.floor(1.2 * (math.exp(epsilon) + 1)))), KRR)
    assert isinstance(best(epsilon, math.ceil(2.2 * (math.exp(epsilon) + 1))), Subset)


def test_nothing_else_has_less_variance():
    for epsilon in (0.01, 0.7, 1.3, 3.0, 9.0):
        for size in (2, 5, 30, 1000):
            chosen = best(epsilon, size).frequency_variance() * (1 - 1e-9)  # Subset rounds less than KRR
            for kind in (KRR, OUE, OLH, Subset):
                assert chosen <= kind(epsilon=epsilon, categories=size).frequency_variance()


def test_within_a_number_of_bits():
    assert isinstance(best(1.0, 1000), Subset)
    assert isinstance(best(1.0, 1000, bits=20), Subset)
    assert isinstance(best(1.0, 1000, bits=19), KRR)
    with pytest.raises(ParameterError, match="bits must be >= 10 for these categories, got 9"):
        best(1.0, 1000, bits=9)


def test_labels_fallback_and_many_categories():
    chosen = best(1.0, ["x", "y"], fallback="y")
    assert chosen.categories.fallback == 1
    assert isinstance(best(0.0001, 2**20, bits=66), Subset)


def test_bad_parameters():
    with pytest.raises(ParameterError, match="epsilon must be > 0, got -1"):
        best(-1, 5)
    with pytest.raises(ParameterTypeError, match=r"categories must be a whole number, got 1\.5"):
        best(1.0, 1.5)
