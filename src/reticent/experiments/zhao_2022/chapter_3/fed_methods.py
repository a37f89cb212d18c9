"""Who reports gradients in Figs. 3.8 to 3.15: the documents' eight, ours, and nobody's noise.

A reporter turns the gradients of a group into their average, for several trainings ("arms") at once. Arms
share clients, sampled coordinates and random numbers, and differ in parameters and clip bounds.

As printed: Laplace spends epsilon/d on each of the d coordinates, Duchi et al. report the whole vector, the
others k = max(1, min(d, floor(epsilon/2.5))) coordinates. Ours are what `federated.choice` takes for a task:
the mechanism and k of least variance in the worst case, and on typical gradients, of a tenth of the bound.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np

from reticent.experiments import contenders
from reticent.experiments.zhao_2022.chapter_3 import continuous
from reticent.federated import choice
from reticent.federated.simulation import Places
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric import HMTP, PM, PMOpt, PMSub
from reticent.mechanisms.sampling import documents_sample_size, epsilon_each
from reticent.mechanisms.vector import VectorDuchi
from reticent.randomness import SimulationStream

NOBODY, DEFAULT, TYPICAL = "not private", "default", "typical"
DOCUMENTS = ("Laplace", "Duchi", "PM", "HM", "Three-Outputs", "PM-SUB", "PM-OPT", "HM-TP")
OURS = (DEFAULT, TYPICAL)
TYPICAL_SHARE = 0.1
SWEPT = (PM, PMSub, PMOpt, HMTP)
_BLOCK = 1 << 10  # clients


class Reporter(ABC):
    """One way to report gradients under epsilon.

    Attributes:
        sample_size: k; None if all coordinates are reported.
    """

    sample_size: int | None = None

    @abstractmethod
    def average(self, group: Group, stream: SimulationStream) -> Floats:
        """The averaged gradients in units of the bounds, shape (arms, d)."""


class Group:
    """The clients of a round, for the arms of one reporter.

    Args:
        x: features and the constant, shape (clients, d).
        slopes: of the losses, shape (arms, clients).
        penalty: lambda theta, shape (arms, d).
        bounds: of each arm.
        asked: the coordinates that each client reports, shape (clients, k), if not all.
    """

    def __init__(
        self, x: Floats, slopes: Floats, penalty: Floats, bounds: Floats, asked: Places | None
    ) -> None:
        self.x, self.asked, self.arms, self.bounds = x, asked, len(bounds), bounds
        self.clients, self.dimensions = x.shape
        self.slopes, self.penalty = slopes / bounds[:, None], penalty / bounds[:, None]

    def units(self, arm: int) -> Floats:
        """The clipped gradients of all clients, in units of the bound: shape (clients, d)."""
        return self._clipped(self.slopes[arm][:, None] * self.x, self.penalty[arm])

    def sampled(self) -> Floats:
        """The clipped coordinates that are asked for, shape (arms, clients, k)."""
        assert self.asked is not None
        taken = np.take_along_axis(self.x, self.asked, axis=1)
        return self._clipped(self.slopes[:, :, None] * taken, self.penalty[:, self.asked])

    def _clipped(self, gradients: Floats, penalty: Floats) -> Floats:
        gradients += penalty
        np.clip(gradients, -1.0, 1.0, out=gradients)
        if not (np.isfinite(self.slopes).all() and np.isfinite(self.penalty).all()):  # a training went astray
            np.nan_to_num(gradients, copy=False, nan=0.0)
        return gradients


class NotPrivate(Reporter):
    """The gradients as they are, not even clipped."""

    def average(self, group: Group, stream: SimulationStream) -> Floats:
        """Their means."""
        return np.asarray(group.slopes @ group.x / group.clients + group.penalty)


class LaplaceAll(Reporter):
    """Laplace noise of scale 2d/epsilon on each of d coordinates, in doubles; one draw for all arms.

    The sum of n numbers of Laplace's law is the difference of two of Gamma(n): one draw for a whole group.
    """

    def __init__(self, epsilon: float, dimensions: int) -> None:
        self.scale = 2.0 * dimensions / epsilon

    def average(self, group: Group, stream: SimulationStream) -> Floats:
        """Means of the clipped gradients, and of the noise."""
        plus, minus = gamma(group.clients, 2 * group.dimensions, stream).reshape(2, -1)
        means = np.stack([group.units(arm).mean(axis=0) for arm in range(group.arms)])
        return np.asarray(means + self.scale / group.clients * (plus - minus))


def gamma(shape: int, count: int, stream: SimulationStream) -> Floats:
    """Numbers of the law Gamma(shape), in doubles.

    Reference: Marsaglia and Tsang 2000: d v with v = (1 + c z)^3, kept if ln u < z^2/2 + d - d v + d ln v.
    """
    d, found = shape - 1.0 / 3.0, np.empty(0)
    c = 1.0 / math.sqrt(9.0 * d)
    while found.size < count:
        radius, angle, u = (stream.units(count) - 1.0 for _ in range(3))
        z = np.sqrt(-2.0 * np.log1p(-radius)) * np.cos(2.0 * np.pi * angle)
        v = np.maximum(1.0 + c * z, 1e-90) ** 3
        kept = (1.0 + c * z > 0.0) & (np.log1p(-u) < 0.5 * z * z + d - d * v + d * np.log(v))
        found = np.concatenate([found, d * v[kept]])
    return found[:count]


class Whole(Reporter):
    """The vector mechanism of Duchi et al."""

    def __init__(self, epsilon: float, dimensions: int) -> None:
        self.mechanism = VectorDuchi(epsilon=epsilon, dimensions=dimensions)

    def average(self, group: Group, stream: SimulationStream) -> Floats:
        """Means of the reports: B times the mean sign."""
        ones = np.stack([self._ones(group.units(arm), stream) for arm in range(group.arms)])
        return np.asarray(self.mechanism.scale * (2.0 * ones / group.clients - 1.0))

    def _ones(self, units: Floats, stream: SimulationStream) -> Floats:
        """How many reports of each coordinate are positive."""
        ones = np.zeros(units.shape[1])
        for start in range(0, len(units), _BLOCK):
            ones += np.count_nonzero(self.mechanism._signs(units[start : start + _BLOCK], stream), axis=0)
        return ones


class Sampled(Reporter):
    """k coordinates, each through a mechanism for one number."""

    def __init__(self, mechanism: Any, sample_size: int) -> None:
        self.mechanism, self.sample_size = mechanism, sample_size

    def average(self, group: Group, stream: SimulationStream) -> Floats:
        """d/k times the mean of the reports of each coordinate (Algorithm 6)."""
        assert group.asked is not None
        arms, d = group.arms, group.dimensions
        reports = self.mechanism.perturb(group.sampled().reshape(-1), stream)
        cells = np.arange(arms)[:, None, None] * d + group.asked[None]
        sums = np.bincount(cells.reshape(-1), weights=reports, minlength=arms * d).reshape(arms, d)
        return np.asarray(sums * (d / group.asked.shape[1] / group.clients))


Make = Callable[[float, int], Reporter]  # of epsilon and d


def sampled_document(make: Callable[[float, float], Any]) -> Make:
    """A mechanism of one number with the documents' k; `make` takes its epsilon and k/d."""

    def made(epsilon: float, dimensions: int) -> Reporter:
        k = documents_sample_size(epsilon, dimensions)
        return Sampled(make(epsilon_each(epsilon, k), k / dimensions), k)

    return made


