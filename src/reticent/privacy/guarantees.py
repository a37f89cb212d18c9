"""Guarantees: frozen values that say what is protected, between which neighbours, how strongly.

A guarantee is computed before any data is touched. Guarantees of one
kind compose exactly, rounded up. Two that differ in kind, unit of protection, neighbours or unit of
distance do not add up to anything, and `compose` says so with `MixedGuarantees`; the conversions
that are sound are explicit (`MetricDP.within`, `reticent.privacy.conversions`), and mixtures of
central kinds go through `reticent.privacy.composition`.

The family may grow by new classes. A class never changes its meaning: guarantees are stored.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Self, cast

from reticent.arguments import real, whole
from reticent.errors import MixedGuarantees, ParameterError, ParameterTypeError
from reticent.privacy.neighbours import Neighbours
from reticent.privacy.rounding import float_up, sqrt_up

_CENTRAL = frozenset({Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE_ONE})
_LONGEST_UNIT = 60


def _words(name: str, given: Any) -> str:
    """Return a short, printable, one-line text, or an error."""
    if not isinstance(given, str):
        raise ParameterTypeError(f"{name} must be text, got {given!r}")
    if not given or given != given.strip() or len(given) > _LONGEST_UNIT or not given.isprintable():
        raise ParameterError(
            f"{name} must be 1 to {_LONGEST_UNIT} printable characters, no outer space, got {given[:70]!r}"
        )
    return given


def _at_most(factor: float) -> str:
    """`factor`, as it prints, rounded up to three significant digits, for people."""
    if factor == 0.0:
        return "0"
    step = Fraction(10) ** (math.floor(math.log10(factor)) - 2)
    return f"{float(math.ceil(Fraction(repr(factor)) / step) * step):.6g}"


def _times(epsilon: float) -> str:
    """The factor e^epsilon in words, rounded up; the power itself where the number says nothing any more."""
    if epsilon >= 12:
        return f"e^{_at_most(epsilon)} times"
    return f"{_at_most(math.exp(epsilon) * (1 + 1e-15))} times"


@dataclass(frozen=True)
class Guarantee(ABC):
    """The family's contract: a strength (in the subclass), a unit of protection, and neighbours.

    Attributes:
        unit: Unit of protection: "one row", "one person", "one report".
        neighbours: Inputs between which the guarantee holds.
    """

    unit: str = field(default="one row", kw_only=True)
    neighbours: Neighbours = field(default=Neighbours.REPLACE_ONE, kw_only=True)

    allowed: ClassVar[frozenset[Neighbours]] = _CENTRAL

    def __post_init__(self) -> None:
        _words("unit", self.unit)
        if not isinstance(self.neighbours, Neighbours):
            raise ParameterTypeError(f"neighbours must be one of Neighbours, got {self.neighbours!r}")
        if self.neighbours not in self.allowed:
            names = " or ".join(sorted(option.name for option in self.allowed))
            raise ParameterError(
                f"neighbours of {type(self).__name__} must be {names}, got {self.neighbours.name}"
            )

    def _check(self, name: str, **bounds: Any) -> None:
        """Validate a field and store it as a plain float."""
        object.__setattr__(self, name, real(name, getattr(self, name), **bounds))

    def _must_match(self, other: Guarantee) -> None:
        """Refuse to combine with a guarantee about something else."""
        if type(self) is not type(other):
            kinds = f"{type(self).__name__} with {type(other).__name__}"
            raise MixedGuarantees(f"cannot compose {kinds}: different kinds of guarantee")
        if self.unit != other.unit:
            pair = f"{self.unit!r} and {other.unit!r}"
            raise MixedGuarantees(f"cannot compose guarantees for {pair}: different units of protection")
        if self.neighbours is not other.neighbours:
            pair = f"{self.neighbours.name} and {other.neighbours.name}"
            raise MixedGuarantees(f"cannot compose guarantees between {pair}: different neighbours")

    def compose(self, *others: Guarantee) -> Self:
        """Return the guarantee of all the releases together, chosen adaptively or not, rounded up.

        Raises:
            MixedGuarantees: One of the others differs in kind, unit, neighbours or unit of distance.
        """
        for other in others:
            if not isinstance(other, Guarantee):
                raise ParameterTypeError(f"only guarantees compose, got {other!r}")
            self._must_match(other)
        return self._composed([(part, 1) for part in (self, *cast("tuple[Self, ...]", others))])

    def repeat(self, count: int) -> Self:
        """Return the guarantee of `count` releases like this one together, rounded up."""
        return self._composed([(self, whole("count", count, low=1))])

    @abstractmethod
    def _composed(self, parts: Sequence[tuple[Self, int]]) -> Self:
        """Return the composition of `parts`, each with its count, all of this kind and like `self`."""

    def _total(self, parts: Sequence[tuple[Self, int]], name: str) -> float:
        """Return the exact sum of a field over the parts, rounded up."""
        return float_up(sum((Fraction(getattr(part, name)) * count for part, count in parts), Fraction(0)))

    @abstractmethod
    def _strength(self) -> str:
        """One sentence: what the adversary cannot do."""

    def describe(self) -> str:
        """Return the promise in plain words: what, between which neighbours, against whom, how strongly."""
        relation = {
            Neighbours.REPLACE_ONE: f"two data sets that differ in the content of {self.unit}",
            Neighbours.ADD_REMOVE_ONE: f"two data sets, one with and one without {self.unit}",
            Neighbours.ANY_TWO_VALUES: f"any two values that {self.unit} may hold",
            Neighbours.METRIC: f"any two points that {self.unit} may come from",
        }[self.neighbours]
        return (
            f"Protects {self.unit}. Compared are {relation}. The adversary sees everything released and "
            f"knows everything but {self.unit}. {self._strength()}"
        )


@dataclass(frozen=True)
class PureDP(Guarantee):
    """epsilon-differential privacy: every outcome is at most e^epsilon times likelier.

    Reference: Dwork, McSherry, Nissim and Smith 2006, Definition 1.
    """

    epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("epsilon", low=0.0, open_low=True)

    def _composed(self, parts: Sequence[tuple[Self, int]]) -> Self:
        return replace(self, epsilon=self._total(parts, "epsilon"))

    def _strength(self) -> str:
        return f"No outcome is more than {_times(self.epsilon)} likelier under one than under the other."


@dataclass(frozen=True)
class ApproximateDP(Guarantee):
    """(epsilon, delta)-differential privacy, 0 < delta < 1. With delta = 0 it is `PureDP`.

    Composition is the basic one (both add up): sound for anything, and rarely tight. Gaussian
    releases are better kept as `GaussianDP`.

    Reference: Dwork and Roth 2014, Definition 2.4 and Theorem 3.16.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("epsilon", low=0.0)
        self._check("delta", low=0.0, high=1.0, open_low=True, open_high=True)

    def _composed(self, parts: Sequence[tuple[Self, int]]) -> Self:
        return replace(self, epsilon=self._total(parts, "epsilon"), delta=self._total(parts, "delta"))

    def _strength(self) -> str:
        return (
            f"Every event is at most {_times(self.epsilon)} as probable under one as under the other, plus "
            f"{_at_most(self.delta)}."
        )


