"""Prices that are reported, sealed until all are in: the second way to sell, beside picking from a menu.

Each seller sends a commitment to her price; once no more are taken, she reveals it. Nobody sees a price
before all are fixed, and none can be changed after. Then sellers are cut into random halves with half of the
deposit each; the c of each half comes from the prices of the other. Sellers are served in random order: of
the menu of her half's offer, cut at the money that is left of the half, each gets the level that is best at
the price that she revealed. That price moves the offer and the money of the others alone, and of her own the
choice, which it makes for her: so the truth is the best answer, where the budget of epsilon does not bind.

Privacy: prices are told to the operator, and belong to data that may be as private as the reports. The menus
of `bills` tell an interval of it; this tells all of it. Who does not reveal is left out, and that is seen.

Reference: Biswas 2023, Algorithm 9 and Theorem 7.3.
Departure: commit and reveal, and c from the other half: Algorithm 9 takes c from the prices that it pays.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.market.clearing import Family, halves
from reticent.market.menus import MOST_CENTS, Level, Menu
from reticent.market.offers import Log, Offer
from reticent.market.rounds import Round, honest, served
from reticent.randomness import Stream

SALT_BYTES = 32
MOST_PRICE = 10**12
_LABEL = b"reticent-sealed-price/v1\n"


@dataclass(frozen=True)
class Sealed:
    """A price and the salt that opens its commitment; both stay with the seller until she reveals them.

    Attributes:
        price: Price of an epsilon of 1, in whole cents.
        salt: Salt of 32 random bytes: a guess of the price cannot be tested against the commitment.
    """

    price: int
    salt: bytes = field(default_factory=lambda: os.urandom(SALT_BYTES), repr=False)

    def __post_init__(self) -> None:
        whole("price", self.price, low=0, high=MOST_PRICE)
        if not isinstance(self.salt, bytes) or len(self.salt) != SALT_BYTES:
            raise ParameterError(f"salt must be {SALT_BYTES} bytes")

    def commitment(self, market: bytes, seller: bytes) -> bytes:
        """Return the commitment that is sent first, valid in this market and for this seller alone."""
        content = b"".join(
            len(one).to_bytes(8, "big") + one for one in (market, seller, str(self.price).encode())
        )
        return hmac.digest(self.salt, _LABEL + content, hashlib.sha256)


class SealedMarket:
    """One market of reported prices.

    Args:
        name: Name of the market, part of every commitment.
        deposit: Deposit of the buyer, in cents.
        most: Epsilon that is taken from a seller who gives it away.
        family: Family of the offers.
    """

    def __init__(self, name: bytes, *, deposit: int, most: float = 1.0, family: Family = Log) -> None:
        self._name, self._most, self._family = name, most, family
        self._deposit = whole("deposit", deposit, low=1, high=MOST_CENTS)
        self._commitments: dict[bytes, bytes] = {}
        self._prices: dict[bytes, int] = {}
        self._is_taking = True

    def commit(self, seller: bytes, commitment: bytes) -> None:
        """Take a commitment; the same again changes nothing.

        Raises:
            ParameterError: no more are taken, or the seller sent another one.
        """
        if not isinstance(commitment, bytes) or len(commitment) != hashlib.sha256().digest_size:
            raise ParameterError("commitment must be 32 bytes")
        if not self._is_taking:
            raise ParameterError("commitment must come before prices are revealed")
        if self._commitments.setdefault(seller, commitment) != commitment:
            raise ParameterError("a seller has one commitment: it cannot be changed")

    def open(self) -> None:
        """No more commitments; from now on prices are revealed."""
        self._is_taking = False

    def reveal(self, seller: bytes, sealed: Sealed) -> None:
        """Take a price that was committed to; the same again changes nothing.

        Raises:
            ParameterError: it is too early, or another price than was committed to.
        """
        if self._is_taking:
            raise ParameterError("prices must be revealed once all commitments are in")
        due = self._commitments.get(seller)
        if due is None or not hmac.compare_digest(due, sealed.commitment(self._name, seller)):
            raise ParameterError("the price is not the one that was committed to")
        self._prices[seller] = sealed.price

    def settled(self, *, rng: Stream | None = None) -> tuple[Mapping[bytes, Level | None], Round]:
        """Return what each seller who revealed sells, and the round; never over the deposit.

        Raises:
            ParameterError: fewer than two revealed: there are no halves.
        """
        sellers = sorted(self._prices)
        asked = np.array([self._prices[one] for one in sellers], dtype=np.float64)
        first, one, other = halves(self._family, asked, self._deposit, scale=self._most, rng=rng)
        share, sold = self._deposit // 2, dict[bytes, Level | None]()
        for offer, is_in, money in ((one, first, share), (other, ~first, self._deposit - share)):
            members = [sellers[at] for at in np.flatnonzero(is_in).tolist()]
            menus = [_menu(offer)] * len(members)
            picks = [honest(self._prices[seller]) for seller in members]
            sold |= zip(members, served(menus, picks, money, rng=rng).sold, strict=True)
        return sold, Round(tuple(sold[one] for one in sellers), self._deposit)


def _menu(offer: Offer) -> Menu | None:
    """Return the menu of an offer in cents; None where it pays less than one cent for all it takes."""
    with contextlib.suppress(ParameterError):
        return Menu.of(offer, cents=1)
    return None
