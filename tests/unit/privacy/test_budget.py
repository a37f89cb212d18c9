"""Ledger integers: costs up, caps down, strict texts."""

import math
import random
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.errors import MixedGuarantees, ParameterError, ReticentError
from reticent.privacy import (
    MAX_UNITS,
    UNITS_PER_ONE,
    ApproximateDP,
    Budget,
    GaussianDP,
    LocalDP,
    MetricDP,
    PureDP,
    ZeroConcentratedDP,
    cap_units,
    cost_units,
    delta_of,
    format_units,
    mu2_cost,
    mu_of,
    parse_decimal,
    parse_units,
    pure_to_mu,
    spent_epsilon,
)

amounts = st.one_of(
    st.integers(0, 4_000_000),
    st.fractions(0, 4_000_000),
    st.floats(0, 4_000_000),
    st.decimals(0, 4_000_000, allow_nan=False, allow_infinity=False),
)


def undercharged(cost, samples) -> int:
    """How many positive amounts a cost function charges less than they are, or nothing."""
    return sum(cost(x) < 1 or Fraction(cost(x), UNITS_PER_ONE) < Fraction(x) for x in samples)


@given(amounts)
def test_costs_round_up_and_caps_down_exactly(amount):
    exact = Fraction(amount) * UNITS_PER_ONE
    assert 0 <= cost_units(amount) - exact < 1
    assert 0 <= exact - cap_units(amount) < 1
    assert (cost_units(amount) == 0) == (amount == 0)


def test_a_cost_rounded_to_nearest_is_caught():
    """Planted bug: `round` undercharges half of the costs, and the tiny ones altogether."""
    generator = random.Random(1)
    samples = [10 ** generator.uniform(-15, 3) for _ in range(500)]
    assert undercharged(cost_units, samples) == 0
    assert undercharged(lambda x: round(x * UNITS_PER_ONE), samples) > 100


@pytest.mark.parametrize("tiny", [5e-324, 1e-13, Fraction(1, 10**400), Decimal("1e-999999999")])
def test_the_least_cost_is_one_unit(tiny):
    assert cost_units(tiny) == 1
    assert cap_units(tiny) == 0


@pytest.mark.parametrize("zero", [0, 0.0, -0.0, Fraction(0), Decimal(0), Decimal("0e999999999"), np.int64(0)])
def test_zero_stays_zero(zero):
    assert cost_units(zero) == cap_units(zero) == 0


def test_numpy_numbers_are_exact_too():
    for kind in (np.int8, np.int32, np.int64, np.uint8):
        assert cost_units(kind(3)) == cap_units(kind(3)) == 3 * UNITS_PER_ONE
    with pytest.raises(ParameterError, match=f"got {2**62 * UNITS_PER_ONE}$"):
        cost_units(np.int64(2**62))
    assert cost_units(np.float64(0.1)) == cost_units(0.1) == 100_000_000_001
    assert cap_units(np.float32(0.1)) == math.floor(Fraction(float(np.float32(0.1))) * UNITS_PER_ONE)


@pytest.mark.parametrize("convert", [cost_units, cap_units])
@pytest.mark.parametrize(
    "bad",
    [
        *(-1, -1e-300, Fraction(-1, 3), Decimal(-1), Decimal("-1e-999999999"), math.nan, math.inf, -math.inf),
        *(Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), 1e309, True, np.True_, "1", None, 1j, [1]),
    ],
)
def test_bad_amounts_are_refused(convert, bad):
    with pytest.raises(ReticentError, match=r"^(cost|cap) must be "):
        convert(bad)


@pytest.mark.parametrize("convert", [cost_units, cap_units])
@pytest.mark.parametrize(
    "huge",
    [
        *(4_611_687, 1e300, 10**5000, Fraction(10**5000, 3)),
        *(Decimal("1e59"), Decimal("1e60"), Decimal("1e61"), Decimal("1e999999999")),
    ],
    ids=["int", "float", "long", "fraction", "decimal59", "decimal60", "decimal61", "decimal"],
)
def test_amounts_beyond_the_ledger_are_refused_in_one_short_line(convert, huge):
    with pytest.raises(ParameterError, match=rf"must be <= {MAX_UNITS} units of 1e-12, got ") as caught:
        convert(huge)
    assert len(str(caught.value)) < 150
    assert "\n" not in str(caught.value)