@dataclass(frozen=True)
class GaussianDP(Guarantee):
    """mu-Gaussian differential privacy: no harder to tell apart than N(0, 1) from N(mu, 1).

    mu = sensitivity / sigma for Gaussian noise, valid for every epsilon. Composition is exact:
    mu^2 adds up.

    Reference: Dong, Roth and Su 2022, Definition 2.6 and Corollary 3.3.
    """

    mu: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("mu", low=0.0, open_low=True)

    def _composed(self, parts: Sequence[tuple[Self, int]]) -> Self:
        mu2 = sum((Fraction(part.mu) ** 2 * count for part, count in parts), Fraction(0))
        return replace(self, mu=sqrt_up(mu2))

    def _strength(self) -> str:
        chance = 0.5 * math.erfc(-self.mu / math.sqrt(8.0))
        return (
            f"Telling the two apart is no easier than telling one draw of a normal variable with mean 0 from "
            f"one with mean {_at_most(self.mu)} (variance 1): the best guess between equally likely cases is "
            f"right at most {_at_most(min(1.0, chance * (1 + 1e-15)) * 100)} % of the time."
        )


@dataclass(frozen=True)
class ZeroConcentratedDP(Guarantee):
    """rho-zero-concentrated differential privacy: Renyi divergence of order a at most a * rho.

    Not interchangeable with GDP: mu^2 = 2 rho holds for Gaussian noise only (mathematics 4.4).

    Reference: Bun and Steinke 2016, Definition 1.1 and Lemma 1.7.
    """

    rho: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("rho", low=0.0, open_low=True)

    def _composed(self, parts: Sequence[tuple[Self, int]]) -> Self:
        return replace(self, rho=self._total(parts, "rho"))

    def _strength(self) -> str:
        return (
            f"The information about which of the two it was is bounded at every order a by a times "
            f"{_at_most(self.rho)} (zero-concentrated differential privacy)."
        )


