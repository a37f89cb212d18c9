"""Audit subjects: for each kind of mechanism, inputs worth trying and a reader of its reports.

A `Subject` wraps one mechanism. `CATALOGUE` makes every mechanism of the library from one level, by name.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from reticent.audit.exact import check_channel
from reticent.audit.findings import ExactFinding, Finding, SupportFinding
from reticent.audit.fit import draw
from reticent.audit.outputs import Array, Sampler, as_rows
from reticent.audit.places import (
    PLACE_CHANNELS,
    check_places,
    check_points,
    distances_of,
    rows_of,
    telling_places,
    worst_pair,
)
from reticent.audit.structure import check_structure
from reticent.audit.support import check_support, check_support_exact, check_support_rows
from reticent.audit.total import ODD_VALUES
from reticent.errors import ParameterError
from reticent.location.privic import Privic
from reticent.location.rounds import PlaceRound
from reticent.mechanisms import categorical, numeric
from reticent.mechanisms.base import Channel, Floats, checked_epsilon
from reticent.mechanisms.catalogue import CATEGORICAL, NUMERIC
from reticent.mechanisms.categorical import OLH, FrequencyOracle, Subset
from reticent.mechanisms.categorical.olh import buckets_of, keys
from reticent.mechanisms.gaussian import DiscreteGaussian
from reticent.mechanisms.location import (
    ElasticChannel,
    blahut_arimoto,
    exponential,
    keeping,
    linear_program,
    planar_laplace,
)
from reticent.mechanisms.numeric.base import NumericRandomiser
from reticent.mechanisms.vector import Codebook, VectorDuchi, VectorLaplace
from reticent.privacy import GaussianDP, MetricDP
from reticent.randomness import Stream
from reticent.spaces import Box, Grid
from reticent.spaces.roads import RoadMap, Roads, Street, cut
from reticent.spaces.roads.maps import Point

CATEGORIES = 16  # of the categorical mechanisms in the catalogue
DIMENSIONS = 4  # of VectorDuchi: even, where the published recipe fails
CODEBOOK = (3, 4)  # dimensions and bits
_ALONG = 16  # cells
_LEAST_SIGMA = 1024
MAP = Grid.over(Box(48.84, 48.88, 2.30, 2.37), 5, 6)  # of the channels for places: cells of 0.9 km
SMALL_MAP = Grid.over(Box(48.84, 48.87, 2.30, 2.36), 3, 4)  # of the linear program


@dataclass(frozen=True)
class Subject:
    """One mechanism as the audit sees it.

    Attributes:
        mechanism: Mechanism that is audited.
        level: Claimed level, in the unit of `notion`.
        notion: Unit of the level: "epsilon", "mu", or "epsilon per km".
        inputs: Private values for the fit; the first is one whose reports are as random as they get.
        contrasts: Private values that ought to be hardest to keep apart.
        distances: Distances between the contrasts, for metric privacy.
        read: Function of reports -> rows for the black box.
        wrap: Function of one private value -> argument of `perturb` for one person.
        cost: Slowness of a draw relative to most mechanisms; draws are divided by it.
        odd: Private values that must give a report like any other.
        delta: Delta of a claim that is not pure.
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
    odd: Sequence[Any] = ODD_VALUES
    delta: float = 0.0

    @property
    def pure(self) -> bool:
        """Return whether the claim is a bound on ratios, so that supports must agree."""
        return self.notion != "mu" and self.delta == 0.0

    def exact(self) -> ExactFinding:
        """Run the exact check: the complete matrix for a channel, the structural check for others."""
        if isinstance(self.mechanism, Channel):
            return check_channel(self.mechanism)
        if isinstance(self.mechanism, PLACE_CHANNELS):
            return check_places(self.mechanism)
        return check_structure(self.mechanism)

    def support(self, sampler: Sampler, outputs: int) -> SupportFinding | None:
        """Check that supports agree: exactly for mechanisms with rows, by draws for other pure claims."""
        if isinstance(self.mechanism, Channel):
            return check_support_exact(self.mechanism)
        if not self.pure:
            return None
        if isinstance(self.mechanism, PLACE_CHANNELS):
            return check_support_rows(rows_of(self.mechanism))
        level = self.level * (1.0 if self.distances is None else self.distances[0][1])
        return check_support(sampler, self.contrasts, epsilon=level, outputs=outputs)

    def points(self) -> Finding | None:
        """Check how points of the globe become places, where there is a map."""
        return check_points(self.mechanism) if _is_on_a_map(self.mechanism) else None

    def sampler(self, rng: Stream | None) -> Sampler:
        """Return a function (value, size) -> rows for the black box."""
        return lambda value, size: self.read(draw(self.mechanism, value, size, rng))

    def report(self, value: Any) -> Any:
        """Return one report of any value."""
        report = getattr(self.mechanism, "perturb", None) or self.mechanism.sample
        return report(self.wrap(value))


