"""Multi-Krum on whole numbers: exact squared distances, scores and the set that is accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.federated.robust.grid import MOST_NORM, MOST_UPDATES, Update

_COLUMNS = 1 << 14  # that are multiplied together: with 100 updates 13 MB
_SELF = np.iinfo(np.int64).max  # farther than any distance


@dataclass(frozen=True)
class Chosen:
    """The result of Multi-Krum for a round.

    Attributes:
        accepted: places of the updates that are averaged, in order.
        scores: Score of every update.
    """

    accepted: tuple[int, ...]
    scores: tuple[int, ...]


def squared_distances(updates: Sequence[Update]) -> NDArray[np.int64]:
    """Return the squared distances between all pairs of updates, exactly.

    |a - b|^2 = |a|^2 + |b|^2 - 2 a.b, the products in doubles, a few columns at a time: each partial sum is
    a whole number of at most 2^50 by Cauchy and Schwarz (`grid`), so no order of adding rounds.

    Raises:
        ParameterError: an update is longer than 2^25, for which this would not hold.
    """
    count, size = len(updates), updates[0].size
    products, part = np.zeros((count, count)), np.empty((count, min(_COLUMNS, size)))
    for at in range(0, size, _COLUMNS):
        width = min(_COLUMNS, size - at)
        held = part if width == part.shape[1] else np.empty((count, width))
        for row, update in enumerate(updates):
            held[row] = update[at : at + width]
        products += held @ held.T
    if products.diagonal().max() > MOST_NORM**2:  # a sum that was rounded is larger than this, too
        raise ParameterError(f"updates must have a norm of at most {MOST_NORM} grid steps")
    exact = products.astype(np.int64)
    squares = exact.diagonal()
    return np.asarray(squares[:, None] + squares[None, :] - 2 * exact)


def multi_krum(updates: Sequence[Update], liars: int) -> Chosen:
    """Score every update by its nearest others, and accept all but so many with the largest scores.

    Args:
        updates: Updates of a round, checked (`Grid.checked`), R of them. Of equal scores the earlier one is
            accepted.
        liars: f, how many of them may lie; R >= 2f + 3.

    Reference: Zhao 2022, Eq. 5.1; Blanchard et al. 2017, Section 4.
    Departure: the document's text adds distances, its equation their squares, which are meant. An update is
        never its own neighbour: it is masked, not found by its distance of zero, which a copy has too. R - f
        are accepted, as the document says; the published bound is for at most R - f - 2.
    """
    count = len(updates)
    f = whole("liars", liars, low=0)
    whole("updates", count, low=2 * f + 3, high=MOST_UPDATES)
    distances = squared_distances(updates)
    np.fill_diagonal(distances, _SELF)
    near = count - f - 2
    scores = np.partition(distances, near - 1, axis=1)[:, :near].sum(axis=1)
    order = sorted(range(count), key=lambda place: (int(scores[place]), place))
    return Chosen(tuple(sorted(order[: count - f])), tuple(int(score) for score in scores))
