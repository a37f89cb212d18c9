"""Recovery after a restored backup: nothing that was spent, and nothing that was released, comes back."""

import itertools
import json
import shutil
import sqlite3
from contextlib import closing
from io import StringIO
from zlib import crc32

import pytest

from reticent.errors import (
    BudgetExceeded,
    LedgerError,
    MeasurementVoid,
    ParameterError,
    RolledBack,
    WitnessRefused,
)
from reticent.ledger import SqlLedger, Terms, entries
from reticent.ledger.checkpoint import PublicKey, parse
from reticent.ledger.export import export, verify_export
from reticent.ledger.sql import recovery
from reticent.ledger.sql.batch import Batch
from reticent.ledger.sql.recovery import recover
from reticent.ledger.verify import verify
from reticent.ledger.witness.client import WitnessedLedger

from .restored_ledgers import LOST, forget, witness
from .witness_process import KEY, MU2, ORIGIN, OTHER, TERMS, Inside, put_back, units

__all__ = ["witness"]  # fixtures


def test_recovery_charges_everything_that_was_seen(restored, witness):
    lost = Terms("late-account", *MU2, "late-subject", 500)
    with closing(SqlLedger(restored, key=KEY)) as ledger:
        with pytest.raises(LedgerError, match="has not allowed"):
            recover(ledger, witness.client(), lost={1: lost})
        witness.allow()
        with pytest.raises(LedgerError, match="does not know accounts 1: give their terms"):
            recover(ledger, witness.client())
        for wrong, why in (
            ({0: lost, 1: lost}, "accounts 0 are not lost"),
            ({1: Terms("late-account", *MU2, "late-subject", 39)}, "had spent more than the cap"),
            ({1: Terms(TERMS.name, *MU2, "late-subject", 500)}, "name that is taken"),
            ({1: Terms("sealed:1", *MU2, "late-subject", 500)}, "name that is taken"),
        ):
            with pytest.raises(LedgerError, match=why):
                recover(ledger, witness.client(), lost=wrong)
        assert ledger.head().size == 3, "nothing was written"
        done = recover(ledger, witness.client(), lost={1: lost})
        assert (done.abandoned.size, done.charged) == (6, {0: 300, 1: 40})
        assert (done.reopened, done.sealed) == ((1,), ())
        assert ledger.totals() == {0: 400, 1: 40}
        assert [leaf for leaf in ledger.leaves() if f'"head":"6:{done.abandoned.root.hex()}"' in leaf]
        report = verify(ledger, witness=witness.client())
        assert (report.recoveries, report.void, report.witnessed) == (2, 1, ledger.head().size)
    with closing(WitnessedLedger(restored, client=witness.client(), key=KEY)) as again:
        again.request(TERMS.name, "late", units(300))
        assert again.balance(TERMS.name).spent == 700, "what was lost is paid again"
    record = witness.client().record(ORIGIN)
    assert [parse(text)[0] for text in record["abandoned"]] == [done.abandoned]
    assert not record["recovery"], "allowed once"
    assert "abandoned" in json.dumps(witness.client().logs())


def test_lost_accounts_can_be_sealed(restored, witness):
    witness.allow()
    with closing(SqlLedger(restored, key=KEY)) as ledger:
        done = recover(ledger, witness.client(), seal_lost=True)
        assert (done.sealed, done.charged[1]) == ((1,), 40)
        sealed = ledger.balance("sealed:1")
        assert sealed.remaining == 0
        verify(ledger, witness=witness.client())
        ledger.open(Terms("late-account", *MU2, "late-subject", 500))
        assert ledger.totals() == {0: 400, 1: 40, 2: 0}, "a new number: the old one stays spent"


def test_a_fork_is_recovered_only_as_a_fork(restored, witness):
    witness.allow()
    with closing(SqlLedger(restored, key=KEY)) as ledger:
        for i in range(5):
            ledger.request(TERMS.name, f"other {i}", units(1))
        with pytest.raises(RolledBack, match="find out why"):
            recover(ledger, witness.client(), seal_lost=True)
        done = recover(ledger, witness.client(), seal_lost=True, accept_fork=True)
        assert (done.common, done.charged) == (3, {0: 300, 1: 40})
        assert ledger.totals() == {0: 405, 1: 40}, "what the witness saw, and what the fork added"
        verify(ledger, witness=witness.client())


