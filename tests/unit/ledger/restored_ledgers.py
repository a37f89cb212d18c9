"""Ledgers that are restored from a backup, with a witness."""

import sqlite3
from contextlib import closing

import pytest

from reticent.ledger import Terms

from .witness_process import MU2


@pytest.fixture
def witness(inside):
    """Asked over HTTP as any; in this process, so that `make mutation` sees which tests reach what."""
    return inside


def forget(witness, *, below):
    """What thinning would do, and more: the witness forgets heads."""
    with closing(sqlite3.connect(witness.directory / "witness.db")) as db:
        db.execute("DELETE FROM head WHERE size < ?", (below,))
        db.commit()


LOST = {1: Terms("late-account", *MU2, "late-subject", 500)}
