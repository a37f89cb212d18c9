import math

import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms.categorical import KRR, OLH, OUE, Subset, best
from reticent.mechanisms.categorical.subset import least_variance


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


# What is not built, and why: exact variances of a rare category, one report (mathematics 1.3).


def hadamard(epsilon, k):
    """Acharya et al. 2019, in the best number of blocks; the mean over where all others are, evenly spread.

    A category's set is half of its block. It is estimated by its half less the other one, so that others of
    the block have another variance than all the rest.
    """
    c, found = math.exp(epsilon), []
    for blocks in (2**power for power in range(k.bit_length())):
        half, mates = c / 2 + blocks - 0.5, -(-k // blocks) - 1
        found.append((mates * 2 * (c + 1) * half + (k - 1 - mates) * 4 * half) / (c - 1) ** 2 / (k - 1))
    return min(found)


def projective(epsilon, k):
    """Feldman et al. 2022: hyperplanes of three or more dimensions over the best field; and its points."""
    c, found = math.exp(epsilon), []
    for q in (q for q in range(2, 64) if is_prime_power(q)):
        t = 3
        while (q**t - 1) // (q - 1) < k:
            t += 1
        points, inside, both = ((q**power - 1) // (q - 1) for power in (t, t - 1, t - 2))
        total = c * inside + points - inside
        own, other = c * inside / total, (c * both + inside - both) / total
        found.append((other * (1 - other) / (own - other) ** 2, points))
    return min(found)


def is_prime_power(number):
    prime = next(one for one in range(2, number + 1) if number % one == 0)
    return prime ** round(math.log(number, prime)) == number


@pytest.mark.parametrize(
    ("epsilon", "k", "ours", "halves", "planes"),
    [
        (0.5, 10, 12.566, 16.671, 13.435),
        (1.0, 10, 2.8217, 4.6827, 3.0461),
        (1.0, 100, 3.5903, 4.6827, 3.6642),
        (2.0, 100, 0.6900, 1.2510, 0.7121),
        (4.0, 100, 0.0531, 0.1484, 0.0753),
        (1.0, 1000, 3.6734, 4.6827, 3.6848),
        (4.0, 1000, 0.0739, 0.1500, 0.0753),
    ],
)
def test_variances_of_what_is_not_built(epsilon, k, ours, halves, planes):
    found = least_variance(epsilon, k), hadamard(epsilon, k), projective(epsilon, k)[0]
    assert found == pytest.approx((ours, halves, planes), abs=6e-4 if epsilon == 0.5 else 6e-5)


def lost(epsilons, sizes):
    """Where another has less variance, and by which part."""
    return {
        (epsilon, k): 1.0 - least / least_variance(epsilon, k)
        for epsilon in epsilons
        for k in sizes
        if (least := min(hadamard(epsilon, k), projective(epsilon, k)[0])) < least_variance(epsilon, k)
    }


def test_others_win_by_next_to_nothing():
    """Where k nearly fills a geometry, such as the 57 points over seven elements; in half the bits."""
    found = lost([0.75, 1.75], [2, 5, 38, 40, 57, 58, 200, 1000])
    assert set(found) == {(0.75, 38), (0.75, 40), (1.75, 57)}
    assert max(found.values()) < 0.004
    _, points = projective(1.0, 1000)
    assert ((points - 1).bit_length(), Subset(epsilon=1.0, categories=1000).bits) == (11, 20)


@pytest.mark.slow
@pytest.mark.parametrize("step", [0.25])
def test_others_win_by_next_to_nothing_anywhere(step):
    found = lost([0.5 + step * i for i in range(round(3.5 / step) + 1)], range(2, 1001))
    print(len(found), max(found.values()), sorted({k for _, k in found}))
    assert max(found.values()) < 0.004
