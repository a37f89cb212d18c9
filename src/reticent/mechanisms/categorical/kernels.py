"""The sampling formula of k-ary randomised response, written once for two engines.

As in `numeric.kernels`: plain arithmetic plus `where`, on whole arrays with numpy or fused into one
loop by numba, with the same IEEE operations in the same order, hence the same symbols from the same stream.
Unary encoding needs no second engine: it is one comparison of short integers per bit, which numpy
already runs as fast as the random bits arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.mechanisms.numeric.kernels import engine_for

PLACES_BITS = 50  # floor(n * nextafter(1/d)) == n // d for every n below 2^50
_PLACES = float(1 << PLACES_BITS)

Run = Callable[[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], float, float], None]


def _build(where: Callable[..., Any], compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Write the formula for one engine."""

    @compiled
    def response(x: Any, f: Any, others_end: Any, per_other: Any) -> Any:
        """Another category than x, uniformly, in the low places of the lattice; x in the rest.

        f = 1 + n 2^-52 is a unit draw; its place among 2^50 is n >> 2.
        """
        place = np.floor((f - 1.0) * _PLACES)
        other = np.floor(place * per_other)
        other = other + where(other < x, 0.0, 1.0)
        return where(place < others_end, other, x)

    return response  # type: ignore[no-any-return]


def _numpy_run() -> Run:
    response = _build(np.where, lambda function: function)

    def run(x: Any, f: Any, out: Any, others_end: float, per_other: float) -> None:
        out[...] = response(x, f, others_end, per_other)

    return run


def _numba_run() -> Run:
    import numba  # type: ignore[import-untyped,unused-ignore]

    @numba.njit
    def where(condition: Any, yes: Any, no: Any) -> Any:
        return yes if condition else no

    response = _build(where, numba.njit)

    @numba.njit(nogil=True)
    def run(x: Any, f: Any, out: Any, others_end: float, per_other: float) -> None:
        for i in range(x.size):
            out[i] = np.int64(response(x[i], f[i], others_end, per_other))

    return run  # type: ignore[no-any-return,unused-ignore]


@lru_cache(maxsize=2)
def response_run(engine: str) -> Run:
    """Return the loop of the engine called "numpy" or "numba"."""
    return _numba_run() if engine == "numba" else _numpy_run()


def response_run_for(count: int) -> Run:
    """Return numba's loop for large calls where numba is installed, numpy's otherwise."""
    return response_run(engine_for(count).name)
