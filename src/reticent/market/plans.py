"""Plans of what a budget buys: sellers, epsilon and interval widths, from a guess of the sellers' prices.

Buyers think in errors; the market in prices. A plan takes a guess of the prices (their median, and how far
they spread), finds the offer that just spends the budget on such sellers, cuts it into a menu, lets each of
them pick, and says how wide the interval would be. The guess moves the plan alone: only the menu is
published, and a seller is paid what the menu says. So a seller cannot move her own pay by it.

Reference: Biswas 2023, Sections 7.3.3 and 7.3.4, for the c that spends a budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from reticent.arguments import real, whole
from reticent.collect.survey import Survey
from reticent.estimation.combining import support_variance, weighted
from reticent.estimation.intervals import deviation_bound
from reticent.estimation.means import variance_bound
from reticent.market.clearing import Family, clearing_c
from reticent.market.menus import MOST_CENTS, Menu
from reticent.market.offering import Wanted
from reticent.market.offers import MOST_POINTS, Log
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric.base import NumericChannel
from reticent.privacy.budget import UNITS_PER_ONE

_MOST_SELLERS = 10**9
_QUANTILES = 2000  # that stand for all sellers


@dataclass(frozen=True)
class Guess:
    """A guess of the prices that people ask for an epsilon of 1: their logarithm is normal.

    Args:
        sellers: Number of people who would look at the menu.
        median: Median price in cents: half of the sellers ask less.
        spread: Standard deviation of the logarithm; 0.7 has two thirds between half and twice the median.
    """

    sellers: int
    median: float
    spread: float = 0.7

    def __post_init__(self) -> None:
        whole("sellers", self.sellers, low=1, high=_MOST_SELLERS)
        real("median", self.median, low=0.0, high=1e12, open_low=True)
        real("spread", self.spread, low=0.0, high=5.0)

    def prices(self) -> Floats:
        """Quantiles of the prices, each for as many sellers."""
        count = min(self.sellers, _QUANTILES)
        normal = NormalDist()
        at = [normal.inv_cdf((one + 0.5) / count) for one in range(count)]
        return np.asarray(self.median * np.exp(self.spread * np.array(at)))


@dataclass(frozen=True)
class Expected:
    """The expected error of one attribute's estimate, either way, at the confidence of the plan."""

    name: str
    half_width: float


@dataclass(frozen=True)
class MarketPlan:
    """The purchase that a budget makes, if the guess is right.

    Attributes:
        menu: Menu to be published.
        sellers: Number of sellers of each level.
        cents: Cents that are paid in all.
        epsilon: Epsilon that a seller sells on average.
        expected: Expected error of each attribute.
        confidence: Confidence of the intervals.
    """

    menu: Menu
    sellers: tuple[float, ...]
    cents: float
    epsilon: float
    expected: tuple[Expected, ...]
    confidence: float

    @property
    def count(self) -> float:
        """The number of sellers in all."""
        return sum(self.sellers)


def menu_for(guess: Guess, budget: int, *, most: float = 2.0, levels: int = 8, family: Family = Log) -> Menu:
    """Return the menu that spends a budget on sellers as guessed.

    Args:
        guess: Guess of the prices.
        budget: Budget in cents.
        most: Epsilon that is taken from a seller who gives it away.
        levels: Number of levels of the menu.
        family: Family of the offer.

    Raises:
        ParameterError: a number breaks its rule, or the budget pays less than a cent a report.
    """
    money = whole("budget", budget, low=1, high=MOST_CENTS)
    whole("levels", levels, low=1, high=MOST_POINTS)
    scale = real("most", most, low=0.0, high=20.0, open_low=True)
    prices = guess.prices()
    c = clearing_c(family, prices, money * prices.size / guess.sellers, scale=scale)
    return Menu.of(family(c, scale), cents=1, levels=levels)


def planned(wanted: Wanted, guess: Guess, *, now: float, confidence: float = 0.95) -> MarketPlan:
    """Plan what a bill would buy from sellers as guessed: each picks the level that is best for her."""
    counts, cents = _picked(wanted.menu, guess)
    served = min(1.0, wanted.deposit / cents) if cents else 0.0  # the last find no money left
    sellers = counts * served
    units = np.array([level.units for level in wanted.menu.levels]) / UNITS_PER_ONE
    surveys = wanted.drawn_up(now)[1]
    expected = tuple(
        Expected(attribute.name, _half_width(surveys, place, sellers, confidence))
        for place, attribute in enumerate(wanted.attributes)
    )
    total = float(sellers.sum())
    mean = float(sellers @ units) / total if total else 0.0
    return MarketPlan(wanted.menu, tuple(sellers.tolist()), cents * served, mean, expected, confidence)


def _picked(menu: Menu, guess: Guess) -> tuple[Floats, float]:
    """Return the number of sellers who pick each level, and their pay in all."""
    cents = np.array([level.cents for level in menu.levels], dtype=np.float64)
    epsilons = np.array([level.units for level in menu.levels]) / UNITS_PER_ONE
    prices = guess.prices()
    gains = cents[None, :] - prices[:, None] * epsilons[None, :]
    best = gains.argmax(axis=1)
    sells = gains.max(axis=1) > 0.0
    each = guess.sellers / prices.size
    counts = np.bincount(best[sells], minlength=len(cents)) * each
    return np.asarray(counts, dtype=np.float64), float(counts @ cents)


def _half_width(surveys: Sequence[Survey], place: int, sellers: Floats, confidence: float) -> float:
    """Return the half width of the interval from all levels together; infinity where nobody sells."""
    counts, variances, reaches = [], [], []
    for survey, expected in zip(surveys, sellers.tolist(), strict=True):
        n = int(expected * survey.sample_size / len(survey.attributes))
        if not n:
            continue
        instrument = survey.instruments[place]
        counts.append(n)
        if isinstance(instrument, NumericChannel):
            lower, upper = instrument.bounds
            variances.append(variance_bound(instrument, "population"))
            top, bottom = float(instrument.alphabet.max()), float(instrument.alphabet.min())
            reaches.append(max(top - lower, upper - bottom))
        else:
            p, q = float(instrument.p), float(instrument.q)
            variances.append(support_variance(p, q))
            reaches.append(max(p, 1.0 - q) / (p - q))
    if not counts:
        return math.inf
    joint = weighted(counts, variances)
    reach = max(scale * one for scale, one in zip(joint.scales.tolist(), reaches, strict=True))
    return deviation_bound(joint.count, joint.variance, reach, confidence=confidence)
