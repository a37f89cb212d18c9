"""The three tests that the audit rests on, with their error rates.

* Clopper-Pearson bounds: exact, each wrong with probability at most `error`, whatever the true chance.
* Pearson's chi-square against a known law, cells pooled to an expected count of `LEAST_EXPECTED`:
  approximate; simulations in the tests show the false-alarm rate at the level that is used.
* Independence of two columns: chi-square of the contingency table, same pooling.

Needs scipy (extra `accounting`), imported late.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.errors import MissingExtra

Floats = NDArray[np.float64]

LEAST_EXPECTED = 100.0  # per cell: the chi-square tail is then right to a few per cent at 1e-6
COARSE_CELLS = 20


def special() -> Any:
    """scipy.special, or a one-line reason."""
    try:
        from scipy import special as functions
    except ImportError as error:
        raise MissingExtra("the audit", "accounting") from error
    return functions


def share_below(hits: ArrayLike, trials: int, error: float) -> Floats:
    """Lower Clopper-Pearson bound: above the true chance with probability at most `error`."""
    k = np.asarray(hits, dtype=np.float64)
    with np.errstate(all="ignore"):
        bound = special().betaincinv(np.maximum(k, 0.5), trials - k + 1.0, error)
    return np.where(k > 0, bound, 0.0)


def share_above(hits: ArrayLike, trials: int, error: float) -> Floats:
    """Upper Clopper-Pearson bound: below the true chance with probability at most `error`."""
    k = np.asarray(hits, dtype=np.float64)
    with np.errstate(all="ignore"):
        bound = special().betainccinv(k + 1.0, np.maximum(trials - k, 0.5), error)
    return np.where(k < trials, bound, 1.0)


def fit_p_values(counts: ArrayLike, law: ArrayLike) -> list[float]:
    """P-values of counts against a law: coarse cells for shape, fine ones for single symbols.

    A symbol that the law gives no chance and that was drawn makes every p-value 0. The coarse test has at
    most `COARSE_CELLS` cells of about equal mass (neighbouring symbols pooled), the fine one as many as
    have an expected count of `LEAST_EXPECTED`; it is left out where it is the same.
    """
    observed, chances = np.asarray(counts, dtype=np.float64), np.asarray(law, dtype=np.float64)
    total = float(observed.sum())
    if np.any(observed[chances <= 0.0] > 0):
        return [0.0]
    expected = chances / chances.sum() * total
    coarse = _pooled(observed, expected, max(LEAST_EXPECTED, total / COARSE_CELLS))
    fine = _pooled(observed, expected, LEAST_EXPECTED)
    tests = [coarse] if len(coarse[0]) == len(fine[0]) else [coarse, fine]
    return [_chi_square(*cells) for cells in tests]


def _pooled(observed: Floats, expected: Floats, least: float) -> tuple[Floats, Floats]:
    """Pool neighbours until each cell expects `least`; what is left joins the last cell."""
    before = np.concatenate([[0.0], np.cumsum(expected)[:-1]])
    cell = np.floor(before / least * (1.0 + 1e-12)).astype(np.int64)
    cell = np.minimum(cell, max(0, math.floor(float(expected.sum()) / least * (1.0 + 1e-9)) - 1))
    _, cell = np.unique(cell, return_inverse=True)
    pooled: tuple[Any, Any] = np.bincount(cell, weights=observed), np.bincount(cell, weights=expected)
    small = np.flatnonzero(pooled[1] < least / 2.0)
    if small.size and len(pooled[1]) > 1:
        return _merged(*pooled, least / 2.0)
    return pooled


def _merged(observed: Floats, expected: Floats, least: float) -> tuple[Floats, Floats]:
    """Join cells that stayed small (next to heavy symbols) to a neighbour."""
    kept_o: list[float] = []
    kept_e: list[float] = []
    for o, e in zip(observed.tolist(), expected.tolist(), strict=True):
        if kept_e and (e < least or kept_e[-1] < least):
            kept_o[-1] += o
            kept_e[-1] += e
        else:
            kept_o.append(o)
            kept_e.append(e)
    return np.array(kept_o), np.array(kept_e)


def _chi_square(observed: Floats, expected: Floats) -> float:
    if observed.size < 2:
        return 1.0
    statistic = float(np.sum((observed - expected) ** 2 / expected))
    return float(special().chdtrc(observed.size - 1, statistic))


def independence_p_value(first: NDArray[Any], second: NDArray[Any], levels: int = 6) -> float:
    """P-value of the hypothesis that two columns of codes are independent of each other.

    Codes are pooled into at most `levels` groups of about equal size, and into fewer where some cell of the
    table would be expected to hold less than five. The groups follow from the two margins alone, so the
    p-value holds given the margins. It is 1 if even two groups leave a cell too thin.
    """
    for most in range(levels, 1, -1):
        rows, columns = _grouped(first, most), _grouped(second, most)
        table = np.zeros((rows.max() + 1, columns.max() + 1))
        np.add.at(table, (rows, columns), 1.0)
        expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / table.sum()
        freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
        if freedom > 0 and expected.min() >= 5.0:
            return float(special().chdtrc(freedom, float(np.sum((table - expected) ** 2 / expected))))
    return 1.0


def _grouped(codes: NDArray[Any], levels: int) -> NDArray[np.int64]:
    """Codes as groups 0..levels-1 of neighbouring ranks with about equal counts."""
    _, ranks, counts = np.unique(codes, return_inverse=True, return_counts=True)
    before = np.cumsum(counts) - counts
    group = (before * levels) // max(1, codes.size)
    _, group = np.unique(group, return_inverse=True)
    grouped: NDArray[np.int64] = group[ranks.reshape(-1)]
    return grouped