def test_nothing_to_recover(witnessed, witness, tmp_path):
    witness.allow()
    with pytest.raises(LedgerError, match="nothing to recover"):
        recover(witnessed, witness.client())
    with (
        closing(SqlLedger(tmp_path / "b.db", origin="other", key=KEY)) as other,
        pytest.raises(LedgerError, match="never saw the log other"),
    ):
        recover(other, witness.client())


def test_an_account_that_cannot_hold_what_was_seen_is_another_one(restored, witness, tmp_path):
    witness.allow()
    with closing(SqlLedger(tmp_path / "other.db", key=KEY)) as other:
        other.open(Terms(TERMS.name, *MU2, "x", 10))
        with pytest.raises(RolledBack, match="account 0 is another one"):
            recover(other, witness.client(), seal_lost=True, accept_fork=True)


def test_the_witness_does_not_take_less_even_in_a_recovery(restored, witness):
    """A liar skips `recover` and asks the witness to forget: the totals must not fall."""
    witness.allow()
    with closing(SqlLedger(restored, key=KEY)) as ledger:
        client = witness.client()
        seen = parse(client.last(ORIGIN)[0])[0]
        with pytest.raises(WitnessRefused, match="witness saw"):
            client.recover(ledger, seen)
    assert parse(witness.client().last(ORIGIN)[0])[0] == seen
    assert witness.client().record(ORIGIN)["recovery"], "the permit is not used up"


# What was pending in the backup


CAP = Terms("a", *MU2, "one person", 100)


def backed_up(database, witness, backup, before, after, terms=CAP):
    """A witnessed ledger lives through `before`, is copied, lives through `after`, and is put back."""
    with closing(WitnessedLedger(database, client=witness.client(), key=KEY)) as ledger:
        ledger.open(terms)
        before(ledger)
    shutil.copyfile(database, backup)
    with closing(WitnessedLedger(database, client=witness.client(), key=KEY)) as ledger:
        after(ledger)
    put_back(database, backup)


def released(ledger, key, amount, value=7):
    """Buy and record; what was released for it."""
    grant = ledger.request("a", key, units(amount))
    for measurement in grant.pending:
        ledger.fulfil(measurement.number, [value])
    return grant.charged


@pytest.fixture
def once_released(database, witness, tmp_path):
    """The backup holds measurement 0 as pending. It was recorded, and released, afterwards."""
    backed_up(
        *(database, witness, tmp_path / "b.db"),
        lambda ledger: ledger.request("a", "k", units(60), idempotency="call"),
        lambda ledger: ledger.fulfil(0, [7]),
    )
    witness.allow()
    return database


def test_what_was_pending_is_never_measured_again(once_released, witness):
    with closing(SqlLedger(once_released, key=KEY)) as ledger:
        done = recover(ledger, witness.client())
        assert (done.closed, done.charged) == ((0,), {0: 0})
    with closing(WitnessedLedger(once_released, client=witness.client(), key=KEY)) as ledger:
        assert ledger.pending("a") == []
        with pytest.raises(MeasurementVoid, match="measurement 0 was closed in a recovery"):
            ledger.fulfil(0, [-3])
        reading = ledger.reading("a", "k")
        assert (reading.information, reading.pending, reading.estimate()) == (0, 0, ())
        with pytest.raises(MeasurementVoid, match="another idempotency key"):
            ledger.request("a", "k", units(60), idempotency="call")
        assert ledger.balance("a").spent == 60, "what was paid stays paid"
        with pytest.raises(BudgetExceeded):
            ledger.request("a", "k", units(60))
        grant = ledger.request("a", "k", units(40), idempotency="another")
        assert (grant.charged, grant.information, grant.remaining) == (40, 40, 0), "paid for a second time"
        assert [one.number for one in grant.pending] == [1]
        assert ledger.fulfil(1, [5]).estimate() == (5,)
        report = verify(ledger, witness=witness.client())
        assert (report.measurements, report.fulfilled, report.void) == (2, 1, 1)
        for openings in (False, True):
            file = StringIO()
            export(ledger, file, openings=openings)
            assert verify_export(file.getvalue().splitlines(keepends=True)).void == 1