def test_the_largest_amount_fits():
    assert cost_units(Fraction(MAX_UNITS, UNITS_PER_ONE)) == MAX_UNITS == 2**62 - 1
    assert cap_units(Fraction(MAX_UNITS, UNITS_PER_ONE)) == MAX_UNITS
    with pytest.raises(ParameterError, match=f"^cost must be <= {MAX_UNITS} units of 1e-12, got {2**62}$"):
        cost_units(Fraction(MAX_UNITS + 1, UNITS_PER_ONE))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Decimal("-2.5"), "cost must be >= 0, got -2.5"),
        (Fraction(-1, 3), "cost must be >= 0, got -1/3"),
        (Decimal("NaN"), "cost must be finite, got NaN"),
        (Decimal("-Infinity"), "cost must be finite, got -Infinity"),
        (math.nan, "cost must be finite, got nan"),
        (True, "cost must be a number, got True"),
        ("0.5", "cost must be a number, got '0.5'"),
        ("0.\n 5", "cost must be a number, got '0. 5'"),
        ([1, 2], "cost must be a number, got [1, 2]"),
        ("x" * 58, f"cost must be a number, got '{'x' * 58}'"),
        ("x" * 59, f"cost must be a number, got '{'x' * 56}..."),
        (Decimal("1e999"), f"cost must be <= {MAX_UNITS} units of 1e-12, got 1E+999"),
        (Fraction(2**199, 10**12), f"cost must be <= {MAX_UNITS} units of 1e-12, got {2**199}"),
        (
            Fraction(2**200 - 1, 10**12),
            f"cost must be <= {MAX_UNITS} units of 1e-12, got {str(2**200)[:57]}...",
        ),
        (Fraction(2**200, 10**12), f"cost must be <= {MAX_UNITS} units of 1e-12, got a number of 201 bits"),
        (-(2**300), "cost must be >= 0, got a number of 301 bits"),
        (Fraction(-1, 2**300), "cost must be >= 0, got a number of 301 bits"),
    ],
)
def test_a_refused_amount_is_named_with_its_rule_and_value(bad, message):
    for name, convert in (("cost", cost_units), ("cap", cap_units)):
        with pytest.raises(ReticentError) as caught:
            convert(bad)
        assert str(caught.value) == message.replace("cost", name)


def test_mu2_cost_of_a_release():
    assert mu2_cost(GaussianDP(0.5)) == 250_000_000_000
    assert mu2_cost(GaussianDP(1e-9)) == 1
    assert mu2_cost(PureDP(1.0)) == math.ceil(Fraction(pure_to_mu(1.0)) ** 2 * UNITS_PER_ONE)
    assert Fraction(mu2_cost(GaussianDP(0.1)), UNITS_PER_ONE) > Fraction(0.1) ** 2


@pytest.mark.parametrize(
    "other", [ZeroConcentratedDP(0.5), ApproximateDP(1.0, 1e-5), LocalDP(1.0), MetricDP(1.0, "km")]
)
def test_mu2_accounts_take_no_other_kind(other):
    with pytest.raises(MixedGuarantees, match=f"takes GaussianDP or PureDP, got {type(other).__name__}"):
        mu2_cost(other)


def test_budget_cap_is_rounded_down():
    generator = random.Random(2)
    for _ in range(500):
        budget = Budget(10 ** generator.uniform(-3, 2), 10 ** generator.uniform(-15, -1))
        mu = Fraction(mu_of(budget.epsilon, budget.delta))
        assert 0 <= mu**2 * UNITS_PER_ONE - budget.mu2_cap < 1
        assert spent_epsilon(budget.mu2_cap, budget.delta) <= budget.epsilon


