"""Estimated distribution of the dummy points: companions at each of their queries, and the edge's cover.

Companions begin where journeys of the library begin, and drive on from query to query; cover is always at its
first. A provider does not know how many points are of which kind, and one distribution for all would be
wrong: an estimate would put the error of (m - 1)/m of the points into the 1/m that is true. So the shares of
the kinds are fitted to the reports, by EM over these few distributions; dummies are most of the points, and
the true points are assumed to be uniform.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.estimation.inputs import checked_counts
from reticent.estimation.locations import PlaceChannel
from reticent.location.stations.companions import Companions
from reticent.mechanisms.base import Floats

_STEPS = 300
_LEAST = 1e-300


def kinds(companions: Companions, queries: int) -> Floats:
    """Return the distribution of a companion at each query, and of cover: shape (queries + 1, places)."""
    laws, at = [], companions.beginnings(queries)
    for query in range(whole("queries", queries, low=1, high=1000)):
        at = companions.moved(at) if query else at
        laws.append(at)
    laws.append(companions.beginnings(1))
    size = companions.roads.size
    return np.stack([np.bincount(companions.places, one, minlength=size) for one in laws])


def fitted_law(
    channel: PlaceChannel, companions: Companions, counts: Any, *, m: float, queries: int
) -> Floats:
    """Estimate the place distribution of a dummy point from the reports.

    Args:
        channel: Channel of every report.
        companions: Companions of the service.
        counts: Number of reports of each place.
        m: Points for each true point, cover included.
        queries: Number of queries for which the same companions travel along.
    """
    if not m > 1.0:
        raise ParameterError(f"m must be > 1, got {m:g}")
    held = checked_counts("counts", counts, channel.space.size)
    laws = kinds(companions, queries)
    seen = np.stack([channel.forward(law) for law in laws])
    true = channel.forward(np.full(channel.space.size, 1.0 / channel.space.size)) / m
    shares = np.full(len(laws), 1.0 / len(laws))
    for _ in range(_STEPS):
        parts = (1.0 - 1.0 / m) * shares[:, None] * seen
        told = (parts * (held / np.maximum(true + parts.sum(axis=0), _LEAST))).sum(axis=1)
        shares = told / told.sum()
    return np.asarray(shares @ laws)
