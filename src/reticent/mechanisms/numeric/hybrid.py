"""The documents' mechanisms as they are run: exact integer laws on a lattice of 2^52 points.

Duchi, PM, HM, Three-Outputs, PM-OPT, PM-SUB and HM-TP are all of one shape: with some probability
a piecewise mechanism discretised by Algorithm 5, else the three values -C, 0, C. One lattice
draw n decides everything:

    n < share * 2^r          the piecewise part, at position n >> r
    otherwise                the three values: 0 at the bottom, the unlikely side at the top

Every count of lattice points is an integer chosen so that the ratio between any two inputs is
at most e^epsilon (low counts rounded up, high ones down), and checked when the mechanism is made.
The outputs are then scaled by the counts really used: rounding costs accuracy (about 1e-6 of
it), never privacy, never a bias.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import whole
from reticent.errors import GuaranteeError, ParameterError
from reticent.mechanisms.base import Floats, exp_below, require_ratio
from reticent.mechanisms.numeric import formulas
from reticent.mechanisms.numeric.base import NumericChannel, worst_between_knots
from reticent.mechanisms.numeric.kernels import Formula, Function, Law, Writing
from reticent.randomness import LATTICE

Counts = NDArray[np.int64]

LATTICE_BITS = 52
_EXACT_SPAN_BITS = 50  # floor(n * nextafter(1/d)) == n // d for every n below 2^50
MAX_LEVELS = 65_537


@dataclass(frozen=True)
class ThreeValues:
    """Counts out of `total` for the outputs -C, 0, C at input 0 and at |input| = 1; linear between.

    Reference: Zhao et al. 2020, Eqs. 2-4 [3.1-3.3].
    Departure: written through P(0|x) = a - a(1 - 1/c)|x| and P(+-C|x) = (1 - P(0|x))/2 +- x/(2C),
        which agrees with the symmetry of Eq. 10a; the printed equations do not sum to one.
    """

    total: int
    zero_at_0: int
    zero_at_1: int
    side_at_0: int
    side_at_1: int  # the unlikely side; the likely one has what is left

    @classmethod
    def made(cls, epsilon: float, p00: float, total: int) -> ThreeValues:
        """Round the real-number law to counts that keep e^epsilon."""
        c = exp_below(epsilon)
        zero_at_0 = round(p00 * total)
        zero_at_0 += (total - zero_at_0) % 2
        while True:
            zero_at_1 = math.ceil(zero_at_0 / c)
            side_at_1 = math.ceil((total - zero_at_1) / (1 + c))
            if (
                zero_at_0 <= total - 2 * side_at_1
            ):  # where P00 = c/(c+2) both sides are equal but for rounding
                break
            zero_at_0 = total - 2 * side_at_1
        three = cls(total, zero_at_0, zero_at_1, (total - zero_at_0) // 2, side_at_1)
        likely_at_1 = total - zero_at_1 - side_at_1
        require_ratio(zero_at_0, zero_at_1, epsilon, "middle output")
        require_ratio(likely_at_1, side_at_1, epsilon, "outer outputs")
        if not side_at_1 <= three.side_at_0 <= likely_at_1:
            raise GuaranteeError(f"epsilon {epsilon:g}: outer outputs are not between their extremes")
        return three

    @property
    def bound(self) -> float:
        """C, such that the mean of the output is the input."""
        return self.total / (self.total - self.zero_at_1 - 2 * self.side_at_1)

    def thresholds(self) -> tuple[float, float, float, float]:
        """(zero_0, zero_fall, side_0, side_fall) of the kernel, as units in [1, 2].

        The part occupies the top `total` points of the lattice. For a in [0, 1] rounding is monotone, so
        zero_0 - a zero_fall stays within its values at a = 0 and a = 1, whatever is rounded between.
        """
        start = LATTICE - self.total
        return (
            1.0 + (start + self.zero_at_0) / LATTICE,
            (self.zero_at_0 - self.zero_at_1) / LATTICE,
            1.0 + (LATTICE - self.side_at_0) / LATTICE,
            (self.side_at_0 - self.side_at_1) / LATTICE,
        )

    def counts(self, x: Floats) -> Counts:
        """Lattice points of (-C, 0, C) for inputs in [-1, 1]: the kernel's thresholds, counted."""
        zero_0, zero_fall, side_0, side_fall = self.thresholds()
        a = np.abs(x)
        zero = _points_below(zero_0 - a * zero_fall) - (LATTICE - self.total)
        unlikely = LATTICE - _points_below(side_0 + a * side_fall)
        likely = self.total - zero - unlikely
        negative = x < 0.0
        minus = np.where(negative, likely, unlikely)
        return np.stack([minus, zero, self.total - zero - minus], axis=-1)