def test_control_recovery_that_leaves_it_pending_gives_a_second_draw(once_released, witness, monkeypatch):
    """Planted bug, as it was: two independent releases for the price of one, and everything verifies."""
    monkeypatch.setattr(Batch, "close_pending", lambda self, head: None)
    with closing(SqlLedger(once_released, key=KEY)) as ledger:
        recover(ledger, witness.client())
        (measurement,) = ledger.pending("a")
        assert ledger.fulfil(measurement.number, [-3]).estimate() == (-3,)
        assert ledger.balance("a").spent == 60
        verify(ledger)


def closed_and_bought_again(place):
    """Every order of recorded, waiting and closed under a key, with answers kept for all calls."""
    ledger = SqlLedger(place)
    ledger.open(Terms("a", *MU2, "one person", 10**6, 5))
    calls = itertools.count()

    def ask(key, amount):
        return ledger.request("a", key, units(amount), idempotency=f"call-{next(calls)}")

    for key, steps in enumerate(itertools.product((True, False), repeat=3)):
        for round_, recorded in enumerate(steps):
            for extra in (0, 3, 0):
                grant = ask(f"k{key}", 100 * (round_ + 1) + extra)
            if recorded:
                for measurement in grant.pending:
                    ledger.fulfil(measurement.number, [key, round_])
            if round_ == 1:
                ledger.charge_witnessed({0: 0}, entries.head_text(key, bytes(32)))
    return ledger


def test_keys_that_were_closed_in_part(place):
    with closing(closed_and_bought_again(place)) as ledger:
        report = verify(ledger)
        assert report.void > 4
        spent = ledger.balance("a").spent
        assert spent == sum(int(leaf["charged"]) for leaf in decoded(ledger) if leaf["type"] == "request")
        for key in range(8):
            reading = ledger.reading("a", f"k{key}")
            bought = reading.information + reading.pending
            waiting = [one for one in ledger.pending("a") if one.key == f"k{key}"]
            assert sum(one.information for one in waiting) == reading.pending
            assert ledger.request("a", f"k{key}", units(bought or 1)).charged == (0 if bought else 5)
        verify(ledger)


def decoded(ledger):
    return [entries.decode(leaf) for leaf in ledger.leaves()]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE bought SET waiting = replace(waiting, ':-', ':') WHERE waiting LIKE '%:-%'",
        "UPDATE bought SET waiting = '' WHERE waiting LIKE '%:-%'",
        "UPDATE answered SET information = information + 1, charged = charged + 1 WHERE charged > 0",
    ],
)
def test_what_was_closed_is_verified(database, change):
    with closing(closed_and_bought_again(database)) as ledger:
        verify(ledger)
    with closing(sqlite3.connect(database)) as db:
        db.execute(change)
        db.commit()
    with closing(SqlLedger(database)) as ledger:
        with ledger._store.writing():  # as somebody would who can compute a seal
            for row in ledger._store.all(
                "SELECT id, account, name, requested, information, sums, waiting FROM bought"
            ):
                text = f"{row[0]} {row[1]} {row[3]} {row[4]} {row[6]} {row[5]} {row[2]}"
                ledger._store.run("UPDATE bought SET seal = ? WHERE id = ?", (crc32(text.encode()), row[0]))
        with pytest.raises(LedgerError):
            verify(ledger)


# Forks


def used_copy(database, witness, tmp_path):
    """Ten are released, then sixty that the witness saw, then thirty by the restored copy, unseen."""

    def later(ledger):
        for i in range(3):
            released(ledger, f"k{i}", 20)

    backed_up(database, witness, tmp_path / "b.db", lambda ledger: released(ledger, "k", 10), later)
    with closing(SqlLedger(database, key=KEY)) as alone:
        released(alone, "other", 30)
    witness.allow()
    return 100