def test_a_budget_holds_plain_floats():
    budget = Budget(np.float64(1.0), np.float32(0.5))
    assert (type(budget.epsilon), type(budget.delta)) == (float, float)
    assert budget == Budget(1, 0.5)


def test_a_cap_rounded_up_is_caught():
    """Planted bug: a few units above the cap, and the epsilon shown exceeds the budget."""
    budgets = [Budget(0.01 * k, 1e-6) for k in range(1, 60)]
    assert sum(spent_epsilon(b.mu2_cap + 5, b.delta) > b.epsilon for b in budgets) == len(budgets)


def test_spent_epsilon_is_what_the_curve_says():
    assert spent_epsilon(0, 1e-5) == 0.0
    assert spent_epsilon(UNITS_PER_ONE, 1e-5) == pytest.approx(4.377178095681224, rel=1e-12)  # mathematics 2
    for units in (1, 12_345, 10**11, 5 * 10**12):
        epsilon = spent_epsilon(units, 1e-6)
        assert delta_of(math.sqrt(units / UNITS_PER_ONE), epsilon) <= 1e-6 * (1 + 1e-12)


@pytest.mark.parametrize("bad", [-1, MAX_UNITS + 1, 1.0, True, "1", None])
def test_spent_units_must_be_ledger_units(bad):
    with pytest.raises((ValueError, TypeError), match=r"^mu2_units must be "):
        spent_epsilon(bad, 1e-5)


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, 1e309, True, "1", None])
@pytest.mark.parametrize("name", ["epsilon", "delta"])
def test_bad_budgets_are_refused(name, bad):
    with pytest.raises((ValueError, TypeError), match=rf"^{name} must be .*, got "):
        Budget(**({"epsilon": 1.0, "delta": 1e-5} | {name: bad}))


@given(st.integers(0, MAX_UNITS))
def test_units_survive_json(units):
    assert parse_units(format_units(units)) == units


@pytest.mark.parametrize(
    "text",
    [
        *("", "-1", "+1", "01", "00", "1e3", "1.0", " 1", "1 ", "1\n", "1_000", "0x1", "\u0661", "\uff11"),
        *("nan", "inf", "9" * 400, str(2**62)),
    ],
)
def test_units_text_is_strict(text):
    with pytest.raises(ParameterError, match=r"^units must be ") as caught:
        parse_units(text)
    assert len(str(caught.value)) < 160
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bad", [1, 1.0, None, b"1", True])
def test_units_text_must_be_text(bad):
    with pytest.raises(TypeError, match=f"^units must be a decimal string, got {bad}$"):
        parse_units(bad)


def test_refused_texts_are_shown():
    with pytest.raises(ParameterError, match=r"no sign, exponent or leading zero, got '-1'$"):
        parse_units("-1")
    with pytest.raises(ParameterError, match=f"^units must be <= {MAX_UNITS} units of 1e-12, got {2**62}$"):
        parse_units(str(2**62))
    with pytest.raises(ParameterError, match=r"plain digits such as 0\.5, got '1e-5'$"):
        parse_decimal("1e-5")
    with pytest.raises(TypeError, match=r"^number must be a decimal string, got 0\.5$"):
        parse_decimal(0.5)


@pytest.mark.parametrize("bad", [-1, MAX_UNITS + 1, 1.0, True, "1"])
def test_only_units_are_formatted(bad):
    with pytest.raises((ValueError, TypeError), match=r"^units must be "):
        format_units(bad)


def test_typed_numbers_are_exact():
    assert parse_decimal("0.1") == Fraction(1, 10)
    assert parse_decimal("12") == 12
    assert cost_units(parse_decimal("0.1")) == cap_units(parse_decimal("0.1")) == 10**11


@pytest.mark.parametrize(
    "text", ["", ".5", "1.", "-1", "1e-5", "00.1", "1/3", " 1", "1,5", "0." + "1" * 31, "nan"]
)
def test_typed_numbers_are_strict(text):
    with pytest.raises(ParameterError, match=r"^number must be plain digits such as 0.5, got "):
        parse_decimal(text)
    with pytest.raises(TypeError, match="number must be a decimal string"):
        parse_decimal(0.5)