def subject_of(mechanism: Any) -> Subject:
    """Return the subject for a mechanism of Reticent, or for any finite channel over [-1, 1]."""
    if isinstance(mechanism, FrequencyOracle):
        return _categorical(mechanism)
    if isinstance(mechanism, VectorDuchi):
        return _vector(mechanism)
    if isinstance(mechanism, VectorLaplace):
        return _metric(mechanism)
    if isinstance(mechanism, Codebook):
        return _codebook(mechanism)
    if isinstance(mechanism, DiscreteGaussian):
        return _gaussian(mechanism)
    if isinstance(mechanism, PLACE_CHANNELS):
        return _places(mechanism)
    if isinstance(mechanism, (NumericRandomiser, Channel)):
        lower, upper = getattr(mechanism, "bounds", (-1.0, 1.0))
        middle, half = lower / 2.0 + upper / 2.0, upper / 2.0 - lower / 2.0
        return Subject(
            mechanism,
            mechanism.guarantee.epsilon,
            "epsilon",
            inputs=[middle, lower, middle + 0.37 * half],
            contrasts=[lower, middle, upper, math.nan],
        )
    raise ParameterError(f"mechanism must be one of Reticent's, got {type(mechanism).__name__}")


def _categorical(oracle: Any) -> Subject:
    labels = oracle.categories.alphabet.tolist()
    first, second = labels[0], labels[-1]
    read: Callable[[Any], Array] = as_rows
    if isinstance(oracle, OLH):
        pair = keys(np.array([0, oracle.categories.size - 1]))

        def read(reports: Any) -> Array:
            """Return whether the report supports the first and the last category, under its public seed."""
            seeds, value = np.ascontiguousarray(reports["seed"]), reports["value"].astype(np.uint64)
            supports = [buckets_of(seeds, key, oracle.buckets) == value for key in pair]
            return np.asarray(2 * supports[0] + supports[1], dtype=np.int64)

    if isinstance(oracle, Subset):

        def read(reports: Any) -> Array:
            """Return whether the set holds the first and the last category."""
            held = oracle.sets(reports)
            return np.asarray(2 * (held == 0).any(axis=1) + (held == len(labels) - 1).any(axis=1), np.int64)

    return Subject(
        oracle,
        oracle.guarantee.epsilon,
        "epsilon",
        inputs=[first, second],
        contrasts=[first, second, math.nan],
        read=read,
    )


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


