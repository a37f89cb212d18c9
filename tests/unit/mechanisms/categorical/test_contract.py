"""What every frequency oracle keeps, run on all of them; a new one joins by one line."""

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.mechanisms.base import exp_below
from reticent.mechanisms.categorical import KRR, OLH, OUE, Subset
from reticent.mechanisms.categorical.subset import ideal_variance
from reticent.privacy import LocalDP
from reticent.randomness import SimulationStream

ORACLES = [KRR, OUE, OLH, Subset]
EPSILONS = [*np.linspace(0.01, 10.0, 200), 0.001, 20.0, math.log(2), math.log(3)]


def report(oracle, values, rng):
    return oracle.sample(values, rng) if isinstance(oracle, KRR) else oracle.perturb(values, rng)


@pytest.fixture(params=ORACLES)
def kind(request):
    return request.param


@pytest.mark.parametrize("size", [2, 3, 10, 1000])
def test_constructs_checks_and_loses_little(kind, size):
    for epsilon in EPSILONS:
        oracle = kind(epsilon=float(epsilon), categories=size)
        oracle.check()
        assert oracle.p > oracle.q > 0
        c = math.exp(epsilon)
        ideal = (size - 2 + c if kind is KRR else 4 * c) / math.expm1(epsilon) ** 2
        if kind is Subset:
            ideal = ideal_variance(epsilon, oracle.modulus, oracle.subset_size)
        # Rounding of counts costs 1e-5 at most; OLH also rounds its number of buckets to a whole number.
        assert 1 - 1e-9 <= float(oracle.frequency_variance(0.0)) / ideal < (1.05 if kind is OLH else 1 + 1e-5)


def test_guarantee_and_name(kind):
    oracle = kind(epsilon=1.5, categories=7)
    assert oracle.guarantee == LocalDP(1.5)
    assert oracle.name == kind.__name__
    assert repr(oracle) == f"{kind.__name__}(epsilon=1.5, categories=7)"


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_supports_have_probabilities_p_and_q(kind, epsilon):
    n, k = 200_000, 6
    oracle = kind(epsilon=epsilon, categories=k)
    counts = oracle.support_counts(report(oracle, np.full(n, 2), SimulationStream(11)))
    for category, count in enumerate(counts):
        share = float(oracle.p if category == 2 else oracle.q)
        # Five standard errors: 36 comparisons at 6e-7 each.
        assert abs(count / n - share) < 5 * math.sqrt(share * (1 - share) / n)


def test_estimates_are_unbiased_with_the_stated_variance(kind):
    n, k = 300_000, 20
    shares = np.arange(1, k + 1) / (k * (k + 1) / 2)
    values = np.repeat(np.arange(k), np.round(shares * n).astype(int))
    true = np.bincount(values, minlength=k) / values.size
    oracle = kind(epsilon=1.0, categories=k)
    z = []
    for seed in range(4):
        counts = oracle.support_counts(report(oracle, values, SimulationStream(seed)))
        estimate = oracle.frequencies(counts, values.size)
        z.append((estimate - true) / np.sqrt(oracle.frequency_variance(true, values.size)))
    assert np.abs(z).max() < 5.0  # false alarm 5e-5 in all, and the seeds are fixed
    assert 0.7 < np.std(z) < 1.3


def test_frequency_variance_is_the_binomial_one(kind):
    oracle = kind(epsilon=1.0, categories=9)
    p, q = oracle.p, oracle.q
    for f in (Fraction(0), Fraction(1, 4), Fraction(1)):
        exact = (f * p * (1 - p) + (1 - f) * q * (1 - q)) / (p - q) ** 2 / 50
        assert float(oracle.frequency_variance(float(f), 50)) == pytest.approx(float(exact), rel=1e-12)
    assert oracle.frequency_variance([0.0, 0.5]).shape == (2,)
    with pytest.raises(ParameterError, match="f must be >= 0 and <= 1"):
        oracle.frequency_variance(1.5)
    with pytest.raises(ParameterError, match="n must be >= 1, got 0"):
        oracle.frequencies([1] * 9, 0)


def test_unknown_values_are_reported_like_the_fallback(kind):
    oracle = kind(epsilon=1.0, categories=["a", "b", "c"], fallback="c")
    known = report(oracle, ["c", "a", "c", "c"], SimulationStream(5))
    unknown = report(oracle, ["zz", "a", None, 3.5], SimulationStream(5))
    assert np.array_equal(known, unknown)


def test_shapes(kind):
    oracle = kind(epsilon=1.0, categories=4)
    extra = (4,) if kind is OUE else ()
    assert np.shape(report(oracle, 3, SimulationStream(1))) == extra
    assert report(oracle, [[0, 1, 2]], SimulationStream(1)).shape == (1, 3, *extra)
    flat = report(oracle, [0, 1, 2], SimulationStream(1))
    assert np.array_equal(report(oracle, [[0], [1], [2]], SimulationStream(1)).reshape(flat.shape), flat)
    assert oracle.support_counts(report(oracle, [[0, 1, 2]], None)).shape == (4,)


