"""The Gaussian curve: golden numbers, mpmath, dp-accounting, and round trips that never err unsafely."""

import math
import random

import mpmath
import pytest

from reticent.privacy import gaussian_curve
from reticent.privacy.gaussian_curve import delta_of, epsilon_of, mu_of

# Golden values, from an independent computation.
GOLDEN_MU = {
    (0.5, 1e-5): 0.14221055866926086,
    (1.0, 1e-5): 0.26805112321129426,
    (1.0, 1e-4): 0.31390245831182945,
    (2.0, 1e-5): 0.5015516891696574,
    (4.0, 1e-5): 0.9249308976669364,
    (8.0, 1e-4): 1.8413662729459301,
    (8.0, 1e-5): 1.6660305978457177,
}
GOLDEN_EPSILON = {
    (0.1, 1e-5): 0.34066936468432535,
    (0.5, 1e-5): 1.993091404415125,
    (1.0, 1e-5): 4.377178095681224,
    (1.0, 1e-6): 4.886554117462211,
    (2.0, 1e-5): 9.997256146434305,
    (4.17665, 1e-5): 25.848703406079025,
}


def exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """Balle and Wang 2018, Theorem 8, as printed; enough digits to survive the cancellation."""
    mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
    upper = mpmath.erfc((epsilon / mu - mu / 2) / mpmath.sqrt(2)) / 2
    return upper - mpmath.exp(epsilon) * mpmath.erfc((epsilon / mu + mu / 2) / mpmath.sqrt(2)) / 2


def random_points(count: int, seed: int) -> list[tuple[float, float]]:
    """(mu, epsilon) with mu 1e-4 to 100, epsilon 0 to 700 and delta above 1e-300."""
    generator = random.Random(seed)
    points = []
    while len(points) < count:
        mu = 10 ** generator.uniform(-4, 2)
        spread = max(0.0, mu * generator.uniform(-3, 36.9) + mu * mu / 2)
        epsilon = generator.choice([0.0, 10 ** generator.uniform(-6, 2.845), spread, spread, spread])
        if epsilon <= 700 and epsilon / mu - mu / 2 < 36.9:
            points.append((mu, epsilon))
    return points


