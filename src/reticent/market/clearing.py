"""The c of a buyer's offers that spends her budget, and no more.

The total of the payments, cut at zero, falls strictly and continuously in c, from infinity to nothing, and
the information with it. So the best c within a budget is the root of payment(c) = budget, and no Lagrangian
is needed. The returned c is rounded up: the payments at it, as they are worked out, are within the budget.

The prices that c is found from must not be those that it pays: a seller in both sets could move c by a lie.
Use prices of an earlier round, or `halves`.

Reference: Biswas 2023, Sections 7.3.3 and 7.3.4, Appendix H.
Departure: H's closed forms hold only while every seller is active, and overspend otherwise (mathematics 5.1).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reticent.arguments import real
from reticent.errors import ParameterError
from reticent.market.offers import Linear, Log, Offer
from reticent.mechanisms.base import Floats
from reticent.randomness import Stream, secure_or

Family = type[Log] | type[Linear]

_SAMPLE = 4096  # prices that a first guess looks at
_STEPS = 200
_NEAR = 1e-13  # of the budget


def clearing_c(family: Family, prices: ArrayLike, budget: float, *, scale: float = 1.0) -> float:
    """Return the least c at which all payments together are within the budget.

    Args:
        family: Family of the offers.
        prices: Prices per epsilon, numbers >= 0: a sample of those that will be paid, or an earlier round's.
        budget: Budget for the payments, > 0.
        scale: Largest epsilon that is taken from one seller.

    Raises:
        ParameterError: no prices, prices that are negative or no numbers, or no budget.
    """
    asked = np.asarray(prices, dtype=np.float64).reshape(-1)
    if not asked.size:
        raise ParameterError("prices must be of at least one seller, got none")
    if not (float(asked.min()) >= 0.0 and float(asked.max()) < math.inf):
        raise ParameterError("prices must be finite numbers >= 0")
    money = real("budget", budget, low=0.0, open_low=True)
    real("scale", scale, low=0.0, open_low=True)
    guess = asked.size * scale / money  # where every price is zero, up to a factor of two
    if asked.size > 2 * _SAMPLE:
        few = asked[:: asked.size // _SAMPLE]
        guess = _root(family, few, money * few.size / asked.size, scale, guess, near=1e-6)
    return _root(family, asked, money, scale, guess, near=_NEAR)


def _root(family: Family, asked: Floats, money: float, scale: float, guess: float, *, near: float) -> float:
    """The root, by secants of log payment over log c inside a bracket; rounded to the side of the budget."""

    def gap(c: float) -> float:
        paid = float(family(c, scale).payment(asked).sum())
        return math.log(paid / money) if paid > 0.0 else -math.inf

    c, high, low = guess, math.inf, 0.0
    before: tuple[float, float] | None = None
    for _ in range(_STEPS):
        found = gap(c)
        if found > 0.0:
            low = c
        else:
            high = c
        if -near <= found <= 0.0 or (low > 0.0 and high <= low * (1.0 + 4e-16)):
            break
        step = found  # payments fall about as 1 / c
        if before is not None and math.isfinite(found) and found != before[1]:
            slope = (found - before[1]) / math.log(c / before[0])
            if slope < 0.0:
                step = -found / slope
        before = (c, found) if math.isfinite(found) else None
        c = c * math.exp(max(-3.0, min(3.0, step))) * (1.0 + near / 2.0)
        if not low < c < high:
            c = math.sqrt(low * high) if low > 0.0 and high < math.inf else (2.0 * low if low else high / 2.0)
    return high


def halves(
    family: Family,
    prices: ArrayLike,
    budget: float,
    *,
    scale: float = 1.0,
    rng: Stream | None = None,
) -> tuple[NDArray[np.bool_], Offer, Offer]:
    """Two offers, each made from the prices of the other half of the sellers: no price moves its own pay.

    Returns:
        Who is in the first half, the offer for it, and the offer for the others; each is made for half of the
        budget. A half may turn out dearer than the other: payments are held to the budget by `rounds`.
    """
    asked = np.asarray(prices, dtype=np.float64).reshape(-1)
    if asked.size < 2:
        raise ParameterError(f"prices must be of at least two sellers, got {asked.size}")
    order = np.argsort(secure_or(rng).units(asked.size), kind="stable")
    first = np.zeros(asked.size, dtype=np.bool_)
    first[order[: asked.size // 2]] = True
    share = budget / 2.0
    for_second = clearing_c(family, asked[first], share * first.sum() / (~first).sum(), scale=scale)
    for_first = clearing_c(family, asked[~first], share * (~first).sum() / first.sum(), scale=scale)
    return first, family(for_first, scale), family(for_second, scale)
