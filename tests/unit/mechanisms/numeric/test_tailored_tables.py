"""Tables of `Tailored` that a hostile sender made: taken only if what is drawn keeps e^epsilon."""

import json
import math

import numpy as np
import pytest

from reticent.collect import instruments
from reticent.errors import GuaranteeError, ParameterError
from reticent.mechanisms.attributes import Number
from reticent.mechanisms.base import exp_below
from reticent.mechanisms.numeric import Tailored
from reticent.mechanisms.numeric.tailored import PLACES, SLACK
from reticent.randomness import LATTICE, SimulationStream

C = exp_below(1.0)


def steps(knots):
    """Columns of two outputs whose rows' means are evenly apart."""
    weight = math.floor(PLACES / ((knots - 1) * (1 + C))) - 1000
    columns, every = [], (1 << knots) - 1
    for first in range(1, knots):
        up = every >> first << first
        digits = -(-knots // 4)
        columns += [(1, weight, f"{up:0{digits}x}"), (0, weight, f"{every & ~up:0{digits}x}")]
    return columns


def sent(y, columns, epsilon=1.0):
    """What a device makes of a text."""
    text = json.dumps({"kind": "Tailored", "epsilon": epsilon, "y": list(map(float, y)), "columns": columns})
    return instruments.made(Number("x"), json.loads(text))


class ChecksMeans(Tailored):
    """Planted: whether rows increase was looked at before outputs were scaled, and none do as well as all."""

    def check(self):
        means = self._counts / PLACES @ self._y
        assert (np.diff(means) >= (means[-1] - means[0]) / 1000.0).all()

    @property
    def _guide(self):
        return by_begin_of_part(self.knots)


def by_begin_of_part(knots):
    """Planted: the cell of an input by where its part of [-1, 1] begins, as if adding 1 were exact."""
    cells = np.searchsorted(knots, np.arange(1025) / 512 - 1.0, side="right") - 1
    return np.clip(cells, 0, knots.size - 2)


def split():
    """Three outputs at three knots: the middle one has less than a slot at the first, and more elsewhere."""
    shares = [(0, 0.063, "1"), (0, 0.063, "3"), (1, 0.011, "6"), (2, 0.063, "4"), (2, 0.063, "6")]
    columns = [(output, math.floor(PLACES * share), pattern) for output, share, pattern in shares]
    most = max(
        sum(weight * (C if int(pattern, 16) >> knot & 1 else 1) for _, weight, pattern in columns)
        for knot in range(3)
    )
    return [*columns, (0, math.floor(PLACES - most), "0")]


def alike():
    """Outputs that differ in their last digits only, so that the means of all rows are one number."""
    counts = sent([-1.0, 0.1, 1.0], split())._counts
    for size in 10.0 ** np.arange(-20.0, 20.0, 0.1):
        y = np.full(3, size)
        for place in (1, 2):
            y[place] = np.nextafter(y[place - 1], np.inf)
        if np.unique(counts / PLACES @ y).size == 1:
            return y
    raise AssertionError("there is a size for which they are")


def test_outputs_without_digits_between_them_are_refused():
    assert sent([-1.0, 0.1, 1.0], split()).knots[0] == -1.0
    with pytest.raises(GuaranteeError, match="the means of the rows must increase, by"):
        sent(alike(), split())


def test_planted_such_outputs_make_a_report_tell_all():
    """What a device drew that took them: an output that one input never gives, and another often."""
    mechanism = ChecksMeans(epsilon=1.0, y=alike(), columns=split())
    with np.errstate(all="ignore"):
        drawn = [mechanism.sample(np.full(20_000, x), SimulationStream(1)) for x in (-1.0, 1.0)]
    low, high = (np.bincount(symbols, minlength=3) for symbols in drawn)
    assert low[1] == 0
    assert high[1] > 200


@pytest.mark.parametrize("knots", [3, 5, 9])
def test_no_outputs_are_taken_whose_knots_are_none(knots):
    rng, taken = np.random.default_rng(knots), 0
    for _ in range(150):
        y = np.full(2, rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(-90.0, 90.0))
        for _ in range(rng.integers(1, 60)):
            y[1] = np.nextafter(y[1], np.inf)
        try:
            mechanism = sent(y, steps(knots))
        except GuaranteeError:
            continue
        taken += 1
        rows = [mechanism.exact_probabilities(x) for x in (-1.0, -0.4, 0.0, 0.9, 1.0)]
        assert all(max(column) <= C * min(column) for column in zip(*rows, strict=True))
    assert taken


@pytest.mark.parametrize("x", [-2e-17, -5e-17, -5.5e-17, 0.5 - 2**-54, np.nextafter(-0.5, -1.0)])
def test_an_input_just_below_a_knot_is_below_it(x):
    """Adding 1 rounds some inputs up to where a cell begins, which was taken for theirs."""
    mechanism = Tailored(epsilon=1.0, y=[-1.0, 1.0], columns=steps(5))
    assert mechanism.knots == pytest.approx(np.linspace(-1.0, 1.0, 5), abs=1e-10)
    mechanism.__dict__["knots"] = np.linspace(-1.0, 1.0, 5)  # to the last digit, as a sender can have them
    cells, edges = mechanism._mixing(np.array([x]))
    assert mechanism.knots[cells[0]] <= x
    assert 0.0 <= edges[0] <= LATTICE
    exact = mechanism.exact_probabilities(x)
    assert [float(p) for p in exact] == pytest.approx(mechanism.probabilities(x), rel=1e-13)
    mechanism.__dict__["_guide"] = by_begin_of_part(mechanism.knots)
    if -1e-16 < x < 0.0:
        assert mechanism._mixing(np.array([x]))[1][0] < 0.0


@pytest.mark.parametrize(
    "columns",
    [
        [(0, 1, "1"), (1, 1, "2"), (0, 1 << 50, "1"), (1, 1 << 50, "2")],  # beyond 64 bits
        [(0, 1, "1"), (1, 1, "2"), (0, 5, "3"), (1, 1 << 49, "0"), (1, 1, "3")],
        [(0, SLACK, "1"), (1, SLACK, "2")],
    ],
)
@pytest.mark.parametrize("epsilon", [0.5, 5.0, 10.0, 20.0])
def test_weights_of_any_size_are_refused_in_words(epsilon, columns):
    with pytest.raises((GuaranteeError, ParameterError), match="columns must"):
        sent([-1.0, 1.0], columns, epsilon)
