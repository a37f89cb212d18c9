import math
from fractions import Fraction

import numpy as np
import pytest

from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError
from reticent.mechanisms.base import Channel, exp_below
from reticent.mechanisms.categorical import KRR
from reticent.mechanisms.categorical.kernels import response_run
from reticent.mechanisms.categorical.krr import PLACES, Response
from reticent.randomness import SimulationStream

EPSILONS = [*np.linspace(0.01, 10.0, 200), 0.001, 20.0]


class TellsTooMuch(KRR):
    """Planted bug: the keep probability is 1 % too high."""

    def _prepare(self):
        right = Response.made(self.epsilon, self.categories.size)
        other = (PLACES - round(right.keep * 1.01)) // (self.categories.size - 1)
        self._response = Response(self.categories.size, other)

    def check(self):
        pass


@pytest.mark.parametrize("size", [2, 3, 10, 1000])
def test_exact_law_sums_to_one_and_keeps_the_ratio(size):
    for epsilon in EPSILONS:
        krr = KRR(epsilon=float(epsilon), categories=size)
        row = krr.exact_probabilities(1)
        assert sum(row) == 1
        assert row[1] == krr.p
        assert set(row) == {krr.p, krr.q}
        assert krr.p / krr.q <= exp_below(float(epsilon))
        # No more is given away than needed: one place more for the true symbol's rivals is all it takes.
        assert krr.p / krr.q > exp_below(float(epsilon)) * (1 - Fraction(size * 40, 10**6))


def test_a_wrong_law_fails_the_check():
    broken = TellsTooMuch(epsilon=1.0, categories=10)
    with pytest.raises(GuaranteeError, match=r"KRR: weights \d+ and \d+ differ by more than e\^1"):
        KRR.check(broken)
    broken._response = Response(2, PLACES)
    with pytest.raises(GuaranteeError, match="a possible report has no place"):
        KRR.check(broken)
    broken._response = Response(3, PLACES * 2 // 5)
    with pytest.raises(GuaranteeError, match="must support the true category more often"):
        KRR.check(broken)


@pytest.mark.parametrize("size", [2, 3, 10, 257])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_sampler_fits_the_exact_law(fits, size, epsilon):
    krr = KRR(epsilon=epsilon, categories=size)
    for value in (0, size // 2, size - 1):
        counts = np.bincount(krr.sample(np.full(150_000, value), SimulationStream(value)), minlength=size)
        assert fits(counts, [float(share) for share in krr.exact_probabilities(value)])


def test_the_same_check_rejects_one_percent_too_much(fits):
    right, broken = KRR(epsilon=2.0, categories=3), TellsTooMuch(epsilon=2.0, categories=3)
    law = [float(share) for share in right.exact_probabilities(1)]
    assert fits(np.bincount(right.sample(np.ones(400_000, dtype=int), SimulationStream(4))), law)
    assert not fits(np.bincount(broken.sample(np.ones(400_000, dtype=int), SimulationStream(4))), law)


def test_places_map_to_symbols_exactly():
    """The first and last place of every symbol, for both engines, against integer division."""
    pytest.importorskip("numba")
    krr = KRR(epsilon=1.0, categories=1000)
    other, end = krr._response.other, krr._response.other * 999
    places = np.array(
        [j * other + edge for j in range(1, 1000) for edge in (-1, 0, 1)] + [0, end - 1, PLACES - 1]
    )
    units = 1.0 + places / float(PLACES)
    x = np.full(places.size, 400)
    skipped = places // other
    expected = np.where(places < end, skipped + (skipped >= 400), 400)
    for engine in ("numpy", "numba"):
        out = np.empty(places.size, dtype=np.int64)
        response_run(engine)(x, units, out, *krr._response.law())
        assert np.array_equal(out, expected)


def test_both_engines_draw_the_same_symbols(monkeypatch):
    krr = KRR(epsilon=1.0, categories=100)
    values = np.arange(300_000) % 103 - 1
    compiled = krr.sample(values, SimulationStream(2))
    monkeypatch.setattr(
        "reticent.mechanisms.categorical.krr.response_run_for", lambda count: response_run("numpy")
    )
    assert np.array_equal(krr.sample(values, SimulationStream(2)), compiled)


def test_is_a_channel():
    krr = KRR(epsilon=1.0, categories=["a", "b", "c"])
    assert isinstance(krr, Channel)
    assert (krr.size, krr.bits) == (3, 2)
    assert krr.alphabet.tolist() == ["a", "b", "c"]
    symbols = krr.sample(["a", "b", "nobody"], SimulationStream(1))
    assert np.array_equal(krr.perturb(["a", "b", "nobody"], SimulationStream(1)), krr.alphabet[symbols])
    rows = krr.probabilities([["b"], ["nobody"]])
    assert rows.shape == (2, 1, 3)
    assert rows[0, 0].tolist() == [float(share) for share in krr.exact_probabilities("b")]
    assert krr.exact_probabilities("nobody") == krr.exact_probabilities("a")


def test_warner():
    """For two categories: the truth with probability e^eps/(1 + e^eps) (Warner 1965)."""
    assert float(KRR(epsilon=1.0, categories=2).p) == pytest.approx(math.e / (1 + math.e), rel=1e-14)


def test_too_many_categories_for_a_tiny_epsilon():
    with pytest.raises(ParameterError, match=r"categories must be fewer at epsilon 0\.0001, got 1048576"):
        KRR(epsilon=0.0001, categories=2**20)


def test_reports_are_checked():
    krr = KRR(epsilon=1.0, categories=3)
    with pytest.raises(ParameterError, match="reports must be >= 0 and < 3"):
        krr.support_counts([3])
    with pytest.raises(ParameterTypeError, match="reports must be symbol indices, got dtype float64"):
        krr.support_counts([0.5])
    with pytest.raises(ParameterError, match="symbols must be >= 0 and < 3"):
        krr.pack([-1])


@pytest.mark.slow
def test_sampler_fits_with_ten_million_draws(fits):
    krr = KRR(epsilon=1.0, categories=50)
    counts = np.bincount(krr.sample(np.full(10_000_000, 7), SimulationStream(1)), minlength=50)
    assert fits(counts, [float(share) for share in krr.exact_probabilities(7)])
