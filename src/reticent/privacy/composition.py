"""Mixtures of central guarantees, through privacy-loss distributions of Google's dp-accounting.

`GaussianDP` alone composes exactly without help; so do pure guarantees, as a sum. A mixture of the
two (or many pure ones at a delta > 0) is bounded here in every sound way that applies, and the
smallest epsilon is reported:

* the privacy-loss distribution (PLD), pessimistic at every step;
* GDP, each pure epsilon entering by `pure_to_mu`; valid at any delta, however small;
* the plain sum of epsilons and of deltas, the Gaussian parts first joined into one.

What is composed must share unit of protection and neighbours. dp-accounting (extra `accounting`) is
imported on first use. Its PLD accountant is not used: asked for n copies of one randomised response it
charges one (version 0.6), and under REPLACE_ONE it doubles a Gaussian's sensitivity, which a guarantee
has already settled. An event that is not known is refused, never guessed to cost nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from typing import Any

from reticent.arguments import real, whole
from reticent.errors import MissingExtra, MixedGuarantees, ParameterError
from reticent.privacy.conversions import pure_to_mu
from reticent.privacy.gaussian_curve import delta_of, epsilon_of
from reticent.privacy.guarantees import (
    ApproximateDP,
    GaussianDP,
    Guarantee,
    PureDP,
    ZeroConcentratedDP,
    compose,
)
from reticent.privacy.neighbours import Neighbours
from reticent.privacy.normal import ROUNDING
from reticent.privacy.rounding import divide_down, divide_up, float_down, float_up, sqrt_up

# Added to every delta of a PLD, per release: convolutions by FFT are exact to about 1e-15 only. A choice,
# not a proof; the tests compare with exact binomials and mixtures.
FFT_MARGIN = 1e-12
_GRID = 1e-4
_WIDEST = 40.0


def to_event(guarantee: Guarantee) -> Any:
    """Return the DpEvent that stands for a guarantee, rounded to the less private side.

    Gaussian: `GaussianDpEvent(s / mu)`: dp-accounting's noise multiplier is per bound on one record's
    contribution, which changes a sum by s = 1 times that when a record comes or goes and by s = 2 when it is
    replaced. Pure:
    binary randomised response, which every pure epsilon mechanism is a post-processing of (Kairouz,
    Oh and Viswanath 2015). zCDP: `ZCDpEvent(rho)`.
    """
    events = _accounting().dp_event
    if isinstance(guarantee, GaussianDP):
        return events.GaussianDpEvent(divide_down(_reach_of(guarantee.neighbours), guarantee.mu))
    if isinstance(guarantee, PureDP):
        low = math.exp(-guarantee.epsilon)
        return events.RandomizedResponseDpEvent(2.0 * low / (1.0 + low) * (1.0 - 8.0 * ROUNDING), 2)
    if isinstance(guarantee, ZeroConcentratedDP):
        return events.ZCDpEvent(guarantee.rho)
    raise ParameterError(f"dp-accounting has no event for {type(guarantee).__name__}")


def from_event(event: Any, *, neighbours: Neighbours, unit: str = "one row") -> Guarantee:
    """Return the guarantee of a DpEvent, rounded up; `unit` and `neighbours` say what the event is about.

    Under REPLACE_ONE additive noise counts for twice the bound that its multiplier refers to.

    Composed events must be of one kind; for mixtures see `mixture_epsilon`.

    Raises:
        ParameterError: The event is unknown, not private, or costs nothing at all.
        MixedGuarantees: A composed event holds different kinds.
    """
    parts = list(_flat(event, unit=unit, neighbours=neighbours))
    if any(part is None for part, _ in parts):
        raise ParameterError("event must be private, got one that holds a NonPrivateDpEvent")
    guarantees = [_plain(part).repeat(count) for part, count in parts]
    if not guarantees:
        raise ParameterError("event must release something, got one that costs nothing")
    return compose(*guarantees)


def mixture_epsilon(*items: Any, delta: float) -> float:
    """Upper bound on the epsilon at `delta` of guarantees and events taken together.

    Events name no unit or neighbours: they are taken to be about those of the guarantees beside them, and
    about one row that comes or goes (the default of dp-accounting) where there are none.

    Raises:
        MixedGuarantees: They differ in unit or neighbours, or hold a kind without a privacy-loss
            distribution (zCDP, local, metric).
    """
    delta = real("delta", delta, low=0.0, high=1.0, open_high=True)
    mixture = _Mixture.of(items)
    if mixture.not_private:
        return math.inf
    bounds = [mixture.gdp_epsilon(delta), mixture.summed_epsilon(delta)]
    if mixture.needs_pld and delta > mixture.margin:
        bounds.append(float(mixture.pld().get_epsilon_for_delta(delta - mixture.margin)) * (1 + 1e-12))
    return min(bounds)


def mixture_delta(*items: Any, epsilon: float) -> float:
    """Upper bound on the delta at `epsilon` of guarantees and events taken together."""
    epsilon = real("epsilon", epsilon, low=0.0)
    mixture = _Mixture.of(items)
    if mixture.not_private:
        return 1.0
    bounds = [1.0, mixture.gdp_delta(epsilon), mixture.summed_delta(epsilon)]
    if mixture.needs_pld:
        bounds.append(float(mixture.pld().get_delta_for_epsilon(epsilon)) + mixture.margin)
    return min(bounds)


@dataclass(frozen=True)
class _Laplace:
    """Laplace noise, kept apart from `PureDP`: its own loss distribution is tighter."""

    noise_multiplier: float
    unit: str
    neighbours: Neighbours


_Part = Guarantee | _Laplace | None  # None: not private at all


@dataclass(frozen=True)
class _Mixture:
    """The guarantees that are composed, sorted by kind, with the sound bounds on them."""

    counts: dict[Guarantee | _Laplace, int]
    not_private: bool

    @classmethod
    def of(cls, items: tuple[Any, ...]) -> _Mixture:
        if not items:
            raise ParameterError("a mixture needs at least one guarantee or event, got none")
        told = [item for item in items if isinstance(item, Guarantee)]
        about: dict[str, Any] = {"unit": told[0].unit, "neighbours": told[0].neighbours} if told else {}
        counts: Counter[Guarantee | _Laplace] = Counter()
        not_private = False
        for part, count in (pair for item in items for pair in _flat(item, **about)):
            if part is None:
                not_private = True
            else:
                counts[part] += count
        for part in counts:
            _central(part)
            first = next(iter(counts))
            if (part.unit, part.neighbours) != (first.unit, first.neighbours):
                raise MixedGuarantees(
                    f"cannot mix guarantees for {first.unit!r} ({first.neighbours.name}) and {part.unit!r} "
                    f"({part.neighbours.name}): different units of protection or neighbours"
                )
        return cls(dict(counts), not_private)

    @property
    def margin(self) -> float:
        return FFT_MARGIN * (1 + sum(self.counts.values()))

    @property
    def needs_pld(self) -> bool:
        """Whether a distribution can beat the closed forms: anything but Gaussian parts alone.

        None is worth having where some part fails outright with a probability above 1 - 1e-8; dp-accounting
        stumbles over a distribution whose finite losses are all but impossible.
        """
        deltas = [
            (part.delta, count) for part, count in self.counts.items() if isinstance(part, ApproximateDP)
        ]
        intact = sum(count * math.log1p(-delta) for delta, count in deltas)
        return intact > math.log(1e-8) and any(not isinstance(part, GaussianDP) for part in self.counts)

    def _mu(self) -> float:
        """Return the mu of the whole, or infinity when some part has none."""
        mu2 = Fraction(0)
        for part, count in self.counts.items():
            plain = _plain(part)
            if isinstance(plain, GaussianDP):
                mu2 += Fraction(plain.mu) ** 2 * count
            elif isinstance(plain, PureDP):
                mu2 += Fraction(pure_to_mu(plain.epsilon)) ** 2 * count
            else:
                return math.inf
        return sqrt_up(mu2)

    def gdp_epsilon(self, delta: float) -> float:
        mu = self._mu()
        return epsilon_of(mu, delta) if mu < math.inf else math.inf

    def gdp_delta(self, epsilon: float) -> float:
        mu = self._mu()
        return delta_of(mu, epsilon) if mu < math.inf else 1.0

    def _gaussian_mu(self) -> float:
        """Return the mu of the Gaussian parts alone."""
        parts = [(part, count) for part, count in self.counts.items() if isinstance(part, GaussianDP)]
        return sqrt_up(sum((Fraction(part.mu) ** 2 * count for part, count in parts), Fraction(0)))

    def _others(self) -> list[tuple[Guarantee | _Laplace, int]]:
        return [(part, count) for part, count in self.counts.items() if not isinstance(part, GaussianDP)]

    def _sums(self) -> tuple[Fraction, Fraction]:
        """Return the sums of epsilon and of delta over all but the Gaussian parts."""
        epsilon, delta = Fraction(0), Fraction(0)
        for part, count in self._others():
            epsilon += Fraction(_reach(part)) * count
            delta += Fraction(part.delta) * count if isinstance(part, ApproximateDP) else 0
        return epsilon, delta

    def summed_epsilon(self, delta: float) -> float:
        """Basic composition of the Gaussian parts, as one, with each of the others."""
        total, slack = self._sums()
        left = float_down(Fraction(delta) - slack)
        if left < 0.0:
            return math.inf
        gaussian = epsilon_of(self._gaussian_mu(), left)
        return float_up(total + Fraction(gaussian)) if gaussian < math.inf else math.inf

    def summed_delta(self, epsilon: float) -> float:
        total, slack = self._sums()
        left = float_down(Fraction(epsilon) - total)
        return float_up(slack + Fraction(delta_of(self._gaussian_mu(), left))) if left >= 0.0 else 1.0

    def pld(self) -> Any:
        """Return the pessimistic privacy-loss distribution of the whole."""
        losses = _accounting().pld.privacy_loss_distribution
        mu, others = self._gaussian_mu(), self._others()
        span = 0.5 * mu * mu + 12.0 * mu + sum(_reach(part) * count for part, count in others)
        grid = _GRID * max(1.0, span / _WIDEST)  # a bounded number of points, whatever the budget
        whole_loss = losses.identity(value_discretization_interval=grid)
        if mu > 0.0:
            noise = divide_down(1.0, mu)
            whole_loss = losses.from_gaussian_mechanism(noise, value_discretization_interval=grid)
        for part, count in others:
            single = _single_loss(losses, part, grid)
            whole_loss = whole_loss.compose(single.self_compose(count) if count > 1 else single)
        return whole_loss


def _single_loss(losses: Any, part: Guarantee | _Laplace, grid: float) -> Any:
    if isinstance(part, _Laplace):
        return losses.from_laplace_mechanism(part.noise_multiplier, value_discretization_interval=grid)
    delta = part.delta if isinstance(part, ApproximateDP) else 0.0
    epsilon = _reach(part)
    # The worst pair: infinite loss with probability delta, else randomised response. Its hockey-stick
    # curve is linear in e^t between the corners -epsilon and epsilon: four dots are enough.
    below = math.floor(epsilon / grid)
    dots = sorted({-below - 1, -below, below, below + 1})
    curve = [delta + (1.0 - delta) * _response_delta(epsilon, dot * grid) for dot in dots]
    masses = _accounting().pld.pld_pmf.create_pmf_pessimistic_connect_dots(grid, dots, curve)
    return losses.PrivacyLossDistribution(masses)


def _response_delta(epsilon: float, t: float) -> float:
    """Hockey-stick divergence at e^t of binary randomised response at `epsilon`."""
    if t <= -epsilon:
        return -math.expm1(t)
    return max(0.0, -math.expm1(t - epsilon) / (1.0 + math.exp(-epsilon)))


def _reach(part: Guarantee | _Laplace) -> float:
    """Return the largest finite loss of a part that is not Gaussian."""
    plain = _plain(part)
    assert isinstance(plain, (PureDP, ApproximateDP))
    return plain.epsilon


def _plain(part: _Part) -> Guarantee:
    if isinstance(part, _Laplace):
        return PureDP(divide_up(1.0, part.noise_multiplier), unit=part.unit, neighbours=part.neighbours)
    assert part is not None
    return part


def _central(part: Guarantee | _Laplace) -> None:
    if not isinstance(part, (GaussianDP, PureDP, ApproximateDP, _Laplace)):
        raise MixedGuarantees(
            f"a mixture takes GaussianDP, PureDP and ApproximateDP, got {type(part).__name__}"
        )


def _flat(
    item: Any, *, unit: str = "one row", neighbours: Neighbours = Neighbours.ADD_REMOVE_ONE, count: int = 1
) -> Iterator[tuple[_Part, int]]:
    """The parts of a guarantee or event with their counts; nothing for what costs nothing."""
    if isinstance(item, Guarantee):
        yield item, count
        return
    events = _accounting().dp_event
    about = {"unit": unit, "neighbours": neighbours}
    if isinstance(item, events.ComposedDpEvent):
        for inner in item.events:
            yield from _flat(inner, count=count, unit=unit, neighbours=neighbours)
    elif isinstance(item, events.SelfComposedDpEvent):
        copies = whole("count", item.count, low=1)
        yield from _flat(item.event, count=count * copies, unit=unit, neighbours=neighbours)
    elif not isinstance(item, events.NoOpDpEvent):
        part = _leaf(events, item, about)
        if part is not _FREE:
            yield part, count


_FREE = _Laplace(math.inf, "one row", Neighbours.REPLACE_ONE)


def _leaf(events: Any, event: Any, about: dict[str, Any]) -> _Part:
    """One known event that releases something; None when it is not private; `_FREE` without a loss."""
    if isinstance(event, events.NonPrivateDpEvent):
        return None
    reach_of = _reach_of(about["neighbours"])
    if isinstance(event, events.GaussianDpEvent):
        noise = real("noise_multiplier", event.noise_multiplier, low=0.0)
        return GaussianDP(divide_up(reach_of, noise), **about) if noise > 0.0 else None
    if isinstance(event, events.LaplaceDpEvent):
        noise = real("noise_multiplier", event.noise_multiplier, low=0.0)
        return _Laplace(noise / reach_of, **about) if noise > 0.0 else None
    if isinstance(event, events.DiscreteLaplaceDpEvent):
        noise = real("noise_parameter", event.noise_parameter, low=0.0, open_low=True)
        reach = whole("sensitivity", event.sensitivity, low=1)
        return PureDP(float_up(Fraction(noise) * reach * int(reach_of)), **about)
    if isinstance(event, events.RandomizedResponseDpEvent):
        p = real("noise_parameter", event.noise_parameter, low=0.0, high=1.0)
        k = whole("num_buckets", event.num_buckets, low=1)
        if p == 1.0 or k == 1:
            return _FREE
        epsilon = math.log1p(k * (1.0 - p) / p) * (1.0 + 8.0 * ROUNDING) if p > 0.0 else math.inf
        return PureDP(epsilon, **about) if epsilon < math.inf else None
    if isinstance(event, events.ZCDpEvent) and event.xi == 0:
        return ZeroConcentratedDP(event.rho, **about)
    raise ParameterError(f"event {type(event).__name__} is not known here, and never guessed to cost nothing")


def _reach_of(neighbours: Neighbours) -> float:
    """By how many bounds on one record's contribution a sum can change."""
    return 2.0 if neighbours is Neighbours.REPLACE_ONE else 1.0


def _accounting() -> Any:
    try:
        return import_module("dp_accounting")
    except ImportError as err:
        raise MissingExtra("composition through dp-accounting", "accounting") from err