@dataclass(frozen=True)
class Piecewise:
    """A piecewise mechanism discretised to `cells` + 1 levels (Algorithm 5), in whole positions.

    With probability window/share the position is uniform in a window of `window` places that slides
    with the input, else uniform in the whole range; it is then rounded at random to a level. A cell
    between two levels is `bins` bins of `per_bin` places inside the window, and two half cells of
    `per_half` places outside. One place is 2^(52 - place_bits) lattice points.

    Reference: Zhao et al. 2020, Eqs. 19-23 [3.24-3.28], Algorithm 5; PM is Wang et al. 2019, Algorithm 2.
    """

    cells: int
    place_bits: int
    share: int
    window: int
    per_bin: int
    per_half: int

    @classmethod
    def made(cls, epsilon: float, t: float, levels: int, probability: float) -> Piecewise:
        """Round the real-number law to whole places that keep e^epsilon.

        The window may add (c - 1) times the background to a level: bins * per_bin <= (c - 1) * 2 per_half.
        """
        cells = levels - 1
        c = exp_below(epsilon)
        background = (t + 1.0) / (math.exp(epsilon) + t)  # Eq. 19: 2 A times the low density
        widest = _EXACT_SPAN_BITS - 1 - math.ceil(math.log2(t + 1.0))
        for place_bits in range(30, widest + 1):
            share = round(probability * 2**place_bits)
            bins = 1 << (LATTICE_BITS - place_bits - 1)
            per_half = max(1, round(share * background / (2 * cells)))
            per_bin = math.floor((c - 1) * 2 * per_half / bins)
            if per_bin >= 1 << 20 and per_half >= 1 << 12:
                break
        part = cls(cells, place_bits, share, share - 2 * cells * per_half, per_bin, per_half)
        part.check(epsilon)
        return part

    @property
    def bins(self) -> int:
        """Bins of one cell inside the window."""
        return 1 << (LATTICE_BITS - self.place_bits - 1)

    @property
    def points_per_place(self) -> int:
        """Lattice points of one place."""
        return 1 << (LATTICE_BITS - self.place_bits)

    @property
    def slide(self) -> int:
        """The number of places by which the window moves between inputs -1 and 1."""
        return self.cells * self.bins * self.per_bin - self.window

    @property
    def step(self) -> float:
        """Distance between two levels, such that the mean of the output is the input."""
        return self.share / self.window * 2 * self.bins * self.per_bin / self.slide

    def check(self, epsilon: float) -> None:
        """Exact check of e^epsilon on an inner level; an end level has half of either count."""
        if self.window <= 0 or self.slide <= 0 or self.per_bin <= 0:
            raise ParameterError(f"levels must be fewer than {self.cells + 1} at epsilon {epsilon:g}")
        lowest = 2 * self.per_half * self.points_per_place
        highest = lowest + self.bins * self.per_bin * self.points_per_place
        require_ratio(highest, lowest, epsilon, "piecewise levels")
        if self.cells * self.bins * self.per_bin >= 1 << _EXACT_SPAN_BITS:
            raise GuaranteeError(f"epsilon {epsilon:g}: positions exceed exact arithmetic")

    def law(self) -> tuple[float, ...]:
        """Return the kernel's parameters up to `bin_width`."""
        first = float(1 << self.place_bits)  # units start at 1, so places start here
        return (
            first,
            1.0 + self.window / first,
            self.slide / 2.0,
            -first,
            math.nextafter(1.0 / self.per_bin, math.inf),
            -(first + self.window),
            math.nextafter(1.0 / self.per_half, math.inf),
            1.0 / self.bins,
        )

    def counts(self, x: Floats) -> Counts:
        """Lattice points of each level for inputs in [-1, 1]: shape (inputs, levels)."""
        left = np.floor((x + 1.0) * (self.slide / 2.0)).astype(np.int64)
        inside = self._below(left + self.window) - self._below(left)
        halves = np.full(self.cells + 1, 2, dtype=np.int64)
        halves[0] = halves[-1] = 1
        counts: Counts = inside + halves * (self.per_half * self.points_per_place)
        return counts

    def _below(self, place: Counts) -> Counts:
        """Lattice points of each level over the window's places [0, place).

        In bin b of the cell between levels i and i+1, 2b+1 of the 2 bins rounding outcomes go up. Summed
        over whole bins that is a square.
        """
        level = np.arange(self.cells + 1, dtype=np.int64) * self.bins
        whole_bins, rest = np.divmod(place[:, None], self.per_bin)
        into = np.clip(whole_bins - level + self.bins, 0, 2 * self.bins)  # bins into the level's tent
        rising = into <= self.bins
        from_end = 2 * self.bins - into
        full = np.where(rising, into * into, 2 * self.bins**2 - from_end * from_end)
        here = np.where(into < self.bins, 2 * into + 1, 2 * from_end - 1)
        outside = (whole_bins < level - self.bins) | (from_end == 0)
        counts: Counts = full * self.per_bin + rest * np.where(outside, 0, here)
        return counts


