"""Whoever wraps a ledger, a session, rows or a store says of every method what becomes of it."""

import re
from pathlib import Path

import reticent
from reticent.apps.query.reading import Held
from reticent.federated.crowd.verify import _Watched
from reticent.query.measure import Rows
from reticent.query.notebook import Notebook
from reticent.query.shared_notebook import SharedNotebook
from reticent.store.base import Store

# Concrete classes: a subclass inherits behaviour, and with it what a later release adds to them.
CONCRETE = {
    *("SqlLedger", "MemoryLedger", "DeviceLedger", "EthereumLedger", "SqliteStore", "PostgresStore"),
    *("Session", "RemoteSession", "Notebook", "SharedNotebook", "WitnessClient", "Directory"),
}
KNOWN = {
    "WitnessedLedger": "ledger/witness/client.py",  # each method has a rule: test_witness_rules
    "_Forgetful": "audit/planted/queries.py",  # a planted fault
}


CLASS = re.compile(r"^ *class (\w+)\(([^)]*)\):", re.MULTILINE)


def inheriting(text):
    """The classes of a module that inherit from a concrete one."""
    return {name for name, bases in CLASS.findall(text) if CONCRETE & set(re.findall(r"\w+", bases))}


def test_no_wrapper_inherits_what_it_does_not_know():
    """One that does so gets a rule for every method, as `WitnessedLedger`, and a line in KNOWN."""
    root = Path(reticent.__file__).parent
    found = {
        name: str(path.relative_to(root))
        for path in sorted(root.rglob("*.py"))
        for name in inheriting(path.read_text(encoding="utf-8"))
    }
    assert found == KNOWN


def test_control_a_new_wrapper_is_found():
    assert inheriting("class Cached(SqlLedger):\n    pass\n") == {"Cached"}


def public_names(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


def test_rows_of_a_service_are_all_of_rows_and_nothing_more():
    """`Held` has rows inside, and inherits nothing: what it does not know does not exist."""
    assert Held.__bases__ == (object,)
    assert public_names(Rows) <= public_names(Held)


def test_the_notebook_of_several_servers_does_what_the_other_does():
    assert SharedNotebook.__bases__ == (object,)
    for_taking = {"all_requests", "draws"}  # by `take`, which only the shared one has
    assert public_names(Notebook) - public_names(SharedNotebook) == for_taking


def test_a_store_that_is_watched_overrides_whatever_reads_or_writes():
    """What reads and verifies is final in `Store`; the rest is overridden, or does nothing to content."""
    open_names = {
        name
        for name, member in vars(Store).items()
        if callable(member) and not getattr(member, "__final__", False) and not name.startswith("__")
    }
    assert open_names - set(vars(_Watched)) == {"_finish", "close"}
