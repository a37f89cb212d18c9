"""Sessions on made-up sums, for the tests of asking."""

from __future__ import annotations

import multiprocessing

from reticent.ledger import MemoryLedger
from reticent.query import Column, DataSet, Kind, Session
from reticent.query.language.tree import Comparison
from reticent.randomness import SimulationStream

from .tables import BUDGET, Tallied

FORK = multiprocessing.get_context("fork")


STANDARD_ERRORS = 5.5  # false alarms of each two-sided comparison below: 4e-8


AGE = Column("age", Kind.INTEGER, low=0, high=120)


SEX = Column("sex", Kind.CATEGORY, values=("f", "m"))


OLD = Comparison("age", ">=", 40)


def declared(**changes):
    return DataSet("d", "1", (AGE, SEX), **{"budget": BUDGET, "rows": 5000, **changes})


SUMS = [(0, 2400, 120_000, 6_500_000), (1, 2600, 125_000, 6_600_000)]


def opened(data, *, sums=SUMS, ledger=None, seed=1, notebook=None):
    ledger = MemoryLedger() if ledger is None else ledger
    rng = None if seed is None else SimulationStream(seed)
    return Session(data, Tallied(data, sums), ledger, notebook, rng=rng)