def _two_values(writing: Writing) -> Function:
    where, compiled, clamp = writing

    @compiled
    def two_values(x: Any, f: Any, law: Law) -> Any:
        """`plus` with probability (middle - 1) + slope x, else `minus`."""
        middle, slope, minus, plus = law
        return where(f < middle + clamp(x) * slope, plus, minus)

    return two_values  # type: ignore[no-any-return]


def _three(writing: Writing) -> Function:
    where, compiled, _ = writing

    @compiled
    def three(v: Any, f: Any, law: Law) -> Any:
        """The middle output at the bottom of the lattice, the less likely side at its top."""
        zero_0, zero_fall, side_0, side_fall, minus, zero, plus = law
        a = np.abs(v)
        unlikely = where(v < 0.0, plus, minus)
        likely = where(v < 0.0, minus, plus)
        side = where(f >= side_0 + a * side_fall, unlikely, likely)
        return where(f < zero_0 - a * zero_fall, zero, side)

    return three  # type: ignore[no-any-return]


def _three_values(writing: Writing) -> Function:
    _, compiled, clamp = writing
    three = _three(writing)

    @compiled
    def three_values(x: Any, f: Any, law: Law) -> Any:
        return three(clamp(x), f, law)

    return three_values  # type: ignore[no-any-return]


def _grid(writing: Writing) -> Function:
    where, compiled, _ = writing

    @compiled
    def grid(v: Any, f: Any, law: Law) -> Any:
        """Algorithm 5 on integers: a uniform place in the window or in the whole range, rounded at random.

        `position` counts equally likely places; its fraction is the randomness of the rounding.
        """
        scale, window_end, left_half, left_0, per_bin, low_0, per_half, bin_width, shift, step = law
        position = f * scale
        place = np.floor(position)
        inside = f < window_end
        count = place + where(inside, np.floor((v + 1.0) * left_half) + left_0, low_0)
        bins = np.floor(count * where(inside, per_bin, per_half))
        rounding = where(inside, (position - place) + 0.5 * bin_width, 0.5)
        level = np.floor(bins * where(inside, bin_width, 0.5) + rounding)
        return (level - shift) * step

    return grid  # type: ignore[no-any-return]


def _piecewise(writing: Writing) -> Function:
    _, compiled, clamp = writing
    grid = _grid(writing)

    @compiled
    def piecewise(x: Any, f: Any, law: Law) -> Any:
        return grid(clamp(x), f, law)

    return piecewise  # type: ignore[no-any-return]


def _hybrid(writing: Writing) -> Function:
    where, compiled, clamp = writing
    grid, three = _grid(writing), _three(writing)

    @compiled
    def hybrid(x: Any, f: Any, law: Law) -> Any:
        """Below `grid_end` the grid, above it the three values."""
        grid_end, grid_law, three_law = law
        v = clamp(x)
        return where(f < grid_end, grid(v, f, grid_law), three(v, f, three_law))

    return hybrid  # type: ignore[no-any-return]