def test_a_fork_that_is_shorter_is_recognised_and_charged_on_top(database, witness, tmp_path):
    used_copy(database, witness, tmp_path)
    with closing(SqlLedger(database, key=KEY)) as ledger:
        size = ledger.head().size
        with pytest.raises(
            RolledBack, match="of 6 entries is forked from the 10 that the witness saw, after 4"
        ):
            recover(ledger, witness.client())
        with pytest.raises(ParameterError, match="other entries after 4: this copy was used"):
            recover(ledger, witness.client(), unused_backup=True, accept_fork=True)
        assert ledger.head().size == size
        done = recover(ledger, witness.client(), accept_fork=True)
        assert (done.common, done.charged) == (4, {0: 60})
        assert ledger.balance("a").spent == 100
        with pytest.raises(BudgetExceeded):
            ledger.request("a", "more", units(1))
        verify(ledger, witness=witness.client())


def test_control_the_larger_of_both_lets_more_out_than_the_cap(database, witness, tmp_path, monkeypatch):
    """Planted bug, as it was: whatever the copy holds counts as seen."""
    out = used_copy(database, witness, tmp_path)
    monkeypatch.setattr(recovery, "_common", lambda ledger, client, size, seen: (size, False))
    with closing(SqlLedger(database, key=KEY)) as ledger:
        recover(ledger, witness.client())
        out += released(ledger, "more", 30)
        assert (out, ledger.balance("a").remaining) == (130, 0)
        verify(ledger, witness=witness.client())


@pytest.mark.parametrize(("unused", "spent"), [(False, 90), (True, 70)])
def test_without_a_common_head_all_of_the_copy_is_charged_on_top(database, witness, tmp_path, unused, spent):
    backed_up(
        *(database, witness, tmp_path / "b.db"),
        lambda ledger: [released(ledger, "one", 10), released(ledger, "two", 10)],
        lambda ledger: released(ledger, "three", 50),
    )
    witness.allow()
    forget(witness, below=7)
    with closing(SqlLedger(database, key=KEY)) as ledger:
        done = recover(ledger, witness.client(), unused_backup=unused)
        assert (done.common, ledger.totals()) == (0, {0: spent})
        verify(ledger, witness=witness.client())


def test_the_last_common_head_is_found_far_back(database, witness, tmp_path):
    backed_up(
        *(database, witness, tmp_path / "b.db"),
        lambda ledger: [released(ledger, f"k{i}", 1) for i in range(30)],
        lambda ledger: [released(ledger, f"l{i}", 1) for i in range(30)],
    )
    witness.allow()
    with closing(SqlLedger(database, key=KEY)) as ledger:
        for i in range(10):
            released(ledger, f"m{i}", 2)
        done = recover(ledger, witness.client(), accept_fork=True)
        assert (done.common, ledger.totals()) == (62, {0: 80})


def test_a_copy_of_an_abandoned_way_is_in_what_was_seen(database, witness, tmp_path):
    """After one recovery, a backup from before it is restored: the witness knows that head as well."""
    backed_up(
        *(database, witness, tmp_path / "b.db"),
        lambda ledger: released(ledger, "one", 10),
        lambda ledger: released(ledger, "two", 20),
    )
    witness.allow()
    with closing(SqlLedger(database, key=KEY)) as ledger:
        assert recover(ledger, witness.client()).charged == {0: 20}
    put_back(database, tmp_path / "b.db")
    witness.allow()
    with closing(SqlLedger(database, key=KEY)) as ledger:
        done = recover(ledger, witness.client())
        assert (done.common, done.charged) == (4, {0: 20})
    assert len(witness.client().record(ORIGIN)["abandoned"]) == 2


