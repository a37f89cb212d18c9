"""Ledgers of several people at one contract, for the tests of a ledger on a chain."""

import pytest

from reticent.chain.node import Node
from reticent.ledger import Amount, Terms, Unit
from reticent.ledger.ethereum.ledger import EthereumLedger
from reticent.privacy import Neighbours

REPLACE = Neighbours.REPLACE_ONE


TERMS = Terms("census", Unit.MU2, REPLACE, "one person of Málaga", 1000, 3)


def units(number):
    return Amount(number, Unit.MU2, REPLACE)


@pytest.fixture
def ledger(ethereum):
    """A ledger with an account, of one who owns, asks and measures."""
    with ethereum() as made:
        made.open(TERMS)
        yield made


@pytest.fixture
def other(anvil, ledger):
    """A function that gives a ledger of somebody else (by number) on the same contract and accounts."""
    made = []

    def open_as(number, **options):
        options = {"owner": ledger.owner, "first_block": 0, **options}
        made.append(EthereumLedger(Node(anvil.url), ledger._contract.address, anvil.keys[number], **options))
        return made[-1]

    yield open_as
    for one in made:
        one.close()


@pytest.fixture
def analyst(ledger, other):
    """Somebody who may be charged 100 units."""
    made = other(1)
    ledger.allow("census", made.address, 100)
    return made
