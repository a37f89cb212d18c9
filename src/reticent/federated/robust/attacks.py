"""Updates that liars among the clients send, for tests and for the table of what remains.

Each attack sees what its clients would have sent honestly, what everybody else sends in the round (the worst
case), and what was sent the round before. What it makes lies on the grid, unless being off it is the attack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reticent.federated.robust.grid import Grid
from reticent.mechanisms.base import Floats

Z = 0.7  # standard deviations of a-little-is-enough that Multi-Krum accepts from 4 of 20


@dataclass(frozen=True)
class Seen:
    """The knowledge of liars.

    Attributes:
        grid: of the task.
        own: updates that they would have sent, a row each, as numbers (not steps).
        others: of all who are honest.
        before: of the honest, one round earlier; zeros in the first.
        flipped: of their own records with other labels; `own` where labels mean nothing.
    """

    grid: Grid
    own: Floats
    others: Floats
    before: Floats
    flipped: Floats


def other_labels(labels: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """The labels of a label flip: k becomes classes - 1 - k."""
    return classes - 1 - labels


def _placed(seen: Seen, updates: Floats) -> Floats:
    return np.stack([seen.grid.values(seen.grid.placed(one)) for one in updates])


def sign_flip(seen: Seen) -> Floats:
    """The opposite of what was learnt."""
    return _placed(seen, -seen.own)


def label_flip(seen: Seen) -> Floats:
    """Learnt from wrong labels."""
    return _placed(seen, seen.flipped)


def scaling(seen: Seen) -> Floats:
    """The opposite, as long as the norm allows."""
    lengths = np.linalg.norm(seen.own, axis=1, keepdims=True)
    longest = seen.grid.norm / seen.grid.steps
    return _placed(seen, -seen.own * (longest / np.maximum(lengths, 1e-300)))


def too_long(seen: Seen) -> Floats:
    """The opposite, a hundred times too long: not on the grid."""
    return -100.0 * (seen.grid.norm / seen.grid.steps) * seen.own


def little(seen: Seen, z: float = Z) -> Floats:
    """A little is enough: all alike, off the mean by less than honest ones are.

    Reference: Baruch et al. 2019, Algorithm 3.
    """
    off = seen.others.mean(axis=0) - z * seen.others.std(axis=0)
    return _placed(seen, np.repeat(off[None, :], len(seen.own), axis=0))


def copied(seen: Seen) -> Floats:
    """Somebody else's update, sent again as one's own."""
    return seen.others[np.arange(len(seen.own)) % len(seen.others)]


def zero(seen: Seen) -> Floats:
    """Nothing learnt at all."""
    return np.zeros_like(seen.own)


def replayed(seen: Seen) -> Floats:
    """Updates of the round before."""
    return seen.before[np.arange(len(seen.own)) % len(seen.before)]


def not_finite(seen: Seen) -> Floats:
    """Not a number, which no grid holds."""
    return np.full_like(seen.own, np.nan)


ATTACKS: dict[str, Callable[[Seen], Floats]] = {
    "sign flip": sign_flip,
    "label flip": label_flip,
    "scaling": scaling,
    "too long": too_long,
    "a little is enough": little,
    "copied": copied,
    "zero": zero,
    "replayed": replayed,
    "not finite": not_finite,
}