def random_budgets(count: int, seed: int) -> list[tuple[float, float]]:
    """(epsilon, delta): half of them everyday budgets, half over the whole range."""
    generator = random.Random(seed)
    everyday = [
        (10 ** generator.uniform(-2, 1.5), 10 ** generator.uniform(-12, -2)) for _ in range(count // 2)
    ]
    wide = [
        (10 ** generator.uniform(-4, math.log10(700)), 10 ** generator.uniform(-300, math.log10(0.5)))
        for _ in range(count - count // 2)
    ]
    return everyday + wide


def unsafe_round_trips(budgets, to_mu) -> int:
    """How many budgets a conversion to mu would overspend, judged by the bounds themselves."""
    unsafe = 0
    for epsilon, delta in budgets:
        mu = to_mu(epsilon, delta)
        unsafe += epsilon_of(mu, delta) > epsilon or delta_of(mu, epsilon) > delta
    return unsafe


def unsafe_against_mpmath(points, delta_bound) -> int:
    """How many points have a bound below the true delta."""
    with mpmath.workdps(80):
        return sum(delta_bound(mu, epsilon) < exact_delta(mu, epsilon) for mu, epsilon in points)


@pytest.mark.parametrize(("budget", "mu"), GOLDEN_MU.items())
def test_golden_mu(budget, mu):
    assert mu_of(*budget) == pytest.approx(mu, rel=2e-13)
    assert f"{mu_of(*budget):.11g}" == f"{mu:.11g}"


@pytest.mark.parametrize(("spent", "epsilon"), GOLDEN_EPSILON.items())
def test_golden_epsilon(spent, epsilon):
    assert epsilon_of(*spent) == pytest.approx(epsilon, rel=2e-13)
    assert f"{epsilon_of(*spent):.11g}" == f"{epsilon:.11g}"


def test_table_4_2_of_the_documents():
    """V / Delta^2 = 17.4444 at delta 1e-5 (golden.json, "table42")."""
    assert epsilon_of(math.sqrt(16 + 1 + 4 / 9), 1e-5) == pytest.approx(25.848742822426793, rel=1e-12)


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_stated_error_bound_against_mpmath(count):
    """The logarithm is within E of the truth, and the bound within 2E above it (60 digits and more)."""
    with mpmath.workdps(80):
        for mu, epsilon in random_points(count, seed=4):
            truth = mpmath.log(exact_delta(mu, epsilon))
            computed, error, _ = gaussian_curve._log_delta(mu, epsilon)
            assert error < 2e-12
            assert abs(computed - truth) <= error
            bound = mpmath.mpf(delta_of(mu, epsilon))
            assert 0 <= mpmath.log(bound) - truth <= 2 * error + 1e-15


def test_a_bound_without_inflation_is_caught():
    """Planted bug: the same formula rounded to nearest is below the truth about half the time."""

    def nearest(mu: float, epsilon: float) -> float:
        return math.exp(gaussian_curve._log_delta(mu, epsilon)[0])

    points = random_points(400, seed=5)
    assert unsafe_against_mpmath(points, delta_of) == 0
    assert unsafe_against_mpmath(points, nearest) > 100


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_round_trips_are_never_unsafe(count):
    assert unsafe_round_trips(random_budgets(count, seed=6), mu_of) == 0


def test_a_mu_rounded_up_is_caught():
    """Planted bug: one part in 10^12 too much mu fails the same check."""
    budgets = random_budgets(300, seed=7)
    assert unsafe_round_trips(budgets, lambda epsilon, delta: mu_of(epsilon, delta) * (1 + 1e-12)) > 250


def test_round_trips_are_tight():
    for epsilon, delta in random_budgets(2_000, seed=8):
        mu = mu_of(epsilon, delta)
        assert delta_of(mu, epsilon) >= delta * (1 - 1e-11)
        assert delta_of(mu * (1 + 1e-12), epsilon) > delta
        assert epsilon_of(mu, delta) >= epsilon * (1 - 1e-9)


def test_the_inverses_start_near_their_answers(monkeypatch):
    """The work of an inverse: how often it looks at the curve, on average (`mu_of` confirms itself twice)."""
    looks = 0
    curve = gaussian_curve._log_delta

    def counted(mu: float, epsilon: float) -> tuple[float, float, float]:
        nonlocal looks
        looks += 1
        return curve(mu, epsilon)

    monkeypatch.setattr(gaussian_curve, "_log_delta", counted)
    budgets = random_budgets(1_000, seed=11)
    for some, most_mu, most_epsilon in ((budgets[:500], 12.2, 6.35), (budgets[500:], 9.75, 5.35)):
        looks = 0
        granted = [(mu_of(epsilon, delta), delta) for epsilon, delta in some]
        assert looks <= most_mu * len(some)
        looks = 0
        assert all(epsilon_of(mu, delta) > 0.0 for mu, delta in granted)
        assert looks <= most_epsilon * len(some)


@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 0.3, 1.0, 40.0])
@pytest.mark.parametrize("x", [-30.0, -1.0, 0.0, 1e-3, 0.5, 3.0, 37.0])
def test_the_mu_at_a_point_of_the_normal_curve(x, epsilon):
    mu = gaussian_curve._mu_at(x, epsilon)
    assert mu >= 0.0
    assert epsilon == pytest.approx(mu * x + mu * mu / 2, rel=1e-12, abs=1e-12)


def test_no_mu_is_above_the_truth():
    """Against mpmath, not against our own bound: the true delta of the mu we grant is within budget."""
    with mpmath.workdps(80):
        for epsilon, delta in random_budgets(400, seed=9):
            assert exact_delta(mu_of(epsilon, delta), epsilon) <= delta
            mu = math.sqrt(epsilon) + 1e-3
            reported = epsilon_of(mu, delta)
            assert exact_delta(mu, reported) <= delta


def test_agrees_with_dp_accounting():
    accounting = pytest.importorskip("dp_accounting")
    for mu in (0.05, 0.3, 1.0, 2.5, 7.0):
        for delta in (1e-9, 1e-6, 1e-3, 0.05):
            theirs = accounting.get_epsilon_gaussian(1 / mu, delta)
            assert epsilon_of(mu, delta) == pytest.approx(theirs, rel=1e-6, abs=1e-9)
            if theirs > 0:
                assert 1 / mu_of(theirs, delta) == pytest.approx(
                    accounting.get_sigma_gaussian(theirs, delta), rel=1e-6
                )


