"""Codebook: exact ratios whatever the directions, no bias, the error of its formula, and its bits."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import special, stats

from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError
from reticent.mechanisms.base import exp_below
from reticent.mechanisms.vector import Codebook, directions
from reticent.mechanisms.vector.codebook import MAX_BITS, REPORT, fewest_bits, lifted
from reticent.mechanisms.vector.sphere import Along, sphere, top_mean, top_square
from reticent.privacy import LocalDP
from reticent.randomness import SimulationStream

ALARM = 1e-6  # false-alarm rate of each test of a law

# 1/m^2 of the derivation, for standard normal directions: bits -> epsilon -> value.
GOLDEN = {
    8: {0.5: 25.4, 1.0: 6.38, 2.0: 1.63, 4.0: 0.443, 8.0: 0.149},
    12: {0.5: 25.2, 1.0: 6.33, 2.0: 1.62, 4.0: 0.436, 8.0: 0.134},
}


def codebook(epsilon=1.0, d=3, bits=4, **more):
    return Codebook(epsilon=epsilon, dimensions=d, bits=bits, **more)


def vectors(d, length=0.8):
    """Along an axis, along a diagonal, and one of no particular direction."""
    some = np.cos(np.arange(d) ** 1.5)
    rows = [np.eye(d)[0], np.ones(d), some]
    return [length * row / np.linalg.norm(row) for row in rows]


# Privacy


@pytest.mark.parametrize("epsilon", [1e-4, 0.3, 1.0, 4.0, 20.0])
@pytest.mark.parametrize(("d", "bits"), [(1, 1), (2, 4), (7, 6), (40, 9)])
def test_exactly_epsilon_for_every_seed_and_vector(epsilon, d, bits):
    mechanism = codebook(epsilon, d, bits)
    bound = exp_below(epsilon)
    odd = [np.full(d, math.nan), np.full(d, -math.inf), np.full(d, 1e308), np.zeros(d)]
    for seed in (0, 7, (1 << 64) - 1):
        for vector in (*vectors(d), *odd):
            law = mechanism.exact_probabilities(vector, seed)
            assert sum(law) == 1
            assert len(set(law)) == 2
            assert law.count(max(law)) == mechanism.top
            assert max(law) <= bound * min(law)
    # None of epsilon is given away: the weights miss it by less than a millionth.
    assert math.log(max(law) / min(law)) == pytest.approx(epsilon, rel=1e-6)
    assert mechanism.guarantee == LocalDP(epsilon)


def test_the_ratio_holds_for_directions_that_an_enemy_made(monkeypatch):
    """All alike, none at all, endless: K of M numbers are near, whatever is computed."""
    mechanism = codebook(1.0, 5, 6)
    for bad in (0.0, math.nan, math.inf):
        monkeypatch.setattr(directions, "along", lambda numbers, x, bad=bad: np.full(numbers.shape[1:3], bad))
        law = mechanism.exact_probabilities(np.ones(5), 3)
        assert law.count(max(law)) == mechanism.top
        assert max(law) <= exp_below(1.0) * min(law)
        assert mechanism.sample(np.ones((9, 5)))["value"].max() < mechanism.size


def test_planted_weights_that_do_not_keep_epsilon_are_refused():
    mechanism = codebook()
    mechanism._near += 1
    with pytest.raises(GuaranteeError, match=r"directions: weights .* differ by more than e\^1"):
        mechanism.check()


@pytest.mark.parametrize(("epsilon", "bits"), [(0.5, 1), (1.0, 4), (4.0, 6)])
def test_ranks_are_drawn_by_their_weights(epsilon, bits):
    # Chi-square over all ranks, false-alarm rate 1e-6; weights of 1.1 epsilon are found.
    mechanism = codebook(epsilon, 2, bits)
    ranks = mechanism._places(400_000, SimulationStream(bits))[:, 0]
    observed = np.bincount(ranks, minlength=mechanism.size)

    def p_value(one):
        law = np.where(np.arange(one.size) < mechanism.top, one._near, one._far).astype(float)
        return stats.chisquare(observed, law / law.sum() * observed.sum()).pvalue

    assert p_value(mechanism) > ALARM
    assert p_value(codebook(1.1 * epsilon, 2, bits, top=mechanism.top)) < ALARM


def test_total_for_whatever_comes():
    mechanism = codebook(d=4)
    odd = [[math.nan, math.inf, -math.inf, "text"], [None, 1e308, 10**400, 2.0]]
    tame = [[0.0, 1.0, -1.0, 0.0], [0.0, 1e308, 1.7976931348623157e308, 0.0]]
    np.testing.assert_array_equal(
        mechanism.sample(odd, SimulationStream(2)), mechanism.sample(tame, SimulationStream(2))
    )
    assert mechanism.perturb(np.zeros((3, 5, 4))).shape == (3, 5, 4)
    assert mechanism.perturb(np.zeros(4)).shape == (4,)
    assert np.isfinite(mechanism.perturb(np.full((50, 4), 1e-200))).all()


def test_vectors_become_unit_vectors():
    rows = np.array([[0.0, 0.0], [0.6, 0.0], [3.0, 4.0], [1e300, -1e300], [1e-300, 0.0], [1.0, 0.0]])
    x = lifted(rows).astype(float)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(x[1], [0.6, 0.0, 0.8], atol=1e-7)
    np.testing.assert_allclose(x[2], [0.6, 0.8, 0.0], atol=1e-7)
    np.testing.assert_allclose(x[3], [math.sqrt(0.5), -math.sqrt(0.5), 0.0], atol=1e-7)


# Accuracy


def miss(mechanism, vector, reports, seed, draw):
    """How far off the worst mean and the error are, in standard errors; measured over predicted error."""
    found = draw(np.broadcast_to(vector, (reports, vector.size)), SimulationStream(seed))
    spread = np.sqrt(mechanism.variance(vector) / reports)
    squares = np.square(found - vector).sum(axis=1)
    error = mechanism.error(float(np.linalg.norm(vector)))
    off = abs(squares.mean() - error) / (squares.std() / math.sqrt(reports) + 1e-9 * error)
    return (np.abs(found.mean(axis=0) - vector) / spread).max(), off, squares.mean() / error


@pytest.mark.parametrize(("d", "bits"), [(1, 1), (3, 4), (3, 9), (10, 6), (100, 5), (1000, 4)])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_no_bias_and_the_error_of_the_formula(d, bits, epsilon):
    # Each of at most 1,000 means, and the error, is within 6.5 standard errors: false alarms below 1e-7.
    mechanism = codebook(epsilon, d, bits)
    reports = min(50_000, 5_000_000 // ((d + 1) << bits))
    for seed, vector in enumerate(vectors(d)):
        z, off, _ = miss(mechanism, vector, reports, seed, mechanism.perturb)
        assert z < 6.5
        assert off < 6.5


@pytest.mark.slow
@pytest.mark.parametrize("bits", range(4, 13))
@pytest.mark.parametrize("d", [3, 5, 10, 30, 100, 300, 1000, 2000, 5000])
@pytest.mark.parametrize("most", [80_000])
def test_no_bias_and_the_error_within_2_percent(d, bits, most):
    """So many reports that 2 % are at least 4.5 standard errors of an error, which fall as 1/d.

    False alarms of a case: any of up to 5,000 means beyond 6.5 standard errors, below 1e-6; an error that is
    more than 2 % off, below 1e-5.
    """
    for epsilon, share in ((1.0, 6), (4.0, 1)):
        reports = max(150, most * 9 // (share * d * d))
        mechanism = codebook(epsilon, d, bits)
        vector = vectors(d, 1.0)[2]
        z, off, ratio = miss(mechanism, vector, reports, bits, mechanism.perturb)
        print(
            f"d {d} bits {bits} epsilon {epsilon}: {reports} reports, z {z:.2f}, off {off:.2f}, {ratio:.4f}"
        )
        assert z < 6.5
        assert ratio == pytest.approx(1.0, abs=0.02)


def test_planted_another_scale_is_found():
    mechanism = codebook(1.0, 3, 4)
    vector = vectors(3)[1]
    z, _, _ = miss(mechanism, vector, 100_000, 1, lambda rows, rng: 1.3 * mechanism.perturb(rows, rng))
    assert z > 6.5
    _, off, _ = miss(mechanism, vector, 20_000, 1, lambda rows, rng: 1.05 * mechanism.perturb(rows, rng))
    assert off > 6.5


@pytest.mark.parametrize(("d", "bits"), [(1, 1), (1, 6), (3, 8), (100, 8), (300, 12)])
def test_simulated_reports_have_the_same_law(d, bits):
    # As above; and the length along the vector by Kolmogorov and Smirnov against real reports.
    mechanism = codebook(4.0, d, bits)
    for seed, vector in enumerate(vectors(d)):
        z, off, _ = miss(mechanism, vector, 10_000, seed, mechanism.simulate)
        assert z < 6.5
        assert off < 6.5
    if d <= 3:
        rows = np.broadcast_to(vector, (20_000, d))
        real, made = (
            draw(rows, SimulationStream(9)) @ vector for draw in (mechanism.perturb, mechanism.simulate)
        )
        assert stats.ks_2samp(real, made).pvalue > ALARM
        assert stats.ks_2samp(real, 1.1 * made).pvalue < ALARM  # planted


@pytest.mark.parametrize(
    ("bits", "epsilon"), [(bits, epsilon) for bits in GOLDEN for epsilon in GOLDEN[bits]]
)
def test_golden_values_where_dimensions_are_many(bits, epsilon):
    d = 100_000
    mechanism = codebook(epsilon, d, bits)
    assert mechanism.scale**2 / (d + 1) == pytest.approx(GOLDEN[bits][epsilon], rel=0.01)
    assert mechanism.worst_case_error / d == pytest.approx(GOLDEN[bits][epsilon], rel=0.01)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_never_above_the_formula_for_normal_directions(epsilon):
    """S^2 (d+1)/m^2 of the derivation, m of standard normal directions: a limit, met as d grows."""
    for bits in (4, 8, 12):
        m2 = 100_001 / codebook(epsilon, 100_000, bits).scale ** 2
        for d in (1, 3, 10, 100, 5000):
            mechanism = codebook(epsilon, d, bits)
            assert mechanism.worst_case_error < (d + 1) / m2
            assert mechanism.worst_case_error < mechanism.scale**2


@pytest.mark.parametrize("length", [0.0, 0.5, 1.0])
def test_error_is_the_sum_of_the_variances(length):
    mechanism = codebook(2.0, 7, 6)
    for vector in vectors(7, length):
        assert mechanism.variance(vector).sum() == pytest.approx(mechanism.error(length), rel=1e-6)
    assert mechanism.error(length) <= mechanism.worst_case_error


# The law of one coordinate


@pytest.mark.parametrize("n", [2, 3, 4, 9, 101, 10_001])
def test_one_coordinate_is_beta(n):
    grid = sphere(n)
    law = special.betainc((n - 1) / 2.0, 0.5, grid.cosine**2) / 2.0
    right = np.where(grid.t > 0.0, law, 1.0 - law)
    inside = right > 1e-6
    np.testing.assert_allclose(grid.beyond[inside], right[inside], rtol=1e-6)


@pytest.mark.parametrize("size", [2, 16, 4096])
def test_ranks_in_space_by_their_closed_form(size):
    """Archimedes: in three dimensions t is uniform, and ranks of uniform numbers have simple moments."""
    for top in {1, size // 2, size - 1}:
        k, m = np.arange(1, top + 1), size
        first = 1.0 - 2.0 * k / (m + 1.0)
        second = 1.0 - 4.0 * k / (m + 1.0) + 4.0 * k * (k + 1.0) / ((m + 1.0) * (m + 2.0))
        assert top_mean(3, size, top) == pytest.approx(first.mean(), rel=1e-8, abs=1e-10)
        assert top_square(3, size, top) == pytest.approx(second.mean(), rel=1e-5)


@pytest.mark.parametrize(
    ("n", "bits", "epsilon"), [(2, 5, 1.0), (4, 7, 4.0), (50, 8, 2.0), (50, 8, 8.0), (9, 6, 0.1)]
)
def test_the_best_number_of_near_directions(n, bits, epsilon):
    best = codebook(epsilon, n - 1, bits)
    gains = [codebook(epsilon, n - 1, bits, top=top).gain for top in range(1, 1 << bits)]
    assert best.gain == pytest.approx(max(gains), rel=1e-12)


def test_the_quantile_has_the_moments():
    along = Along(101, 256, 17, 0.03, (1 - 17 * 0.03) / 239)
    t = along.quantile((np.arange(200_000) + 0.5) / 200_000)
    assert t.mean() == pytest.approx(along.mean, rel=1e-4)
    assert np.square(t).mean() == pytest.approx(along.square, rel=1e-3)


def test_fewest_bits_cost_little():
    for epsilon, d in ((0.5, 3), (2.0, 100), (8.0, 100), (4.0, 1000)):
        bits = fewest_bits(epsilon, d)
        most = codebook(epsilon, d, MAX_BITS).worst_case_error
        assert codebook(epsilon, d, bits).worst_case_error <= 1.03 * most
        assert bits == 1 or codebook(epsilon, d, bits - 1).worst_case_error > 1.03 * most


# Directions

FIRST = [0.207884, 0.369735, -0.331805]  # numbers of direction 0 of 21 under seed 5


def test_directions_are_the_same_on_both_sides_and_new_for_each_seed():
    one = directions.unit(directions.normals(np.uint64(5), np.arange(64), 21), 21)
    alone = directions.unit(directions.normals(np.array([5], dtype=np.uint64), np.array([63]), 21), 21)
    np.testing.assert_array_equal(one[63], alone[0])
    other = directions.unit(directions.normals(np.uint64(6), np.arange(64), 21), 21)
    assert (np.abs(np.einsum("ij,ij->i", one, other)) < 0.95).all()
    np.testing.assert_allclose(np.linalg.norm(one, axis=1), 1.0, atol=1e-6)
    # Bytes of the cipher under the key: a change of either side would make all reports worthless.
    np.testing.assert_allclose(one[0][:3], FIRST, atol=1e-5)


def test_numbers_are_normal():
    # Kolmogorov and Smirnov, false-alarm rate 1e-6.
    numbers = directions.normals(np.arange(50, dtype=np.uint64)[:, None], np.arange(40), 100)
    assert numbers.shape == (2, 50, 40, 50)
    flat = numbers.reshape(-1).astype(float)
    assert stats.kstest(flat, stats.norm.cdf).pvalue > ALARM
    assert stats.kstest(1.05 * flat, stats.norm.cdf).pvalue < ALARM  # planted
    ends = directions.gaussian(np.array([0, 0, (1 << 32) - 1, 1 << 31], dtype=np.uint32))
    assert np.isfinite(ends).all()
    assert np.abs(ends[:, 1]).max() > 0.0  # no direction of length 0


# Bits and bad input


@pytest.mark.parametrize("bits", [1, 5, 8, 12])
def test_packing(bits):
    mechanism = codebook(d=2, bits=bits)
    reports = mechanism.sample(np.zeros((9, 2)))
    data = mechanism.pack(reports)
    assert len(data) == -(-9 * bits // 8)
    np.testing.assert_array_equal(mechanism.unpack(data, reports["seed"]), reports)
    np.testing.assert_allclose(mechanism.total(reports), mechanism.decode(reports).sum(axis=0), rtol=1e-5)
    with pytest.raises(ParameterError, match=f"data must be {len(data)} bytes"):
        mechanism.unpack(data + b"\0", reports["seed"])


def test_reports_of_others_are_refused():
    mechanism = codebook(d=2, bits=4)
    with pytest.raises(ParameterTypeError, match=r"reports must be \(seed, value\) records"):
        mechanism.decode(np.zeros(3))
    with pytest.raises(ParameterError, match="reports must hold values < 16"):
        mechanism.decode(np.array([(1, 16)], dtype=REPORT))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be > 0"),
        ({"epsilon": 21.0}, "epsilon must be >= 0.0001 and <= 20"),
        ({"dimensions": 0}, "dimensions must be >= 1"),
        ({"dimensions": 1 << 21}, "dimensions must be <= 1048576"),
        ({"bits": 0}, "bits must be >= 1"),
        ({"bits": 13}, "bits must be <= 12"),
        ({"bits": 4.0}, "bits must be a whole number"),
        ({"dimensions": 1 << 20, "bits": 12}, "bits must be fewer"),
        ({"top": 0}, "top must be >= 1"),
        ({"top": 16}, "top must be <= 15"),
    ],
)
def test_bad_parameters(given, message):
    with pytest.raises((ParameterError, ParameterTypeError), match=message) as caught:
        Codebook(**({"epsilon": 1.0, "dimensions": 3, "bits": 4} | given))
    assert "\n" not in str(caught.value)


def test_wrong_shapes():
    mechanism = codebook()
    with pytest.raises(ParameterError, match=r"values must have 3 numbers per row, got shape \(2,\)"):
        mechanism.perturb([1.0, 2.0])
    with pytest.raises(ParameterTypeError, match="rng must be None"):
        mechanism.perturb(np.zeros(3), 1)
    assert repr(mechanism) == f"Codebook(epsilon=1, dimensions=3, bits=4, top={mechanism.top})"
    assert sum(mechanism.exact_probabilities(np.zeros(3), 1), Fraction(0)) == 1
