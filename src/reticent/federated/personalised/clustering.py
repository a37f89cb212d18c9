"""New hypotheses from noisy reports: k-means from the old ones, or the sums of slots. All public."""

from __future__ import annotations

import math

import numpy as np

from reticent.federated.personalised.noise import Sanitiser, clipped
from reticent.mechanisms.base import Floats

MOST_PASSES = 100
SURE = 2.0  # standard deviations of its noise by which the size of a cluster must exceed 0


def k_means(points: Floats, centres: Floats) -> Floats:
    """Lloyd's algorithm from given centres; a centre that no point is nearest to stays where it is.

    Reference: Biswas 2023, Algorithm 6, the line of k-means.
    """
    assigned = None
    for _ in range(MOST_PASSES):
        apart = [points - centre for centre in centres]
        nearest = np.argmin([np.einsum("ij,ij->i", one, one) for one in apart], axis=0)
        if assigned is not None and np.array_equal(nearest, assigned):
            break
        assigned, centres = nearest, centres.copy()
        for place in np.unique(nearest):
            centres[place] = points[nearest == place].mean(axis=0)
    return centres


def from_slots(sanitiser: Sanitiser, sums: Floats, clients: int) -> Floats:
    """Each hypothesis moved by the mean update of those who chose it, of the sums of all reports.

    The sizes of the clusters are noisy, but their sum is known. Noise may make a small cluster look empty, or
    an empty one small: one whose estimated size is not beyond its noise keeps its hypothesis. A mean of
    clipped updates is no longer than the clip, so neither is the step.
    """
    task, hypotheses = sanitiser.task, sanitiser.hypotheses
    assert hypotheses is not None
    k = task.hypotheses
    slots = sums.reshape(k, -1)
    sizes = np.zeros(k) if k == 1 else slots[:, task.dimensions] / task.clip
    sizes = sizes + (clients - sizes.sum()) / k
    noise = math.sqrt(sanitiser.variance * clients * (1.0 - 1.0 / k)) / task.clip
    least = max(0.5, SURE * noise)
    moves = clipped(slots[:, : task.dimensions] / np.maximum(sizes, least)[:, None], task.clip)
    return np.where((sizes > least)[:, None], hypotheses + moves, hypotheses)


def within(hypotheses: Floats, reach: float) -> Floats:
    """Hypotheses that clients accept."""
    return clipped(hypotheses, reach * (1.0 - 2.0**-40))
