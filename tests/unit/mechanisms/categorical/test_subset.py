import math
from collections import Counter
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError
from reticent.mechanisms.base import exp_below
from reticent.mechanisms.categorical import KRR, OLH, OUE, Subset
from reticent.mechanisms.categorical.subset import best_size, ideal_variance, modulus_for
from reticent.randomness import LATTICE, SimulationStream


class Unchecked(Subset):
    def check(self):
        pass


class RoundedUp(Unchecked):
    """Planted bug: one count of 2^52 too many."""

    def _prepare(self):
        super()._prepare()
        self._true_count += 1


class ForOneElement(Unchecked):
    """Planted bug: the chance of a set of one element, for sets of several."""

    def _prepare(self):
        super()._prepare()
        c, m = exp_below(self.epsilon), self.modulus
        self._true_count = math.floor(LATTICE * c / (c + m - 1) * self.subset_size)


class Backwards(Unchecked):
    """Planted bug: sets that avoid the truth."""

    def _prepare(self):
        super()._prepare()
        self._true_count = LATTICE - self._true_count


class Useless(Unchecked):
    """Planted bug: sets that hold the truth no more often than chance."""

    def _prepare(self):
        super()._prepare()
        self._true_count = LATTICE * self.subset_size // self.modulus


class LessOften(Unchecked):
    """Planted bug: private enough, but not the stated law."""

    def _drawn(self, true, stream):
        stated, self._true_count = self._true_count, self._true_count * 98 // 100
        try:
            return super()._drawn(true, stream)
        finally:
            self._true_count = stated


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (RoundedUp, r"Subset: weights \d+ and \d+ differ by more than e\^1"),
        (ForOneElement, r"Subset: weights \d+ and \d+ differ by more than e\^1"),
        (Backwards, r"Subset: weights \d+ and \d+ differ by more than e\^1"),
        (Useless, "Subset: a report must support the true category more often"),
    ],
)
def test_a_wrong_law_fails_the_check(kind, message):
    with pytest.raises(GuaranteeError, match=message):
        Subset.check(kind(epsilon=1.0, categories=10))


def chances(oracle, value):
    """The chance of every report for one input, from the module's words alone."""
    w, m = oracle.subset_size, oracle.modulus
    inside, outside = oracle.p / w, (1 - oracle.p) / (m - w)
    held = oracle.sets(np.arange(oracle.size)) == value
    return [(inside if one else outside) / oracle.seeds for one in held.any(axis=1)]