TWO_VALUES, THREE_VALUES = Formula(_two_values, 1), Formula(_three_values, 1)
PIECEWISE, HYBRID = Formula(_piecewise, 1), Formula(_hybrid, 1)


class Hybrid(NumericChannel):
    """With probability `_mixing()` the piecewise part, else three values; the documents' seven mechanisms.

    Args:
        epsilon: the LDP level of one report.
        levels: Number of grid levels of mechanisms with a piecewise part (odd, default 2001); -C and C of the
            other part are two symbols more.
        bounds: the declared interval.
    """

    travels: ClassVar[tuple[str, ...]] = ("levels",)
    _has_middle: ClassVar[bool]

    def __init__(
        self, *, epsilon: float, bounds: tuple[float, float] = (-1.0, 1.0), levels: int | None = None
    ) -> None:
        super().__init__(epsilon=epsilon, bounds=bounds)
        self._three: ThreeValues | None = None
        self._grid: Piecewise | None = None
        mixing = self._mixing()
        taken = 0
        if mixing > 0.0:
            self.levels = whole("levels", 2001 if levels is None else levels, low=3, high=MAX_LEVELS)
            if self.levels % 2 == 0:
                raise ParameterError(f"levels must be odd, got {self.levels}")
            self._grid = Piecewise.made(self.epsilon, self._t(), self.levels, mixing)
            taken = self._grid.share * self._grid.points_per_place
        elif levels is not None:
            whole("levels", levels, low=3, high=MAX_LEVELS)
        if taken < LATTICE:
            self._three = ThreeValues.made(self.epsilon, self._p00(), LATTICE - taken)
        self._kernel = PIECEWISE if self._three is None else THREE_VALUES if self._grid is None else HYBRID

    def _mixing(self) -> float:
        """Probability of the piecewise part."""
        return 0.0

    def _t(self) -> float:
        """Return the piecewise part's t."""
        return 1.0

    def _p00(self) -> float:
        """P(0 | 0) of the three values."""
        return 0.0

    @cached_property
    def _unit_alphabet(self) -> Floats:
        outputs = []
        if self._grid is not None:
            middle = self._grid.cells // 2
            outputs.append((np.arange(self._grid.cells + 1) - float(middle)) * self._grid.step)
        if self._three is not None:
            bound = self._three.bound
            with_zero = self._grid is None and self._has_middle
            outputs.append(np.array([-bound, 0.0, bound] if with_zero else [-bound, bound]))
        return np.concatenate(outputs)

    def _three_symbols(self) -> tuple[int, int, int]:
        """Symbol indices of -C, 0, C. With a grid, 0 is the grid's middle level."""
        if self._grid is not None:
            return self._grid.cells + 1, self._grid.cells // 2, self._grid.cells + 2
        return (0, 1, 2) if self._has_middle else (0, 0, 1)

    def _law(self, *, symbols: bool) -> tuple[Any, ...]:
        grid, three = self._grid, self._three
        grid_law: tuple[Any, ...] = ()
        three_law: tuple[Any, ...] = ()
        if grid is not None:
            grid_law = (*grid.law(), *((0.0, 1.0) if symbols else (grid.cells // 2.0, grid.step)))
        if three is not None:
            indices = tuple(float(symbol) for symbol in self._three_symbols())
            three_law = (*three.thresholds(), *(indices if symbols else (-three.bound, 0.0, three.bound)))
        if grid is None or three is None:
            return grid_law or three_law
        return (1.0 + grid.share / (1 << grid.place_bits), grid_law, three_law)

    def _counts(self, unit: Floats) -> Counts:
        counts = np.zeros((unit.size, self.size), dtype=np.int64)
        if self._grid is not None:
            counts[:, : self._grid.cells + 1] = self._grid.counts(unit)
        if self._three is not None:
            for column, symbol in enumerate(self._three_symbols()):
                counts[:, symbol] += self._three.counts(unit)[:, column]
        return counts

    def _unit_probabilities(self, unit: Floats) -> Floats:
        return self._counts(unit) / float(LATTICE)

    def _exact(self, unit: float) -> list[Fraction]:
        return [Fraction(int(count), LATTICE) for count in self._counts(np.array([unit]))[0]]

    def _unit_worst_variance(self) -> float:
        if self._grid is not None:
            return super()._unit_worst_variance()
        knots = np.array([0.0, 1.0])
        return worst_between_knots(knots, self._unit_variance(knots) + knots * knots)


def _points_below(threshold: Floats) -> Counts:
    """Return the number of lattice units 1 + n 2^-52 below a threshold in [1, 2] (itself on the lattice)."""
    points: Counts = ((threshold - 1.0) * LATTICE).astype(np.int64)
    return points


class Duchi(Hybrid):
    """Two outputs, -C and C with C = coth(epsilon/2): one bit.

    Reference: Duchi et al. 2018 for one number.
    """

    name = "Duchi"
    travels = ()
    _has_middle = False

    def __init__(self, *, epsilon: float, bounds: tuple[float, float] = (-1.0, 1.0)) -> None:
        super().__init__(epsilon=epsilon, bounds=bounds)
        self._kernel = TWO_VALUES

    def _law(self, *, symbols: bool) -> tuple[Any, ...]:
        assert self._three is not None
        low = self._three.side_at_1 / LATTICE
        bound = self._three.bound
        return (1.5, 0.5 - low, *((0.0, 1.0) if symbols else (-bound, bound)))

    def _counts(self, unit: Floats) -> Counts:
        middle, slope = self._law(symbols=True)[:2]
        plus = _points_below(middle + unit * slope)
        return np.stack([LATTICE - plus, plus], axis=-1)

    def _ideal_unit_worst_variance(self) -> float:
        return formulas.duchi_worst(self.epsilon)


class ThreeOutputs(Hybrid):
    """Three outputs, -C, 0 and C, with the optimal P(0|0). Reference: Zhao et al. 2020, Section IV-A."""

    name = "Three-Outputs"
    travels = ()
    _has_middle = True

    def __init__(self, *, epsilon: float, bounds: tuple[float, float] = (-1.0, 1.0)) -> None:
        super().__init__(epsilon=epsilon, bounds=bounds)

    def _p00(self) -> float:
        return formulas.three_outputs_p00(self.epsilon)

    def _ideal_unit_worst_variance(self) -> float:
        return formulas.three_outputs_worst(self.epsilon)


class PM(Hybrid):
    """The Piecewise Mechanism, discretised. Reference: Wang et al. 2019, Algorithm 2."""

    name = "PM"
    _has_middle = False

    def _mixing(self) -> float:
        return 1.0

    def _t(self) -> float:
        return formulas.pm_t(self.epsilon)

    def _ideal_unit_worst_variance(self) -> float:
        return formulas.piecewise_worst(self.epsilon, self._t())


class PMOpt(PM):
    """The piecewise family at its optimal t, discretised. Reference: Zhao et al. 2020, Section IV-B."""

    name = "PM-OPT"

    def _t(self) -> float:
        return formulas.pm_opt_t(self.epsilon)


class PMSub(PM):
    """The piecewise family at t = e^(epsilon/3), discretised. Reference: Zhao et al. 2020, Section IV-C."""

    name = "PM-SUB"

    def _t(self) -> float:
        return formulas.pm_sub_t(self.epsilon)


class HM(Hybrid):
    """PM with probability alpha, else Duchi, discretised. Reference: Wang et al. 2019, Section III-C."""

    name = "HM"
    _has_middle = False

    def _mixing(self) -> float:
        return formulas.hm_alpha(self.epsilon)

    def _t(self) -> float:
        return formulas.pm_t(self.epsilon)

    def _ideal_unit_worst_variance(self) -> float:
        return formulas.hm_worst(self.epsilon)


class HMTP(Hybrid):
    """PM-SUB with probability beta, else Three-Outputs, discretised.

    Reference: Zhao et al. 2020, Section IV-D.
    """

    name = "HM-TP"
    _has_middle = True

    def _mixing(self) -> float:
        return formulas.hmtp_beta(self.epsilon)

    def _t(self) -> float:
        return formulas.pm_sub_t(self.epsilon)

    def _p00(self) -> float:
        return formulas.three_outputs_p00(self.epsilon)

    def _ideal_unit_worst_variance(self) -> float:
        return formulas.hmtp_worst(self.epsilon)
