"""Each public method of a witnessed ledger has a rule; no answer leaves before the witness has signed."""

import subprocess
import sys
from contextlib import closing

import pytest

from reticent.errors import LedgerError, RolledBack, WitnessUnavailable
from reticent.ledger import SqlLedger
from reticent.ledger.base import Order
from reticent.ledger.witness.client import WITNESS_RULES, WitnessedLedger, WitnessRule

from .witness_process import KEY, TERMS, Inside, units

CALLS = {
    "account_mark": lambda ledger: ledger.account_mark(TERMS.name),
    "accounts": lambda ledger: ledger.accounts(),
    "balance": lambda ledger: ledger.balance(TERMS.name),
    "charge": lambda ledger: ledger.charge(TERMS.name, "c", units(1)),
    "charge_witnessed": lambda ledger: ledger.charge_witnessed({}, "1 00"),
    "checkpoint": lambda ledger: ledger.checkpoint(),
    "consistency_proof": lambda ledger: ledger.consistency_proof(1, 2),
    "fulfil": lambda ledger: ledger.fulfil(0, [1]),
    "head": lambda ledger: ledger.head(),
    "in_view": lambda ledger: ledger.in_view(lambda view: view.reading(TERMS.name, "q")),
    "inclusion_proof": lambda ledger: ledger.inclusion_proof(0, 2),
    "leaf": lambda ledger: ledger.leaf(1),
    "leaves": lambda ledger: ledger.leaves(),
    "mark": lambda ledger: ledger.mark(),
    "open": lambda ledger: ledger.open(TERMS),
    "pay": lambda ledger: ledger.charge(TERMS.name, "p", units(1)),  # `pay` prices an event, then charges
    "pending": lambda ledger: ledger.pending(TERMS.name),
    "purchases": lambda ledger: ledger.purchases(TERMS.name, ["q"]),
    "reading": lambda ledger: ledger.reading(TERMS.name, "q"),
    "request": lambda ledger: ledger.request(TERMS.name, "q", units(60)),
    "request_many": lambda ledger: ledger.request_many([Order(TERMS.name, "q", units(70))]),
    "root": lambda ledger: ledger.root(1),
    "rows": lambda ledger: ledger.rows("SELECT name FROM bought"),
    "totals": lambda ledger: ledger.totals(),
    "transact": lambda ledger: ledger.transact(lambda batch: None),
    "worded": lambda ledger: ledger.worded(TERMS.name),
}
WAITING = sorted(
    name for name, rule in WITNESS_RULES.items() if rule in (WitnessRule.WAITS, WitnessRule.COMMITS)
)
PASSING = sorted(name for name, rule in WITNESS_RULES.items() if rule is WitnessRule.PASSES)


@pytest.fixture
def witness(tmp_path):
    made = Inside(tmp_path / "witness")
    yield made
    made.close()


@pytest.fixture
def behind(database, witness):
    """A ledger with a purchase of another server that the witness was not told of."""
    with closing(WitnessedLedger(database, client=witness.client(), key=KEY)) as ledger:
        ledger.open(TERMS)
        with closing(SqlLedger(database)) as other:
            other.request(TERMS.name, "q", units(50))
        yield ledger


def leave_witness_away(monkeypatch):
    """Let every message to the witness fail, as when its machine is off."""

    def fail(client, method, path, data):
        raise WitnessUnavailable(f"the witness at {client.url} cannot be reached (planted)")

    monkeypatch.setattr("reticent.ledger.witness.client.WitnessClient._exchange", fail)


def test_every_rule_is_tried_here():
    constant = {name for name, rule in WITNESS_RULES.items() if rule is WitnessRule.CONSTANT}
    assert set(CALLS) == set(WITNESS_RULES) - constant
    assert constant == {"charges_values", "measured_by_oracle", "close", "declare", "lag"}


@pytest.mark.parametrize("name", WAITING)
def test_it_is_not_answered_while_the_witness_is_away(behind, name, monkeypatch):
    leave_witness_away(monkeypatch)
    with pytest.raises(WitnessUnavailable, match="cannot be reached"):
        CALLS[name](behind)


@pytest.mark.parametrize("name", WAITING)
def test_it_is_answered_once_the_witness_has_signed(behind, witness, name):
    CALLS[name](behind)
    assert behind.lag == 0
    assert witness.client().last(behind.origin) is not None


@pytest.mark.parametrize("name", PASSING)
def test_amounts_are_told_while_the_witness_is_away(behind, name, monkeypatch):
    leave_witness_away(monkeypatch)
    CALLS[name](behind)
    assert behind.lag == 1


@pytest.mark.parametrize("name", [*WAITING, *PASSING])
def test_nothing_is_answered_after_a_rollback_was_found(behind, name):
    behind._found = RolledBack("planted")
    with pytest.raises(RolledBack, match="until the ledger is opened again"):
        CALLS[name](behind)


def test_control_methods_that_are_inherited_as_they_are_answer_too_early(behind, monkeypatch):
    """Planted: what `worded`, `purchases` and `head` did when nobody had given them a rule."""
    leave_witness_away(monkeypatch)
    waiting = [name for name, rule in WITNESS_RULES.items() if rule is WitnessRule.WAITS]
    for name in waiting:
        monkeypatch.setattr(WitnessedLedger, name, getattr(SqlLedger, name))
    for name in waiting:
        CALLS[name](behind)
    assert behind.lag == 1, "answered, and nobody elsewhere knows"


def test_a_method_that_a_base_class_gains_needs_a_rule():
    class NewerLedger(SqlLedger):
        def newest(self):
            """Return something that nobody has thought about."""

    with pytest.raises(TypeError, match="give newest a rule in WITNESS_RULES"):
        type("WitnessedNewer", (WitnessedLedger, NewerLedger), {})


def test_a_subclass_cannot_replace_a_method_that_waits():
    with pytest.raises(TypeError, match="must not replace reading"):
        type("Hasty", (WitnessedLedger,), {"reading": SqlLedger.reading})
    type("Named", (WitnessedLedger,), {"_note": "control: nothing public is touched"})


def test_the_module_is_not_imported_when_a_method_has_no_rule():
    planted = (
        "from reticent.ledger.base import Ledger\n"
        "Ledger.newest = lambda self: None\n"
        "import reticent.ledger.witness.client\n"
    )
    done = subprocess.run([sys.executable, "-c", planted], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "WitnessedLedger: give newest a rule in WITNESS_RULES" in done.stderr


def test_a_view_of_another_call_is_refused(behind):
    """In an old view the log is shorter than what the witness saw, which would pass for a rollback."""
    with behind._store.reading(), pytest.raises(LedgerError, match="cannot answer inside of a view"):
        behind.reading(TERMS.name, "q")
    assert behind.reading(TERMS.name, "q").pending == 50, "and no rollback is remembered"
