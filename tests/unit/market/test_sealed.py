"""Sealed prices: fixed before any is seen, paid by the other half's c, within the deposit."""

import random
from fractions import Fraction

import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.market import clearing_c, sealed
from reticent.market.offers import Linear
from reticent.market.sealed import Sealed, SealedMarket
from reticent.privacy import UNITS_PER_ONE
from reticent.randomness import SimulationStream


def market(prices, deposit=5000, seed=1, family=Linear):
    """What sellers with these prices sell."""
    found = SealedMarket(b"m", deposit=deposit, family=family)
    held = {number.to_bytes(2, "big"): Sealed(price) for number, price in enumerate(prices)}
    for seller, one in held.items():
        found.commit(seller, one.commitment(b"m", seller))
    found.open()
    for seller, one in held.items():
        found.reveal(seller, one)
    sold, done = found.settled(rng=SimulationStream(seed))
    return [sold[one] for one in sorted(held)], done


def gain(level, price):
    return 0 if level is None else level.cents - Fraction(price) * level.units / UNITS_PER_ONE


def test_no_market_is_over_its_deposit():
    for seed in range(60):
        rng = random.Random(seed)
        prices = [rng.randrange(0, 300) for _ in range(rng.randrange(2, 40))]
        sold, done = market(prices, deposit=rng.randrange(1, 4000), seed=seed)
        assert done.paid + done.refund == done.deposit
        assert done.refund >= 0
        assert all(one is None or one.units > 0 for one in sold)
        assert all(
            gain(one, price) > -1 for one, price in zip(sold, prices, strict=True)
        )  # a cent of rounding


def lies_that_pay(count):
    """Of random markets, those in which another price gains the first seller more than hers."""
    found = 0
    for seed in range(count):
        rng = random.Random(seed)
        prices = [rng.randrange(20, 200) for _ in range(4)]
        honest = gain(market(prices, 400, seed)[0][0], prices[0])
        for lie in (0, prices[0] // 2, 5 * prices[0] // 4, 3 * prices[0] // 2, 2 * prices[0]):
            found += gain(market([lie, *prices[1:]], 400, seed)[0][0], prices[0]) > honest
    return found


def test_no_lie_pays():
    assert lies_that_pay(25) == 0


def test_planted_c_from_the_prices_that_it_pays_makes_lies_pay(monkeypatch):
    def own(family, prices, budget, *, scale=1.0, rng=None):
        import numpy as np

        offer = family(clearing_c(family, prices, budget, scale=scale), scale)
        return np.ones(len(prices), dtype=np.bool_), offer, offer

    monkeypatch.setattr(sealed, "halves", own)
    assert lies_that_pay(25) > 0


def test_a_commitment_binds_and_tells_nothing():
    found = SealedMarket(b"m", deposit=10)
    mine = Sealed(20)
    found.commit(b"a", mine.commitment(b"m", b"a"))
    found.commit(b"a", mine.commitment(b"m", b"a"))
    with pytest.raises(ParameterError, match="cannot be changed"):
        found.commit(b"a", Sealed(20).commitment(b"m", b"a"))
    with pytest.raises(ParameterError, match="once all commitments are in"):
        found.reveal(b"a", mine)
    found.open()
    with pytest.raises(ParameterError, match="before prices are revealed"):
        found.commit(b"b", mine.commitment(b"m", b"b"))
    for other in (Sealed(21, mine.salt), Sealed(20)):
        with pytest.raises(ParameterError, match="not the one that was committed to"):
            found.reveal(b"a", other)
    with pytest.raises(ParameterError, match="not the one that was committed to"):
        found.reveal(b"b", mine)
    found.reveal(b"a", mine)
    with pytest.raises(ParameterError, match="at least two sellers"):
        found.settled()
    assert mine.commitment(b"m", b"a") != mine.commitment(b"m", b"b") != mine.commitment(b"n", b"b")
    assert "salt" not in repr(mine)


@pytest.mark.parametrize("price", [-1, 1.5, float("nan"), True, "3", 10**13])
def test_bad_prices_are_refused(price):
    with pytest.raises((ParameterError, ParameterTypeError), match="price must be"):
        Sealed(price)
