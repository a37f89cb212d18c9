"""The window solver against stored figures, closed forms, its own certificate and a dense scan."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms.numeric.window_solver import (
    best_window,
    solve_window,
    window_worst_case_variance,
)

# (epsilon, N, M): exact worst-case variance and upper half of y, found by an exponentiated-gradient solver
# (Reticent, docs/references.md [Window]).
GOLDEN = {
    (1.0, 24, 11): (
        4.013517677493654,
        [2.84166673358066e-97, 1.820241977167644, 1.8202419771676437, 1.853318551231536, 2.003457130351594,
         2.174291824114903, 2.3517977668990695, 2.5510759837425714, 2.5982539385472188, 2.5982539385472183,
         2.5982539385472183, 2.5982539385472183],
    ),
    (1.0, 4, 2): (4.18269437683117, [1.663953413738653, 2.6639534137386534]),
    (2.0, 8, 3): (
        0.8841905519840014,
        [0.2972994489020044, 1.2863691131092727, 1.410942215691966, 1.554829813196087],
    ),
    (2.0, 31, 12): (
        0.8668842026889454,
        [0.10346926229927497, 0.18317420017093816, 0.3060487601352939, 1.138880670390415, 1.1388806703904146,
         1.2697476074933438, 1.4345945483623868, 1.4345945483623872, 1.4345945483623872, 1.4345945483623872,
         1.4345945483623872, 1.4345948928079828, 1.4891315956958002, 1.5538799529948655, 1.653958793654872],
    ),
    (4.0, 16, 4): (
        0.13087163710498764,
        [0.08876065086906647, 0.3860199962177875, 0.571685516025356, 0.7411730404295946, 0.9806533680928108,
         1.0372075174341064, 1.1020023954767162, 1.1786544848167513],
    ),
    (4.0, 31, 8): (
        0.1280362084516422,
        [0.11582663960725748, 0.2569387645281717, 0.37867093130707313, 0.4894742162870114, 0.6069089376355103,
         0.6548460240301546, 0.7377503231605006, 0.9507706089554532, 0.9699636458060257, 1.0094227774521136,
         1.0586190502915482, 1.0934714468389484, 1.112986821718948, 1.152933294229753, 1.2302105259842053],
    ),
}  # fmt: skip

# epsilon: (lower bound for any mechanism, allowed excess, variance of HM-TP).
LIMITS = {
    0.8: (6.25585078, 0.005, 6.791719676781816),
    1.0: (3.990542968, 0.005, 4.417625953361627),
    1.2: (2.738601042, 0.005, 3.0631893737068943),
    1.5: (1.691431862, 0.005, 1.9107416880759176),
    2.0: (0.865349497, 0.005, 0.9842764103580394),
    2.5: (0.493183284, 0.005, 0.5704118500379427),
    3.0: (0.304005999, 0.005, 0.35541767927678286),
    4.0: (0.127033989, 0.005, 0.1548065895565014),
    5.0: (0.057330544, 0.005, 0.07264852216402543),
    6.0: (0.027105324, 0.02, 0.03525296006499017),
    8.0: (0.006465115, 0.035, 0.008689478449189249),
}

CERTIFIED = 1e-6  # relative gap; the solver aims at 1e-7 and spends up to 1e-7 per unit on parting ties


def mirrored(half, n):
    upper = np.array(half)
    return np.concatenate([-upper[::-1], np.zeros(n % 2), upper])


def kernel(epsilon, n, m):
    """The rows, written out: shape (N - M + 1, N)."""
    c = math.exp(epsilon)
    q = 1.0 / (n - m + c * m)
    rows = np.full((n - m + 1, n), q)
    for s in range(n - m + 1):
        rows[s, s : s + m] = c * q
    return rows


def scanned_variance(epsilon, y, m, points=200_001):
    """A second method: the variance on a dense grid of inputs, from the full kernel."""
    rows = kernel(epsilon, y.size, m)
    y = y / (rows[-1] @ y)
    x = np.linspace(-1.0, 1.0, points)
    knots = rows @ y
    return float((np.interp(x, knots, rows @ y**2) - x**2).max())


def pm_opt_variance(epsilon):
    """Worst-case variance of PM-OPT, by the stable root t = e^(epsilon/3) u."""
    c, q, u = math.exp(epsilon), math.exp(-2 * epsilon / 3), 1.0
    for _ in range(8):
        u -= (q * u**4 + 2 * u**3 - 2 * q * u - 1) / (4 * q * u**3 + 6 * u**2 - 2 * q)
    t = math.exp(epsilon / 3) * u
    return (t + 1) / (c - 1) + (t + c) * ((t + 1) ** 3 + c - 1) / (3 * t**2 * (c - 1) ** 2)


def hm_variance(epsilon):
    s, c = math.exp(epsilon / 2), math.exp(epsilon)
    return (s + 3) / (3 * s * (s - 1)) + (c + 1) ** 2 / (s * (c - 1) ** 2)


def check_invariants(solution, n, m):
    y, knots = solution.outputs, solution.knots
    assert y.shape == (n,)
    assert y.dtype == np.float64
    assert np.array_equal(y, -y[::-1])
    assert (np.diff(y) > 0.0).all()
    assert knots.shape == (n - m + 1,)
    assert np.array_equal(knots, -knots[::-1])
    assert (np.diff(knots) > 0.0).all()
    assert knots[-1] == 1.0
    assert knots[0] == -1.0
    rounding = 1e-12 + 1e-15 * np.abs(y).max()  # small epsilons have large outputs
    np.testing.assert_allclose(kernel(solution.epsilon, n, m) @ y, knots, rtol=0, atol=rounding)
    assert 0.0 < solution.dual_bound <= solution.worst_case_variance
    assert solution.worst_case_variance - solution.dual_bound <= CERTIFIED * solution.worst_case_variance


@pytest.mark.parametrize(("case", "stored"), GOLDEN.items(), ids=str)
def test_variance_of_stored_outputs_is_reproduced(case, stored):
    epsilon, n, m = case
    variance, half = stored
    assert window_worst_case_variance(epsilon, mirrored(half, n), m) == pytest.approx(variance, rel=1e-9)


@pytest.mark.parametrize(("case", "stored"), GOLDEN.items(), ids=str)
def test_solution_is_no_worse_than_stored_and_certified(case, stored):
    solution = solve_window(*case)
    assert solution.worst_case_variance <= stored[0] * (1 + 1e-5)
    check_invariants(solution, *case[1:])


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_two_outputs_are_duchi(epsilon):
    solution = solve_window(epsilon, 2, 1)
    c = 1 / math.tanh(epsilon / 2)
    assert solution.worst_case_variance == pytest.approx(c**2, rel=1e-12)
    assert solution.outputs[1] == pytest.approx(c, rel=1e-12)


@pytest.mark.parametrize("epsilon", [2.0, 3.0])
def test_three_outputs_are_the_large_epsilon_branch_of_three_outputs(epsilon):
    """Zhao et al. 2020, the branch epsilon > ln((3 + sqrt 65) / 2)."""
    c = math.exp(epsilon)
    expected = (c + 2) * (c + 10) / (4 * (c - 1) ** 2)
    assert solve_window(epsilon, 3, 1).worst_case_variance == pytest.approx(expected, rel=1e-12)


def test_variance_is_the_maximum_of_a_dense_scan():
    rng = np.random.default_rng(7)
    for epsilon, n, m in [(0.8, 6, 3), (1.0, 13, 6), (3.0, 20, 7), (8.0, 31, 3), (12.0, 9, 1)]:
        y = mirrored(np.cumsum(rng.uniform(0.1, 1.0, n // 2)), n)
        exact = window_worst_case_variance(epsilon, y, m)
        scan = scanned_variance(epsilon, y, m)
        assert scan <= exact * (1 + 1e-12)
        assert scan == pytest.approx(exact, rel=1e-6)
        assert window_worst_case_variance(epsilon, 3.5 * y, m) == pytest.approx(exact, rel=1e-12)


def test_invariants_hold_far_from_the_best_window():
    rng = np.random.default_rng(11)
    for _ in range(60):
        epsilon = float(np.exp(rng.uniform(math.log(1e-4), math.log(20.0))))
        n = int(rng.integers(2, 49))
        m = int(rng.integers(1, n))
        check_invariants(solve_window(epsilon, n, m), n, m)


@pytest.mark.parametrize(("epsilon", "limit"), LIMITS.items())
def test_best_window_is_near_the_limit(epsilon, limit):
    bound, excess, hm_tp = limit
    solution = best_window(epsilon, 64)
    n = solution.outputs.size
    assert n <= 64
    check_invariants(solution, n, solution.window)
    assert bound < solution.worst_case_variance <= bound * (1 + excess)
    assert solution.worst_case_variance < hm_tp
    scan = scanned_variance(epsilon, solution.outputs, solution.window)
    assert scan == pytest.approx(solution.worst_case_variance, rel=1e-6)


def test_no_epsilon_in_between_is_bad():
    """Never worse than PM-OPT or HM; falling with epsilon. Beyond 11.48 64 outputs lose to PM-OPT."""
    last = math.inf
    for epsilon in [0.72, 0.9, 1.35, 1.75, 2.25, 3.45, 4.6, 5.4, 6.6, 7.3, 8.7, 9.3, 10.3, 11.4]:
        variance = best_window(epsilon, 64).worst_case_variance
        assert variance < min(last, 0.95 * hm_variance(epsilon), 0.98 * pm_opt_variance(epsilon))
        last = variance
    assert best_window(12.0, 64).worst_case_variance > pm_opt_variance(12.0)


def test_pm_opt_reference_is_the_tabulated_one():
    assert pm_opt_variance(4.0) == pytest.approx(0.16184789944633038, rel=1e-12)
    assert hm_variance(1.0) == pytest.approx(4.288992493281812, rel=1e-12)


def test_planted_error_in_the_outputs_is_seen():
    """Control: a wrong y is worse by more than the certificate allows, so the checks above can fail."""
    solution = solve_window(3.0, 31, 10)
    for place, change in [(20, 1.01), (25, 0.99), (30, 1.02)]:
        y = solution.outputs.copy()
        y[place] *= change
        y[30 - place] = -y[place]
        variance = window_worst_case_variance(3.0, y, 10)
        assert variance > solution.worst_case_variance * (1 + 1e-4)
        worse = dataclasses.replace(solution, outputs=y, worst_case_variance=variance)
        with pytest.raises(AssertionError):
            check_invariants(worse, 31, 10)


def test_planted_error_in_the_window_is_seen():
    """Control: outputs solved for another window length are worse than the solution for this one."""
    right, wrong = solve_window(3.0, 31, 10), solve_window(3.0, 31, 12)
    assert window_worst_case_variance(3.0, wrong.outputs, 10) > right.worst_case_variance * 1.01


def test_no_outputs_beat_the_dual_bound():
    rng = np.random.default_rng(3)
    solution = solve_window(2.0, 16, 6)
    for size in (1e-4, 1e-2, 0.3):
        for _ in range(50):
            y = solution.outputs * np.exp(size * rng.standard_normal(16))
            y[:8] = -y[:7:-1]
            y.sort()
            assert window_worst_case_variance(2.0, y, 6) >= solution.dual_bound


@pytest.mark.parametrize("outputs", [2, 3, 4, 5, 9])
def test_best_window_with_few_outputs_is_the_exhaustive_best(outputs):
    for epsilon in (0.3, 1.0, 3.0, 9.0):
        best = best_window(epsilon, outputs)
        assert best.outputs.size <= outputs
        for n in range(2, outputs + 1):
            for m in range(1, n):
                other = solve_window(epsilon, n, m).worst_case_variance
                assert best.worst_case_variance <= other * (1 + CERTIFIED)


def test_best_window_is_cached_and_read_only():
    first = best_window(2.0, 12)
    assert best_window(np.float64(2.0), np.int64(12)) is first
    for array in (first.outputs, first.knots):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0


def test_solver_is_deterministic():
    first, second = solve_window(1.7, 30, 12), solve_window(1.7, 30, 12)
    assert first.outputs.tobytes() == second.outputs.tobytes()
    assert first.dual_bound == second.dual_bound


@pytest.mark.parametrize(
    ("epsilon", "outputs", "window", "rule"),
    [
        (0.0, 8, 3, r"epsilon must be > 0, got 0\.0"),
        (1e-5, 8, 3, r"epsilon must be >= 0\.0001 and <= 20, got 1e-05"),
        (21.0, 8, 3, r"epsilon must be >= 0\.0001 and <= 20, got 21\.0"),
        (math.nan, 8, 3, "epsilon must be finite"),
        (1.0, 1, 1, "outputs must be >= 2, got 1"),
        (1.0, 257, 1, "outputs must be <= 256, got 257"),
        (1.0, 8, 0, "window must be >= 1, got 0"),
        (1.0, 8, 8, "window must be <= 7, got 8"),
    ],
)
def test_bad_parameters_are_refused(epsilon, outputs, window, rule):
    with pytest.raises(ParameterError, match=rule):
        solve_window(epsilon, outputs, window)


def test_wrong_types_are_refused():
    with pytest.raises(ParameterTypeError, match="outputs must be a whole number"):
        solve_window(1.0, 8.0, 3)
    with pytest.raises(ParameterTypeError, match="window must be a whole number"):
        solve_window(1.0, 8, True)
    with pytest.raises(ParameterTypeError, match="epsilon must be a number"):
        best_window([1.0], 8)
    with pytest.raises(ParameterError, match="outputs must be >= 2"):
        best_window(1.0, 0)


@pytest.mark.parametrize(
    ("y", "window", "rule"),
    [
        ([-1.0, 0.5, 1.0], 1, "antisymmetric"),
        ([-math.inf, 0.0, math.inf], 1, "finite"),
        ([math.nan, 0.0, math.nan], 1, "finite"),
        ([[-1.0, 1.0]], 1, "in a row"),
        ([0.0], 1, "in a row"),
        ([-1.0, 1.0], 2, "window must be <= 1"),
        ([1.0, -1.0], 1, "increasing knots"),
        ([-1.0, 0.0, 0.0, 1.0], 1, "increasing knots"),
        ([0.0, 0.0], 1, "increasing knots"),
    ],
)
def test_bad_outputs_are_refused(y, window, rule):
    with pytest.raises(ParameterError, match=rule):
        window_worst_case_variance(1.0, y, window)