@dataclass(frozen=True)
class LocalDP(Guarantee):
    """epsilon-local differential privacy: the report leaves the device already private.

    Reference: Duchi, Jordan and Wainwright 2018, Eq. 1.
    """

    unit: str = field(default="one report", kw_only=True)
    neighbours: Neighbours = field(default=Neighbours.ANY_TWO_VALUES, kw_only=True)
    epsilon: float

    allowed: ClassVar[frozenset[Neighbours]] = frozenset({Neighbours.ANY_TWO_VALUES})

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("epsilon", low=0.0, open_low=True)

    def _composed(self, parts: Sequence[tuple[Self, int]]) -> Self:
        return replace(self, epsilon=self._total(parts, "epsilon"))

    def _strength(self) -> str:
        return (
            f"No message is more than {_times(self.epsilon)} likelier under one value than under the other; "
            f"the collector is the adversary too."
        )


class _ByDistance(Guarantee):
    """A guarantee that is kept by distance, in a unit of its own."""

    distance_unit: str

    def _must_match(self, other: Guarantee) -> None:
        super()._must_match(other)
        if isinstance(other, _ByDistance) and self.distance_unit != other.distance_unit:
            raise MixedGuarantees(
                f"cannot compose epsilon per {self.distance_unit} with epsilon per {other.distance_unit}: "
                "different units of distance"
            )


@dataclass(frozen=True)
class MetricDP(_ByDistance):
    """d-privacy (geo-indistinguishability): the loss is at most epsilon_per_unit times the distance.

    Attributes:
        epsilon_per_unit: The level, in 1 / distance_unit.
        distance_unit: The unit of distance: "km".
        slack: Added to every distance, for mechanisms that first move a point to a grid.

    Reference: Chatzikokolakis, Andres, Bordenabe and Palamidessi 2013, Definition 1.
    """

    unit: str = field(default="one report", kw_only=True)
    neighbours: Neighbours = field(default=Neighbours.METRIC, kw_only=True)
    epsilon_per_unit: float
    distance_unit: str
    slack: float = field(default=0.0, kw_only=True)

    allowed: ClassVar[frozenset[Neighbours]] = frozenset({Neighbours.METRIC})

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("epsilon_per_unit", low=0.0, open_low=True)
        self._check("slack", low=0.0)
        _words("distance_unit", self.distance_unit)

    def _composed(self, parts: Sequence[tuple[Self, int]]) -> Self:
        slack = max(part.slack for part, _ in parts)
        return replace(self, epsilon_per_unit=self._total(parts, "epsilon_per_unit"), slack=slack)

    def within(self, diameter: float) -> LocalDP:
        """Return the local guarantee between any two points at most `diameter` apart, rounded up.

        The diameter, in `distance_unit`, is a declared fact about the region: without one, metric
        privacy promises nothing between far points.
        """
        diameter = real("diameter", diameter, low=0.0, open_low=True)
        distance = Fraction(diameter) + Fraction(self.slack)
        return LocalDP(float_up(Fraction(self.epsilon_per_unit) * distance), unit=self.unit)

    def _strength(self) -> str:
        return (
            f"No message is more than e^({_at_most(self.epsilon_per_unit)} d) times likelier under one point "
            f"than under another at distance d {self.distance_unit}: near points look alike, far ones not."
            + (f" To every d add {_at_most(self.slack)} for a grid." if self.slack else "")
        )


