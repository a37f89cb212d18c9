"""Batches that share an update with another one: what such a clone looks like, and how far away it is.

With pi = P - Y (records by classes) the last layer's gradient is X^T pi / k, for records X by rows. If X' has
the same gradient and pi' a right inverse, then X'^T = X^T D with D = pi pi'^+: each record of a clone is a
combination of the batch's records, and no other direction is possible.

Reference: Biswas 2023, Lemmas 6.8 and 6.10, Corollary 6.11, Theorem 6.12.
Departure: for any batch of k < m records; at k >= m pi has no right inverse, and a family is left.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats


def residuals(probabilities: ArrayLike, labels: ArrayLike) -> Floats:
    """Pi: probabilities of each record's classes, less one at its own."""
    found = np.array(probabilities, dtype=np.float64)
    classes = np.asarray(labels, dtype=np.int64)
    if found.ndim != 2 or classes.shape != found.shape[:1]:
        raise ParameterError("probabilities must be records by classes, with a label for each record")
    found[np.arange(len(found)), classes] -= 1.0
    return found


def clone_map(pi: ArrayLike, other: ArrayLike) -> Floats:
    """D, shape (k, k): a clone with the residuals `other` has the records D^T X.

    Raises:
        ParameterError: `other` has no right inverse, as with as many records as classes.
    """
    mine, theirs = np.asarray(pi, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if np.linalg.matrix_rank(theirs) < len(theirs):
        raise ParameterError("the clone's residuals must have a right inverse: fewer records than classes")
    return np.asarray(mine @ np.linalg.pinv(theirs))


def clone_distances(records: ArrayLike, mapping: ArrayLike) -> Floats:
    """The distance of each record from its clone's: the length of sum_j delta_ji x_j, D = 1 + delta."""
    found, d = np.asarray(records, dtype=np.float64), np.asarray(mapping, dtype=np.float64)
    return np.asarray(np.linalg.norm((d - np.eye(len(d))).T @ found, axis=1))
