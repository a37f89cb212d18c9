"""Vectors: Duchi's law enumerated in rationals, and n-dimensional Laplace noise on a grid."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import stats

from reticent.errors import GuaranteeError, MixedGuarantees, ParameterError, ParameterTypeError
from reticent.mechanisms.base import exp_below
from reticent.mechanisms.vector import VectorDuchi, VectorLaplace, central_binomial_share
from reticent.mechanisms.vector import laplace as vector
from reticent.privacy import LocalDP, MetricDP
from reticent.randomness import LATTICE, SimulationStream

ALARM = 1e-6  # false-alarm rate of each fit

# mathematics 1.1: B at epsilon 1.
GOLDEN_SCALE = {
    1: 2.163953413738653,
    2: 4.327906827477306,
    3: 4.327906827477306,
    4: 5.770542436636406,
    5: 5.770542436636408,
    6: 6.9246509239636875,
}


@pytest.mark.parametrize(("d", "scale"), GOLDEN_SCALE.items())
def test_golden_scale(d, scale):
    assert VectorDuchi(epsilon=1.0, dimensions=d).scale == pytest.approx(scale, rel=2e-15)


def test_central_binomial_share():
    for d in (1, 2, 3, 10, 2049, 2050, 2051, 9999):
        half = d // 2
        exact = Fraction(math.comb(2 * half, half), 4**half)
        assert central_binomial_share(d) == pytest.approx(float(exact), rel=4e-16)
    d = 6  # E|t.v| / d, counted
    assert central_binomial_share(d) == sum(abs(sum(t)) for t in product((-1, 1), repeat=d)) / (d * 2**d)


def corners(d):
    return [np.array(corner, dtype=np.float64) for corner in product((-1.0, 1.0), repeat=d)]


def worst_ratio(laws):
    return max(max(law[t] for law in laws) / min(law[t] for law in laws) for t in laws[0])


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 6.0])
def test_enumerated_ratio_is_at_most_e_epsilon(epsilon, d):
    # The law is a mixture over v, so its extremes are at the corners.
    mechanism = VectorDuchi(epsilon=epsilon, dimensions=d)
    laws = [mechanism.exact_probabilities(x) for x in corners(d)]
    assert all(sum(law.values()) == 1 for law in laws)
    ratio = worst_ratio(laws)
    assert ratio <= exp_below(epsilon)
    assert math.log(ratio) == pytest.approx(epsilon, rel=1e-9)  # and nothing is given away


@pytest.mark.parametrize("d", [2, 4, 6])
def test_the_published_recipe_for_even_d_is_caught(d):
    # Ties in both half spaces: uniform over {t.v >= 0} with probability c/(c+1), else over {t.v <= 0}.
    c = exp_below(1.0)
    cube = list(product((-1, 1), repeat=d))
    laws = []
    for v in cube:
        side = {t: sum(a * b for a, b in zip(t, v, strict=True)) for t in cube}
        up, down = (sum(s >= 0 for s in side.values()), sum(s <= 0 for s in side.values()))
        laws.append({t: (s >= 0) * c / (c + 1) / up + (s <= 0) / (c + 1) / down for t, s in side.items()})
    assert worst_ratio(laws) > exp_below(1.0)
    assert math.log(worst_ratio(laws)) == pytest.approx(1.3133, abs=1e-4)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5])
def test_mean_and_variance_by_enumeration(d):
    mechanism = VectorDuchi(epsilon=1.3, dimensions=d)
    x = np.linspace(-0.9, 0.7, d)
    law = mechanism.exact_probabilities(x)
    reports = mechanism.decode(np.array(list(law)))
    weights = np.array([float(p) for p in law.values()])
    np.testing.assert_allclose(weights @ reports, x, atol=1e-12)
    np.testing.assert_allclose(weights @ (reports - x) ** 2, mechanism.variance(x), rtol=1e-12)
    assert mechanism.worst_case_variance == pytest.approx(mechanism.scale**2)


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_samples_follow_the_enumerated_law(d):
    mechanism = VectorDuchi(epsilon=1.0, dimensions=d)
    x = np.array([0.8, -0.3, 0.1, 1.0])[:d]
    signs = mechanism.sample(np.tile(x, (200_000, 1)), SimulationStream(d))
    codes = signs @ (1 << np.arange(d)[::-1])
    observed = np.bincount(codes, minlength=2**d)

    def p_value(law):
        expected = np.array([float(law[t]) for t in product((0, 1), repeat=d)]) * codes.size
        return stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), expected.size - 1)

    assert p_value(mechanism.exact_probabilities(x)) > ALARM
    assert p_value(VectorDuchi(epsilon=1.15, dimensions=d).exact_probabilities(x)) < ALARM  # planted


@pytest.mark.parametrize("d", [7, 64, 65, 300])
def test_unbiased_in_many_dimensions(d):
    # Six standard errors on at most 300 means: false-alarm rate below 1e-6.
    mechanism = VectorDuchi(epsilon=2.0, dimensions=d, bounds=(0.0, 10.0))
    x = np.linspace(0.0, 10.0, d)
    reports = mechanism.perturb(np.tile(x, (20_000, 1)), SimulationStream(d))
    stderr = np.sqrt(mechanism.variance(x) / len(reports))
    assert (np.abs(reports.mean(axis=0) - x) < 6 * stderr).all()
    np.testing.assert_allclose(np.unique(np.abs(reports - 5.0)), mechanism.scale, rtol=1e-12)


def test_the_structural_check_sees_a_wrong_weight():
    mechanism = VectorDuchi(epsilon=1.0, dimensions=1000)
    mechanism._agree += LATTICE >> 40
    with pytest.raises(GuaranteeError, match=r"half spaces: weights .* differ by more than e\^1"):
        mechanism.check()


def test_duchi_is_total_and_keeps_shapes():
    mechanism = VectorDuchi(epsilon=1.0, dimensions=4)
    odd = [[math.nan, math.inf, -math.inf, "text"], [None, 1e300, 10**400, 2.0]]
    tame = [[0.0, 1.0, -1.0, 0.0], [0.0, 1.0, 1.0, 1.0]]
    np.testing.assert_array_equal(
        mechanism.sample(odd, SimulationStream(2)), mechanism.sample(tame, SimulationStream(2))
    )
    assert mechanism.perturb(np.zeros((3, 5, 4))).shape == (3, 5, 4)
    assert mechanism.perturb(np.zeros(4)).shape == (4,)
    assert mechanism.guarantee == LocalDP(1.0)
    assert repr(mechanism) == "VectorDuchi(epsilon=1, dimensions=4)"


@pytest.mark.parametrize("d", [1, 5, 8, 13])
def test_duchi_packing(d):
    mechanism = VectorDuchi(epsilon=1.0, dimensions=d)
    signs = mechanism.sample(np.zeros((9, d)))
    data = mechanism.pack(signs)
    assert len(data) == -(-9 * d // 8)
    assert mechanism.bits == d
    np.testing.assert_array_equal(mechanism.unpack(data, 9), signs)
    with pytest.raises(ParameterError, match=f"data must be {len(data)} bytes"):
        mechanism.unpack(data + b"\0", 9)
    with pytest.raises(ParameterError, match=f"signs must have {d} bits per row"):
        mechanism.pack(np.zeros((2, d + 1), dtype=np.int64))
    with pytest.raises(ParameterError, match="symbols must be >= 0 and < 2"):
        mechanism.pack(np.full((2, d), 2))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": 0.0, "dimensions": 2}, "epsilon must be > 0"),
        ({"epsilon": math.nan, "dimensions": 2}, "epsilon must be finite"),
        ({"epsilon": float("1e309"), "dimensions": 2}, "epsilon must be finite"),
        ({"epsilon": True, "dimensions": 2}, "epsilon must be a number"),
        ({"epsilon": "1", "dimensions": 2}, "epsilon must be a number"),
        ({"epsilon": 1.0, "dimensions": 0}, "dimensions must be >= 1"),
        ({"epsilon": 1.0, "dimensions": 2.0}, "dimensions must be a whole number"),
        ({"epsilon": 1.0, "dimensions": 1 << 21}, "dimensions must be <= 1048576"),
        ({"epsilon": 1.0, "dimensions": 2, "bounds": (1.0, 1.0)}, "bounds must satisfy lower < upper"),
    ],
)
def test_bad_parameters_of_duchi(given, message):
    with pytest.raises((ParameterError, ParameterTypeError), match=message) as caught:
        VectorDuchi(**given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "mechanism",
    [
        VectorDuchi(epsilon=1.0, dimensions=3),
        VectorLaplace(epsilon_per_unit=1.0, dimensions=3, distance_unit="km"),
    ],
    ids=["duchi", "laplace"],
)
def test_wrong_shapes(mechanism):
    with pytest.raises(ParameterError, match=r"values must have 3 numbers per row, got shape \(2,\)"):
        mechanism.perturb([1.0, 2.0])
    with pytest.raises(ParameterError, match=r"values must have 3 numbers per row, got shape \(\)"):
        mechanism.perturb(1.0)
    with pytest.raises(ParameterError, match=r"values must hold at least one row, got shape \(0, 3\)"):
        mechanism.perturb(np.zeros((0, 3)))
    with pytest.raises(ParameterTypeError, match="rng must be None"):
        mechanism.perturb(np.zeros(3), 1)


def laplace(n, epsilon=2.0, **more):
    return VectorLaplace(epsilon_per_unit=epsilon, dimensions=n, distance_unit="km", **more)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 20])
def test_radius_is_gamma_and_direction_uniform(n):
    # Kolmogorov-Smirnov, false-alarm rate 1e-6 each; the grid is 1/1000 of the noise and not seen.
    noise = laplace(n).perturb(np.zeros((60_000, n)), SimulationStream(n))
    radius = np.linalg.norm(noise, axis=1)
    assert stats.kstest(radius, stats.gamma(n, scale=0.5).cdf).pvalue > ALARM
    assert stats.kstest(radius * 1.05, stats.gamma(n, scale=0.5).cdf).pvalue < ALARM  # planted
    if n == 2:
        assert stats.kstest(np.arctan2(*noise.T), stats.uniform(-math.pi, 2 * math.pi).cdf).pvalue > ALARM
    if n == 3:  # Archimedes: each coordinate of a direction in space is uniform
        for column in noise.T:
            assert stats.kstest(column / radius, stats.uniform(-1, 2).cdf).pvalue > ALARM
    # Six standard errors of a variance with the kurtosis of the law: false alarms below 1e-6.
    spread = noise.var(axis=0)
    kurtosis = 3 * n * (n + 3) / ((n + 1) * n)
    assert (np.abs(spread / laplace(n).variance - 1) < 6 * math.sqrt((3 + kurtosis) / len(noise))).all()


def test_planar_law_on_the_grid():
    # The chance of each grid point, against the density integrated over its cell. The step is made coarse.
    factor = Fraction(2) / Fraction(1, 2)  # epsilon * step = 1/2
    z = vector._laplace_steps(400_000, 2, factor, SimulationStream(3))
    reach = 8
    fine = (np.arange(-reach * 40 - 20, reach * 40 + 20) + 0.5) / 40.0
    density = np.exp(-0.5 * np.hypot(fine[:, None], fine[None, :])) * 0.25 / (2 * math.pi)
    cells = density.reshape(2 * reach + 1, 40, 2 * reach + 1, 40).sum(axis=(1, 3)) / 1600.0
    inside = (np.abs(z) <= reach).all(axis=1)
    observed = np.zeros((2 * reach + 1, 2 * reach + 1))
    np.add.at(observed, tuple((z[inside] + reach).T), 1)

    def p_value(law):
        expected, rest = law * len(z), (1 - law.sum()) * len(z)
        terms = ((observed - expected) ** 2 / expected).sum() + (len(z) - inside.sum() - rest) ** 2 / rest
        return stats.chi2.sf(terms, law.size)

    assert p_value(cells) > ALARM
    wrong = cells**1.05
    assert p_value(wrong / wrong.sum() * cells.sum()) < ALARM
    # d-privacy of the integrated law itself, between all pairs of cells and all shifts by one step.
    ratio = np.log(cells[1:] / cells[:-1])
    assert np.abs(ratio).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_refining_everything_changes_nothing(n, monkeypatch):
    # Decimals with 128 and more bits of the same uniforms round as the doubles did.
    factor = 2 / (Fraction(1, 3) * Fraction(1, 1024))
    fast = vector._laplace_steps(120, n, factor, SimulationStream(n))
    monkeypatch.setattr(vector, "_CERTAIN", 1e9)
    calls = []
    settle = vector._Refined.coordinate
    monkeypatch.setattr(vector._Refined, "coordinate", lambda self, c: calls.append(c) or settle(self, c))
    np.testing.assert_array_equal(vector._laplace_steps(120, n, factor, SimulationStream(n)), fast)
    assert len(calls) == 120 * n


@pytest.mark.parametrize("n", [1, 2, 6])
def test_the_error_bound_of_the_doubles_holds(n):
    # Against decimals: the exact coordinate of the same uniforms is within the claimed error.
    factor = Fraction(2**30)
    stream = SimulationStream(40 + n)
    draws = vector._Draws(
        stream.words(100 * ((n + 1) // 2)).reshape(100, -1),
        vector._disc_pairs(100 * (n // 2 + 1), stream).reshape(100, -1, 2),
    )
    steps, error = vector._in_doubles(draws, n, float(factor))
    scale = 1 << 40  # the same in steps 2^-40 as large gives the digits after the point
    worst = 0.0
    for row in range(100):
        refined = vector._Refined(draws, row, n, factor * scale, stream)
        for column in range(n):
            exact = Fraction(refined.coordinate(column), scale)
            off = abs(Fraction(float(steps[row, column])) - exact)
            worst = max(worst, float(off) / float(error[row, column]))
    assert 1e-4 < worst < 1.0  # holds, and is not idle


def test_hard_uniforms_are_settled():
    # Words at the edges: uniforms next to 0 and 1, pairs next to the centre and to the circle.
    top = (1 << 64) - 1
    draws = vector._Draws(
        np.array([[0], [top], [1 << 63], [1]], dtype=np.uint64),
        np.array(
            [[[1 << 63, 1 << 63]], [[top, 1 << 63]], [[(1 << 63) + 1, (1 << 63) - 1]], [[1 << 63, 0]]],
            dtype=np.uint64,
        ),
    )
    _, error = vector._in_doubles(draws, 1, 1000.0)
    assert (error == math.inf).all()
    for row in range(4):
        stream = SimulationStream(row)
        refined = vector._Refined(draws, row, 1, Fraction(10**20), stream)
        first = refined.coordinate(0)
        assert first == refined.coordinate(0)  # bits once drawn are kept
        u, v, bits = refined._pairs[0]
        assert vector._squares(u, v, bits)[0] < 1 << 2 * bits


def test_membership_of_the_disc_is_exact():
    half = 1 << 63
    assert vector._inside(half, half, SimulationStream(1))  # the centre
    assert not vector._inside(0, 0, SimulationStream(1))  # a corner
    cut = [vector._inside(0, half, SimulationStream(seed)) for seed in range(50)]  # u next to -1, v next to 0
    assert any(cut)
    low, high = vector._squares(half + 5, half - 7, 64)
    assert (low, high) == (10**2 + 12**2, 12**2 + 14**2)
    pairs = vector._disc_pairs(50_000, SimulationStream(1))
    s = np.square(vector._signed(pairs)).sum(axis=1)
    assert s.max() < 1.0
    assert stats.kstest(s, "uniform").pvalue > ALARM


def test_guarantee_and_slack():
    mechanism = laplace(2, epsilon=3.0, radius=5.0)
    assert mechanism.guarantee == MetricDP(3.0, "km", slack=mechanism.distance_slack)
    assert mechanism.guarantee.within(1e-9).epsilon > 3.0 * mechanism.distance_slack  # two sides of a border
    assert math.frexp(mechanism.step)[0] == 0.5
    assert 2.0**-12 < mechanism.distance_slack * 3.0 <= 2.0**-10
    assert mechanism.local_guarantee.epsilon == pytest.approx(30.0, abs=0.001)
    assert mechanism.local_guarantee.epsilon > 30.0
    assert mechanism.variance == pytest.approx(3 / 9.0, rel=1e-6)
    with pytest.raises(MixedGuarantees):
        mechanism.guarantee.compose(LocalDP(1.0))
    with pytest.raises(ParameterError, match="radius must be given for a local guarantee"):
        _ = laplace(2).local_guarantee
    assert repr(mechanism) == "VectorLaplace(epsilon_per_unit=3, dimensions=2, distance_unit='km', radius=5)"


@pytest.mark.parametrize("n", [1, 2, 5])
def test_rounded_points_are_not_much_further_apart(n):
    mechanism = laplace(n, radius=3.0)
    rng = np.random.default_rng(n)
    points = rng.normal(scale=2.0, size=(20_000, n))
    others = points + rng.normal(scale=0.001, size=points.shape) * rng.choice(
        [0.01, 1.0, 1000.0], size=(20_000, 1)
    )
    apart = np.linalg.norm(points - others, axis=1)
    on_grid = np.linalg.norm((mechanism._grid(points) - mechanism._grid(others)) * mechanism.step, axis=1)
    assert (on_grid <= apart + mechanism.distance_slack).all()
    assert (
        np.linalg.norm(mechanism._grid(points) * mechanism.step, axis=1) <= 3.0 + mechanism.distance_slack
    ).all()
    assert (
        on_grid > apart + 0.3 * mechanism.distance_slack
    ).any()  # without the slack the claim would be false


def test_laplace_is_total_and_reports_are_grid_points():
    mechanism = laplace(3, radius=2.0)
    odd = [[math.nan, math.inf, "text"], [None, -math.inf, 1e300], [10**400, 0.0, 0.0]]
    tame = [[0.0, 2.0, 0.0], [0.0, -math.sqrt(2), math.sqrt(2)], [2.0, 0.0, 0.0]]
    reports = mechanism.perturb(odd, SimulationStream(2))
    np.testing.assert_array_equal(reports, mechanism.perturb(tame, SimulationStream(2)))
    steps = mechanism.sample(odd, SimulationStream(2))
    assert steps.dtype == np.int64
    np.testing.assert_array_equal(steps * mechanism.step, reports)
    assert mechanism.perturb(np.zeros(3)).shape == (3,)
    assert (mechanism.perturb(np.zeros(3)) != mechanism.perturb(np.zeros(3))).any()
    free = laplace(3)
    assert np.isfinite(free.perturb([[math.inf, -math.inf, math.nan]])).all()


def test_every_neighbouring_grid_point_is_reached_from_both_of_two_inputs():
    # T12b in small: reports of two inputs share their support.
    mechanism = laplace(1, epsilon=1.0)
    first = np.unique(mechanism.sample(np.zeros((100_000, 1)), SimulationStream(1)))
    second = np.unique(mechanism.sample(np.full((100_000, 1), 0.1), SimulationStream(2)))
    window = np.arange(-300, 301)
    assert np.isin(window, first).all()
    assert np.isin(window, second).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": 0.0}, "epsilon_per_unit must be >= 1e-09"),
        ({"epsilon": -1.0}, "epsilon_per_unit must be >= 1e-09"),
        ({"epsilon": math.nan}, "epsilon_per_unit must be finite"),
        ({"epsilon": float("1e309")}, "epsilon_per_unit must be finite"),
        ({"epsilon": True}, "epsilon_per_unit must be a number"),
        ({"epsilon": "1"}, "epsilon_per_unit must be a number"),
        ({"n": 0}, "dimensions must be >= 1"),
        ({"n": 5000}, "dimensions must be <= 4096"),
        ({"radius": 0.0}, "radius must be >="),
        ({"radius": math.inf}, "radius must be finite"),
        ({"radius": "1"}, "radius must be a number"),
    ],
)
def test_bad_parameters_of_laplace(given, message):
    with pytest.raises((ParameterError, ParameterTypeError), match=message) as caught:
        laplace(**({"n": 2} | given))
    assert "\n" not in str(caught.value)


def test_bad_unit_of_laplace():
    with pytest.raises(ParameterError, match="distance_unit must be 1 to 60 printable characters"):
        VectorLaplace(epsilon_per_unit=1.0, dimensions=2, distance_unit="")


@pytest.mark.slow
def test_large_dimension_with_refinement():
    mechanism = laplace(4096)
    noise = mechanism.perturb(np.zeros((400, 4096)))
    radius = np.linalg.norm(noise, axis=1)
    assert stats.kstest(radius, stats.gamma(4096, scale=0.5).cdf).pvalue > ALARM
