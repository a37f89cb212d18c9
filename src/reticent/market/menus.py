"""Menus: what a buyer publishes, a few levels of epsilon with whole cents; and what a seller picks of them.

A seller who picks for herself needs no trust in a rule that makes honesty pay: nothing she says moves the
menu. On one menu the best level is that of most `cents - price epsilon`. On several, under one budget, it is
a choice of at most one level each (`best_levels`), exact in whole numbers: cents, and the ledger's units of
epsilon. Picking a level still tells an interval of the price.

Reference: Biswas 2023, Eq. 7.3 and Algorithm 8, which choose whole offers at one epsilon each.
Departure: Theorem 7.3 ends where the budget binds; there the best answer is another level, not the honest one
    or none (mathematics 5.2). Algorithm 8's test is w[i] > j, its values are utilities.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.market.offers import MOST_POINTS, Offer
from reticent.privacy import MAX_UNITS, UNITS_PER_ONE

MOST_CENTS = 10**15
MOST_MENUS = 64
MOST_STATES = 200_000


@dataclass(frozen=True)
class Level:
    """A level of a menu: an epsilon and the pay for it.

    Attributes:
        units: Epsilon that is sold, in units of 1e-12.
        cents: Cents that are paid for the level.
    """

    units: int
    cents: int

    def __post_init__(self) -> None:
        whole("units", self.units, low=1, high=MAX_UNITS)
        whole("cents", self.cents, low=1, high=MOST_CENTS)


@dataclass(frozen=True)
class Menu:
    """Levels of rising epsilon and rising pay."""

    levels: tuple[Level, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.levels) <= MOST_POINTS:
            raise ParameterError(f"a menu must have 1 to {MOST_POINTS} levels, got {len(self.levels)}")
        for one, other in pairwise(self.levels):
            if one.units >= other.units or one.cents >= other.cents:
                raise ParameterError(
                    f"a menu must pay more for more epsilon: {one.cents} cents for {one.units} units, then "
                    f"{other.cents} for {other.units}"
                )

    @classmethod
    def of(cls, offer: Offer, *, cents: int = 100, levels: int = MOST_POINTS) -> Menu:
        """Return the menu of an offer whose prices are in a currency of so many cents.

        A level's pay is the offer's payment where it would take this epsilon, rounded down.

        Raises:
            ParameterError: an offer that pays less than a cent for all it takes.
        """
        count, value = whole("levels", levels, low=1, high=MOST_POINTS), whole("cents", cents, low=1)
        found: list[Level] = []
        for place in range(1, count + 1):
            epsilon = offer.most * place / count
            price = offer.price_for(epsilon)
            taken = float(offer.epsilon(price))
            units = math.floor(Fraction(min(epsilon, taken)) * UNITS_PER_ONE)
            paid = math.floor(Fraction(float(offer.payment(price))) * value)
            if (
                units >= 1
                and paid > (found[-1].cents if found else 0)
                and units > (found[-1].units if found else 0)
            ):
                found.append(Level(units, paid))
        if not found:
            raise ParameterError("the offer pays less than one cent for all that it takes")
        return cls(tuple(found))

    def within(self, cents: int) -> Menu | None:
        """Return the part of the menu that costs at most so many cents; None if nothing does."""
        kept = tuple(level for level in self.levels if level.cents <= cents)
        return Menu(kept) if kept else None


@dataclass(frozen=True)
class Choice:
    """The choice of a seller: for each menu the place of a level, or None.

    Attributes:
        places: Places of the levels.
        units: Units of epsilon in all.
        cents: Cents in all.
        gain: Cents less what the epsilon is worth to the seller.
    """

    places: tuple[int | None, ...]
    units: int
    cents: int
    gain: Fraction


def best_levels(menus: Sequence[Menu], price: Fraction | int, budget: int) -> Choice:
    """Return the choice of most gain within a budget, exactly; of equals, one of less epsilon.

    Args:
        menus: Menus, one for each buyer.
        price: Worth of an epsilon of 1 to the seller, in cents.
        budget: Budget of epsilon, in units.

    Raises:
        ParameterError: a negative price, more menus than `MOST_MENUS`, or menus made so that no exact choice
            is found in time: sell to some of the buyers first.
    """
    if not isinstance(price, (int, Fraction)) or isinstance(price, bool) or price < 0:
        raise ParameterError(f"price must be a whole number or a fraction of cents >= 0, got {price!r:.60}")
    if len(menus) > MOST_MENUS:
        raise ParameterError(f"menus must be at most {MOST_MENUS}, got {len(menus)}")
    room = whole("budget", budget, low=0, high=MAX_UNITS)
    worth = Fraction(price) / UNITS_PER_ONE
    scale = worth.denominator

    def gain(level: Level) -> int:
        return level.cents * scale - worth.numerator * level.units

    # The lines of each menu that may be worth picking: gain rises with epsilon, starting at nothing.
    lines: list[list[tuple[int, int, int | None]]] = []
    for menu in menus:
        kept: list[tuple[int, int, int | None]] = [(0, 0, None)]
        for place, level in enumerate(menu.levels):
            if level.units <= room and gain(level) > kept[-1][1]:
                kept.append((level.units, gain(level), place))
        lines.append(kept)
    bounds = _bounds(lines)
    least = _greedy(lines, room)
    states: list[tuple[int, int, tuple[int | None, ...]]] = [(0, 0, ())]
    for step, kept in enumerate(lines):
        states = _extended(states, kept, room, bounds[step + 1], least)
        if len(states) > MOST_STATES:
            raise ParameterError(f"menus: no exact choice among {len(menus)} in time; sell to fewer at once")
    units, value, places = max(states, key=lambda state: (state[1], -state[0]))
    cents = sum(
        menu.levels[place].cents for menu, place in zip(menus, places, strict=True) if place is not None
    )
    return Choice(places, units, cents, Fraction(value, scale))


def _extended(
    states: list[tuple[int, int, tuple[int | None, ...]]],
    lines: list[tuple[int, int, int | None]],
    room: int,
    bound: _Bound,
    least: int,
) -> list[tuple[int, int, tuple[int | None, ...]]]:
    """States with one more menu: none that another beats, none that cannot reach what is reached already.

    States rise in units and value, so that those with one line more do; they are merged one by one, and no
    more of them are kept than `MOST_STATES` and one.
    """

    def grown(line: int) -> Iterator[tuple[int, int, int, int]]:
        more, gain, _ = lines[line]
        for at, (units, value, _) in enumerate(states):
            if units + more > room:
                return
            yield units + more, -value - gain, at, line

    found: list[tuple[int, int, tuple[int | None, ...]]] = []
    best = -1
    for units, loss, at, line in heapq.merge(*map(grown, range(len(lines)))):
        if -loss > best and bound.most(room - units) - loss >= least:
            found.append((units, -loss, (*states[at][2], lines[line][2])))
            best = -loss
            if len(found) > MOST_STATES:
                break
    return found


@dataclass(frozen=True)
class _Bound:
    """The most that menus can add, if levels could be split: concave in the units that are left."""

    units: list[int]
    values: list[int]

    def most(self, room: int) -> int:
        place = bisect_left(self.units, room)
        if place == len(self.units):
            return self.values[-1]
        if self.units[place] == room:
            return self.values[place]
        low, high = self.units[place - 1], self.units[place]
        rise = (self.values[place] - self.values[place - 1]) * (room - low)
        return self.values[place - 1] - (-rise // (high - low))


def _edges(lines: list[tuple[int, int, int | None]]) -> list[tuple[int, int]]:
    """Return the steps of the upper hull of a menu: units and gain of each, the best per unit first."""
    hull: list[tuple[int, int]] = []
    for units, gain, _ in lines:
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (units - hull[-1][0]) <= (
            gain - hull[-1][1]
        ) * (hull[-1][0] - hull[-2][0]):
            hull.pop()
        hull.append((units, gain))
    return [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(hull)]


def _bounds(lines: list[list[tuple[int, int, int | None]]]) -> list[_Bound]:
    """For each place in the list of menus, what those from there on can add."""
    found = [_Bound([0], [0])]
    edges: list[tuple[int, int]] = []
    for kept in reversed(lines):
        edges = sorted([*edges, *_edges(kept)], key=lambda edge: Fraction(-edge[1], edge[0]))
        units, values = [0], [0]
        for more, gain in edges:
            units.append(units[-1] + more)
            values.append(values[-1] + gain)
        found.append(_Bound(units, values))
    return found[::-1]


def _greedy(lines: list[list[tuple[int, int, int | None]]], room: int) -> int:
    """Return a gain that can be reached: levels by their gain per unit, as far as they fit."""
    steps = sorted(
        (
            (Fraction(-edge[1], edge[0]), menu, edge)
            for menu, kept in enumerate(lines)
            for edge in _edges(kept)
        ),
        key=lambda step: step[0],
    )
    left, value, ended = room, 0, set()
    for _, menu, (units, gain) in steps:
        if menu in ended:
            continue
        if units > left:
            ended.add(menu)
            continue
        left, value = left - units, value + gain
    return value
