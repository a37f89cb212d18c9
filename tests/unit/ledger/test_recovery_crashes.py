"""A recovery that is cut off in the middle goes on, and charges once."""

import shutil
from contextlib import closing

import pytest

from reticent.errors import (
    LedgerError,
    RolledBack,
    WitnessUnavailable,
)
from reticent.ledger import SqlLedger, Terms
from reticent.ledger.checkpoint import parse
from reticent.ledger.sql import recovery
from reticent.ledger.sql.batch import Batch
from reticent.ledger.sql.recovery import recover
from reticent.ledger.verify import verify
from reticent.ledger.witness.client import WitnessClient, WitnessedLedger

from .restored_ledgers import LOST, forget, witness
from .witness_process import KEY, MU2, ORIGIN, TERMS, units

__all__ = ["witness"]  # fixtures


class CutOff(WitnessClient):
    """A client that dies as it asks for the recovery, or as it is answered."""

    def __init__(self, witness, *, asked):
        super().__init__(witness.url, key=witness.key)
        self._asked = asked

    def recover(self, ledger, abandoned):
        if self._asked:
            super().recover(ledger, abandoned)
        raise WitnessUnavailable("cut off")


def longer_than_seen(database):
    """Accounts enough that the entries of a recovery make the ledger as long as what was lost."""
    with closing(SqlLedger(database, key=KEY)) as ledger:
        for i in range(3):
            ledger.request(TERMS.name, f"fork {i}", units(1))


@pytest.mark.parametrize("fork", [False, True])
@pytest.mark.parametrize("options", [{"lost": LOST}, {"seal_lost": True}])
def test_after_a_crash_it_is_run_again(restored, witness, tmp_path, fork, options):
    witness.allow()
    options = {**options, "accept_fork": fork}
    if fork:
        longer_than_seen(restored)
    shutil.copyfile(restored, tmp_path / "copy.db")
    with closing(SqlLedger(tmp_path / "copy.db", key=KEY)) as ledger:  # the control: what it comes to
        with pytest.raises(WitnessUnavailable):
            recover(ledger, CutOff(witness, asked=False), **options)
        due = (ledger.totals(), ledger.head().size)
    with closing(SqlLedger(restored, key=KEY)) as ledger:
        with pytest.raises(WitnessUnavailable, match="cut off"):
            recover(ledger, CutOff(witness, asked=False), **options)
        first = ledger.leaves()
    with closing(SqlLedger(restored, key=KEY)) as ledger:
        done = recover(ledger, witness.client(), **options)
        assert ledger.leaves() == first, "nothing is written twice"
        assert (ledger.totals(), done.size) == due
        assert done.charged == {0: 300, 1: 40}
        assert (done.sealed, done.reopened) == (((1,), ()) if "seal_lost" in options else ((), (1,)))
        assert done.closed == tuple(range(4 if fork else 1))
        verify(ledger, witness=witness.client())


def test_control_an_attempt_that_is_not_recognised_stops_the_next(restored, witness, monkeypatch):
    """Planted bug, as it was: the entries of the first attempt look like a fork."""
    witness.allow()
    monkeypatch.setattr(recovery, "_restored_size", lambda ledger, head: ledger.head().size)
    with closing(SqlLedger(restored, key=KEY)) as ledger:
        with pytest.raises(WitnessUnavailable):
            recover(ledger, CutOff(witness, asked=False), seal_lost=True)
        with pytest.raises(RolledBack, match="find out why"):
            recover(ledger, witness.client(), seal_lost=True)


def test_a_ledger_that_was_used_after_the_attempt_is_a_fork(restored, witness):
    witness.allow()
    with closing(SqlLedger(restored, key=KEY)) as ledger:
        with pytest.raises(WitnessUnavailable):
            recover(ledger, CutOff(witness, asked=False), seal_lost=True)
        ledger.request(TERMS.name, "in between", units(50))
        with pytest.raises(RolledBack, match="find out why"):
            recover(ledger, witness.client(), seal_lost=True)
        recover(ledger, witness.client(), seal_lost=True, accept_fork=True)
        assert ledger.totals()[0] >= 450
        verify(ledger, witness=witness.client())


def test_other_words_at_the_second_run_charge_more_and_never_less(restored, witness):
    witness.allow()
    forget(witness, below=4)
    with closing(SqlLedger(restored, key=KEY)) as ledger:
        with pytest.raises(WitnessUnavailable):
            recover(ledger, CutOff(witness, asked=False), seal_lost=True, unused_backup=True)
        assert ledger.totals()[0] == 400
        recover(ledger, witness.client(), seal_lost=True)
        assert ledger.totals()[0] == 500
        verify(ledger, witness=witness.client())


def test_what_an_attempt_left_pending_is_closed_by_the_next(restored, witness, monkeypatch):
    """Somebody wrote the entries of an attempt, and closed nothing: that is no way round it."""
    witness.allow()
    with closing(SqlLedger(restored, key=KEY)) as ledger:
        monkeypatch.setattr(Batch, "close_pending", lambda self, head: None)
        with pytest.raises(WitnessUnavailable):
            recover(ledger, CutOff(witness, asked=False), seal_lost=True)
        monkeypatch.undo()
        assert ledger.pending(TERMS.name)
        assert recover(ledger, witness.client(), seal_lost=True).closed == (0,)
        assert not ledger.pending(TERMS.name)
        verify(ledger, witness=witness.client())


def test_a_crash_while_writing_leaves_nothing(restored, witness, monkeypatch):
    witness.allow()
    with closing(SqlLedger(restored, key=KEY)) as ledger:
        head, charge = ledger.head(), Batch.charge_witnessed

        def dies(self, name, spent, told):
            if name != TERMS.name:
                raise KeyboardInterrupt
            charge(self, name, spent, told)

        monkeypatch.setattr(Batch, "charge_witnessed", dies)
        with pytest.raises(KeyboardInterrupt):
            recover(ledger, witness.client(), seal_lost=True)
        assert ledger.head() == head, "no account is opened, no measurement closed"
        monkeypatch.undo()
        assert recover(ledger, witness.client(), seal_lost=True).sealed == (1,)


def test_when_the_answer_is_lost_there_is_nothing_left_to_do(restored, witness):
    witness.allow()
    with closing(SqlLedger(restored, key=KEY)) as ledger:
        with pytest.raises(WitnessUnavailable):
            recover(ledger, CutOff(witness, asked=True), seal_lost=True)
        with pytest.raises(LedgerError, match="nothing to recover"):
            recover(ledger, witness.client(), seal_lost=True)
        client = witness.client()
        abandoned = parse(client.record(ORIGIN)["abandoned"][0])[0]
        client.recover(ledger, abandoned)  # the same asked twice, as after a lost answer
    WitnessedLedger(restored, client=witness.client(), key=KEY).close()


def test_somebody_else_who_opens_accounts_stops_it(restored, witness, monkeypatch):
    witness.allow()
    with closing(SqlLedger(restored, key=KEY)) as ledger, closing(SqlLedger(restored)) as other:
        charge = SqlLedger.charge_witnessed

        def late(self, *given, **more):
            other.open(Terms("another", *MU2, "x", 10))
            charge(self, *given, **more)

        monkeypatch.setattr(SqlLedger, "charge_witnessed", late)
        with pytest.raises(LedgerError, match="account 1 cannot be opened under its number"):
            recover(ledger, witness.client(), seal_lost=True)
