"""Guarantees: validation, composition to the safe side, and no mixing whatever (T5b)."""

import doctest
import itertools
import math
import pickle
import random
import re
import subprocess
import sys
from dataclasses import FrozenInstanceError
from fractions import Fraction
from importlib import import_module

import numpy as np
import pytest

import reticent.privacy
from reticent.errors import MixedGuarantees, ParameterError, ParameterTypeError
from reticent.privacy import (
    ApproximateDP,
    ApproximateMetricDP,
    GaussianDP,
    Guarantee,
    LocalDP,
    MetricDP,
    Neighbours,
    PureDP,
    ZeroConcentratedDP,
    compose,
)

CENTRAL = (Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE_ONE)
UNITS = ("one row", "one person", "one household")


def every_guarantee() -> list[Guarantee]:
    """One guarantee of each kind, unit, neighbours and unit of distance: no two of them may mix."""
    found: list[Guarantee] = []
    for unit in UNITS:
        for relation in CENTRAL:
            about = {"unit": unit, "neighbours": relation}
            found += [PureDP(1.0, **about), ApproximateDP(1.0, 1e-6, **about)]
            found += [GaussianDP(1.0, **about), ZeroConcentratedDP(1.0, **about)]
        found += [LocalDP(1.0, unit=unit), MetricDP(1.0, "km", unit=unit), MetricDP(1.0, "m", unit=unit)]
        found += [ApproximateMetricDP(1.0, 0.01, distance, unit=unit) for distance in ("km", "m")]
    return found


@pytest.fixture(params=every_guarantee(), ids=repr)
def guarantee(request):
    return request.param


def test_any_two_different_guarantees_refuse_to_mix():
    """T5b: 100 % of the ordered pairs, by method and by function, with one clear line."""
    kinds = every_guarantee()
    refused = 0
    for one, other in itertools.permutations(kinds, 2):
        for attempt in (one.compose, lambda second, first=one: compose(first, second)):
            with pytest.raises(MixedGuarantees, match=r"^cannot compose .*: different ") as caught:
                attempt(other)
            assert "\n" not in str(caught.value)
            refused += 1
    assert refused == 2 * len(kinds) * (len(kinds) - 1) == 2 * 39 * 38


def test_a_refused_mixture_names_both_sides():
    cases = [
        (LocalDP(1.0), "PureDP with LocalDP: different kinds of guarantee"),
        (
            PureDP(1.0, unit="one person"),
            "guarantees for 'one row' and 'one person': different units of prot",
        ),
        (
            PureDP(1.0, neighbours=Neighbours.ADD_REMOVE_ONE),
            "guarantees between REPLACE_ONE and ADD_REMOVE_ONE: different neighbours",
        ),
    ]
    for other, words in cases:
        with pytest.raises(MixedGuarantees, match=f"^cannot compose {words}"):
            PureDP(1.0).compose(other)
    with pytest.raises(
        MixedGuarantees, match=r"^cannot compose epsilon per km with epsilon per m: different units"
    ):
        MetricDP(1.0, "km").compose(MetricDP(1.0, "m"))


def test_one_odd_guarantee_among_many_is_found():
    with pytest.raises(MixedGuarantees, match="different units of protection"):
        compose(*[PureDP(0.1)] * 5, PureDP(0.1, unit="one person"))


def test_the_same_guarantee_composes(guarantee):
    twice = guarantee.compose(guarantee)
    assert twice == guarantee.repeat(2) == compose(guarantee, guarantee)
    assert type(twice) is type(guarantee)
    assert (twice.unit, twice.neighbours) == (guarantee.unit, guarantee.neighbours)
    assert compose(guarantee) == guarantee.repeat(1) == guarantee


def test_values_are_frozen_hashable_and_picklable(guarantee):
    assert pickle.loads(pickle.dumps(guarantee)) == guarantee
    assert len({guarantee, pickle.loads(pickle.dumps(guarantee))}) == 1
    with pytest.raises(FrozenInstanceError):
        guarantee.unit = "nobody"


