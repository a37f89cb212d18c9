"""What the gate needs to know of each kind of mechanism: inputs worth trying, and how reports are read.

A `Subject` wraps one mechanism. `CATALOGUE` makes every mechanism of the library from one level, by name.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reticent.audit.exact import check_channel
from reticent.audit.findings import ExactFinding
from reticent.audit.fit import draw
from reticent.audit.outputs import Array, Sampler, as_rows
from reticent.audit.structure import check_structure
from reticent.errors import ParameterError
from reticent.mechanisms import categorical, numeric
from reticent.mechanisms.base import Channel, checked_epsilon
from reticent.mechanisms.categorical import OLH, FrequencyOracle
from reticent.mechanisms.categorical.olh import buckets_of, keys
from reticent.mechanisms.gaussian import DiscreteGaussian
from reticent.mechanisms.numeric.base import NumericRandomiser
from reticent.mechanisms.numeric.laplace import Laplace
from reticent.mechanisms.vector import VectorDuchi, VectorLaplace
from reticent.privacy import GaussianDP, MetricDP
from reticent.randomness import Stream

CATEGORIES = 16  # of the categorical mechanisms in the catalogue
DIMENSIONS = 4  # of VectorDuchi: even, where the published recipe fails
_LEAST_SIGMA = 1024


@dataclass(frozen=True)
class Subject:
    """One mechanism as the audit sees it.

    Attributes:
        mechanism: what is audited.
        level: the claimed level, in the unit of `notion`.
        notion: "epsilon", "mu", or "epsilon per km".
        inputs: private values for the fit; the first is one whose reports are as random as they get.
        contrasts: private values that ought to be hardest to keep apart.
        distances: between the contrasts, for metric privacy.
        read: reports -> rows for the black box.
        wrap: one private value -> what `perturb` takes for one person.
        cost: how much slower than most a draw is; draws are divided by it.
    """

    mechanism: Any
    level: float
    notion: str
    inputs: Sequence[Any]
    contrasts: Sequence[Any]
    distances: Sequence[Sequence[float]] | None = None
    read: Callable[[Any], Array] = as_rows
    wrap: Callable[[Any], Any] = field(default=lambda value: [value])
    cost: int = 1

    @property
    def pure(self) -> bool:
        """Whether the claim is a bound on ratios, so that supports must agree."""
        return self.notion != "mu"

    def exact(self) -> ExactFinding:
        """The exact check: the whole matrix for a channel, the structural check for others."""
        if isinstance(self.mechanism, Channel):
            return check_channel(self.mechanism)
        return check_structure(self.mechanism)

    def sampler(self, rng: Stream | None) -> Sampler:
        """(value, size) -> rows for the black box."""
        return lambda value, size: self.read(draw(self.mechanism, value, size, rng))

    def report(self, value: Any) -> Any:
        """One report of one value, whatever it is."""
        return self.mechanism.perturb(self.wrap(value))


def subject_of(mechanism: Any) -> Subject:
    """Return the subject for a mechanism of Reticent, or for any finite channel over [-1, 1]."""
    if isinstance(mechanism, FrequencyOracle):
        return _categorical(mechanism)
    if isinstance(mechanism, VectorDuchi):
        return _vector(mechanism)
    if isinstance(mechanism, VectorLaplace):
        return _metric(mechanism)
    if isinstance(mechanism, DiscreteGaussian):
        return _gaussian(mechanism)
    if isinstance(mechanism, (NumericRandomiser, Channel)):
        lower, upper = getattr(mechanism, "bounds", (-1.0, 1.0))
        middle, half = lower / 2.0 + upper / 2.0, upper / 2.0 - lower / 2.0
        return Subject(
            mechanism,
            mechanism.guarantee.epsilon,
            "epsilon",
            inputs=[middle, lower, middle + 0.37 * half],
            contrasts=[lower, middle, upper],
        )
    raise ParameterError(f"mechanism must be one of Reticent's, got {type(mechanism).__name__}")


def _categorical(oracle: Any) -> Subject:
    labels = oracle.categories.alphabet.tolist()
    first, second = labels[0], labels[-1]
    read: Callable[[Any], Array] = as_rows
    if isinstance(oracle, OLH):
        pair = keys(np.array([0, oracle.categories.size - 1]))

        def read(reports: Any) -> Array:
            """Whether the report supports the first and the last category, under its public seed."""
            seeds, value = np.ascontiguousarray(reports["seed"]), reports["value"].astype(np.uint64)
            supports = [buckets_of(seeds, key, oracle.buckets) == value for key in pair]
            return np.asarray(2 * supports[0] + supports[1], dtype=np.int64)

    inputs = [first, second]
    return Subject(oracle, oracle.guarantee.epsilon, "epsilon", inputs=inputs, contrasts=inputs, read=read)


def _vector(mechanism: VectorDuchi) -> Subject:
    d, (lower, upper) = mechanism.dimensions, mechanism.bounds
    half = upper / 2.0 - lower / 2.0
    some = (lower + half) + half * np.linspace(-0.9, 0.7, d)
    low, high = np.full(d, lower), np.full(d, upper)
    return Subject(
        mechanism,
        mechanism.guarantee.epsilon,
        "epsilon",
        inputs=[some, high],
        contrasts=[low, high],
        wrap=lambda value: [[value] * d],
    )


def _metric(mechanism: VectorLaplace) -> Subject:
    claim: MetricDP = mechanism.guarantee
    n, apart = mechanism.dimensions, 1.0 / claim.epsilon_per_unit
    origin, other = np.zeros(n), np.zeros(n)
    other[0] = round(apart / mechanism.step) * mechanism.step
    far = float(other[0])
    return Subject(
        mechanism,
        claim.epsilon_per_unit,
        f"epsilon per {claim.distance_unit}",
        inputs=[origin, other],
        contrasts=[origin, other],
        distances=[[0.0, far], [far, 0.0]],
        wrap=lambda value: [[value] * n],
    )


def _gaussian(mechanism: DiscreteGaussian) -> Subject:
    claim: GaussianDP = mechanism.guarantee
    return Subject(
        mechanism,
        claim.mu,
        "mu",
        inputs=[0],
        contrasts=[0, mechanism.sensitivity],
        cost=5,
    )


def _discrete_gaussian(level: float) -> DiscreteGaussian:
    """A discrete Gaussian with mu = level and the coarsest grid that MATH.md 7.4 allows."""
    level = checked_epsilon(level)
    return DiscreteGaussian(math.ceil(_LEAST_SIGMA * level) + 1, level**2)


def _numeric(name: str) -> Callable[[float], Any]:
    return lambda epsilon: getattr(numeric, name)(epsilon=epsilon)


def _oracle(name: str) -> Callable[[float], Any]:
    return lambda epsilon: getattr(categorical, name)(epsilon=epsilon, categories=CATEGORIES)


CATALOGUE: dict[str, Callable[[float], Any]] = {
    "DiscreteGaussian": _discrete_gaussian,
    **{
        name: _numeric(name)
        for name in (
            "Duchi",
            "HM",
            "HMTP",
            "OneBit",
            "Optimal",
            "PM",
            "PMOpt",
            "PMSub",
            "ThreeOutputs",
            "Window",
        )
    },
    "Laplace": lambda epsilon: Laplace(epsilon=epsilon),
    **{name: _oracle(name) for name in ("KRR", "OLH", "OUE")},
    "VectorDuchi": lambda epsilon: VectorDuchi(epsilon=epsilon, dimensions=DIMENSIONS),
    "VectorLaplace": lambda epsilon: VectorLaplace(
        epsilon_per_unit=epsilon, dimensions=2, distance_unit="km"
    ),
}
"""Every mechanism of the library by its class name: level -> instance."""


def made(name: str, epsilon: float) -> Any:
    """Make a mechanism of the catalogue; the name is taken in any case."""
    known = {key.lower(): key for key in CATALOGUE}
    key = known.get(name.lower())
    if key is None:
        close = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f" (did you mean {known[close[0]]}?)" if close else ""
        raise ParameterError(f"mechanism must be one of {', '.join(sorted(CATALOGUE))}, got {name!r}{hint}")
    return CATALOGUE[key](epsilon)
