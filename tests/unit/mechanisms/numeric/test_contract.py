"""The contract of the numeric family, run on every member: exact law, epsilon, no bias, variance, packing."""

import math
from fractions import Fraction

import numpy as np
import pytest

from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError
from reticent.mechanisms import catalogue
from reticent.mechanisms.base import exp_below, require_ratio
from reticent.mechanisms.numeric import (
    HM,
    HMTP,
    PM,
    Duchi,
    Laplace,
    OneBit,
    Optimal,
    PMOpt,
    PMSub,
    Tailored,
    ThreeOutputs,
    Window,
    best,
    formulas,
    hybrid,
    kernels,
)
from reticent.randomness import SimulationStream


def tailored(**given):
    """At few knots: solved in a moment."""
    return Tailored(inputs=9, **given)


LISTED = map(catalogue.loaded, catalogue.travelling(catalogue.NUMERIC))
FAMILY = [*(tailored if one is Tailored else one for one in LISTED), Optimal]
DOCUMENTS = [Duchi, PM, HM, ThreeOutputs, PMOpt, PMSub, HMTP]
BRANCHES = [formulas.LN2, formulas.EPSILON_HM, formulas.EPSILON_THREE, formulas.EPSILON_HMTP]
EDGES = [1e-4, 0.001, 20.0, *BRANCHES, math.nextafter(formulas.LN2, 1), formulas.EPSILON_ONEBIT_OPTIMAL]
FULL = np.geomspace(0.01, 10.0, 200)
FEW = [*FULL[::14], *EDGES]
INPUTS = np.array([-1.0, -0.73, -1e-9, 0.0, 0.25, 0.999999, 1.0])


def name_of(factory):
    return factory.__name__


family = pytest.mark.parametrize("factory", FAMILY, ids=name_of)
few = pytest.mark.parametrize("epsilons", [FEW], ids=["few"])
few_or_all = pytest.mark.parametrize(
    "epsilons", [FEW, pytest.param([*FULL, *EDGES], marks=pytest.mark.slow)], ids=["few", "all"]
)


@family
@few_or_all
def test_law_is_a_distribution_and_keeps_epsilon(factory, epsilons):
    """In exact rationals, with no tolerance at all."""
    for epsilon in epsilons:
        mechanism = factory(epsilon=float(epsilon))
        rows = [mechanism.exact_probabilities(x) for x in INPUTS]
        assert all(sum(row) == 1 for row in rows)
        bound = exp_below(float(epsilon))
        for column in zip(*rows, strict=True):
            assert max(column) <= bound * min(column)


def test_the_ratio_check_can_fail():
    """Planted: thresholds rounded the wrong way miss e^epsilon by one count in 2^52, and are caught."""
    low = math.floor(2**52 / (1 + exp_below(1.0)))
    with pytest.raises(GuaranteeError, match="differ by more than"):
        require_ratio(2**52 - low, low, 1.0, "bit")
    low += 1
    require_ratio(2**52 - low, low, 1.0, "bit")


@family
@few_or_all
def test_reports_are_unbiased(factory, epsilons):
    for epsilon in epsilons:
        mechanism = factory(epsilon=float(epsilon))
        bias = mechanism.probabilities(INPUTS) @ mechanism.alphabet - INPUTS
        assert np.abs(bias).max() <= 4e-12 * np.abs(mechanism.alphabet).max(), epsilon


def test_a_wrong_scale_is_biased():
    """Planted: the ideal bound C in place of the realised one is seen where rounding is coarse."""
    mechanism = PMSub(epsilon=20.0)
    ideal = np.linspace(-1, 1, mechanism.size) * formulas.piecewise_bound(20.0, formulas.pm_sub_t(20.0))
    assert np.abs(mechanism.probabilities(INPUTS) @ ideal - INPUTS).max() > 1e-9


@pytest.mark.parametrize("levels", [1, 2, 4, 64, 1024, 4096])
@pytest.mark.parametrize("rho", [1.0, 0.1])
def test_one_bit_is_unbiased_at_any_number_of_levels(levels, rho):
    for epsilon in (0.01, 0.5, 1.0, 4.0):
        mechanism = OneBit(epsilon=epsilon, dither_levels=levels, rho=rho)
        scale = max(1.0, np.abs(mechanism.alphabet).max())
        bias = mechanism.probabilities(INPUTS) @ mechanism.alphabet - INPUTS
        assert np.abs(bias).max() <= 1e-12 * scale