def test_describe_says_what_between_whom_and_against_whom(guarantee):
    text = guarantee.describe()
    assert f"Protects {guarantee.unit}." in text
    assert "The adversary sees everything released and knows everything but" in text
    assert {
        Neighbours.REPLACE_ONE: "differ in the content of",
        Neighbours.ADD_REMOVE_ONE: "one with and one without",
        Neighbours.ANY_TWO_VALUES: "any two values",
        Neighbours.METRIC: "any two points",
    }[guarantee.neighbours] in text


def test_describe_rounds_up():
    assert "more than 2.72 times" in PureDP(1.0).describe()
    assert "plus 1e-05." in ApproximateDP(1.0, 1e-5).describe()
    assert "1 times as probable" in ApproximateDP(0.0, 1e-5).describe()
    assert "more than e^20 times" in LocalDP(20.0).describe()
    assert "right at most 59.9 %" in GaussianDP(0.5).describe()
    assert "e^(1.2 d) times" in MetricDP(1.2, "km").describe()
    assert "more than e^12 times" in PureDP(12.0).describe()
    assert "more than 163000 times" in PureDP(math.nextafter(12.0, 0.0)).describe()
    assert "right at most 100 %" in GaussianDP(40.0).describe()


def test_what_is_described_is_never_below_the_promise():
    """Each figure is the strength itself, rounded up to three digits."""
    generator = random.Random(3)
    for _ in range(300):
        strength = 10 ** generator.uniform(-5, 1)
        figures = {
            PureDP(strength): (r"more than (\S+) times", math.exp(strength)),
            ApproximateDP(0.0, strength / 20): (r"plus (\S+)\.$", strength / 20),
            ZeroConcentratedDP(strength): (r"a times (\S+) ", strength),
            MetricDP(strength, "km"): (r"e\^\((\S+) d\)", strength),
            GaussianDP(strength): (r"at most (\S+) %", 50 + 50 * math.erf(strength / math.sqrt(8))),
        }
        for guarantee, (pattern, exact) in figures.items():
            shown = float(re.search(pattern, guarantee.describe())[1])
            assert exact <= shown <= exact * 1.0101


def test_a_described_factor_of_exactly_three_digits_still_rounds_up():
    """Where the float of the factor may be just below the truth, the next figure is said."""
    epsilon = math.log(2.5)
    assert math.exp(epsilon) == 2.5
    assert "more than 2.51 times" in PureDP(epsilon).describe()


def test_slack_is_added_to_every_distance():
    """A mechanism that first moves points to a grid protects them less: MetricDP's `slack`."""
    coarse = MetricDP(0.5, "km", slack=0.25)
    assert coarse.describe().endswith("far ones not. To every d add 0.25 for a grid.")
    assert MetricDP(0.5, "km").describe().endswith("far ones not.")
    assert coarse.within(1.75) == LocalDP(1.0)
    assert MetricDP(0.5, "km").within(0.5) == LocalDP(0.25)
    assert coarse.compose(MetricDP(1.0, "km", slack=0.5)) == MetricDP(1.5, "km", slack=0.5)
    assert MetricDP(1.0, "km").compose(coarse) == MetricDP(1.5, "km", slack=0.25)
    assert coarse.repeat(3) == MetricDP(1.5, "km", slack=0.25)


def test_composition_figures():
    assert PureDP(1.0).compose(PureDP(2.0), PureDP(0.5)).epsilon == 3.5
    assert LocalDP(1.0).compose(LocalDP(2.0)).epsilon == 3.0
    assert GaussianDP(3.0).compose(GaussianDP(4.0)).mu == 5.0
    assert GaussianDP(0.5).repeat(16).mu == 2.0
    assert ZeroConcentratedDP(0.25).repeat(3).rho == 0.75
    assert MetricDP(1.0, "km").compose(MetricDP(0.5, "km")) == MetricDP(1.5, "km")
    assert ApproximateDP(1.0, 0.25).compose(ApproximateDP(0.5, 0.5)) == ApproximateDP(1.5, 0.75)


