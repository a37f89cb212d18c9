"""Tailored: the unbiased mechanism of least expected variance for a public guess of where values lie.

A channel at n knots, as `tailored_solver` finds it, becomes a table of whole numbers: a column (output,
weight t, pattern) gives the knots of its pattern floor(e^epsilon t) places out of 2^50 and the others t, so
that no ratio exceeds e^epsilon whatever the solver, the guess or the sender of a table does; the few places
that are left over in a row go to its largest column that is not likely there. The table is checked all the
same. The knots are then *defined* as the means of the rows: rounding moves them by 1e-9 and biases nothing.
An input between two knots is rounded at random to one of them (`Window` does the same), and its row is
drawn by Walker's alias method.

Privacy: epsilon-LDP for one report. The guess is public; a wrong one costs accuracy only, at most `regret`.

Reference: mathematics 1.4; Walker 1977 for the alias method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.arguments import real, whole
from reticent.errors import GuaranteeError, ParameterError
from reticent.mechanisms.base import Floats, exp_below, require_ratio
from reticent.mechanisms.numeric.base import NumericChannel, as_floats, worst_between_knots
from reticent.mechanisms.numeric.kernels import Formula, Function, Law, Writing
from reticent.mechanisms.numeric.priors import Guess, Prior, as_prior
from reticent.randomness import LATTICE

PLACES = 1 << 50  # equally likely places of a row
SLOTS = 64  # of the alias method, and the most outputs
MOST_KNOTS = 128  # twice a cell fits into a byte
MOST_COLUMNS = 1024
SLACK = 2  # places: what the roundings of the sampler can move the chance of an output, at most; see `check`
_SLOT = PLACES // SLOTS
_PARTS = 1024  # of [-1, 1], in each of which there is at most one knot
_CLOSEST = 1.0 / 500.0
_ROUNDING = 2.0**-50  # more than what adding 1 to an input can round it by
_PLAIN_INPUTS = 65  # more are not worth their time to the solver

Column = tuple[int, int, str]  # output, weight, pattern in hexadecimal with the first knot in the lowest bit


def _tailored(writing: Writing) -> Function:
    where, compiled, clamp = writing

    @compiled
    def tailored(x: Any, word: Any, law: Law) -> Any:
        """One word decides: the slot by its low 6 bits; by the high 52 the knot, and the slot or its alias.

        Of the 2^52 draws those below `edge` go to the upper knot, in proportion to how near it is. There
        and in the rest the same share, the slot's cut at that knot, is the slot's own. `cells` holds each
        knot, and the draws per unit of x above it; it is indexed by unsigned numbers, which numba does not
        test for being negative.
        """
        guide, cells, cuts, aliases, codes = law
        v = clamp(x)
        cell = np.uint64(guide[np.uint64(np.int64((v + 1.0) * 512.0))])
        cell = cell + np.uint64(2) * np.uint64(v >= cells[cell + np.uint64(2)])
        edge = (v - cells[cell]) * cells[cell + np.uint64(1)]
        slot = word & np.uint64(63)
        draw = np.float64(np.int64(word >> np.uint64(12)))
        is_up = draw < edge
        place = np.uint64(32) * cell + slot + np.uint64(64) * np.uint64(is_up)
        limit = where(is_up, 0.0, edge) + where(is_up, edge, 4503599627370496.0 - edge) * cuts[place]
        return codes[where(draw < limit, slot, np.uint64(aliases[place]))]

    return tailored  # type: ignore[no-any-return]


class Tailored(NumericChannel):
    """The least expected variance under a guess, with at most 64 outputs.

    Args:
        epsilon: the LDP level of one report.
        prior: Distribution of values: "uniform", "small gradients", weights of equal bins of the bounds (a
            histogram, an estimate that was published), or a `Prior`.
        regret: the variance of no input may exceed (1 + regret) times that of `Optimal`; None for no limit.
        inputs: Number of knots to solve for; 33 or 41 by default.
        y: the outputs of a table that was solved elsewhere; with `columns`. Nothing is solved then, and the
            guarantee is checked all the same.
        columns: (output, weight, pattern) each.
        bounds: the declared interval.
    """

    name = "Tailored"
    travels = ("y", "columns")
    _kernel = Formula(_tailored, 0)

    def __init__(
        self,
        *,
        epsilon: float,
        prior: Guess = "uniform",
        regret: float | None = None,
        inputs: int | None = None,
        y: ArrayLike | None = None,
        columns: Sequence[Sequence[Any]] | None = None,
        bounds: tuple[float, float] = (-1.0, 1.0),
    ) -> None:
        super().__init__(epsilon=epsilon, bounds=bounds)
        self.prior: Prior | None = None
        self.gap = math.nan
        if (y is None) != (columns is None):
            raise ParameterError("y and columns must be given together")
        if y is None or columns is None:
            y, columns = self._solved(prior, regret, inputs)
        self._y = _checked_outputs(y)
        self.columns: tuple[Column, ...] = _checked_columns(columns, self._y.size)
        self._counts = self._table()
        self.check()

    def _solved(self, guess: Any, regret: Any, inputs: Any) -> tuple[Floats, list[Column]]:
        from reticent.mechanisms.numeric.choose import least_worst_variance
        from reticent.mechanisms.numeric.tailored_solver import solved

        self.prior = as_prior(guess)
        most = None
        if regret is not None:
            most = (1.0 + real("regret", regret, low=0.0)) * least_worst_variance(self.epsilon)
        if inputs is not None:
            inputs = whole("inputs", inputs, low=5, high=_PLAIN_INPUTS)
        found = solved(self.epsilon, self.prior, inputs=inputs, most_variance=most)
        self.gap = found.gap if math.isfinite(found.bound) else math.nan
        outputs, places = np.unique(found.outputs, return_inverse=True)
        weights = _whole_weights(found.weights, found.high, self.epsilon)
        made = []
        for output, weight, high in zip(places.tolist(), weights, found.high, strict=True):
            if weight:
                bits = sum(1 << place for place in np.flatnonzero(high).tolist())
                made.append((output, weight, f"{bits:0{-(-high.size // 4)}x}"))
        used = sorted({column[0] for column in made})
        return outputs[used], [(used.index(output), weight, pattern) for output, weight, pattern in made]

    def _table(self) -> NDArray[np.int64]:
        """Places of each output at each knot: shape (knots, outputs)."""
        digits = {len(pattern) for _, _, pattern in self.columns}
        if len(digits) != 1:
            raise ParameterError("columns must have patterns of one length")
        c, n = exp_below(self.epsilon), self._knots_told(digits.pop())
        table = np.zeros((n, self._y.size), dtype=object)
        likely, rest = np.zeros((len(self.columns), n), dtype=np.bool_), np.full(n, PLACES, dtype=object)
        for number, (output, weight, pattern) in enumerate(self.columns):
            bits = int(pattern, 16)
            likely[number] = [bits >> place & 1 for place in range(n)]
            places = np.where(likely[number], np.array(_most(weight, c), dtype=object), weight)
            table[:, output] += places
            rest -= places
        weights = np.array([weight for _, weight, _ in self.columns])
        for knot in range(n):
            room = np.where(likely[:, knot], 0, weights)
            target = int(room.argmax())
            if rest[knot] < 0 or weights[target] + rest[knot] > _most(int(weights[target]), c):
                raise GuaranteeError("columns must leave each knot a few places, and a column to take them")
            if not room[target] and rest[knot]:
                raise GuaranteeError("columns must have one at each knot that is not likely there")
            table[knot, self.columns[target][0]] += rest[knot]
        if (table <= SLACK).any() or (table > PLACES).any():
            raise GuaranteeError(f"columns must give each output {SLACK + 1} places at each knot at least")
        return table.astype(np.int64)

    def _knots_told(self, digits: int) -> int:
        """Return the number of knots: the highest bit that any pattern sets belongs to the last one."""
        n = max(int(pattern, 16).bit_length() for _, _, pattern in self.columns)
        if not 2 <= n <= MOST_KNOTS or -(-n // 4) != digits:
            raise ParameterError(f"columns must have patterns of 2 to {MOST_KNOTS} knots, of their length")
        return n

    def check(self) -> None:
        """Verify in exact integers that rows are whole and that no output exceeds e^epsilon.

        The sampler divides 2^52 draws of each slot at doubles. For one slot this moves what is its own by
        less than 6 draws and what is its alias's by less than 3 in each row; an output is one slot and the
        alias of at most 63, so its chance moves by less than 6 + 63 * 6 draws out of 2^58: under 2 places.
        That supposes an input between the two knots that it is rounded to. So the knots are looked at as the
        sampler has them: outputs that differ in their last digits only leave none that increase.

        Raises:
            GuaranteeError: the table does not keep its claim, or rows do not stand for increasing inputs.
        """
        counts = self._counts
        if (counts <= SLACK).any() or (counts.sum(axis=1) != PLACES).any():
            raise GuaranteeError("a row of the table must have 2^50 places, and each output 3 at least")
        for largest, smallest in zip(counts.max(axis=0).tolist(), counts.min(axis=0).tolist(), strict=True):
            require_ratio(largest + SLACK, smallest - SLACK, self.epsilon, self.name)
        if not np.isfinite(self._unit_alphabet).all() or not (np.diff(self.knots) >= _CLOSEST).all():
            raise GuaranteeError(f"the means of the rows must increase, by {_CLOSEST:g} at least")

    @property
    def y(self) -> Floats:
        """The outputs as they were solved, to make the same mechanism elsewhere."""
        return self._y.copy()

    @cached_property
    def _unit_alphabet(self) -> Floats:
        """The outputs, shifted and scaled so that the first row's mean is -1 and the last one's 1."""
        means = self._counts[[0, -1]] / PLACES @ self._y
        with np.errstate(all="ignore"):  # `check` refuses what is not finite
            return np.asarray((self._y - means[0]) * (2.0 / (means[1] - means[0])) - 1.0)

    @cached_property
    def knots(self) -> Floats:
        """The row means, from -1 to 1."""
        with np.errstate(all="ignore"):
            knots = self._counts / PLACES @ self._unit_alphabet
        knots[0], knots[-1] = -1.0, 1.0  # equal to that but for the last bits
        return np.asarray(knots)

    @property
    def unit_outputs(self) -> Floats:
        """Return the outputs in units of [-1, 1], indexed by symbol."""
        return self._unit_alphabet

    @property
    def probabilities_at_knots(self) -> Floats:
        """Return the probability of each output at each knot, shape (knots, outputs)."""
        return np.asarray(self._counts / PLACES)

    @property
    def half_width(self) -> float:
        """Return half the width of the bounds: what one unit of [-1, 1] is."""
        return self._half

    @cached_property
    def _aliases(self) -> tuple[Floats, NDArray[np.int64]]:
        """For each row and slot, the share of it that is its own, and whose the rest is."""
        made = [_alias(row) for row in self._counts.tolist()]
        cuts = np.array([row for row, _ in made]) / _SLOT
        return cuts, np.array([row for _, row in made], dtype=np.int64)

    @cached_property
    def _guide(self) -> NDArray[np.int64]:
        """The cell that each of 1024 equal parts of [-1, 1], and their end, begins in.

        An input within 2^-53 below a part counts as in it, since 1 is added before it is cut off; a knot that
        is as near must be above the cell, so that no input lies below its own.
        """
        parts = np.arange(_PARTS + 1) / (_PARTS // 2) - 1.0 - _ROUNDING
        return np.clip(np.searchsorted(self.knots, parts, side="right") - 1, 0, self.knots.size - 2)

    @cached_property
    def _cell_table(self) -> Floats:
        """Knots, and the draws per unit of x above each; the last knot is out of reach: 1 lies below it."""
        per_cell = np.append(LATTICE / np.diff(self.knots), 0.0)
        table = np.stack([self.knots, per_cell], axis=1).reshape(-1)
        table[-2] = math.inf
        return table

    def _law(self, *, symbols: bool) -> tuple[Any, ...]:
        cuts, others = self._aliases
        codes = np.arange(SLOTS, dtype=np.float64)
        if not symbols:
            codes[: self.size] = self._unit_alphabet
        aliases = others.astype(np.uint8).reshape(-1)
        return (2 * self._guide).astype(np.uint8), self._cell_table, cuts.reshape(-1), aliases, codes

    def _mixing(self, unit: Floats) -> tuple[NDArray[np.int64], Floats]:
        """For each input, its cell and the draws of 2^52 that go to the upper knot, as the kernel has it."""
        cell = self._guide[((unit + 1.0) * (_PARTS // 2)).astype(np.int64)]
        cell = cell + (unit >= self._cell_table[2 * cell + 2])
        return cell, (unit - self._cell_table[2 * cell]) * self._cell_table[2 * cell + 1]

    def _unit_probabilities(self, unit: Floats) -> Floats:
        cell, edge = self._mixing(unit)
        share, rows = np.clip(edge / LATTICE, 0.0, 1.0)[:, None], self._counts / PLACES
        return np.asarray((1.0 - share) * rows[cell] + share * rows[cell + 1])

    def _exact(self, unit: float) -> list[Fraction]:
        """Counted as the kernel draws: 2^52 draws of each of 64 slots, divided at its doubles."""
        cells, edges = self._mixing(np.array([unit]))
        cell, edge = int(cells[0]), float(edges[0])
        (lower_cuts, upper_cuts), (lower, upper) = (part[cell : cell + 2].tolist() for part in self._aliases)
        counts, up = [0] * SLOTS, _draws_below(edge)
        for slot in range(SLOTS):
            first = min(up, _draws_below(edge * upper_cuts[slot]))
            third = max(up, _draws_below(edge + (float(LATTICE) - edge) * lower_cuts[slot]))
            counts[slot] += first + third - up
            counts[upper[slot]] += up - first
            counts[lower[slot]] += LATTICE - third
        assert not any(counts[self.size :])
        return [Fraction(count, LATTICE * SLOTS) for count in counts[: self.size]]

    def expected_variance(self, prior: Guess | None = None) -> float:
        """The variance of one report, averaged over a guess: that which it was made for, if none is given."""
        if prior is None and self.prior is None:
            raise ParameterError("prior must be given: this table was solved elsewhere")
        guess = self.prior if prior is None else as_prior(prior)
        assert guess is not None
        return float(guess.masses @ self._unit_variance(guess.points)) * self._half**2

    def _unit_worst_variance(self) -> float:
        return worst_between_knots(self.knots, self._unit_variance(self.knots) + self.knots**2)

    def _ideal_unit_worst_variance(self) -> float:
        """Already exact: this mechanism has no continuous form."""
        return self._unit_worst_variance()


def _draws_below(edge: float) -> int:
    """Return the number of draws 0 .. 2^52 - 1 below a double."""
    return min(LATTICE, max(0, math.ceil(edge)))


def _most(weight: int, c: Fraction) -> int:
    """The most places that an output may have elsewhere, if it has `weight` here: slack on both sides."""
    return math.floor(c * (weight - 2 * SLACK)) - 2 * SLACK


def _whole_weights(weights: Floats, high: NDArray[np.bool_], epsilon: float) -> list[int]:
    """Whole weights whose rows have at most 2^50 places."""
    c = exp_below(epsilon)
    sums = np.where(high, math.exp(epsilon), 1.0).T @ weights
    scale = PLACES / max(1.0, float(sums.max())) * (1.0 - 1e-12)
    whole_ones = [math.floor(weight * scale) for weight in weights.tolist()]
    most = max(
        sum(_most(one, c) if is_high else one for one, is_high in zip(whole_ones, row, strict=True))
        for row in high.T.tolist()
    )
    assert most <= PLACES
    return whole_ones


def _alias(row: list[int]) -> tuple[list[int], list[int]]:
    """64 slots of equal size: how much of each is its own, and whose the rest is. In whole numbers.

    Reference: Walker 1977.
    """
    left = row + [0] * (SLOTS - len(row))
    own, other = [_SLOT] * SLOTS, list(range(SLOTS))
    small = [slot for slot in range(SLOTS) if left[slot] < _SLOT]
    large = [slot for slot in range(SLOTS) if left[slot] > _SLOT]
    while small:
        slot, giver = small.pop(), large[-1]
        own[slot], other[slot] = left[slot], giver
        left[giver] -= _SLOT - left[slot]
        if left[giver] <= _SLOT:
            large.pop()
            if left[giver] < _SLOT:
                small.append(giver)
    return own, other


def _checked_outputs(y: ArrayLike) -> Floats:
    outputs = as_floats(y)
    if outputs.ndim != 1 or not 2 <= outputs.size <= SLOTS:
        raise ParameterError(f"y must be a vector of 2 to {SLOTS} outputs, got shape {outputs.shape}")
    if not np.isfinite(outputs).all() or not 1e-100 <= np.abs(outputs).max() <= 1e100:
        raise ParameterError("y must be finite, with outputs of up to 1e100")
    if not (np.diff(outputs) > 0.0).all():
        raise ParameterError("y must be increasing")
    return outputs.copy()


def _checked_columns(given: Any, outputs: int) -> tuple[Column, ...]:
    if not isinstance(given, (list, tuple)) or not 2 <= len(given) <= MOST_COLUMNS:
        raise ParameterError(f"columns must be a list of 2 to {MOST_COLUMNS}")
    found = []
    for place, one in enumerate(given):
        if not isinstance(one, (list, tuple)) or len(one) != 3:
            raise ParameterError(f"columns[{place}] must be an output, a weight and a pattern")
        output = whole(f"columns[{place}][0]", one[0], low=0, high=outputs - 1)
        weight = whole(f"columns[{place}][1]", one[1], low=1, high=PLACES)
        pattern = one[2]
        if not isinstance(pattern, str) or not 1 <= len(pattern) <= MOST_KNOTS or set(pattern) - _HEXADECIMAL:
            raise ParameterError(f"columns[{place}][2] must be a pattern in hexadecimal")
        found.append((output, weight, pattern))
    if {output for output, _, _ in found} != set(range(outputs)):
        raise ParameterError("columns must use every output")
    return tuple(found)


_HEXADECIMAL = frozenset("0123456789abcdef")
