"""Crossings against the print (Table 3.1, mathematics 1.1), the limit, and the errata of Fig. 3.2."""

import math

import pytest

from reticent.experiments import contenders
from reticent.experiments.ours import limit
from reticent.experiments.zhao_2022.chapter_3.crossings import bisect, crossings
from reticent.experiments.zhao_2022.chapter_3.fig_3_3 import brute_force_p00
from reticent.experiments.zhao_2022.chapter_3.table_3_1 import PRINTED, REGIMES, Crossing, found, regime_holds
from reticent.mechanisms.numeric import formulas


def test_bisection_is_exact():
    assert bisect(lambda x: x * x - 2.0, 1.0, 2.0) == pytest.approx(math.sqrt(2.0), abs=1e-15)


def test_crossings_finds_all_and_only_sign_changes():
    found_all = crossings(math.sin, lambda x: 0.0, 1.0, 10.0)
    assert found_all == pytest.approx([math.pi, 2 * math.pi, 3 * math.pi], abs=1e-12)
    assert crossings(lambda x: x, lambda x: x + 1.0, 1.0, 10.0) == []


@pytest.mark.parametrize(
    ("first", "second", "epsilon"),
    [
        ("PM-SUB", "Duchi", 1.19304819184),
        ("PM", "Duchi", 1.28978468286),
        ("Three-Outputs", "PM-SUB", 2.56108930964),
        ("Three-Outputs", "PM", 3.26935848211),
        ("Laplace", "Duchi", 2.32417012191),
        ("Three-Outputs", "PM-OPT", 2.49981115655),
    ],
)
def test_crossings_of_the_table(first, second, epsilon):
    (only,) = found(Crossing(first, second, ""))
    assert only == pytest.approx(epsilon, abs=1e-9)


def test_three_outputs_leaves_duchi_at_ln_2():
    (only,) = found(Crossing("Three-Outputs", "Duchi", ""))
    assert only == pytest.approx(math.log(2.0), abs=1e-6)


@pytest.mark.parametrize("pair", PRINTED, ids=lambda pair: f"{pair.first}={pair.second}")
def test_print_is_the_crossing_rounded(pair):
    assert f"{found(pair)[-1]:.2f}" == pair.printed


@pytest.mark.parametrize("regime", REGIMES, ids=lambda regime: f"from {regime[0]:.2f}")
def test_regimes_hold(regime):
    assert regime_holds(*regime)


def test_a_wrong_order_is_noticed():
    assert not regime_holds(1.29, 2.56, "PM < Three-Outputs")


def test_hm_tp_is_not_lowest_everywhere():
    assert found(Crossing("HM", "HM-TP", "")) == pytest.approx([0.6094, 0.6501, 0.6949, 1.5934], abs=5e-5)
    assert found(Crossing("PM-OPT", "HM-TP", "")) == pytest.approx([5.4401], abs=5e-5)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, *limit.LOWER_BOUNDS])
def test_nobody_is_below_the_limit_and_optimal_is_near_it(epsilon):
    bound = limit.limit(epsilon)
    assert all(contender.ideal(epsilon) > bound * (1.0 - 1e-9) for contender in contenders.ALL)
    assert contenders.wire_worst("Optimal", epsilon) <= bound * (1.005 if epsilon <= 5.0 else 1.03)


def test_limit_is_interpolated_between_and_unknown_beyond():
    assert limit.limit(2.0) > limit.limit(2.2) > limit.limit(2.5)
    assert math.isnan(limit.limit(8.1))


@pytest.mark.parametrize("epsilon", [0.5, 0.8, 1.2, 1.6, 2.0, 5.0])
def test_p00_is_the_brute_force_optimum(epsilon):
    assert brute_force_p00(epsilon) == pytest.approx(formulas.three_outputs_p00(epsilon), abs=1e-6)