def _ours(typical: float | None) -> Make:
    return lambda epsilon, dimensions: Sampled(*choice.chosen(epsilon, dimensions, typical=typical))


How = str | tuple[int, ...]
CONTINUOUS, SENT = "continuous", "sent"


def methods(how: How) -> dict[str, Make]:
    """Everybody.

    Args:
        how: "continuous" for the documents' continuous mechanisms in doubles, which are not private on real
            computers; "sent" for what is really sent; or numbers of outputs to compare.
    """
    found: dict[str, Make] = {NOBODY: lambda epsilon, dimensions: NotPrivate()}
    if isinstance(how, tuple):
        for kind, levels in product(SWEPT, how):
            found[level_name(kind.name, levels)] = sampled_document(partial(_with_levels, kind, levels))
        found["Three-Outputs"] = sampled_document(contenders.BY_NAME["Three-Outputs"].make)
        return found | {DEFAULT: _ours(None), TYPICAL: _ours(TYPICAL_SHARE)}
    found |= {"Laplace": LaplaceAll, "Duchi": Whole}
    for name in DOCUMENTS[2:]:
        ideal = name + continuous.SUFFIX
        if how == CONTINUOUS and ideal in continuous.NAMES:
            found[name] = sampled_document(partial(_ideal, ideal))
        else:
            found[name] = sampled_document(contenders.BY_NAME[name].make)
    return found | {DEFAULT: _ours(None), TYPICAL: _ours(TYPICAL_SHARE)}


@lru_cache(maxsize=512)
def reporter(how: How, name: str, epsilon: float, dimensions: int) -> Reporter:
    """The reporter of a method: made once, since some mechanisms are solved for."""
    return methods(how)[name](epsilon, dimensions)


def level_name(name: str, levels: int) -> str:
    """The name of a mechanism discretised to a number of outputs."""
    return f"{name}/{levels}"


def _ideal(name: str, epsilon: float, rate: float) -> continuous.Continuous:
    return continuous.Continuous(name, epsilon)


def _with_levels(kind: Any, levels: int, epsilon: float, rate: float) -> Any:
    return kind(epsilon=epsilon, levels=levels)