def _codebook(mechanism: Codebook) -> Subject:
    """Compare two opposite vectors: how far along the first a report points, and its number."""
    d = mechanism.dimensions
    first = np.ones(d) / math.sqrt(d)

    def read(reports: Any) -> Array:
        far = np.clip(mechanism.decode(reports) @ first / mechanism.scale, -1.0, 1.0)
        cells = np.floor(_ALONG / 2 * (far + 1.0)).astype(np.int64)
        return np.stack([cells, reports["value"].astype(np.int64)], axis=1)

    return Subject(
        mechanism,
        mechanism.guarantee.epsilon,
        "epsilon",
        inputs=[0.5 * first, first],
        contrasts=[first, -first],
        read=read,
        wrap=lambda value: [[value] * d],
        cost=4,
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


def _places(channel: Any) -> Subject:
    """Compare places by number; over a box also points, of which odd ones must be somewhere."""
    claim, space = channel.guarantee, channel.space
    first, second = worst_pair(channel)
    held = telling_places(channel)
    middle = held[len(held) // 2]
    others = [place for place in held if place not in (first, second)]
    contrasts = [first, second, *others[-1:]]
    on_a_map = _is_on_a_map(channel)
    return Subject(
        channel,
        claim.epsilon_per_unit,
        f"epsilon per {claim.distance_unit}",
        inputs=[middle, first, second],
        contrasts=contrasts,
        distances=distances_of(channel, contrasts),
        wrap=(lambda value: space.cells([value], [value])) if on_a_map else (lambda value: [int(value)]),
        odd=ODD_VALUES if on_a_map else (-7, space.size, 1 << 62),
        delta=getattr(claim, "delta", 0.0),
    )


def _is_on_a_map(mechanism: Any) -> bool:
    return isinstance(mechanism, PLACE_CHANNELS) and getattr(mechanism.space, "box", None) is not None


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
    """Build a discrete Gaussian with mu = level and the coarsest grid that mathematics 4.4 allows."""
    level = checked_epsilon(level)
    return DiscreteGaussian(math.ceil(_LEAST_SIGMA * level) + 1, level**2)


def _crowds(grid: Grid) -> Floats:
    """Return an invented population: a few crowded places, most places nearly empty."""
    return np.asarray(1.0 / (1.0 + np.arange(grid.size) * 7 % grid.size) ** 2)


def _blahut_arimoto(level: float) -> ElasticChannel:
    return blahut_arimoto(MAP, _crowds(MAP), checked_epsilon(level) / 2.0)


def _published(level: float) -> ElasticChannel:
    """Build the channel of PRIVIC's second round as a device reads it: learnt, defended, rounded, sent."""
    service = Privic(MAP, checked_epsilon(level) / 2.0)
    service.learn(service.channel(), np.ceil(1e4 * _crowds(MAP)).astype(np.int64))
    sent = PlaceRound.made(service.channel(), name="audit", purpose="to be audited", number=1, rounds=2)
    return PlaceRound.parse(sent.text).channel


def _streets() -> Roads:
    """Build a town of 24 streets of half a kilometre, every second one open in one direction only."""
    nodes: dict[Hashable, Point] = {}
    for r, c in product(range(4), repeat=2):
        nodes[r, c] = (48.84 + 0.0045 * r, 2.30 + 0.0068 * c)
    streets = [
        Street((r, c), to, backward=(r + c) % 2 == 0)
        for r, c in product(range(4), repeat=2)
        for to in ((r + 1, c), (r, c + 1))
        if to in nodes
    ]
    return cut(RoadMap.of(nodes, streets), 500.0)


def _roads(level: float) -> ElasticChannel:
    """Build the channel of a vehicle: on street kilometres up to a horizon, at its exact level."""
    roads = _streets().within(2.0)
    return keeping(roads, np.ones(roads.size), checked_epsilon(level))


def _numeric(name: str) -> Callable[[float], Any]:
    return lambda epsilon: getattr(numeric, name)(epsilon=epsilon)


def _oracle(name: str) -> Callable[[float], Any]:
    return lambda epsilon: getattr(categorical, name)(epsilon=epsilon, categories=CATEGORIES)


CATALOGUE: dict[str, Callable[[float], Any]] = {
    "DiscreteGaussian": _discrete_gaussian,
    **{name: _numeric(name) for name in sorted([*NUMERIC, "Optimal"])},
    **{name: _oracle(name) for name in CATEGORICAL},
    "BlahutArimoto": _blahut_arimoto,
    "Exponential": lambda level: exponential(MAP, checked_epsilon(level)),
    "LinearProgram": lambda level: linear_program(SMALL_MAP, _crowds(SMALL_MAP), checked_epsilon(level)),
    "PlanarLaplace": lambda level: planar_laplace(MAP, checked_epsilon(level)),
    "Privic": _published,
    "Roads": _roads,
    "Codebook": lambda epsilon: Codebook(epsilon=epsilon, dimensions=CODEBOOK[0], bits=CODEBOOK[1]),
    "VectorDuchi": lambda epsilon: VectorDuchi(epsilon=epsilon, dimensions=DIMENSIONS),
    "VectorLaplace": lambda epsilon: VectorLaplace(
        epsilon_per_unit=epsilon, dimensions=2, distance_unit="km"
    ),
}
"""Every mechanism of the library by its class name, or what makes its channel: level -> instance."""


def made(name: str, epsilon: float) -> Any:
    """Create a mechanism of the catalogue by name, in any case."""
    known = {key.lower(): key for key in CATALOGUE}
    key = known.get(name.lower())
    if key is None:
        close = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f" (did you mean {known[close[0]]}?)" if close else ""
        raise ParameterError(f"mechanism must be one of {', '.join(sorted(CATALOGUE))}, got {name!r}{hint}")
    return CATALOGUE[key](epsilon)
