"""Declarations with homes, for the tests of which ledger pays."""

from functools import partial

import pytest

from reticent.errors import QuestionRefused
from reticent.ledger import SqlLedger
from reticent.query import Session, census
from reticent.query.declarations import (
    dataset_file,
)
from reticent.query.notebook import Notebook
from reticent.query.rows import source

MOST = 0.9  # of the budget, asked at once


@pytest.fixture
def declaration(tmp_path):
    (tmp_path / "here").mkdir()
    return census.write(tmp_path / "here", rows=50)


def spend(session, part=MOST, where="age >= 30"):
    cap = session.data.terms.cap
    return session.count(where=where, information=part * cap / 10**12)


def refused(session):
    with pytest.raises(QuestionRefused):
        spend(session, where="age >= 50")


def as_before(path, ledger, part=MOST):
    """Spend as an earlier release did: an account without identity, in a ledger of the opener's choice."""
    data = dataset_file.read(path)
    ledger.parent.mkdir(exist_ok=True)
    rows = partial(source.connect, data, path.parent)
    with Session(data, rows, SqlLedger(ledger), Notebook()) as session:
        spend(session, part)
        return session.balance().spent