def test_a_longer_copy_of_an_abandoned_way_is_a_fork(database, witness, tmp_path):
    """All that it holds was seen, but the log went on from a shorter head since then."""

    def later(ledger):
        for i in range(3):
            released(ledger, f"k{i}", 10)
        with closing(sqlite3.connect(database)) as now, closing(sqlite3.connect(tmp_path / "l.db")) as kept:
            now.backup(kept)

    backed_up(database, witness, tmp_path / "b.db", lambda ledger: None, later)
    witness.allow()
    with closing(SqlLedger(database, key=KEY)) as ledger:
        assert recover(ledger, witness.client()).size == 3
    put_back(database, tmp_path / "l.db")
    witness.allow()
    with closing(SqlLedger(database, key=KEY)) as ledger:
        with pytest.raises(
            RolledBack, match="of 8 entries is forked from the 3 that the witness saw, after 8"
        ):
            recover(ledger, witness.client())
        done = recover(ledger, witness.client(), accept_fork=True)
        assert (done.common, done.charged, ledger.totals()) == (8, {0: 0}, {0: 30})
        verify(ledger, witness=witness.client())


# Who may recover


def distrusting(tmp_path, database):
    """A witness that believed the key of first use, and is then started for another one."""
    witness = Inside(tmp_path / "w")
    try:
        backed_up(
            *(database, witness, tmp_path / "b.db"),
            lambda ledger: None,
            lambda ledger: [released(ledger, "one", 5), released(ledger, "two", 5)],
        )
    finally:
        witness.close()
    witness = Inside(tmp_path / "w", trusted=[PublicKey(ORIGIN, OTHER.public_key())])
    witness.allow()
    return witness


def asked_with(key, database, client):
    """A recovery as somebody asks for it who knows the totals and has this key."""
    seen = parse(client.last(ORIGIN)[0])[0]
    with closing(SqlLedger(database, key=key)) as ledger:
        ledger.charge_witnessed({0: 10}, entries.head_text(seen.size, seen.root))
        client.recover(ledger, seen)


def test_a_key_that_is_no_longer_trusted_recovers_nothing(database, tmp_path):
    witness = distrusting(tmp_path, database)
    try:
        with (
            closing(SqlLedger(database, key=KEY)) as ledger,
            pytest.raises(WitnessRefused, match="only the log"),
        ):
            recover(ledger, witness.client())
        with pytest.raises(WitnessRefused, match="not signed"):
            asked_with(KEY, database, witness.client())
        put_back(database, tmp_path / "b.db")
        with closing(SqlLedger(database, key=OTHER)) as ledger:
            assert recover(ledger, witness.client()).charged == {0: 10}
        assert witness.client().record(ORIGIN)["key"] == str(PublicKey(ORIGIN, OTHER.public_key()))
    finally:
        witness.close()


def test_control_the_key_of_first_use_would(database, tmp_path, monkeypatch):
    """Planted bug, as it was: a recovery is held against the key remembered, not the one trusted."""
    witness = distrusting(tmp_path, database)
    monkeypatch.setattr(witness.state, "_log_key", lambda origin, asked, known: known[0])
    try:
        asked_with(KEY, database, witness.client())
    finally:
        witness.close()


def test_a_permit_is_for_one_head(restored, witness, tmp_path):
    """Allowed, and then the lost ledger turns up and goes on: the permit is void."""
    witness.allow()
    client = witness.client()
    assert client.record(ORIGIN)["recovery"]
    with closing(SqlLedger(restored, key=KEY)) as ledger:
        ledger.charge_witnessed({0: 400}, entries.head_text(6, bytes(32)))
        ledger.open(LOST[1])
        ledger.request("late-account", "q", units(40))
        with closing(sqlite3.connect(witness.directory / "witness.db")) as db:  # the log went on meanwhile
            db.execute("UPDATE allowed SET size = size - 1")
            db.commit()
        assert not client.record(ORIGIN)["recovery"]
        with pytest.raises(WitnessRefused, match="has not allowed a recovery from this head"):
            client.recover(ledger, parse(client.last(ORIGIN)[0])[0])
        witness.allow()
        client.recover(ledger, parse(client.last(ORIGIN)[0])[0])


def test_a_permit_does_not_outlive_the_next_head(witnessed, witness):
    witness.allow()
    assert witness.client().record(ORIGIN)["recovery"]
    witnessed.request(TERMS.name, "q", units(1))
    assert not witness.client().record(ORIGIN)["recovery"]