def test_agrees_with_a_privacy_loss_distribution():
    """Google's pessimistic discretisation lies above our bound, and within 6 digits."""
    losses = pytest.importorskip("dp_accounting").pld.privacy_loss_distribution
    for mu, delta in ((0.5, 1e-5), (1.0, 1e-5), (1.0, 1e-6), (2.0, 1e-4)):
        theirs = losses.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-4)
        assert theirs.get_epsilon_for_delta(delta) == pytest.approx(epsilon_of(mu, delta), rel=1e-6)


def test_the_curve_falls_in_epsilon_and_rises_in_mu():
    deltas = [delta_of(1.0, epsilon / 10) for epsilon in range(100)]
    assert deltas == sorted(deltas, reverse=True)
    deltas = [delta_of(mu / 10, 1.0) for mu in range(100)]
    assert deltas == sorted(deltas)


def test_edges_by_name():
    assert delta_of(0.0, 3.0) == delta_of(0, 0) == 0.0
    assert delta_of(1.0, 0.0) == pytest.approx(math.erf(0.5 / math.sqrt(2)), rel=1e-14)
    assert 0.0 < delta_of(1e-4, 700.0) <= 1e-323  # never quite private
    assert delta_of(1000.0, 1.0) == 1.0
    assert epsilon_of(0.0, 1e-5) == 0.0
    assert epsilon_of(0.0, 0.0) == 0.0
    assert epsilon_of(1.0, 0.0) == math.inf
    assert epsilon_of(1.0, 1.0) == 0.0
    assert epsilon_of(0.1, 0.5) == 0.0  # already (0, 0.5)
    assert mu_of(1.0, 0.0) == 0.0
    assert mu_of(0.0, 1e-5) == pytest.approx(1e-5 * math.sqrt(2 * math.pi), rel=1e-9)


@pytest.mark.parametrize("mu", [5e-324, 1e-300, 1e-20, 1e4, 1e7, 1e9, 1e160, 1e308])
@pytest.mark.parametrize("epsilon", [0.0, 1e-300, 1.0, 1e9, 1e300])
def test_outside_the_tested_range_the_bounds_stay_bounds(mu, epsilon):
    assert 0.0 < delta_of(mu, epsilon) <= 1.0
    for delta in (5e-324, 1e-9, 0.5, 0.999999):
        enough = epsilon_of(mu, delta)
        assert enough == math.inf or delta_of(mu, enough) <= delta
        granted = mu_of(epsilon, delta)
        assert epsilon_of(granted, delta) <= epsilon


def test_outside_the_tested_range_the_bounds_are_of_use():
    """epsilon is mu^2 / 2 to first order for a large mu, whatever delta is."""
    for delta in (5e-324, 1e-300, 1e-9, 0.5, 0.999999):
        for epsilon in (1e9, 1e15, 1e100, 1e300):
            assert mu_of(epsilon, delta) == pytest.approx(math.sqrt(2 * epsilon), rel=1e-3)
        for mu in (1e5, 1e9, 1e100, 1e150):
            assert epsilon_of(mu, delta) == pytest.approx(mu * mu / 2, rel=1e-3)
    for tiny in (1e-300, 1e-100, 1e-20):
        assert mu_of(tiny, tiny) == pytest.approx(3.6227971857287 * tiny, rel=1e-9)
        assert epsilon_of(3.6227971857287 * tiny, tiny) == pytest.approx(tiny, rel=1e-9)


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, 1e309, True, "1", None])
@pytest.mark.parametrize("name", ["mu", "epsilon", "delta"])
def test_bad_parameters_are_named(name, bad):
    good = {"mu": 1.0, "epsilon": 1.0, "delta": 1e-5}
    functions = {"mu": delta_of, "epsilon": mu_of, "delta": epsilon_of}
    names = {"mu": ("mu", "epsilon"), "epsilon": ("epsilon", "delta"), "delta": ("mu", "delta")}[name]
    arguments = {key: good[key] for key in names} | {name: bad}
    with pytest.raises((ValueError, TypeError), match=rf"^{name} must be .*, got "):
        functions[name](**arguments)


@pytest.mark.parametrize(("function", "bad"), [(mu_of, 1.0), (mu_of, 1.5), (epsilon_of, 1.5)])
def test_delta_above_one_is_refused(function, bad):
    with pytest.raises(ValueError, match=r"^delta must be >= 0 and <=? 1, got "):
        function(1.0, bad)