@pytest.mark.parametrize("values", [[], np.empty((0, 3)), np.empty(0, dtype=object)])
def test_empty_arrays_are_refused(kind, values):
    with pytest.raises(ParameterError, match=r"values must hold at least one value, got shape \(0"):
        kind(epsilon=1.0, categories=4).perturb(values)


@pytest.mark.parametrize(
    ("epsilon", "error", "message"),
    [
        (0, ParameterError, "epsilon must be > 0, got 0"),
        (-1.0, ParameterError, "epsilon must be > 0, got -1.0"),
        (float("nan"), ParameterError, "epsilon must be finite, got nan"),
        (float("inf"), ParameterError, "epsilon must be finite, got inf"),
        (1e-9, ParameterError, "epsilon must be >= 0.0001 and <= 20, got 1e-09"),
        (True, ParameterTypeError, "epsilon must be a number, got True"),
        ("1", ParameterTypeError, "epsilon must be a number, got '1'"),
    ],
)
def test_bad_epsilon(kind, epsilon, error, message):
    with pytest.raises(error, match=message):
        kind(epsilon=epsilon, categories=4)


def test_bad_rng(kind):
    with pytest.raises(ParameterTypeError, match="rng must be None"):
        kind(epsilon=1.0, categories=4).perturb([1], np.random.default_rng(1))


@pytest.mark.parametrize("count", [1, 2, 7, 64, 1001])
@pytest.mark.parametrize("size", [2, 5, 8, 300])
def test_pack_round_trip(kind, count, size):
    oracle = kind(epsilon=1.0, categories=size)
    reports = report(oracle, np.arange(count) % size, SimulationStream(count))
    data = oracle.pack(reports)
    assert len(data) == -(-count * oracle.bits // 8)
    assert np.array_equal(oracle.unpack(data, count), reports)
    assert np.array_equal(oracle.unpack(bytearray(data), count), reports)
    assert len(oracle.unpack(b"", 0)) == 0


@pytest.mark.parametrize("size", [5, 300])
def test_what_pack_cannot_have_made_is_refused(kind, size):
    oracle = kind(epsilon=0.5, categories=size)
    data = oracle.pack(report(oracle, [1, 2, 3], SimulationStream(3)))
    expected = rf"data must be {len(data)} bytes|data must be \d+ bytes"
    for wrong in (data[:-1], data + b"\0", b""):
        with pytest.raises(ParameterError, match=expected):
            oracle.unpack(wrong, 3)
    with pytest.raises(ParameterTypeError, match="data must be bytes, got str"):
        oracle.unpack("abc", 3)
    with pytest.raises(ParameterError, match="count must be >= 0"):
        oracle.unpack(data, -1)
    if 3 * oracle.bits % 8:
        with pytest.raises(ParameterError, match="data must end in zero padding"):
            oracle.unpack(data[:-1] + bytes([data[-1] | 1]), 3)


def test_every_short_byte_string_is_refused_or_packs_back(kind):
    oracle = kind(epsilon=1.5, categories=5)
    head = bytes(8) if kind is OLH else b""
    kept = 0
    for byte in range(256):
        data = head + bytes([byte])
        try:
            reports = oracle.unpack(data, 1)
        except ParameterError:
            continue
        kept += 1
        assert oracle.pack(reports) == data
    assert kept == {KRR: 5, OUE: 32, OLH: 5, Subset: 5}[kind]


def test_large_calls_do_not_depend_on_the_size_of_blocks(kind):
    """A report depends on its own random words alone (up to the rare ties of OUE, drawn last)."""
    oracle = kind(epsilon=2.0, categories=9)
    values = np.arange(50_000) % 9
    whole = report(oracle, values, SimulationStream(8))
    if kind is KRR:
        stream = SimulationStream(8)
        parts = [report(oracle, part, stream) for part in np.split(values, [1, 17, 40_000])]
        assert np.array_equal(np.concatenate(parts), whole)
    again = report(oracle, values, SimulationStream(8))
    assert np.array_equal(whole, again)


def test_extra_memory_is_bounded(kind):
    """What a call needs beyond its input and output does not grow with the number of values."""
    oracle = kind(epsilon=1.0, categories=4)
    extra = []
    for count in (600_000, 1_200_000):
        values = np.zeros(count, dtype=np.int64)
        report(oracle, values, None)  # compiled before it is measured
        tracemalloc.start()
        reports = report(oracle, values, None)
        extra.append(tracemalloc.get_traced_memory()[1] - reports.nbytes)
        tracemalloc.stop()
    assert extra[1] - extra[0] < 200_000  # the rare ties of OUE take 8 bytes each
    assert max(extra) < 16_000_000


def test_secure_by_default(kind):
    oracle = kind(epsilon=1.0, categories=50)
    first, second = (report(oracle, np.zeros(200, dtype=int), None) for _ in range(2))
    assert not np.array_equal(first, second)


def test_exact_bound_is_below_e_to_the_epsilon():
    assert exp_below(1.0) < Fraction(math.nextafter(math.e, 3.0))
