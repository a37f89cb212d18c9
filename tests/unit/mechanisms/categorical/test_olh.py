import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError
from reticent.mechanisms.base import exp_below
from reticent.mechanisms.categorical import OLH
from reticent.mechanisms.categorical.krr import PLACES, Response
from reticent.mechanisms.categorical.olh import (
    MAX_BUCKETS,
    REPORT,
    P,
    _drawn_seeds,
    buckets_of,
    collision,
    keys,
)
from reticent.randomness import SimulationStream, Stream


class TellsTooMuch(OLH):
    """Planted bug: the response is that of a larger epsilon."""

    def _prepare(self):
        super()._prepare()
        self._response = Response.made(self.epsilon * 1.001, self.buckets)

    def check(self):
        pass


def test_a_wrong_law_fails_the_check():
    with pytest.raises(GuaranteeError, match=r"OLH: weights \d+ and \d+ differ by more than e\^1"):
        OLH.check(TellsTooMuch(epsilon=1.0, categories=5))


def test_p_is_prime():
    assert all(P % divisor for divisor in range(2, math.isqrt(P) + 1, 1) if divisor == 2 or divisor % 2)


def test_keys_are_distinct_and_below_the_prime():
    all_keys = keys(np.arange(1 << 20))
    assert np.unique(all_keys).size == 1 << 20
    assert int(all_keys.max()) < 1 << 31 < P


def test_hash_equals_its_definition():
    seeds = np.array([0, 1, (P - 1) << 32 | (P - 1), 123456789 << 32 | 987654321], dtype=np.uint64)
    for key in (0, 1, (1 << 31) - 1):
        for buckets in (2, 4, 1000, MAX_BUCKETS):
            hashed = buckets_of(seeds, np.uint64(key), buckets)
            expected = [((int(s) >> 32) * key + (int(s) & 0xFFFFFFFF)) % P * buckets >> 32 for s in seeds]
            assert hashed.tolist() == expected


@pytest.mark.parametrize("buckets", [2, 3, 4, 7, 1000, 65_537])
def test_collision_counts_the_values_of_each_bucket(buckets):
    edges = [-(-(b << 32) // buckets) for b in range(buckets + 1)]
    sizes = [high - low for low, high in pairwise(edges)]
    sizes[-1] -= 5
    assert sum(sizes) == P
    assert collision(buckets) == Fraction(sum(size * size for size in sizes), P * P)


def test_q_is_one_over_g():
    for epsilon in (0.01, 1.0, 3.0, 20.0):
        olh = OLH(epsilon=epsilon, categories=5)
        assert olh.buckets == max(2, round(math.exp(epsilon) + 1))
        # At epsilon 20 a bucket holds 8 or 9 of the hash values: q says so exactly.
        assert float(olh.q) == pytest.approx(1 / olh.buckets, rel=1e-3 if epsilon == 20.0 else 1e-8)
        assert olh.bits == 64 + (olh.buckets - 1).bit_length()


def test_affine_family_is_pairwise_uniform_on_a_small_field():
    """The argument of the module's docstring, enumerated for P = 13."""
    for x, v in ((0, 1), (3, 11), (12, 5)):
        pairs = {((a * x + b) % 13, (a * v + b) % 13) for a in range(13) for b in range(13)}
        assert len(pairs) == 169


def test_collisions_of_neighbouring_categories_are_as_computed():
    seeds = _drawn_seeds(300_000, SimulationStream(5))
    key = keys(np.arange(4))
    for buckets in (2, 4, 21):
        hashed = [buckets_of(seeds, one, buckets) for one in key]
        share = float(collision(buckets))
        for i in range(4):
            for j in range(i):
                # 18 comparisons at five standard errors: false alarm 1e-5; the seed is fixed.
                same = np.mean(hashed[i] == hashed[j])
                assert abs(same - share) < 5 * math.sqrt(share * (1 - share) / seeds.size)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_response_given_the_seed_fits_and_keeps_the_ratio(fits, epsilon):
    olh = OLH(epsilon=epsilon, categories=40)
    reports = olh.perturb(np.full(200_000, 33), SimulationStream(2))
    true = buckets_of(reports["seed"], keys(np.array([33]))[0], olh.buckets).astype(np.int64)
    shift = (reports["value"].astype(np.int64) - true) % olh.buckets
    law = [float(olh.p)] + [olh._response.other / PLACES] * (olh.buckets - 1)
    assert fits(np.bincount(shift, minlength=olh.buckets), law)
    assert olh.p / Fraction(olh._response.other, PLACES) <= exp_below(epsilon)
    law[0] *= 1.02  # the same check rejects a keep probability that is 2 % off
    assert not fits(np.bincount(shift, minlength=olh.buckets), np.array(law) / sum(law))


class MostlyRefused(Stream):
    """Words whose halves are at or above P, then proper ones."""

    def __init__(self):
        self.given = 0

    def _take(self):
        raise AssertionError("words are given below")

    def _give_back(self, held):
        raise AssertionError("nothing is taken")

    def words(self, count):
        self.given += 1
        word = {1: 2**64 - 1, 2: P << 32, 3: P}.get(self.given, 7 << 32 | 9)
        return np.full(count, word, dtype=np.uint64)


def test_seeds_outside_the_field_are_drawn_again():
    stream = MostlyRefused()
    assert _drawn_seeds(3, stream).tolist() == [7 << 32 | 9] * 3
    assert stream.given == 4


def test_reports_are_checked():
    olh = OLH(epsilon=1.0, categories=3)
    good = np.zeros(2, dtype=REPORT)
    assert olh.support_counts(good).tolist() == [2, 2, 2]  # seed 0 sends everything to bucket 0
    good["value"] = 4
    with pytest.raises(ParameterError, match="reports must hold values < 4"):
        olh.pack(good)
    bad = np.zeros(1, dtype=REPORT)
    bad["seed"] = P
    with pytest.raises(ParameterError, match=f"reports must hold seeds of two numbers < {P}"):
        olh.support_counts(bad)
    with pytest.raises(ParameterError, match="reports must hold seeds"):
        olh.unpack(b"\xff" * 8 + b"\0", 1)
    with pytest.raises(
        ParameterTypeError, match="reports must be \\(seed, value\\) records, got dtype int64"
    ):
        olh.pack([1, 2])


def test_buckets_can_be_chosen():
    assert OLH(epsilon=1.0, categories=9, buckets=2).buckets == 2
    with pytest.raises(ParameterError, match="buckets must be >= 2, got 1"):
        OLH(epsilon=1.0, categories=9, buckets=1)
