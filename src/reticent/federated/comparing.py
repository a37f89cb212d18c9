"""The comparison of two kinds of reports by their steps: sampled coordinates, or a codebook of gradients.

Neither is always better. Coordinates may be clipped hard and still point the right way; a codebook has less
noise where gradients are short beside their bounds. What a step follows is the direction of the noisy
average, so what counts is its noise over its signal, 1/cos^2 - 1 for the angle between it and the gradient
without any clipping or noise. That is exact arithmetic on public rows.

It is a statement about public rows. Clients who differ from them may be served better by the other one; what
they keep is the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.federated import choice
from reticent.federated.models import Model
from reticent.mechanisms.base import Floats, checked_epsilon
from reticent.mechanisms.sampling import epsilon_each, sample_sizes
from reticent.mechanisms.vector.codebook import Codebook, lifted

COORDINATES = "coordinates"
_STEPS = 30  # of the training without noise that shows where gradients are later on
_SHARES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0)  # of the largest coordinate or length
_NEARLY = 1.03  # times the least noise
_CELLS = 200  # of the law of coordinates
_MIDDLES = (np.arange(_CELLS) + 0.5) / _CELLS
_MIDDLES[0], _MIDDLES[-1] = 0.0, 1.0  # most coordinates are nothing, or clipped


@dataclass(frozen=True)
class Way:
    """One way of reporting, with its best bound.

    Attributes:
        kind: Kind of the mechanism.
        bound: Bound of each coordinate, or of the length of a gradient.
        sample_size: coordinates in a report; 1 for a codebook.
        noise: over signal, the geometric mean over where training goes: 1/cos^2 - 1.
    """

    kind: str
    bound: float
    sample_size: int
    noise: float

    @property
    def is_codebook(self) -> bool:
        """Whether whole gradients are reported."""
        return self.kind == choice.CODEBOOK


@dataclass(frozen=True)
class Comparison:
    """Both ways on the same public rows.

    Attributes:
        coordinates: the best mechanism, k and bound.
        codebook: the best length.
    """

    coordinates: Way
    codebook: Way

    @property
    def ratio(self) -> float:
        """Noise over signal of the codebook by that of coordinates: below 1 the codebook is better."""
        return self.codebook.noise / self.coordinates.noise

    @property
    def better(self) -> Way:
        """The one with less noise."""
        return self.codebook if self.ratio < 1.0 else self.coordinates


def compared(
    model: Model,
    features: Any,
    targets: Any,
    *,
    epsilon: float,
    group: int,
    later: bool = True,
    kinds: Sequence[str] = tuple(choice.KINDS),
) -> Comparison:
    """Return the best of each way of reporting, on public rows, one row for each client.

    Args:
        model: Model to learn.
        features: public rows.
        targets: Targets of the same rows.
        epsilon: Epsilon of one report.
        group: clients of a round.
        later: True to look at gradients where training without noise leads too, not at the start alone.
        kinds: Mechanisms of coordinates that are tried, of `choice.KINDS`.
    """
    epsilon, group = checked_epsilon(epsilon), whole("group", group, low=1)
    x, y = np.asarray(features, dtype=np.float64), np.asarray(targets, dtype=np.float64)
    if x.ndim != 2 or len(x) < 2 or y.shape != (len(x),):
        raise ParameterError(f"features and targets must have shapes (n, inputs) and (n,), got {x.shape}")
    rows = [_Rows(model.gradients(theta, x, y), group) for theta in on_the_way(model, x, y, later=later)]
    ways = _coordinate_ways(rows, _channels(epsilon, rows[0].mean.size, tuple(kinds)))
    return Comparison(_loosest(ways), _loosest(_codebook_ways(rows, epsilon)))


def on_the_way(model: Model, x: Floats, y: Floats, *, later: bool) -> list[Floats]:
    """Return the parameters where training begins, and those where full steps along the gradient lead."""
    theta = model.start()
    found = [theta]
    if later:
        rate = 1.0 / max(1e-12, float(np.square(model.prepared(x)).sum(axis=1).mean()))
        for _ in range(_STEPS):
            theta = theta - rate * model.mean_gradient(theta, x, y)
        found.append(theta)
    return found


class _Rows:
    """Gradients at one place, and what does not depend on the way of reporting."""

    def __init__(self, gradients: Floats, group: int) -> None:
        self.gradients, self.group = gradients, group
        self.mean = gradients.mean(axis=0)
        self.lengths = np.sqrt(np.square(gradients).sum(axis=1))
        self.largest, self.longest = float(np.abs(gradients).max()), float(self.lengths.max())

    def noise(self, clipped_mean: Floats, squares: float) -> float:
        """1/cos^2 - 1 of an average with this mean, of reports with this mean squared length."""
        along = float(clipped_mean @ self.mean)
        if along <= 0.0:
            return math.inf
        own = float(clipped_mean @ clipped_mean)
        total = own + max(0.0, squares - own) / self.group
        return total * float(self.mean @ self.mean) / along**2 - 1.0


def _loosest(ways: Iterable[Way]) -> Way:
    """Return, among the ways with nearly the least noise, the one that clips least: clipping biases."""
    found = list(ways)
    least = min(way.noise for way in found)
    return max(
        (way for way in found if way.noise <= _NEARLY * least), key=lambda way: (way.bound, -way.noise)
    )


def _together(noises: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(math.log(max(noise, 1e-300)) for noise in noises) / len(noises))


@lru_cache(maxsize=64)
def _channels(epsilon: float, dimensions: int, kinds: tuple[str, ...]) -> list[tuple[str, int, Floats]]:
    """Kind and k of what coordinates may be reported by, and d/k E[Y^2 | x] at the middles of the cells."""
    found = []
    for k in sample_sizes(epsilon, dimensions):
        for kind in kinds:
            for channel in choice.candidates(kind, epsilon_each(epsilon, k), k / dimensions):
                second = (np.asarray(channel.variance(_MIDDLES)) + _MIDDLES**2) * dimensions / k
                found.append((kind, k, second))
    return found


def _coordinate_ways(rows: Sequence[_Rows], channels: Sequence[tuple[str, int, Floats]]) -> Iterator[Way]:
    largest = max(one.largest for one in rows)
    for share in _SHARES:
        bound = max(share * largest, 1e-150)
        means, laws = [], []
        for one in rows:
            clipped = np.clip(one.gradients, -bound, bound)
            means.append(clipped.mean(axis=0))
            laws.append(
                np.histogram(np.abs(clipped) / bound, bins=_CELLS, range=(0.0, 1.0))[0] / len(clipped)
            )
        for kind, k, second in channels:
            squares = [float(law @ second) * bound**2 for law in laws]
            noises = [one.noise(mean, square) for one, mean, square in zip(rows, means, squares, strict=True)]
            yield Way(kind, bound, k, _together(noises))


def _codebook_ways(rows: Sequence[_Rows], epsilon: float) -> Iterator[Way]:
    codebook: Codebook = choice.codebook(epsilon, rows[0].mean.size)
    first, slope = codebook.error(0.0), codebook.error(1.0) - codebook.error(0.0) + 1.0
    longest = max(one.longest for one in rows)
    for share in _SHARES:
        bound = max(share * longest, 1e-150)
        noises = []
        for one in rows:
            units = lifted(one.gradients / bound)[:, :-1].astype(np.float64)
            square = float(np.square(units).sum(axis=1).mean())
            noises.append(one.noise(bound * units.mean(axis=0), (first + slope * square) * bound**2))
        yield Way(choice.CODEBOOK, bound, 1, _together(noises))