def unsafe_sums(add, terms) -> int:
    return sum(Fraction(add(a, b)) < Fraction(a) + Fraction(b) for a, b in itertools.pairwise(terms))


def test_composition_never_rounds_down():
    generator = random.Random(1)
    terms = [10 ** generator.uniform(-6, 1) for _ in range(1000)]
    assert unsafe_sums(lambda a, b: PureDP(a).compose(PureDP(b)).epsilon, terms) == 0
    assert unsafe_sums(lambda a, b: a + b, terms) > 300  # planted bug: round to nearest


def test_gaussian_composition_never_rounds_down():
    def unsafe(combine) -> int:
        pairs = itertools.pairwise(terms)
        return sum(Fraction(combine(a, b)) ** 2 < Fraction(a) ** 2 + Fraction(b) ** 2 for a, b in pairs)

    generator = random.Random(2)
    terms = [10 ** generator.uniform(-4, 1) for _ in range(1000)]
    assert unsafe(lambda a, b: GaussianDP(a).compose(GaussianDP(b)).mu) == 0
    assert unsafe(math.hypot) > 300  # planted bug: round to nearest


def test_approximate_composition_past_one_is_refused():
    with pytest.raises(ParameterError, match="delta must be > 0 and < 1"):
        ApproximateDP(1.0, 0.5).compose(ApproximateDP(1.0, 0.5))


def test_metric_becomes_local_with_a_declared_diameter():
    local = MetricDP(0.1, "km", unit="one trip").within(3.0)
    assert isinstance(local, LocalDP)
    assert local.unit == "one trip"
    assert Fraction(local.epsilon) >= Fraction(0.1) * 3
    assert local.epsilon == pytest.approx(0.3)


BAD = [0, -1, math.nan, math.inf, 1e309, True, "1", None]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda x: PureDP(epsilon=x), "epsilon"),
        (lambda x: ApproximateDP(epsilon=1.0, delta=x), "delta"),
        (lambda x: GaussianDP(mu=x), "mu"),
        (lambda x: ZeroConcentratedDP(rho=x), "rho"),
        (lambda x: LocalDP(epsilon=x), "epsilon"),
        (lambda x: MetricDP(epsilon_per_unit=x, distance_unit="km"), "epsilon_per_unit"),
        (lambda x: MetricDP(1.0, "km").within(x), "diameter"),
    ],
)
def test_bad_strengths_are_named(build, name, bad):
    with pytest.raises((ValueError, TypeError), match=rf"^{name} must be .*, got ") as caught:
        build(bad)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bad", BAD[1:])
def test_bad_approximate_epsilon(bad):
    with pytest.raises((ValueError, TypeError), match=r"^epsilon must be .*, got "):
        ApproximateDP(bad, 1e-5)


@pytest.mark.parametrize("bad", [1.0, 2.0])
def test_delta_of_one_promises_nothing(bad):
    with pytest.raises(ParameterError, match="delta must be > 0 and < 1, got"):
        ApproximateDP(1.0, bad)


@pytest.mark.parametrize("bad", ["", " one row", "one\nrow", "x" * 61, "\x00"])
def test_units_are_short_printable_words(bad):
    for build in (lambda: PureDP(1.0, unit=bad), lambda: MetricDP(1.0, bad)):
        with pytest.raises(ParameterError, match=r"unit must be 1 to 60 printable characters"):
            build()
    with pytest.raises(ParameterTypeError, match="unit must be text, got 7"):
        PureDP(1.0, unit=7)


@pytest.mark.parametrize("kind", [PureDP, GaussianDP, ZeroConcentratedDP])
def test_central_kinds_have_central_neighbours(kind):
    for relation in (Neighbours.ANY_TWO_VALUES, Neighbours.METRIC):
        with pytest.raises(
            ParameterError, match=f"neighbours of {kind.__name__} must be ADD_REMOVE_ONE or REPLACE"
        ):
            kind(1.0, neighbours=relation)
    with pytest.raises(ParameterTypeError, match="neighbours must be one of Neighbours, got 'replace one'"):
        kind(1.0, neighbours="replace one")


