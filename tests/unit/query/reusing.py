"""Sessions that combine purchases, on made-up counts: one session is hundreds of experiments side by side."""

from __future__ import annotations

import numpy as np

from reticent.ledger import MemoryLedger
from reticent.privacy import Budget, Neighbours
from reticent.query import Column, DataSet, Kind, Session
from reticent.query.language import tree
from reticent.query.language.tree import Comparison, In
from reticent.randomness import SimulationStream

from .tables import Tallied

BUDGET = Budget(epsilon=200.0, delta=1e-6)


def town(regions, *, name="town", version="1", **changes):
    """A data set with so many regions of two halves each, and a private number of rows."""
    columns = (
        Column("region", Kind.CATEGORY, values=tuple(f"r{i}" for i in range(regions))),
        Column("half", Kind.CATEGORY, values=("a", "b")),
    )
    given = {"budget": BUDGET, "relation": Neighbours.ADD_REMOVE_ONE, **changes}
    return DataSet(name, version, columns, **given)


class Town:
    """A session about a town, and its true counts by region and half."""

    def __init__(self, counts, *, seed, ledger=None, notebook=None, data=None, **changes):
        self.counts = np.asarray(counts)
        self.data = town(len(self.counts), **changes) if data is None else data
        self.rows = Tallied(self.data)
        ledger = MemoryLedger() if ledger is None else ledger
        rng = None if seed is None else SimulationStream(seed)
        self.session = Session(self.data, self.rows, ledger, notebook, rng=rng)

    def by_region(self, **accuracy):
        return self._asked(tree.count(by="region"), self.counts.sum(axis=1), accuracy)

    def by_both(self, **accuracy):
        # a measured vector has its columns by name: half before region
        return self._asked(tree.count(by=("half", "region")), self.counts.T.reshape(-1), accuracy)

    def among(self, regions, **accuracy):
        """Ask how many rows are in some regions; the answer, and the truth."""
        return self._asked(asked_among(regions), [self.counts[list(regions)].sum()], accuracy)

    def whole(self, **accuracy):
        return self._asked(tree.count(), [self.counts.sum()], accuracy)

    def _asked(self, query, exact, accuracy):
        self.rows.sums = [(cell, int(rows), 0, 0) for cell, rows in enumerate(exact)]
        return self.session.ask(query, **accuracy)


def asked_among(regions):
    names = tuple(f"r{i}" for i in regions)
    return tree.count(where=Comparison("region", "=", names[0]) if len(names) == 1 else In("region", names))


def holds(answer, truth):
    low, high = answer.interval
    return low <= truth <= high


def holds_however_chosen(answer, truth):
    ((low, high),) = answer.combined.ends
    return low <= truth <= high
