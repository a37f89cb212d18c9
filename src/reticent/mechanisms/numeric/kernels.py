"""Two engines for the sampling formulas of the numeric mechanisms: numpy's, and numba's for large calls.

A formula maps an input x and uniform randomness to an output code, given the parameters (`law`) of a
mechanism; it stands beside the class that it is of, and is written once. It is plain arithmetic plus `where`;
with numpy's `where` it works on whole arrays, with a scalar `where` numba compiles it into one fused loop.
Both engines do the same IEEE operations in the same order, so the same stream gives the same symbols.

Randomness is a "unit" f = 1 + n 2^-52 (see `randomness.streams`) or a raw word. All thresholds are doubles on
the same lattice: a comparison is an exact integer comparison.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reticent.randomness.streams import as_units

COMPILE_FROM = 200_000  # values in one call that are worth the second that a first compilation takes

Law = tuple[Any, ...]
Randomness = tuple[NDArray[Any], ...]
Function = Callable[..., Any]


class Writing(NamedTuple):
    """The functions that a formula is written with, in one engine.

    Attributes:
        where: choose between two values.
        compiled: decorates every function.
        clamp: NaN to 0, everything else into [-1, 1]: a total function (no input fails).
    """

    where: Function
    compiled: Function
    clamp: Function


class Formula(NamedTuple):
    """The formula by which a mechanism draws: a function (x, *randomness, law) -> code.

    Attributes:
        write: writes the function for one engine.
        draws: 0 for raw words, 1 for one unit a value (words, which the engine turns into units in place),
            2 for two units a value, made before.
    """

    write: Callable[[Writing], Function]
    draws: int


def _writing(where: Function, compiled: Function) -> Writing:
    @compiled
    def clamp(x: Any) -> Any:
        x = where(x == x, x, 0.0)
        x = where(x > -1.0, x, -1.0)
        return where(x < 1.0, x, 1.0)

    return Writing(where, compiled, clamp)


class Engine(NamedTuple):
    """Runs a formula over one block of values.

    Attributes:
        name: "numpy" or "numba".
        function: a formula, as this engine runs it on one value or on a block.
        run: (formula, values, randomness, out, law).
    """

    name: str
    function: Callable[[Formula], Function]
    run: Callable[[Formula, NDArray[Any], Randomness, NDArray[np.float64], Law], None]


def _numpy_engine() -> Engine:
    writing = _writing(np.where, lambda function: function)
    function = cache(lambda formula: formula.write(writing))

    def run(formula: Formula, x: NDArray[Any], randomness: Randomness, out: NDArray[Any], law: Law) -> None:
        if formula.draws == 1:
            randomness = (as_units(randomness[0]),)
        out[...] = function(formula)(x, *randomness, law)

    return Engine("numpy", function, run)


def _numba_engine() -> Engine:
    import numba

    @numba.njit
    def where(condition: Any, yes: Any, no: Any) -> Any:
        return yes if condition else no

    writing = _writing(where, numba.njit)
    function = cache(lambda formula: formula.write(writing))

    @cache
    def loop_of(formula: Formula) -> Callable[..., None]:
        """Return a loop over raw words (draws 0), over words made units, or over two units a value."""
        drawn = function(formula)

        def words(x: Any, randomness: Any, out: Any, law: Any) -> None:
            (w,) = randomness
            for i in range(x.size):
                out[i] = drawn(x[i], w[i], law)

        def one_draw(x: Any, randomness: Any, out: Any, law: Any) -> None:
            (w,) = randomness  # made units here and not by numpy: one stretch without Python's lock
            for i in range(w.size):
                w[i] = (w[i] >> np.uint64(12)) | np.uint64(0x3FF0000000000000)
            f = w.view(np.float64)
            for i in range(x.size):
                out[i] = drawn(x[i], f[i], law)

        def two_draws(x: Any, randomness: Any, out: Any, law: Any) -> None:
            f, g = randomness
            for i in range(x.size):
                out[i] = drawn(x[i], f[i], g[i], law)

        loop: Callable[..., None] = numba.njit((words, one_draw, two_draws)[formula.draws], nogil=True)
        return loop

    def run(formula: Formula, x: NDArray[Any], randomness: Randomness, out: NDArray[Any], law: Law) -> None:
        loop_of(formula)(x, randomness, out, law)

    return Engine("numba", function, run)


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
