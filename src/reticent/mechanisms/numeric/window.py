"""Window: N outputs and a sliding window of M likely ones, within 0.5 % of the limit up to epsilon 5.

Row s gives each of the outputs s..s+M-1 the high probability and every other one the low
probability. An input is rounded at random to the row means next to it. Only two probability levels occur, so
epsilon-LDP holds whatever the outputs are; solving for good outputs affects accuracy alone.

Reference: [Window] in docs/references.md; the outputs come from `window_solver`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from reticent.arguments import whole
from reticent.errors import GuaranteeError, ParameterError
from reticent.mechanisms.base import Floats, exp_below, require_ratio
from reticent.mechanisms.numeric.base import NumericChannel, as_floats, worst_between_knots
from reticent.mechanisms.numeric.kernels import Formula, Function, Law, Writing
from reticent.randomness import LATTICE

MOST_OUTPUTS = 256
_PLACES = 1 << 50  # equally likely places of one draw; see `hybrid` for why not 2^52


def _window(writing: Writing) -> Function:
    where, compiled, clamp = writing

    @compiled
    def window(x: Any, f: Any, g: Any, law: Law) -> Any:
        """Round x at random to a neighbouring knot (f), then a symbol in or outside the knot's window (g)."""
        inner_knots, knots, per_cell, length, inside_end, per_inside, per_outside, codes = law
        v = clamp(x)
        cell = np.searchsorted(inner_knots, v, side="right")
        row = cell + where(f - 1.0 < (v - knots[cell]) * per_cell[cell], 1, 0)
        n = np.floor((g - 1.0) * 1125899906842624.0)  # 2^50 equally likely places
        inside = np.floor(n * per_inside)
        inside = where(inside < length, inside, length - 1.0)
        outside = np.floor((n - inside_end) * per_outside)
        outside = where(outside < row, outside, outside + length)
        return codes[np.int64(where(n < inside_end, row + inside, outside))]

    return window  # type: ignore[no-any-return]