def test_local_and_metric_neighbours_are_fixed():
    with pytest.raises(ParameterError, match="neighbours of LocalDP must be ANY_TWO_VALUES"):
        LocalDP(1.0, neighbours=Neighbours.REPLACE_ONE)
    with pytest.raises(ParameterError, match="neighbours of MetricDP must be METRIC"):
        MetricDP(1.0, "km", neighbours=Neighbours.REPLACE_ONE)


def test_only_guarantees_compose():
    with pytest.raises(ParameterTypeError, match=r"only guarantees compose, got 1\.0"):
        PureDP(1.0).compose(1.0)
    with pytest.raises(ParameterTypeError, match="only guarantees compose, got 'x'"):
        compose("x")
    with pytest.raises(ParameterError, match=r"^compose needs at least one guarantee, got none$"):
        compose()


@pytest.mark.parametrize("bad", [0, -1, 1.5, True])
def test_repeat_needs_a_count(bad):
    with pytest.raises((ValueError, TypeError), match=r"^count must be "):
        PureDP(1.0).repeat(bad)


def test_all_is_sorted_and_true():
    names = reticent.privacy.__all__
    assert set(names) == {n for n in names if hasattr(reticent.privacy, n)}
    constants, classes = (
        [n for n in names if n.isupper()],
        [n for n in names if n[0].isupper() and not n.isupper()],
    )
    functions = [n for n in names if n.islower()]
    assert names == sorted(constants) + sorted(classes) + sorted(functions)


def test_the_package_is_light():
    code = (
        "import sys, reticent.privacy; "
        "print([m for m in ('scipy', 'dp_accounting', 'pandas', 'mpmath', 'statistics') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("module", ["budget", "composition", "conversions", "gaussian_curve", "guarantees"])
def test_docstring_snippets_run(module):
    failed, _ = doctest.testmod(import_module(f"reticent.privacy.{module}"))
    assert failed == 0


def sets_of_two(rng, size):
    """Two mechanisms, the second chosen by what the first says, at two points: tables P(y|x), P(z|x, y)."""
    first = rng.dirichlet(np.full(size, 0.5), 2)
    return first, rng.dirichlet(np.full(size, 0.5), (2, size))


def delta_of_sets(one, other, epsilon, distance):
    return float(np.maximum(0.0, math.exp(-epsilon * distance) * one - other).sum())


def test_approximate_metric_guarantees_compose_over_all_sets():
    """Both parameters add up, whatever the second report is chosen by; less than their sum would not do."""
    rng, tightest = np.random.default_rng(5), 0.0
    for _ in range(300):
        first, second = sets_of_two(rng, 3)
        levels, distance = rng.uniform(0.1, 2.0, 2), rng.uniform(0.1, 2.0)
        deltas = [
            max(delta_of_sets(first[a], first[1 - a], levels[0], distance) for a in (0, 1)),
            max(
                delta_of_sets(second[a][y], second[1 - a][y], levels[1], distance)
                for a in (0, 1)
                for y in range(3)
            ),
        ]
        parts = [ApproximateMetricDP(e, max(d, 1e-12), "km") for e, d in zip(levels, deltas, strict=True)]
        whole = compose(*parts)
        joint = first[:, :, None] * second
        found = max(delta_of_sets(joint[a], joint[1 - a], whole.epsilon_per_unit, distance) for a in (0, 1))
        assert found <= whole.delta * (1.0 + 1e-12)
        tightest = max(tightest, found / sum(deltas) if sum(deltas) > 1e-6 else 0.0)
    assert tightest > 0.5  # a rule that halved the sum would be caught


def test_the_reach_of_an_approximate_metric_guarantee():
    found = ApproximateMetricDP(5.0, 0.0817, "km", slack=0.1)
    assert found.reach == pytest.approx(0.501, abs=1e-3)
    assert "from 0.501 km on that says nothing. To every d add 0.1" in found.describe()
    assert found.repeat(20).delta == 1.0
    assert found.repeat(20).reach == 0.0
    assert found.compose(ApproximateMetricDP(1.0, 0.01, "km")).slack == 0.1
