"""Federations of people with keys of their own, and a buyer, for the tests of federations."""

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError
from reticent.fleet import signing
from reticent.market.federations import Valuation, acts
from reticent.market.federations.federation import Federation
from reticent.market.federations.purchases import Arrived, Delivery, Wanted, awarded
from reticent.privacy import UNITS_PER_ONE

EPSILON = UNITS_PER_ONE
WORTH = Valuation(0.1, 0.0005)
THREE = (("anna", 100, 1.0), ("bruno", 50, 2.0), ("cleo", 30, 0.5))
FULL = {name: (points, epsilon) for name, points, epsilon in THREE}
ALL = 10**6  # cents that buy every level whole
REFUSALS = (ParameterError, ParameterTypeError, GuaranteeError)


def key_of(name):
    """A key that is always the same."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(str(name).encode()).digest())


def public(name):
    return key_of(name).public_key().public_bytes_raw().hex()


BUYER = key_of("buyer")


class Story:
    """A federation whose people do things."""

    def __init__(self, name="north", *, rounds=3, period=2, tolerated=10**18, founder="founder"):
        act = acts.Found(name, "to sell together", rounds, period, tolerated)
        self.files = [acts.signed(act, key_of(founder))]
        self.federation = Federation(self.files[0])
        self.founder = founder
        self.names = {}

    def do(self, name, act):
        """Sign and take an act."""
        file = acts.signed(act, key_of(name), federation=self.federation.id, after=self.federation.head)
        self.federation.apply(file)
        self.files.append(file)

    def members(self, *people):
        """(name, points, epsilon) each: ask, and be admitted."""
        for name, points, epsilon in people:
            self.names[public(name)] = name
            self.do(name, acts.Join(points, int(epsilon * EPSILON)))
            self.do(self.head_of(), acts.Admit(public(name), {}))
        return self

    def head_of(self):
        """Who acts for it."""
        return self.names.get(self.federation.representative, self.founder)

    def bid(self, budget=5000, k=4, worth=WORTH):
        version = str(len(self.federation.settled) + 1)
        wanted = Wanted("ages", version, "to count ages", budget, k, worth)
        self.do(self.head_of(), self.federation.act_of(signing.signed(wanted, BUYER)))
        return wanted

    def award(self, wanted, *others):
        bids = {one.federation.id: one.federation.deal.made for one in (self, *others)}
        return signing.signed(awarded(wanted, bids), BUYER)

    def seal(self, award):
        self.do(self.head_of(), self.federation.act_of(award))

    def ask(self):
        self.do(self.head_of(), self.federation.next_round())

    def give(self, name, points, epsilon, turn=None):
        turn = self.federation.deal.round if turn is None else turn
        self.do(name, acts.Give(turn, points, int(epsilon * EPSILON)))

    def delivery(self, changes=None):
        deal = self.federation.deal
        arrived = [
            Arrived(member, turn, one.points, one.units)
            for member, given in sorted(deal.given.items())
            for turn, one in sorted(given.items())
        ]
        arrived = arrived if changes is None else changes(arrived)
        award, ours = deal.award.id.hex(), self.federation.id
        return signing.signed(Delivery("all", "1", "what arrived", award, ours, tuple(arrived)), BUYER)

    def settle(self, changes=None):
        self.do(self.head_of(), self.federation.act_of(self.delivery(changes)))
        return self.federation.settled[-1][1]

    def whole_deal(self, given, *, budget=5000, k=4, worth=WORTH):
        """One deal of one round: what each gives, (points, epsilon) by name."""
        self.seal(self.award(self.bid(budget, k, worth)))
        self.ask()
        for name, (points, epsilon) in given.items():
            self.give(name, points, epsilon)
        return self.settle()


def three(**changes):
    return Story(**changes).members(*THREE)


def refused(story, match, do):
    """Nothing changes by an act that is refused, with one line that says why."""
    before = dict(story.federation.__dict__)
    with pytest.raises(REFUSALS, match=match) as said:
        do()
    assert "\n" not in str(said.value)
    assert story.federation.__dict__ == before
