"""Offers: the epsilon that a buyer takes at each price, and payments that reward the true price best.

An offer is a decreasing function f: from a seller who asks p for each unit of epsilon the buyer takes f(p),
and pays

    mu(p) = p f(p) + the integral of f from p on.

A seller whose true price is pi gains mu(p) - pi f(p); its derivative by p is (p - pi) f'(p), so nothing beats
p = pi, whatever f is, as long as f does not depend on p. `clearing` keeps to that.

Reference: Biswas 2023, Section 7.3.2, Definition 7.3.3, Lemmas 7.1 and 7.2, Theorem 7.3.
Departure: f is cut at zero *and* its payment with it; the closed forms of Section 7.3.3 and Appendix H go on
    below zero, where they overspend (mathematics 5.1).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from reticent.arguments import real
from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats

MOST_POINTS = 64


class Offer(ABC):
    """A decreasing function from a price per epsilon to an epsilon, in closed form with its payment."""

    @property
    @abstractmethod
    def highest_price(self) -> float:
        """The price from which on nothing is taken."""

    @property
    @abstractmethod
    def most(self) -> float:
        """The epsilon that is taken for nothing: no seller is asked for more."""

    @abstractmethod
    def epsilon(self, prices: ArrayLike) -> Floats:
        """f, for each price."""

    @abstractmethod
    def payment(self, prices: ArrayLike) -> Floats:
        """mu, for each price; at least price times epsilon."""

    @abstractmethod
    def price_for(self, epsilon: float) -> float:
        """Return the highest price at which this epsilon is taken."""


@dataclass(frozen=True)
class Log(Offer):
    """f(z) = scale ln(e - c z), down to zero at (e - 1) / c.

    Reference: Biswas 2023, Fig 7.2 and Example 7.3.1; the condition of the figure is e - cz >= 1.
    """

    c: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        _positive("c", self.c)
        _positive("scale", self.scale)

    @property
    def highest_price(self) -> float:
        """The price from which on nothing is taken."""
        return (math.e - 1.0) / self.c

    @property
    def most(self) -> float:
        """The epsilon at a price of zero."""
        return self.scale

    def epsilon(self, prices: ArrayLike) -> Floats:
        """Return the epsilon that is taken, for each price."""
        return self.scale * np.log(_down_from(math.e, self.c, prices, low=1.0))

    def payment(self, prices: ArrayLike) -> Floats:
        """Return the payment for each price."""
        u = _down_from(math.e, self.c, prices, low=1.0)
        return np.asarray(self.scale / self.c * (math.e * np.log(u) - u + 1.0))

    def price_for(self, epsilon: float) -> float:
        """Return the highest price at which this epsilon is taken."""
        return (math.e - math.exp(real("epsilon", epsilon, low=0.0, high=self.scale) / self.scale)) / self.c


@dataclass(frozen=True)
class Linear(Offer):
    """f(z) = scale (1 - c z), down to zero at 1 / c.

    Reference: Biswas 2023, Example 7.3.2.
    """

    c: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        _positive("c", self.c)
        _positive("scale", self.scale)

    @property
    def highest_price(self) -> float:
        """The price from which on nothing is taken."""
        return 1.0 / self.c

    @property
    def most(self) -> float:
        """The epsilon at a price of zero."""
        return self.scale

    def epsilon(self, prices: ArrayLike) -> Floats:
        """Return the epsilon that is taken, for each price."""
        return self.scale * _down_from(1.0, self.c, prices, low=0.0)

    def payment(self, prices: ArrayLike) -> Floats:
        """Return the payment for each price."""
        left = _down_from(1.0, self.c, prices, low=0.0)
        return np.asarray(self.scale / (2.0 * self.c) * left * (2.0 - left))

    def price_for(self, epsilon: float) -> float:
        """Return the highest price at which this epsilon is taken."""
        return (1.0 - real("epsilon", epsilon, low=0.0, high=self.scale) / self.scale) / self.c


@dataclass(frozen=True)
class Steps(Offer):
    """f by points: at prices up to `prices[i]`, and above the one before, `epsilons[i]` is taken.

    Attributes:
        prices: increasing.
        epsilons: decreasing, as many.
    """

    prices: tuple[float, ...]
    epsilons: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.prices) <= MOST_POINTS or len(self.prices) != len(self.epsilons):
            raise ParameterError(
                f"steps must have 1 to {MOST_POINTS} prices and as many epsilons, got {len(self.prices)} and "
                f"{len(self.epsilons)}"
            )
        for name, held in (("prices", self.prices), ("epsilons", self.epsilons)):
            for one in held:
                _positive(name, one)
        if any(one >= other for one, other in pairwise(self.prices)):
            raise ParameterError("prices must increase")
        if any(one <= other for one, other in pairwise(self.epsilons)):
            raise ParameterError("epsilons must decrease: who asks more sells less")

    @property
    def highest_price(self) -> float:
        """The price from which on nothing is taken."""
        return self.prices[-1]

    @property
    def most(self) -> float:
        """The epsilon at a price of zero."""
        return self.epsilons[0]

    def epsilon(self, prices: ArrayLike) -> Floats:
        """Return the epsilon that is taken, for each price."""
        found = np.searchsorted(self.prices, np.asarray(prices, dtype=np.float64), side="left")
        return np.append(np.array(self.epsilons), 0.0)[found]

    def payment(self, prices: ArrayLike) -> Floats:
        """Return the payment for each price."""
        asked = np.asarray(prices, dtype=np.float64)
        ends, heights = np.array(self.prices), np.array(self.epsilons)
        areas = np.append(np.cumsum((np.diff(ends) * heights[1:])[::-1])[::-1], 0.0)  # beyond each end
        found = np.searchsorted(ends, asked, side="left")
        inside = np.minimum(found, len(ends) - 1)
        whole = ends[inside] * heights[inside] + areas[inside]
        return np.where(found < len(ends), whole, 0.0)

    def price_for(self, epsilon: float) -> float:
        """Return the highest price at which this epsilon is taken."""
        wanted = real("epsilon", epsilon, low=0.0, high=self.most)
        return max(
            price for price, height in zip(self.prices, self.epsilons, strict=True) if height >= wanted
        )


def _positive(name: str, given: float) -> None:
    real(name, given, low=0.0, open_low=True)


def _down_from(top: float, c: float, prices: ArrayLike, *, low: float) -> Floats:
    asked = np.asarray(prices, dtype=np.float64)
    if asked.size and not float(asked.min()) >= 0.0:  # also where a price is no number
        raise ParameterError("prices must be numbers >= 0")
    found = asked * -c
    found += top
    return np.maximum(found, low, out=found) if found.ndim else np.asarray(max(float(found), low))