@dataclass(frozen=True)
class ApproximateMetricDP(_ByDistance):
    """(epsilon, delta) by distance: P(S | x) <= e^(epsilon d) (P(S | x') + delta) for every set S of reports.

    Delta is of sets, not of single reports. It is multiplied by e^(epsilon d): from the reach on,
    ln(1/delta)/epsilon, the right side is one and nothing is promised. With delta = 0 it is `MetricDP`.

    Both parameters add up, over all sets of pairs of reports and if the second is chosen by the first: with
    a = e^(-epsilon d) P(y | x) and q = P(y | x'), a1 a2 - q1 q2 = (a1 - q1) a2 + q1 (a2 - q2), whose
    positive parts sum to at most delta1 + delta2 (mathematics 3.3).

    Attributes:
        epsilon_per_unit: The level, in 1 / distance_unit.
        delta: Probability that is left over, 0 < delta < 1.
        distance_unit: The unit of distance: "km".
        slack: Added to every distance, for mechanisms that first move a point to a place.

    Reference: Biswas 2023, Definition 4.3.1 and Theorem 4.1.
    Departure: Theorem 4.1 says it of rectangles of sets; it holds for all.
    """

    unit: str = field(default="one report", kw_only=True)
    neighbours: Neighbours = field(default=Neighbours.METRIC, kw_only=True)
    epsilon_per_unit: float
    delta: float
    distance_unit: str
    slack: float = field(default=0.0, kw_only=True)

    allowed: ClassVar[frozenset[Neighbours]] = frozenset({Neighbours.METRIC})

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("epsilon_per_unit", low=0.0, open_low=True)
        self._check("delta", low=0.0, high=1.0, open_low=True)
        self._check("slack", low=0.0)
        _words("distance_unit", self.distance_unit)

    def _composed(self, parts: Sequence[tuple[Self, int]]) -> Self:
        slack = max(part.slack for part, _ in parts)
        level, delta = self._total(parts, "epsilon_per_unit"), self._total(parts, "delta")
        return replace(self, epsilon_per_unit=level, delta=min(1.0, delta), slack=slack)

    @property
    def reach(self) -> float:
        """The distance from which on nothing is promised."""
        return -math.log(self.delta) / self.epsilon_per_unit

    def _strength(self) -> str:
        return (
            f"No set of messages is more than e^({_at_most(self.epsilon_per_unit)} d) times as probable, "
            f"plus {_at_most(self.delta)} times that factor, under one point as under another at distance d "
            f"{self.distance_unit}; from {self.reach:.3g} {self.distance_unit} on that says nothing."
            + (f" To every d add {_at_most(self.slack)} for a map cut into places." if self.slack else "")
        )


def compose(*guarantees: Guarantee) -> Guarantee:
    """Return the guarantee of several releases of one kind, unit and neighbours together, rounded up.

    >>> compose(GaussianDP(3.0), GaussianDP(4.0)).mu
    5.0
    """
    if not guarantees:
        raise ParameterError("compose needs at least one guarantee, got none")
    if not isinstance(guarantees[0], Guarantee):
        raise ParameterTypeError(f"only guarantees compose, got {guarantees[0]!r}")
    return guarantees[0].compose(*guarantees[1:])