@pytest.mark.parametrize("epsilon", [0.001, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("size", [2, 4, 5, 6, 9, 19])
def test_enumerated_every_report_keeps_the_ratio_and_meets_p_and_q(epsilon, size):
    oracle = Subset(epsilon=epsilon, categories=size)
    rows = [chances(oracle, value) for value in range(size)]
    bound = exp_below(epsilon)
    for column in zip(*rows, strict=True):
        assert max(column) <= bound * min(column)
    held = [(oracle.sets(np.arange(oracle.size)) == value).any(axis=1) for value in range(size)]
    for true, row in enumerate(rows):
        assert sum(row) == 1
        for other in range(size):
            share = sum((chance for chance, one in zip(row, held[other], strict=True) if one), Fraction(0))
            assert share == (oracle.p if other == true else oracle.q)


def test_two_categories_that_meet_too_often_would_be_noticed():
    """The same enumeration rejects blocks of neighbours for a modulus that is no prime."""
    pairs = Counter(
        pair
        for a in range(1, 10)
        for shift in range(10)
        for pair in combinations(sorted((a * place + shift) % 10 for place in range(3)), 2)
    )
    assert len(set(pairs.values())) > 1


@pytest.mark.parametrize("size", [4, 7, 9, 23])
def test_sampler_fits_the_enumerated_law(fits, size):
    oracle = Subset(epsilon=1.0, categories=size)
    for value in (0, size - 1):
        law = [float(chance) for chance in chances(oracle, value)]
        drawn = oracle.perturb(np.full(100_000, value), SimulationStream(value + size))
        assert fits(np.bincount(drawn, minlength=oracle.size), law)


def test_the_same_check_rejects_two_percent(fits):
    right, wrong = (kind(epsilon=1.0, categories=7) for kind in (Subset, LessOften))
    drawn = wrong.perturb(np.full(200_000, 2), SimulationStream(1))
    assert not fits(np.bincount(drawn, minlength=right.size), [float(one) for one in chances(right, 2)])


def test_variance_is_that_of_ye_and_barg():
    """Section III, in rationals: sets of w out of m, for every m in use."""
    for size in (2, 6, 10, 31, 100, 1000):
        for epsilon in (0.5, 1.0, 4.0):
            oracle = Subset(epsilon=epsilon, categories=size)
            ideal = ideal_variance(epsilon, oracle.modulus, oracle.subset_size)
            assert float(oracle.frequency_variance()) == pytest.approx(ideal, rel=1e-9)
    assert float(Subset(epsilon=1.0, categories=10).frequency_variance()) == pytest.approx(2.82174, abs=1e-5)


@pytest.mark.parametrize("epsilon", [0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0])
def test_never_above_the_best_of_the_others(epsilon):
    c = math.exp(epsilon)
    spread = float(OLH(epsilon=epsilon, categories=2).frequency_variance())
    for size in range(2, 201):
        ours = ideal_variance(epsilon, modulus_for(size, best_size(epsilon, size)), best_size(epsilon, size))
        krr, oue = (size - 2 + c) / (c - 1) ** 2, 4 * c / (c - 1) ** 2
        assert ours <= min(krr, oue, spread) * (1 + 1e-12)


def test_a_fifth_below_the_others_at_ten_categories():
    others = min(float(kind(epsilon=1.0, categories=10).frequency_variance()) for kind in (KRR, OUE, OLH))
    assert float(Subset(epsilon=1.0, categories=10).frequency_variance()) <= 0.8 * others


def test_no_other_size_is_better_and_the_next_prime_costs_little():
    for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0, 8.0):
        for size in (*range(2, 40), 113, 114, 127):
            w = best_size(epsilon, size)
            mine = ideal_variance(epsilon, modulus_for(size, w), w)
            every = [ideal_variance(epsilon, modulus_for(size, one), one) for one in range(1, size)]
            assert mine <= min(every) * (1 + 1e-12)
            if epsilon <= 4:
                without = min(ideal_variance(epsilon, size, one) for one in range(1, size))
                assert mine <= 1.04 * without


def test_bits():
    found = {size: Subset(epsilon=1.0, categories=size).bits for size in (2, 5, 10, 11, 100, 1000)}
    assert found == {2: 1, 5: 3, 10: 9, 11: 7, 100: 14, 1000: 20}
    assert Subset(epsilon=0.0001, categories=1 << 20).bits == 41


def test_reports_are_checked():
    oracle = Subset(epsilon=1.0, categories=11)
    assert oracle.support_counts([0]).tolist() == [1, 1, 1] + [0] * 8  # seed 0, no shift
    with pytest.raises(ParameterError, match="symbols must be >= 0 and < 110"):
        oracle.support_counts([110])
    with pytest.raises(ParameterTypeError, match="symbols must be whole numbers, got dtype float64"):
        oracle.pack([0.5])
    with pytest.raises(ParameterError, match="subset_size must be <= 10, got 11"):
        Subset(epsilon=1.0, categories=11, subset_size=11)
    assert Subset(epsilon=1.0, categories=11, subset_size=2).subset_size == 2


def test_counts_of_few_and_of_many_reports_agree():
    oracle = Subset(epsilon=1.0, categories=12)
    reports = oracle.perturb(np.arange(60_000) % 12, SimulationStream(4))
    assert reports.size > oracle.size
    parts = sum(oracle.support_counts(part) for part in np.array_split(reports, 60))
    assert parts.tolist() == oracle.support_counts(reports).tolist()


def test_random_bits_used_do_not_depend_on_the_data():
    oracle = Subset(epsilon=1.0, categories=10)
    after = []
    for value in (0, 9):
        stream = SimulationStream(12)
        oracle.perturb(np.full(70_000, value), stream)
        after.append(stream.words(4).tolist())
    assert after[0] == after[1]


@pytest.mark.slow
@pytest.mark.parametrize("step", [0.05])
def test_never_above_the_best_of_the_others_anywhere(step):
    for epsilon in np.arange(0.5, 4.0 + step / 2, step):
        test_never_above_the_best_of_the_others(float(epsilon))