def test_one_bit_without_random_rounding_is_biased():
    """Planted: the bit taken from sign(x - u_j) directly is off by 0.13 at 8 levels, epsilon 1."""
    mechanism = OneBit(epsilon=1.0, dither_levels=8)
    a = mechanism._a
    u = -1 + (2 * np.arange(8) + 1) / 8
    x = np.linspace(-1, 1, 201)
    keep = mechanism._high / mechanism._draws
    ones = np.where(x[:, None] > np.sinh(a * u) / np.sinh(a), keep, 1 - keep)
    mean = (ones * mechanism.alphabet[1::2] + (1 - ones) * mechanism.alphabet[0::2]).mean(axis=1)
    assert np.abs(mean - x).max() > 0.1


def discretised_variance(epsilon, t, levels, x):
    """The closed form of Algorithm 5's variance (corrected specification, section 1.1)."""
    c = math.exp(epsilon)
    bound, m = formulas.piecewise_bound(epsilon, t), (levels - 1) // 2
    h, d = bound / m, t * (c - 1) / (2 * (t + c) ** 2)

    def phi(y):
        k = math.floor(y / h)
        r = y - k * h
        return k * h**3 / 6 + r * r * h / 2 - r**3 / 3

    left, right = ((c + t) * (x * t + s) / (t * (c - 1)) for s in (-1, 1))
    plain = formulas.piecewise_variance(epsilon, t, x)
    return plain + d * 2 * m * h**3 / 6 + (c * d - d) * (phi(right) - phi(left))


T_OF = {PM: formulas.pm_t, PMOpt: formulas.pm_opt_t, PMSub: formulas.pm_sub_t}


@pytest.mark.parametrize("factory", T_OF, ids=name_of)
@few_or_all
def test_discretised_variance_equals_the_closed_form(factory, epsilons):
    for epsilon in epsilons:
        for levels in (3, 5, 21, 2001):
            mechanism = factory(epsilon=float(epsilon), levels=levels)
            for x in (0.0, 0.3, 1.0):
                expected = discretised_variance(epsilon, T_OF[factory](epsilon), levels, x)
                tolerance = 1e-5 if epsilon <= 12 else 3e-2  # at 20 the background has few places left
                assert mechanism.variance(x) == pytest.approx(expected, rel=tolerance), (epsilon, levels, x)


@pytest.mark.parametrize("factory", DOCUMENTS, ids=name_of)
@few_or_all
def test_wire_variance_is_the_documents_plus_the_grid(factory, epsilons):
    """The worst case of what is sent: the ideal one, at most h^2/4 more for the grid, 1e-5 for rounding."""
    for epsilon in epsilons:
        mechanism = factory(epsilon=float(epsilon))
        ideal, wire = mechanism.ideal_worst_case_variance, mechanism.worst_case_variance
        step = mechanism._grid.step if mechanism._grid is not None else 0.0
        slack = 1e-5 if epsilon <= 12 else 1e-2
        assert ideal * (1 - slack) <= wire <= ideal * (1 + slack) + step * step / 4, epsilon


@pytest.mark.parametrize(("m", "extra"), [(1, 2.97), (2, 0.74), (3, 0.32), (10, 0.029)])
def test_cost_of_few_levels(m, extra):
    """Section 1.1: what discretisation adds to PM-OPT's worst case at epsilon 1."""
    added = PMOpt(epsilon=1.0, levels=2 * m + 1).worst_case_variance - formulas.piecewise_worst(
        1.0, formulas.pm_opt_t(1.0)
    )
    assert added == pytest.approx(extra, rel=0.02)


@few_or_all
def test_optimal_beats_every_mechanism_of_the_documents(epsilons):
    for epsilon in epsilons:
        ours = Optimal(epsilon=float(epsilon)).worst_case_variance
        theirs = min(factory(epsilon=float(epsilon)).worst_case_variance for factory in DOCUMENTS)
        laplace = formulas.laplace_worst(float(epsilon))
        assert ours <= min(theirs, laplace) * (1 + 1e-12), epsilon


