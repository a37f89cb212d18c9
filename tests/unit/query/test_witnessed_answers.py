"""With a witness, a combined answer leaves once the witness has signed what it is made of."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing

import pytest

from reticent.errors import WitnessUnavailable
from reticent.ledger import SqlLedger
from reticent.ledger.checkpoint import parse
from reticent.ledger.witness.client import WitnessClient, WitnessedLedger
from reticent.query.purchases import Purchases

from ..ledger.witness_process import KEY, Inside, put_back
from .reusing import Town, asked_among
from .test_reuse import COUNTS


class Race:
    """A session with a witness, and another server that buys just before purchases are looked at.

    The witness is away from then on. What the session reads of its own question was signed before.
    """

    def __init__(self, folder, monkeypatch, stack):
        self.path, self.backup = folder / "l.sqlite", folder / "backup.sqlite"
        self.witness = Inside(folder / "witness")
        stack.callback(self.witness.close)
        self.ledger = stack.enter_context(closing(self.open_ledger()))
        self.town = Town(COUNTS, seed=4, ledger=self.ledger)
        self._look, self._monkeypatch, self._is_open = Purchases._look, monkeypatch, True
        monkeypatch.setattr(Purchases, "_look", lambda purchases: self._look_later(purchases))

    def open_ledger(self):
        return WitnessedLedger(self.path, client=self.witness.client(), key=KEY)

    def _look_later(self, purchases):
        if self._is_open and purchases._ledger is self.ledger:
            self._is_open = False
            with closing(sqlite3.connect(self.path)) as now, closing(sqlite3.connect(self.backup)) as kept:
                now.backup(kept)
            with SqlLedger(self.path) as other:
                Town(COUNTS, seed=5, ledger=other).by_region(information=0.2)
            self._monkeypatch.setattr(WitnessClient, "_exchange", _fail)
        self._look(purchases)


def _fail(client, method, path, data):
    raise WitnessUnavailable("planted")


@pytest.fixture
def race(tmp_path, monkeypatch):
    with ExitStack() as stack:
        yield Race(tmp_path, monkeypatch, stack)


def test_a_combined_answer_waits_for_the_witness(race):
    with pytest.raises(WitnessUnavailable):
        race.town.session.known(asked_among([0, 2]))


def test_control_an_answer_that_leaves_early_is_forgotten_by_a_rollback(race, monkeypatch):
    """Planted: `worded`, `purchases` and `head` as they were. The table that was told is sold once more."""
    for name in ("worded", "purchases", "head"):
        monkeypatch.setattr(WitnessedLedger, name, getattr(SqlLedger, name))
    told = race.town.session.known(asked_among([0, 2]))
    assert told.combined is not None
    race.ledger.close()
    put_back(race.path, race.backup)
    monkeypatch.undo()
    with closing(race.open_ledger()) as restored:  # the witness has nothing to object
        assert restored.balance(race.town.data.account).spent == 0
        assert told.receipt.log_size > restored.head().size, "and the receipt names a head that is no more"


def test_a_receipt_names_a_head_that_the_witness_has_signed(tmp_path):
    with closing(Inside(tmp_path / "witness")) as witness:
        ledger = WitnessedLedger(tmp_path / "l.sqlite", client=witness.client(), key=KEY)
        with closing(ledger), SqlLedger(tmp_path / "l.sqlite") as other:
            town = Town(COUNTS, seed=4, ledger=ledger)
            Town(COUNTS, seed=5, ledger=other).by_region(information=0.2)
            answer = town.session.known(asked_among([0, 2]))
            signed = parse(witness.client().last(ledger.origin)[0])[0]
        assert (answer.receipt.log_size, answer.receipt.log_root) == (signed.size, signed.root.hex())
