"""Gradient clones against root finding, and against the networks that they must not tell apart."""

import json
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest

from reticent.audit.leakage import Layers, clone, clones_of_the_other_label
from reticent.audit.leakage.clones import lower_root, partner, upper_root
from reticent.errors import ParameterError

# (gamma, delta) -> K; worked out once with 40 digits.
GOLDEN = [
    (0.5, 0.0, 5.017614542844),
    (1.2, 0.3, 1.258066036267),
    (2.0, 0.0, 0.368093952929),
    (3.0, 1.0, 0.198826135238),
    (0.3, -1.0, 9.075798593445),
    (5.0, 2.0, 0.055914616847),
    (1.278464542761074, 0.0, None),
    (-1.0, 0.0, None),
    (0.0, 0.5, None),
]


@pytest.mark.parametrize(("gamma", "delta", "k"), GOLDEN)
def test_golden(gamma, delta, k):
    found = clone(gamma, delta)
    assert found is None if k is None else found == pytest.approx(k, rel=1e-11)


def test_golden_are_those_of_the_maintainers():
    path = Path(__file__).parents[4].parent / "shared" / "golden.json"
    if not path.is_file():
        pytest.skip("the maintainers' golden values are not beside the repository")
    found = {(one["gamma"], one["Delta"], one["K"]) for one in json.loads(path.read_text())["ch6_clones"]}
    assert found == set(GOLDEN)


def by_bisection(gamma, delta):
    """The clone by bisecting ln(e^(K gamma) + e^delta) - ln K = ln(e^gamma + e^delta), away from K = 1."""
    if gamma <= 0.0:
        return None
    g, d = mpmath.mpf(gamma), mpmath.mpf(delta)

    def above(k):
        return mpmath.log(mpmath.exp(k * g) + mpmath.exp(d)) - mpmath.log(k) - total > 0

    total = mpmath.log(mpmath.exp(g) + mpmath.exp(d))
    least = mpmath.mpf(10) ** -16
    larger = g / (1 + mpmath.exp(d - g)) < 1
    low, high = (1 + least, mpmath.mpf(2)) if larger else (mpmath.mpf(10) ** -60, 1 - least)
    if above(low) == larger:  # no sign change: K = 1 is a double root
        return None
    while larger and not above(high):
        high *= 2
    while high / low > 1 + mpmath.mpf(10) ** -14:
        middle = (low + high) / 2 if high / low < 4 else mpmath.sqrt(low * high)
        low, high = (middle, high) if above(middle) != larger else (low, middle)
    return low


def judged(count, seed):
    """How many verdicts of `clone` are wrong, and its largest error in K, over drawn instances."""
    generator = np.random.default_rng(seed)
    wrong, worst = 0, 0.0
    with mpmath.workdps(40):
        for place in range(count):
            gamma, delta = 10.0 ** generator.uniform(-4.0, 2.0), generator.uniform(-20.0, 20.0)
            if place % 10 == 0:
                gamma = -gamma
            elif place % 7 == 0:  # near the tie, where clones are born
                tie = float(1 + mpmath.lambertw(mpmath.exp(delta - 1)).real)
                gamma = tie * (1.0 + 10.0 ** generator.uniform(-11.0, -1.0) * generator.choice([-1.0, 1.0]))
            found, right = clone(gamma, delta), by_bisection(gamma, delta)
            if found is None or right is None:
                wrong += (found is None) != (right is None)
                continue
            wrong += (found > 1.0) != (right > 1)
            worst = max(worst, float(abs(found - right) / right))
    return wrong, worst


def test_no_verdict_is_wrong():
    wrong, worst = judged(150, 0)
    assert wrong == 0
    assert worst <= 1e-10


@pytest.mark.slow
def test_no_verdict_is_wrong_in_ten_thousand():
    wrong, worst = judged(10_000, 1)
    print(f"clones: {wrong} wrong verdicts of 10000, K to {worst:.2g}")
    assert wrong == 0
    assert worst <= 1e-10


def test_planted_the_printed_condition_is_wrong():
    """Theorem 6.6 (b) as printed is the condition for no real solution: no golden clone passes it."""
    for gamma, delta, k in GOLDEN:
        if k is not None:
            total = math.exp(gamma) + math.exp(delta)
            printed = total / math.e < gamma * math.exp(gamma * math.exp(delta) / total)
            assert not printed


def two_labels(gamma, delta):
    """A layer of two classes for which the record (1,) has this gamma and delta."""
    return Layers((np.array([[gamma], [0.0]]),), (np.array([0.0, delta]),))


def seen(layers, factor, label):
    return layers.update(np.array([[factor]]), np.array([label]), biases=False).weights[0]


def test_clones_have_the_same_update_and_neighbours_have_not():
    generator = np.random.default_rng(2)
    found = 0
    for _ in range(300):
        gamma, delta = 10.0 ** generator.uniform(-1.0, 0.7), generator.uniform(-3.0, 3.0)
        layers = two_labels(gamma, delta)
        k = clone(gamma, delta)
        if k is not None:
            assert seen(layers, k, 0.0) == pytest.approx(seen(layers, 1.0, 0.0), rel=1e-9)
            if abs(k - 1.0) > 0.1:
                assert abs(seen(layers, 1.01 * k, 0.0) / seen(layers, 1.0, 0.0) - 1.0).max() > 1e-5
        others = clones_of_the_other_label(gamma, delta)
        assert len(others) in (0, 1, 2)
        for factor in others:
            assert factor < 0.0
            assert seen(layers, factor, 1.0) == pytest.approx(seen(layers, 1.0, 0.0), rel=1e-9)
            found += 1
    assert found > 100


def test_three_clones_in_all_can_be():
    """Corollary 6.7 counts two: here are three beside the record."""
    assert clone(2.0, -5.0) is not None
    assert len(clones_of_the_other_label(2.0, -5.0)) == 2


def test_roots_are_those_of_lambert():
    for eta in (1.0, 1.0 + 1e-12, 1.001, 1.5, 2.0, 10.0, 700.0):
        with mpmath.workdps(60):
            z = -mpmath.exp(-mpmath.mpf(eta))
            low, high = -mpmath.lambertw(z, 0).real, -mpmath.lambertw(z, -1).real
        assert lower_root(eta) == pytest.approx(float(low), rel=1e-9)
        assert upper_root(eta) == pytest.approx(float(high), rel=1e-9)
    for c in (1e-9, 0.3, 0.9999, 1.0001, 3.0, 60.0):
        w = partner(c)
        assert w - math.log(w) == pytest.approx(c - math.log(c), rel=1e-12)
        assert (w > 1.0) == (c < 1.0)


def test_arguments_are_checked():
    with pytest.raises(ParameterError, match="gamma must be finite"):
        clone(math.nan, 0.0)