def test_optimal_is_near_the_physical_limit(golden):
    for key, limit in golden["physical_limit"].items():
        epsilon = math.log(2) if key == "ln2" else float(key)
        slack = 0.005 if epsilon <= 5 else 0.02 if epsilon <= 6 else 0.035
        mechanism = Optimal(epsilon=epsilon)
        assert mechanism.worst_case_variance <= limit["lower_bound"] * (1 + slack), epsilon
        assert isinstance(mechanism, OneBit) or mechanism.size <= 64


def test_window_from_a_given_table(golden):
    """Built without solving, the golden tables have their printed variance and knots."""
    for row in golden["window_mechanism"].values():
        mechanism = Window(epsilon=row["eps"], window=row["M"], y=row["y"])
        assert mechanism.worst_case_variance == pytest.approx(row["V_exact"], rel=1e-9)
        assert mechanism.knots == pytest.approx(row["knots"], abs=1e-9)
        assert mechanism.outputs == row["N"]


def test_bits_and_best():
    sizes = {1: OneBit, 2: (Window, ThreeOutputs), 3: Window, 6: Window}
    variances = []
    for bits, kind in sizes.items():
        mechanism = best(2.0, bits=bits)
        assert isinstance(mechanism, kind)
        assert mechanism.bits <= bits
        variances.append(mechanism.worst_case_variance)
    assert variances == sorted(variances, reverse=True)
    assert best(0.5).bits == 1
    assert isinstance(best(15.0), PMOpt)
    assert best(1.0, bits=1).worst_case_variance < min(f(epsilon=1.0).worst_case_variance for f in DOCUMENTS)


def chi_square_excess(mechanism, x, draws, rng):
    """(statistic - df) / sqrt(2 df) over symbols pooled to an expected count of 20 or more."""
    counts = np.bincount(mechanism.sample(np.full(draws, x), rng), minlength=mechanism.size)
    expected = draws * mechanism.probabilities(x)
    assert counts[expected == 0].sum() == 0
    order = np.argsort(expected)
    bins = np.floor(np.cumsum(expected[order]) / 20).astype(int)
    counts, expected = np.bincount(bins, counts[order]), np.bincount(bins, expected[order])
    counts, expected = counts[expected > 0], expected[expected > 0]
    degrees = max(1, expected.size - 1)
    return (((counts - expected) ** 2 / expected).sum() - degrees) / math.sqrt(2 * degrees)


@family
def test_sampler_follows_its_law(factory):
    """6 standard deviations of chi-square: false-alarm rate below 1e-5 per case, fixed seed."""
    for epsilon in (0.3, 1.0, 4.0):
        assert chi_square_excess(factory(epsilon=epsilon), 0.3, 200_000, SimulationStream(11)) < 6


def test_a_wrong_sampler_does_not_fit():
    """Planted: the law of epsilon 1 against a sampler of epsilon 1.05."""

    class Mutant(PMSub):
        def _law(self, *, symbols):
            return PMSub(epsilon=1.05)._law(symbols=symbols)

    assert chi_square_excess(Mutant(epsilon=1.0), 0.3, 200_000, SimulationStream(11)) > 6


@family
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_engines_draw_the_same_symbols(factory, epsilon):
    pytest.importorskip("numba", reason="numba is not installed")
    mechanism = factory(epsilon=epsilon)
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [rng.uniform(-1.2, 1.2, 5000), [np.nan, np.inf, -np.inf, 1.0, -1.0, 0.0, -0.0, 1e300]]
    )
    drawn = {}
    for name in ("numpy", "numba"):
        out, stream = np.empty(values.size), SimulationStream(5)
        start = 0
        for randomness in mechanism._randomness(stream, values.size):
            stop = start + randomness[0].size
            block, law = out[start:stop], mechanism._law(symbols=False)
            with np.errstate(all="ignore"):
                kernels.engine(name).run(mechanism._kernel, values[start:stop], randomness, block, law)
            start = stop
        drawn[name] = out
    assert np.array_equal(drawn["numpy"], drawn["numba"])
    assert np.array_equal(drawn["numpy"], mechanism.perturb(values, SimulationStream(5)))
    assert np.array_equal(drawn["numpy"], mechanism.alphabet[mechanism.sample(values, SimulationStream(5))])


