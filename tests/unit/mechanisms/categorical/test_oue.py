import math
from itertools import product

import numpy as np
import pytest

from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError
from reticent.mechanisms.base import exp_below
from reticent.mechanisms.categorical import OUE
from reticent.mechanisms.categorical.oue import DRAWS
from reticent.randomness import SimulationStream


class Unchecked(OUE):
    def check(self):
        pass


class SmallQ(Unchecked):
    """Planted bug: q = 1/(e^eps + 2)."""

    def _prepare(self):
        super()._prepare()
        self._other_count = math.ceil(DRAWS / (2 + exp_below(self.epsilon)))


class Swapped(Unchecked):
    """Planted bug: p and q exchanged."""

    def _prepare(self):
        super()._prepare()
        self._true_count, self._other_count = self._other_count, self._true_count


class RoundedDown(Unchecked):
    """Planted bug: q one part in 2^64 too small."""

    def _prepare(self):
        super()._prepare()
        self._other_count -= 1


class FewPercentOff(Unchecked):
    """Planted bug: q 3 % too large (private enough, but not the stated law)."""

    def _prepare(self):
        super()._prepare()
        self._other_count += self._other_count * 3 // 100


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (SmallQ, r"OUE: weights \d+ and \d+ differ by more than e\^1"),
        (Swapped, "OUE: a report must support the true category more often"),
        (RoundedDown, r"OUE: weights \d+ and \d+ differ by more than e\^1"),
    ],
)
def test_a_wrong_law_fails_the_check(kind, message):
    with pytest.raises(GuaranteeError, match=message):
        OUE.check(kind(epsilon=1.0, categories=5))


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 1.0, 5.0, 20.0])
def test_every_report_of_every_pair_of_inputs_keeps_the_ratio(epsilon):
    """Enumeration of all 2^4 reports: what `check` says structurally."""
    oue = OUE(epsilon=epsilon, categories=4)
    p, q = oue.p, oue.q

    def chance(bits, value):
        shares = [(p if place == value else q) for place in range(4)]
        return math.prod(share if bit else 1 - share for bit, share in zip(bits, shares, strict=True))

    for bits in product((0, 1), repeat=4):
        row = [chance(bits, value) for value in range(4)]
        assert max(row) <= exp_below(epsilon) * min(row)
    assert sum(chance(bits, 2) for bits in product((0, 1), repeat=4)) == 1


def joint(rows):
    return np.bincount(rows @ (1 << np.arange(rows.shape[1])), minlength=1 << rows.shape[1])


def law_of(oue, value):
    k = oue.categories.size
    shares = np.array([float(oue.p if place == value else oue.q) for place in range(k)])
    patterns = (np.arange(1 << k)[:, None] >> np.arange(k)) & 1
    return np.prod(np.where(patterns, shares, 1 - shares), axis=1)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("value", [0, 3, 4])
def test_sampler_fits_the_joint_law(fits, epsilon, value):
    oue = OUE(epsilon=epsilon, categories=5)
    rows = oue.perturb(np.full(200_000, value), SimulationStream(value + 1))
    assert fits(joint(rows), law_of(oue, value))


def test_the_same_check_rejects_a_few_percent(fits):
    right, wrong = OUE(epsilon=1.0, categories=5), FewPercentOff(epsilon=1.0, categories=5)
    rows = wrong.perturb(np.full(200_000, 2), SimulationStream(3))
    assert not fits(joint(rows), law_of(right, 2))


class OftenTied(Unchecked):
    """q with leading bits 0000 and a tail that decides: the ties alone make the bits."""

    def _prepare(self):
        super()._prepare()
        self._other_count = (1 << 48) * 3 // 4


def test_ties_are_decided_by_the_tail():
    oue = OftenTied(epsilon=1.0, categories=64)
    rows = oue.perturb(np.zeros(400_000, dtype=int), SimulationStream(6))
    n, share = 63 * 400_000, 0.75 / 65536
    assert abs(rows[:, 1:].sum() - n * share) < 5 * math.sqrt(n * share)
    assert abs(rows[:, 0].mean() - 0.5) < 5 * 0.5 / math.sqrt(400_000)


def test_random_bits_used_do_not_depend_on_the_data():
    oue = OUE(epsilon=1.0, categories=10)
    after = []
    for value in (0, 9):
        stream = SimulationStream(12)
        oue.perturb(np.full(70_000, value), stream)
        after.append(stream.words(4).tolist())
    assert after[0] == after[1]


def test_only_the_true_bit_depends_on_the_value():
    oue = OUE(epsilon=1.0, categories=7)
    first, second = (oue.perturb(np.full(60_000, v), SimulationStream(9)) for v in (2, 5))
    same = (first == second).all(axis=0)
    assert same.tolist() == [True, True, False, True, True, False, True]


def test_out_is_filled_and_checked():
    oue = OUE(epsilon=1.0, categories=3)
    out = np.empty((2, 3), dtype=bool)
    assert oue.perturb([0, 1], SimulationStream(1), out=out) is out
    assert np.array_equal(out, oue.perturb([0, 1], SimulationStream(1)))
    with pytest.raises(ParameterError, match=r"out must have shape \(2, 3\), got \(3, 2\)"):
        oue.perturb([0, 1], out=np.empty((3, 2), dtype=bool))
    with pytest.raises(ParameterTypeError, match="out must be a contiguous boolean array"):
        oue.perturb([0, 1], out=np.empty((2, 3)))


def test_reports_are_checked():
    oue = OUE(epsilon=1.0, categories=3)
    assert oue.support_counts([[1, 0, 1], [0, 0, 1]]).tolist() == [1, 0, 2]
    with pytest.raises(ParameterError, match=r"reports must have 3 bits each, got shape \(2,\)"):
        oue.pack([0, 1])
    with pytest.raises(ParameterError, match="reports must hold 0 and 1 alone"):
        oue.pack([0, 1, 2])
    with pytest.raises(ParameterTypeError, match="reports must be booleans, got dtype float64"):
        oue.pack([0.0, 1.0, 1.0])


def test_counts_of_many_rows_do_not_overflow():
    oue = OUE(epsilon=1.0, categories=2)
    assert oue.support_counts(np.ones((200_000, 2), dtype=bool)).tolist() == [200_000, 200_000]


@pytest.mark.slow
def test_sampler_fits_with_four_million_reports(fits):
    oue = OUE(epsilon=1.0, categories=5)
    rows = oue.perturb(np.full(4_000_000, 1), SimulationStream(1))
    assert fits(joint(rows), law_of(oue, 1))
