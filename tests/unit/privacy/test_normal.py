"""Mills ratio and tails against mpmath, and directed rounding against exact rationals."""

import math
import random
from fractions import Fraction

import mpmath
import pytest

from reticent.privacy.normal import ROUNDING, log_error, log_upper_tail, mills_ratio, rough_quantile
from reticent.privacy.rounding import divide_down, divide_up, float_down, float_up, sqrt_up


def exact_mills(x: float) -> mpmath.mpf:
    x = mpmath.mpf(x)
    return mpmath.sqrt(mpmath.pi / 2) * mpmath.erfc(x / mpmath.sqrt(2)) * mpmath.exp(x * x / 2)


def test_mills_ratio_keeps_its_stated_error():
    generator = random.Random(1)
    points = [generator.uniform(0, 4) for _ in range(1500)] + [
        10 ** generator.uniform(-5, 3) for _ in range(1500)
    ]
    with mpmath.workdps(60):
        errors = [abs(mills_ratio(x) / exact_mills(x) - 1) / ROUNDING for x in (0.0, 2.0, 1.9999999, *points)]
    assert max(errors) < 12  # stated: 32


def test_a_fraction_that_is_cut_short_is_caught():
    def short(x: float) -> float:
        r = 0.0
        for k in range(20, 0, -1):
            r = k / (x + r)
        return 1.0 / (x + r)

    with mpmath.workdps(60):
        assert abs(short(2.5) / exact_mills(2.5) - 1) / ROUNDING > 32


def test_log_tail_keeps_its_stated_error():
    generator = random.Random(2)
    with mpmath.workdps(60):
        for z in [generator.uniform(-8, 40) for _ in range(2000)]:
            exact = mpmath.log(mpmath.erfc(mpmath.mpf(z) / mpmath.sqrt(2)) / 2)
            assert abs(log_upper_tail(z) - exact) < log_error(z)


@pytest.mark.parametrize("z", [-6.0, -1.0, 0.0, 0.5, 3.0, 10.0, 37.0])
def test_rough_quantile_is_a_good_start(z):
    assert rough_quantile(log_upper_tail(z)) == pytest.approx(z, abs=6e-4)


def test_rough_quantile_of_certainty_is_a_finite_start():
    assert -40.0 < rough_quantile(-5e-324) < -37.0


def test_rounding_is_directed_and_to_the_last_place():
    generator = random.Random(3)
    for _ in range(2000):
        exact = Fraction(generator.getrandbits(80) + 1, generator.getrandbits(80) + 1)
        up, down, root = float_up(exact), float_down(exact), sqrt_up(exact)
        assert Fraction(down) <= exact <= Fraction(up)
        assert up in (down, math.nextafter(down, math.inf))
        assert Fraction(root) ** 2 >= exact > Fraction(math.nextafter(root, 0.0)) ** 2


def test_rounding_edges():
    assert float_up(Fraction(10) ** 400) == math.inf
    assert float_down(Fraction(10) ** 400) == 1.7976931348623157e308
    assert float_up(Fraction(1, 10**400)) == 5e-324
    assert sqrt_up(Fraction(0)) == 0.0
    assert sqrt_up(Fraction(9)) == 3.0
    assert sqrt_up(Fraction(1, 10**600)) == pytest.approx(1e-300)
    assert sqrt_up(Fraction(10) ** 600) == pytest.approx(1e300)
    assert divide_down(1.0, 3.0) < divide_up(1.0, 3.0)
    assert divide_down(1.0, 4.0) == divide_up(1.0, 4.0) == 0.25
