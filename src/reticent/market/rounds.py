"""One round of a buyer's market, worked out: who is offered which menu, who sells what, never over budget.

Sellers are served in random order. Each is offered what is left of her menu within the money that is left,
and picks by herself. Her menu, her place in the order and what is left when she comes follow from the others'
prices and from drawn bits alone, so nothing that she could say changes what she is offered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from reticent.arguments import whole
from reticent.market.menus import Level, Menu, best_levels
from reticent.privacy import MAX_UNITS
from reticent.randomness import Stream, secure_or

Pick = Callable[[Menu], Level | None]
"""How a seller chooses of a menu; None for nothing."""


@dataclass(frozen=True)
class Round:
    """The result of a round: the levels that were sold.

    Attributes:
        sold: Level that each seller sold, or None.
        deposit: Cents that the buyer paid in.
    """

    sold: tuple[Level | None, ...]
    deposit: int

    @property
    def paid(self) -> int:
        """The cents that went to sellers."""
        return sum(level.cents for level in self.sold if level is not None)

    @property
    def refund(self) -> int:
        """The cents that go back to the buyer."""
        return self.deposit - self.paid


def served(
    menus: Sequence[Menu | None], picks: Sequence[Pick], deposit: int, *, rng: Stream | None = None
) -> Round:
    """Serve every seller once, in random order, until the deposit is spent.

    Args:
        menus: Menu of each seller; None for nothing.
        picks: Function by which each seller chooses.
        deposit: Deposit in cents.
        rng: Random stream that draws the order; None for the secure stream.
    """
    left = whole("deposit", deposit, low=0)
    sold: list[Level | None] = [None] * len(menus)
    for seller in np.argsort(secure_or(rng).units(max(1, len(menus))), kind="stable")[: len(menus)].tolist():
        menu = menus[seller]
        offered = None if menu is None else menu.within(left)
        picked = None if offered is None else picks[seller](offered)
        if picked is not None and offered is not None and picked in offered.levels:
            sold[seller], left = picked, left - picked.cents
    return Round(tuple(sold), deposit)


def honest(price: Fraction | int, budget: int = MAX_UNITS) -> Pick:
    """A seller who picks what is best for her, at her true price in cents per epsilon, within her budget."""

    def pick(menu: Menu) -> Level | None:
        place = best_levels([menu], price, budget).places[0]
        return None if place is None else menu.levels[place]

    return pick
