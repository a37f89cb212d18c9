"""Averages of updates, number by number, on the grid: halves round up, and every machine gets the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import whole
from reticent.federated.robust.grid import MOST_UPDATES, Update

Integers = NDArray[np.int64]
_COLUMNS = 1 << 14


def divided(sums: Integers, count: int) -> Integers:
    """floor(sum / count + 1/2), in the place of the sums: models may be large."""
    sums *= 2
    sums += count
    sums //= 2 * count
    return sums


def mean(updates: Sequence[Update]) -> Integers:
    """The mean of updates, of at least one."""
    whole("updates", len(updates), low=1, high=MOST_UPDATES)
    total = np.zeros(updates[0].size, dtype=np.int64)
    for update in updates:
        total += update
    return divided(total, len(updates))


def median(updates: Sequence[Update]) -> Integers:
    """The median of each number; of an even count the mean of the two in the middle.

    Reference: Yin et al. 2018, Algorithm 1, option I.
    """
    count = whole("updates", len(updates), low=1, high=MOST_UPDATES)
    low, high = (count - 1) // 2, count // 2

    def middle(part: Integers) -> Integers:
        part.partition((low, high), axis=0)
        return divided(part[low] + part[high], 2)

    return _by_columns(updates, middle)


def trimmed_mean(updates: Sequence[Update], liars: int) -> Integers:
    """The mean of each number without the `liars` smallest and the `liars` largest.

    Reference: Yin et al. 2018, Algorithm 1, option II.
    """
    count, f = len(updates), whole("liars", liars, low=0)
    whole("updates", count, low=2 * f + 1, high=MOST_UPDATES)

    def inner(part: Integers) -> Integers:
        if f:
            part.partition((f - 1, count - f), axis=0)
        return divided(part[f : count - f].sum(axis=0), count - 2 * f)

    return _by_columns(updates, inner)


def _by_columns(updates: Sequence[Update], of: Callable[[Integers], Integers]) -> Integers:
    """Apply `of` to the numbers in each place, some places at a time."""
    found = np.empty(updates[0].size, dtype=np.int64)
    for at in range(0, found.size, _COLUMNS):
        part = np.stack([update[at : at + _COLUMNS] for update in updates]).astype(np.int64)
        found[at : at + _COLUMNS] = of(part)
    return found
