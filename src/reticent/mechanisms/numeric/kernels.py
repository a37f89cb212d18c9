"""The sampling formulas of the numeric mechanisms, written once for two engines.

Each formula maps an input x and uniform randomness to an output code, given the parameters
(`law`) of a mechanism. It is plain arithmetic plus `where`; with numpy's `where` it works on whole
arrays, with a scalar `where` numba compiles it into one fused loop. Both engines do the same IEEE
operations in the same order, so the same stream gives the same symbols.

Randomness is a "unit" f = 1 + n 2^-52 (see `randomness.streams`) or, for OneBit, a raw word.
All thresholds are doubles on the same lattice: a comparison is an exact integer comparison.
The laws are made, and checked, in `hybrid`, `one_bit` and `window`.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.randomness.streams import as_units

COMPILE_FROM = 200_000  # values in one call that are worth the second that a first compilation takes

# 0: OneBit reads raw words. 1: words, which the engine turns into units in place. 2: units, made before.
UNITS_PER_VALUE = {"two_values": 1, "three_values": 1, "piecewise": 1, "hybrid": 1, "one_bit": 0, "window": 2}

Law = tuple[Any, ...]
Randomness = tuple[NDArray[Any], ...]


class Formulas(NamedTuple):
    """One function (x, *randomness, law) -> code per sampling law."""

    two_values: Callable[..., Any]
    three_values: Callable[..., Any]
    piecewise: Callable[..., Any]
    hybrid: Callable[..., Any]
    one_bit: Callable[..., Any]
    window: Callable[..., Any]


def _build(where: Callable[..., Any], compiled: Callable[..., Any]) -> Formulas:
    """Write the formulas for one engine."""

    @compiled
    def clamp(x: Any) -> Any:
        """NaN to 0, everything else into [-1, 1]: a total function (no input fails)."""
        x = where(x == x, x, 0.0)
        x = where(x > -1.0, x, -1.0)
        return where(x < 1.0, x, 1.0)

    @compiled
    def two_values(x: Any, f: Any, law: Law) -> Any:
        """`plus` with probability (middle - 1) + slope x, else `minus`."""
        middle, slope, minus, plus = law
        return where(f < middle + clamp(x) * slope, plus, minus)

    @compiled
    def three(v: Any, f: Any, law: Law) -> Any:
        """The middle output at the bottom of the lattice, the less likely side at its top."""
        zero_0, zero_fall, side_0, side_fall, minus, zero, plus = law
        a = np.abs(v)
        unlikely = where(v < 0.0, plus, minus)
        likely = where(v < 0.0, minus, plus)
        side = where(f >= side_0 + a * side_fall, unlikely, likely)
        return where(f < zero_0 - a * zero_fall, zero, side)

    @compiled
    def three_values(x: Any, f: Any, law: Law) -> Any:
        return three(clamp(x), f, law)

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

    @compiled
    def piecewise(x: Any, f: Any, law: Law) -> Any:
        return grid(clamp(x), f, law)

    @compiled
    def hybrid(x: Any, f: Any, law: Law) -> Any:
        """Below `grid_end` the grid, above it the three values."""
        grid_end, grid_law, three_law = law
        v = clamp(x)
        return where(f < grid_end, grid(v, f, grid_law), three(v, f, three_law))

    @compiled
    def one_bit(x: Any, word: Any, law: Law) -> Any:
        """Dither level from the low bits of the word; the bit by comparing the high ones with a threshold.

        Row j of `table` is (lower knot, threshold per unit of x, code of bit 1, code of bit 0).
        """
        table, level_mask, level_shift, lowest, highest = law
        v = clamp(x)
        row = (word & level_mask) * np.uint64(4)
        draw = np.int64(word >> level_shift)
        threshold = (v - table[row]) * table[row + np.uint64(1)] + lowest
        threshold = where(threshold > lowest, threshold, lowest)
        threshold = where(threshold < highest, threshold, highest)
        return table[row + np.uint64(2) + np.uint64(draw >= np.int64(threshold))]

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

    return Formulas(two_values, three_values, piecewise, hybrid, one_bit, window)


class Engine(NamedTuple):
    """Runs a formula over one block of values: `run(name, values, randomness, out, law)`."""

    name: str
    formulas: Formulas
    run: Callable[[str, NDArray[Any], Randomness, NDArray[np.float64], Law], None]


def _numpy_engine() -> Engine:
    formulas = _build(np.where, lambda function: function)

    def run(name: str, x: NDArray[Any], randomness: Randomness, out: NDArray[Any], law: Law) -> None:
        if UNITS_PER_VALUE[name] == 1:
            randomness = (as_units(randomness[0]),)
        out[...] = getattr(formulas, name)(x, *randomness, law)

    return Engine("numpy", formulas, run)


def _numba_engine() -> Engine:
    import numba

    @numba.njit
    def where(condition: Any, yes: Any, no: Any) -> Any:
        return yes if condition else no

    formulas = _build(where, numba.njit)

    def loop_of(formula: Callable[..., Any], draws: int) -> Callable[..., None]:
        """A loop over raw words (draws 0), over words made units, or over two units a value."""

        def words(x: Any, randomness: Any, out: Any, law: Any) -> None:
            (w,) = randomness
            for i in range(x.size):
                out[i] = formula(x[i], w[i], law)

        def one_draw(x: Any, randomness: Any, out: Any, law: Any) -> None:
            (w,) = randomness  # made units here and not by numpy: one stretch without Python's lock
            for i in range(w.size):
                w[i] = (w[i] >> np.uint64(12)) | np.uint64(0x3FF0000000000000)
            f = w.view(np.float64)
            for i in range(x.size):
                out[i] = formula(x[i], f[i], law)

        def two_draws(x: Any, randomness: Any, out: Any, law: Any) -> None:
            f, g = randomness
            for i in range(x.size):
                out[i] = formula(x[i], f[i], g[i], law)

        loop: Callable[..., None] = numba.njit((words, one_draw, two_draws)[draws], nogil=True)
        return loop

    loops = {name: loop_of(formula, UNITS_PER_VALUE[name]) for name, formula in formulas._asdict().items()}

    def run(name: str, x: NDArray[Any], randomness: Randomness, out: NDArray[Any], law: Law) -> None:
        loops[name](x, randomness, out, law)

    return Engine("numba", formulas, run)


@lru_cache(maxsize=2)
def engine(name: str) -> Engine:
    """Return the engine called "numpy" or "numba"."""
    return _numba_engine() if name == "numba" else _numpy_engine()


@lru_cache(maxsize=1)
def _numba_allowed() -> bool:
    return os.environ.get("RETICENT_ENGINE") != "numpy" and importlib.util.find_spec("numba") is not None


def engine_for(count: int) -> Engine:
    """Return numba's engine for large calls where numba is installed, numpy's otherwise."""
    return engine("numba" if count >= COMPILE_FROM and _numba_allowed() else "numpy")
