"""Ledgers to be tampered with, and what is done to them, for the tests of verification."""

import itertools
import shutil
from contextlib import closing

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.ledger import Amount, SqlLedger, Terms, Unit, audits, entries
from reticent.ledger.verify import verify
from reticent.privacy import Neighbours

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


MU2 = (Unit.MU2, Neighbours.REPLACE_ONE)


TERMS = [
    Terms("census", *MU2, "one person of census-2026", 10**9, 5),
    Terms("phones", Unit.EPSILON, Neighbours.ANY_TWO_VALUES, "one phone", 10**8),
    Terms("unused", *MU2, "nobody", 1000),
    Terms("full", *MU2, "one person", 60, 7),
]


def amount(terms, units):
    return Amount(units, terms.unit, terms.neighbours)


def filled(where, steps=150):
    """A ledger with everything in it: idle and full accounts, keys asked again, pending, paid, recovered."""
    ledger = SqlLedger(where, key=KEY)
    for terms in TERMS:
        ledger.open(terms)
    for i in range(8):  # every other one is closed in the recovery, and half of these are bought again
        grant = ledger.request("phones", f"early {i}", amount(TERMS[1], 30), idempotency=f"early-{i}")
        if i % 2:
            ledger.fulfil(grant.pending[0].number, (i,))
    ledger.charge_witnessed({0: 10**6, 1: 500}, entries.head_text(400, bytes(32)))
    audits.record(ledger, claim="Duchi: epsilon 1", verdict=audits.Verdict.BROKEN, report=audits.mark())
    for i in range(0, 8, 4):
        ledger.request("phones", f"early {i}", amount(TERMS[1], 30), idempotency=f"again-{i}")
    for i in range(steps):
        terms = TERMS[i % 2]
        again = f"call-{i}" if i % 5 == 0 else None
        grant = ledger.request(terms.name, f"question {i % 41}", amount(terms, 9 + 7 * i), idempotency=again)
        if i % 10 == 0:  # asked again for less: answered, nothing charged
            ledger.request(terms.name, f"question {i % 41}", amount(terms, 3), idempotency=f"less-{i}")
        if i % 4 and grant.pending:
            ledger.fulfil(grant.pending[0].number, (i, -i * i))
    for key in ("a", "b", "c"):
        ledger.request("full", key, amount(TERMS[3], 20))
    return ledger


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """The file of a closed ledger, to be copied."""
    path = tmp_path_factory.mktemp("template") / "ledger.db"
    with closing(filled(path)) as ledger:
        assert ledger.head().size > 256, "it must hold stored subtrees"
        verify(ledger)
    return path


@pytest.fixture
def copy(template, tmp_path):
    """A function that gives a fresh copy of the template."""
    counter = itertools.count()

    def fresh():
        path = tmp_path / f"{next(counter)}.db"
        shutil.copyfile(template, path)
        return path

    return fresh
