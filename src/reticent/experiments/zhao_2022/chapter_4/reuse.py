"""What the figures of chapter 4 share: the five queries, random requests, and what they cost.

Reference: Zhao 2022, chapter 4 (Algorithm 7, Remark 4.1); Zhao et al. 2021, section V. Costs are in V =
Delta^2 / sigma^2, which is mu^2: V = epsilon^2 / (2 ln(1.25 / delta)) by the documents' formula.
"""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from reticent.experiments.data import DataMissing, directory
from reticent.mechanisms.base import Floats
from reticent.privacy import Budget
from reticent.query import Column, DataSet, Kind, Query, mean, proportion
from reticent.query.language.tree import Comparison, In
from reticent.query.rows import snapshot
from reticent.query.rows.source import Table
from reticent.randomness import SimulationStream

BUDGET = Budget(8.0, 1e-4)  # the documents'
DELTAS = {"paper": (1e-5, 1e-4), "thesis": (1e-7, 1e-5)}  # delta is uniform between these
QUERIES = 150
FILE = "acs_ct_persons.csv.gz"

# The documents' five queries. There is no family income in this data; hours worked stand in.
TYPES: dict[str, Query] = {
    "average income": mean("income"),
    "average hours worked (for family income)": mean("hours_worked"),
    "share of US citizens": proportion(In("citizenship", ("1", "2", "3", "4"))),
    "share of white race": proportion(Comparison("race", "=", "1")),
    "share older than 60": proportion(Comparison("age", ">", 60)),
}

COLUMNS = (
    Column("income", Kind.NUMBER, low=-10_000, high=1_000_000, step=1, missing=0),
    Column("hours_worked", Kind.INTEGER, low=0, high=99, missing=0),
    Column("age", Kind.INTEGER, low=0, high=120),
    Column("citizenship", Kind.CATEGORY, values=tuple("12345")),
    Column("race", Kind.CATEGORY, values=tuple("123456789")),
)


@dataclass(frozen=True)
class Requests:
    """Random requests: the type, epsilon and V of each, shape (runs, queries)."""

    kinds: NDArray[np.int64]
    epsilons: Floats
    costs: Floats


def requests(runs: int, queries: int, deltas: tuple[float, float], rng: SimulationStream) -> Requests:
    """Requests of uniform type, epsilon in [0.1, 1.1] and delta in the range given (section V-A)."""
    size = runs * queries
    kinds, epsilons, chosen = ((rng.units(size) - 1.0).reshape(runs, queries) for _ in range(3))
    epsilons = 0.1 + epsilons
    delta = deltas[0] + chosen * (deltas[1] - deltas[0])
    costs = epsilons**2 / (2.0 * np.log(1.25 / delta))
    return Requests((kinds * len(TYPES)).astype(np.int64), epsilons, costs)


def increments(asked: Requests) -> Floats:
    """What each request adds when everything bought before is reused: Theorem 3 as max(0, V - bought)."""
    bought = np.zeros((len(asked.costs), len(TYPES)))
    rows = np.arange(len(asked.costs))
    added = np.empty_like(asked.costs)
    for i in range(asked.costs.shape[1]):
        kind = asked.kinds[:, i]
        added[:, i] = np.maximum(0.0, asked.costs[:, i] - bought[rows, kind])
        bought[rows, kind] += added[:, i]
    return added


def savings(asked: Requests, upto: int) -> dict[str, Floats]:
    """The part saved by the first `upto` requests of each run, in each measure."""
    naive, ours = asked.costs[:, :upto], increments(asked)[:, :upto]
    v = ours.sum(axis=1) / naive.sum(axis=1)
    linear = np.sqrt(ours).sum(axis=1) / np.sqrt(naive).sum(axis=1)
    return {
        "total epsilon (Remark 4.1)": 1 - np.sqrt(v),
        "epsilon squared (V)": 1 - v,
        "linear sum": 1 - linear,
    }


def units(v: float) -> int:
    """V in ledger units."""
    return max(1, math.floor(v * 10**12))


@contextmanager
def census(rows: int | None, given: Path | None = None) -> Iterator[tuple[DataSet, Table]]:
    """The first rows of the census data, or all of them, as a snapshot.

    Raises:
        DataMissing: the file is not there.
    """
    path = directory(given) / FILE
    if not path.is_file():
        raise DataMissing(f"the data set Census needs {FILE} in the directory of --data; it is not there")
    with TemporaryDirectory() as folder:
        base = Path(folder)
        count = _cut(path, base / "census.csv", rows)
        data = DataSet("census", "1", COLUMNS, BUDGET, rows=count, source={"csv": "census.csv"})
        snapshot.make(data, base, base / "census.duckdb")
        with snapshot.open(base / "census.duckdb", data) as table:
            yield data, table


def _cut(path: Path, copy: Path, rows: int | None) -> int:
    """Write the needed columns of the first rows; return how many."""
    names = ("income", "hours_worked", "age", "citizenship", "race")
    with gzip.open(path, "rt", newline="", encoding="utf-8") as handle, copy.open("w", newline="") as out:
        reader, writer = csv.DictReader(handle), csv.writer(out)
        writer.writerow(names)
        count = 0
        for row in reader:
            if rows is not None and count == rows:
                break
            writer.writerow([row[name] for name in names])
            count += 1
    return count