def test_division_by_reciprocal_is_exact():
    """floor(n * nextafter(1/d)) == n // d at and around multiples, up to the span the laws allow."""
    rng = np.random.default_rng(1)
    for _ in range(2000):
        d = int(rng.integers(1, 1 << rng.integers(1, 50)))
        k = rng.integers(0, (1 << hybrid._EXACT_SPAN_BITS) // d, size=50, endpoint=True)
        n = np.clip(np.concatenate([k * d, k * d - 1, k * d + 1]), 0, (1 << hybrid._EXACT_SPAN_BITS) - 1)
        assert np.array_equal(
            np.floor(n.astype(float) * math.nextafter(1 / d, math.inf)).astype(np.int64), n // d
        )


class NoNumber:
    """A value that fights back."""

    def __float__(self):
        raise OverflowError

    def __array__(self, *_, **__):
        raise TypeError

    def __gt__(self, other):
        raise TypeError


@family
def test_devices_are_total_functions(factory):
    """No value raises or warns; NaN is the middle, the rest is clamped (T4)."""
    mechanism = factory(epsilon=1.0, bounds=(10.0, 30.0))
    masked = np.ma.array([11.0, 29.0], mask=[True, False])
    odd = [
        masked[0],
        np.complex128(11 + 1j),
        NoNumber(),
        np.nan,
        np.inf,
        -np.inf,
        1e308,
        -1e308,
        10**400,
        -(10**400),
        None,
        "secret",
        b"x",
        3 + 4j,
        [],
        object(),
    ]
    column = np.empty(len(odd), dtype=object)
    for place, item in enumerate(odd):
        column[place] = item
    reports = mechanism.perturb(column)
    assert reports.shape == (len(odd),)
    assert np.isin(reports, mechanism.alphabet).all()
    assert np.isin(mechanism.perturb([11.0, [12.0], "x"]), mechanism.alphabet).all()
    assert np.isin(mechanism.perturb(odd[:3]), mechanism.alphabet).all()
    hidden = mechanism.perturb(masked, SimulationStream(1))
    assert np.array_equal(hidden, mechanism.perturb([20.0, 29.0], SimulationStream(1)))
    same = mechanism.perturb([20.0] * 3 + [30.0, 10.0], SimulationStream(1))
    assert np.array_equal(
        same, mechanism.perturb([np.nan, "secret", None, 1e9, -np.inf], SimulationStream(1))
    )


@family
def test_bounds_are_an_affine_map(factory):
    unit, mapped = factory(epsilon=1.0), factory(epsilon=1.0, bounds=(0.0, 100.0))
    x = np.linspace(-1, 1, 50)
    a, b = unit.perturb(x, SimulationStream(3)), mapped.perturb(50 + 50 * x, SimulationStream(3))
    assert b == pytest.approx(50 + 50 * a, rel=1e-12, abs=1e-9)
    assert mapped.worst_case_variance == pytest.approx(2500 * unit.worst_case_variance, rel=1e-12)
    assert mapped.ideal_worst_case_variance == pytest.approx(2500 * unit.ideal_worst_case_variance, rel=1e-12)
    assert mapped.variance(75.0) == pytest.approx(2500 * unit.variance(0.5), rel=1e-9)


@family
def test_shapes(factory):
    mechanism = factory(epsilon=1.0)
    assert mechanism.perturb(0.3).shape == ()
    assert mechanism.perturb(np.zeros((3, 4, 5))).shape == (3, 4, 5)
    assert mechanism.sample([[0.1, 0.2]]).shape == (1, 2)
    assert mechanism.probabilities(np.zeros((2, 3))).shape == (2, 3, mechanism.size)
    out = np.empty((7, 2))
    assert mechanism.perturb(np.zeros((7, 2)), out=out) is out


@family
def test_packing_is_a_bijection(factory):
    mechanism = factory(epsilon=1.0)
    values = np.linspace(-1, 1, 1001)
    if isinstance(mechanism, OneBit):
        dither = np.arange(1001) % mechanism.dither_levels
        symbols = mechanism.sample(values, dither=dither)
        packed = mechanism.pack(symbols)
        assert np.array_equal(mechanism.unpack(packed, 1001, dither=dither), symbols)
        assert np.array_equal(symbols // 2, dither)
    else:
        symbols = mechanism.sample(values)
        packed = mechanism.pack(symbols)
        assert np.array_equal(mechanism.unpack(packed, 1001), symbols)
    assert len(packed) == math.ceil(1001 * mechanism.bits / 8)


@pytest.mark.parametrize(
    ("data", "count", "message"),
    [
        (b"", 1, "data must be 2 bytes for 1 symbols, got 0"),
        (b"\x00" * 3, 1, "data must be 2 bytes for 1 symbols, got 3"),
        (b"\xff\xe0", 1, "data holds a symbol >= 2001"),
        (b"\x00\x01", 1, "data must end in zero padding"),
    ],
)
def test_bytes_that_no_device_packs_are_refused(data, count, message):
    with pytest.raises(ParameterError, match=message):
        PMSub(epsilon=1.0).unpack(data, count)


BAD_EPSILONS = [
    (0, ParameterError, "epsilon must be > 0, got 0"),
    (-1.0, ParameterError, "epsilon must be > 0, got -1.0"),
    (math.nan, ParameterError, "epsilon must be finite, got nan"),
    (1e309, ParameterError, "epsilon must be finite, got inf"),
    (10**400, ParameterError, "epsilon must be finite, got 1000"),
    (1e-9, ParameterError, "epsilon must be >= 0.0001 and <= 20, got 1e-09"),
    (21, ParameterError, "epsilon must be >= 0.0001 and <= 20, got 21"),
    (True, ParameterTypeError, "epsilon must be a number, got True"),
    ("1", ParameterTypeError, "epsilon must be a number, got '1'"),
    (None, ParameterTypeError, "epsilon must be a number, got None"),
]


@family
@pytest.mark.parametrize(("epsilon", "error", "message"), BAD_EPSILONS, ids=range(len(BAD_EPSILONS)))
def test_bad_epsilon(factory, epsilon, error, message):
    with pytest.raises(error, match=message) as caught:
        factory(epsilon=epsilon)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("factory", [*FAMILY, Laplace, best], ids=name_of)
@pytest.mark.parametrize("epsilon", [5e-5, math.nextafter(1e-4, 0), 1e-4, 5e-4, 1e-3, 20.0, 20.001, 700.0])
def test_one_range_for_every_member(factory, epsilon):
    """Window's solver had one of its own, 0.001 to 700, and named it where all others take 0.0001."""
    if 1e-4 <= epsilon <= 20.0:
        assert factory(epsilon=epsilon).epsilon == epsilon
        return
    with pytest.raises(ParameterError, match=r"^epsilon must be >= 0\.0001 and <= 20, got "):
        factory(epsilon=epsilon)


def sweep(count):
    """Epsilons all over the range, half of them other ones for each count (the failure names the one)."""
    seeded, new = np.random.default_rng(18), np.random.default_rng(count)
    return [
        *np.linspace(1e-4, 20.0, count).tolist(),
        *seeded.uniform(1e-4, 20.0, count).tolist(),
        *new.uniform(1e-4, 20.0, count).tolist(),
        *np.exp(new.uniform(math.log(1e-4), math.log(20.0), count)).tolist(),
    ]


@pytest.mark.parametrize("count", [100, pytest.param(5_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("factory", [*DOCUMENTS, OneBit], ids=name_of)
def test_every_epsilon_of_the_range_can_be_made(factory, count):
    for epsilon in sweep(count):
        assert factory(epsilon=epsilon).epsilon == epsilon


@family
@pytest.mark.parametrize(
    ("bounds", "error", "message"),
    [
        ((1.0, -1.0), ParameterError, r"bounds must satisfy lower < upper within doubles, got \(1, -1\)"),
        ((1.0, 1.0), ParameterError, "bounds must satisfy lower < upper"),
        ((1.0, math.nextafter(1.0, 2.0)), ParameterError, "bounds must be wider than 1e-9 of their size"),
        ((0.0, math.nan), ParameterError, r"bounds\[1\] must be finite, got nan"),
        ((-1e308, 1e308), ParameterError, "bounds must satisfy lower < upper within doubles"),
        ((0.0, "1"), ParameterTypeError, r"bounds\[1\] must be a number"),
        (3.0, ParameterTypeError, r"bounds must be a pair \(lower, upper\), got 3.0"),
    ],
)
def test_bad_bounds(factory, bounds, error, message):
    with pytest.raises(error, match=message):
        factory(epsilon=1.0, bounds=bounds)


@family
def test_bad_shapes(factory):
    mechanism = factory(epsilon=1.0)
    with pytest.raises(ParameterError, match=r"values must hold at least one value, got shape \(0,\)"):
        mechanism.perturb([])
    with pytest.raises(ParameterError, match="values must be a rectangular array"):
        mechanism.perturb([np.zeros((2, 2)), np.zeros((2, 3))])
    with pytest.raises(ParameterError, match=r"out must have shape \(2,\), got \(3,\)"):
        mechanism.perturb([0.0, 0.1], out=np.empty(3))
    with pytest.raises(ParameterTypeError, match="out must be a contiguous float64 array"):
        mechanism.perturb([0.0], out=np.empty(1, dtype=np.float32))
    with pytest.raises(ParameterTypeError, match="rng must be None"):
        mechanism.perturb([0.0], rng=np.random.default_rng(0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PM(epsilon=1.0, levels=4), "levels must be odd, got 4"),
        (lambda: PM(epsilon=1.0, levels=1), "levels must be >= 3, got 1"),
        (lambda: HMTP(epsilon=1.0, levels=10**9), "levels must be <= 65537"),
        (lambda: OneBit(epsilon=1.0, dither_levels=3), "dither_levels must be a power of two, got 3"),
        (lambda: OneBit(epsilon=1.0, rho=0.0), "rho must be >= 1e-07 and <= 1, got 0.0"),
        (lambda: OneBit(epsilon=1.0).unpack(b"\x00", 3), "dither must be given"),
        (lambda: OneBit(epsilon=1.0).sample([0.1], dither=[2000]), "dither must be >= 0 and < 1024"),
        (lambda: OneBit(epsilon=1.0).sample([0.1, 0.2], dither=[1]), "dither must give one level per value"),
        (lambda: Window(epsilon=1.0, outputs=1), "outputs must be >= 2, got 1"),
        (lambda: Window(epsilon=1.0, outputs=8, window=8), "window must be <= 7, got 8"),
        (lambda: Window(epsilon=1.0, y=[-1.0, 1.0]), "window must be given together with y"),
        (lambda: Window(epsilon=1.0, window=1, y=[-1.0, 2.0]), "y must be antisymmetric"),
        (lambda: Window(epsilon=1.0, window=1, y=[1.0, -1.0]), "y must be finite and increasing"),
        (lambda: best(1.0, bits=0), "bits must be >= 1, got 0"),
    ],
)
def test_bad_shape_parameters(make, message):
    with pytest.raises(ParameterError, match=message):
        make()


def test_private_values_never_show_in_errors():
    ragged = [np.zeros((2, 2)), np.array([["secret"] * 3] * 2)]  # shapes are public, contents are not
    with pytest.raises(ParameterError) as caught:
        Duchi(epsilon=1.0).perturb(ragged)
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_fractions_are_exact():
    row = HMTP(epsilon=1.0).exact_probabilities(0.123)
    assert all(isinstance(p, Fraction) for p in row)
    assert np.allclose([float(p) for p in row], HMTP(epsilon=1.0).probabilities(0.123), rtol=0, atol=1e-17)


def test_memory_is_a_fixed_buffer():
    """Perturbing into `out` allocates the same extra memory for ten times as many values."""
    import tracemalloc

    pytest.importorskip("numba", reason="numba is not installed")
    mechanism, peaks = HMTP(epsilon=1.0), []
    mechanism.perturb(np.zeros(kernels.COMPILE_FROM))
    for size in (500_000, 5_000_000):
        values, out = np.zeros(size), np.empty(size)
        tracemalloc.start()
        mechanism.perturb(values, out=out)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 100_000
    assert peaks[1] < 2_000_000


def test_one_bit_beyond_its_bounds_has_the_law_of_the_bound():
    """One word at every threshold: the kernel clamps as the published law does."""
    for epsilon in (0.3, 6.75540599049384):
        mechanism = OneBit(epsilon=epsilon)
        law = mechanism._law(symbols=True)
        ones = mechanism._thresholds(np.array([1.0]))[0]
        words = np.concatenate([((ones + d) << mechanism._shift) + np.arange(1024) for d in (-1, 0)]).astype(
            np.uint64
        )
        drawn = []
        for x in (1.0, 1.5, 1e300, np.inf):
            out = np.empty(words.size)
            kernels.engine("numpy").run(OneBit._kernel, np.full(words.size, x), (words,), out, law)
            drawn.append(out)
        assert all(np.array_equal(drawn[0], other) for other in drawn[1:])
        assert np.array_equal(drawn[0] % 2, np.repeat([1.0, 0.0], 1024))