class Window(NumericChannel):
    """N outputs with a sliding window of M likely ones.

    Args:
        epsilon: the LDP level of one report.
        outputs: the most outputs to use; fewer are taken when that is better.
        window: M; with it exactly `outputs` outputs are used. Chosen for the least variance if not given.
        y: the outputs, increasing and antisymmetric, for a table that was solved elsewhere; needs `window`.
            Nothing is solved then, and the guarantee is checked all the same.
        bounds: the declared interval.
    """

    name = "Window"
    travels = ("window", "y")
    _kernel = Formula(_window, 2)

    def __init__(
        self,
        *,
        epsilon: float,
        outputs: int = 32,
        window: int | None = None,
        y: ArrayLike | None = None,
        bounds: tuple[float, float] = (-1.0, 1.0),
    ) -> None:
        super().__init__(epsilon=epsilon, bounds=bounds)
        if y is not None:
            self._y = _checked_outputs(y)
            if window is None:
                raise ParameterError("window must be given together with y")
            self.window = whole("window", window, low=1, high=self._y.size - 1)
        else:
            from reticent.mechanisms.numeric.window_solver import best_window, solve_window

            outputs = whole("outputs", outputs, low=2, high=MOST_OUTPUTS)
            if window is not None:
                window = whole("window", window, low=1, high=outputs - 1)
                solution = solve_window(self.epsilon, outputs, window)
            else:
                solution = best_window(self.epsilon, outputs)
            self._y, self.window = solution.outputs, solution.window
        self.outputs = int(self._y.size)
        self._places()

    @property
    def y(self) -> Floats:
        """The outputs as they were solved, to make the same mechanism elsewhere."""
        return self._y.copy()

    def _places(self) -> None:
        """Choose how many places an output inside and outside the window has; keep e^epsilon exactly.

        The few places that do not divide go to the last output of the window.
        """
        n, m, c = self.outputs, self.window, exp_below(self.epsilon)
        self._outside = math.ceil(_PLACES / (n - m + c * m))
        while True:
            self._inside, rest = divmod(_PLACES - (n - m) * self._outside, m)
            if self._inside + rest <= c * self._outside:
                break
            self._outside += 1
        self._rest = rest
        require_ratio(self._inside + rest, self._outside, self.epsilon, "window")
        if self._inside <= self._outside:
            raise GuaranteeError(f"epsilon {self.epsilon:g}: nothing is more likely inside the window")

    @cached_property
    def _row_counts(self) -> np.ndarray[Any, Any]:
        """Places of each output in each row: shape (rows, outputs)."""
        rows = self.outputs - self.window + 1
        counts = np.full((rows, self.outputs), self._outside, dtype=np.int64)
        for row in range(rows):
            counts[row, row : row + self.window] = self._inside
            counts[row, row + self.window - 1] += self._rest
        return counts

    @cached_property
    def _unit_alphabet(self) -> Floats:
        """The outputs, scaled so that the last row's mean is 1 under the places really used."""
        return np.asarray(self._y / (self._row_counts[-1] / _PLACES @ self._y))

    @cached_property
    def knots(self) -> Floats:
        """The row means, from -1 to 1."""
        knots = self._row_counts / _PLACES @ self._unit_alphabet
        knots[0], knots[-1] = -1.0, 1.0  # equal to that but for the last bit
        return np.asarray(knots)

    def _law(self, *, symbols: bool) -> tuple[Any, ...]:
        law = (
            self.knots[1:-1],
            self.knots,
            1.0 / np.diff(self.knots),
            float(self.window),
            float(self.window * self._inside + self._rest),
            math.nextafter(1.0 / self._inside, math.inf),
            math.nextafter(1.0 / self._outside, math.inf),
        )
        codes = np.arange(self.outputs, dtype=np.float64) if symbols else self._unit_alphabet
        return (*law, codes)

    def _mixing(self, unit: Floats) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """For each input, its cell and how many of 2^52 units round it to the upper knot."""
        cell = np.searchsorted(self.knots[1:-1], unit, side="right")
        share = (unit - self.knots[cell]) * (1.0 / np.diff(self.knots))[cell]
        return cell, np.clip(np.ceil(share * LATTICE), 0.0, float(LATTICE))

    def _unit_probabilities(self, unit: Floats) -> Floats:
        cell, up = self._mixing(unit)
        share = (up / LATTICE)[:, None]
        rows = self._row_counts / _PLACES
        return np.asarray((1.0 - share) * rows[cell] + share * rows[cell + 1])

    def _exact(self, unit: float) -> list[Fraction]:
        cells, ups = self._mixing(np.array([unit]))
        cell, up = int(cells[0]), int(ups[0])
        low, high = self._row_counts[cell], self._row_counts[cell + 1]
        total = LATTICE * _PLACES
        return [
            Fraction((LATTICE - up) * int(a) + up * int(b), total) for a, b in zip(low, high, strict=True)
        ]

    def _unit_worst_variance(self) -> float:
        return worst_between_knots(self.knots, self._unit_variance(self.knots) + self.knots**2)

    def _ideal_unit_worst_variance(self) -> float:
        """Already exact: this mechanism has no continuous form."""
        return self._unit_worst_variance()


def _checked_outputs(y: ArrayLike) -> Floats:
    outputs = as_floats(y)
    if outputs.ndim != 1 or not 2 <= outputs.size <= MOST_OUTPUTS:
        raise ParameterError(f"y must be a vector of 2 to {MOST_OUTPUTS} outputs, got shape {outputs.shape}")
    largest = np.abs(outputs).max()
    if not 1e-100 <= largest <= 1e100:  # NaN is neither
        raise ParameterError("y must be finite, with outputs of up to between 1e-100 and 1e100")
    tie = 1e-12 * largest  # solved tables have ties
    if not (np.diff(outputs) >= -tie).all() or outputs[-1] <= 0.0:
        raise ParameterError("y must be finite and increasing, from a negative to a positive output")
    if not np.allclose(outputs, -outputs[::-1], rtol=1e-9, atol=tie):
        raise ParameterError("y must be antisymmetric: y[i] == -y[-1 - i]")
    return outputs.copy()
