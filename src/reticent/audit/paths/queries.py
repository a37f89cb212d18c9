"""Answers of the query engine, audited from the file of rows to the answer and the ledger's record.

The tables are invented here and paid for like any others: nobody's data is ever asked, and there is no way to
give any. They have many cells, and in each of them the same happens: a row at the end of its bounds is there,
or is not, or says something odd (under "replace one": it is in one cell or in its neighbour). So one answer
about all cells is a sample for each of them, with a claim of its own: the noise of cells is independent.

For each kind of question: black box (the answer and the recorded values of a cell together, in the notion
mu), repeat (asked again, the answer is the same and free), streams (another opening and neighbouring
cells draw noise of their own), ledger (what was asked is charged).

False alarms: 1e-6 for the black box, 1e-6 for streams; none for the others.
What it cannot see: losses on other questions and rows than these; timing; persons with several rows.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reticent.audit.black_box import FALSE_ALARM, black_box
from reticent.audit.findings import Finding
from reticent.audit.outputs import Array
from reticent.audit.paths.messages import scratch
from reticent.audit.reporting import Report
from reticent.audit.statistics import independence_p_value
from reticent.ledger import SqlLedger
from reticent.privacy.budget import UNITS_PER_ONE
from reticent.query.answers import Answer
from reticent.query.kinds.listed import KIND
from reticent.query.language.tree import By, Comparison, Query
from reticent.query.opening import open as opened

RELATIONS = ("add or remove one", "replace one")
CELLS = 128
QUICK_SAMPLES, FULL_SAMPLES = 1024, 8192
MU2 = 4.0  # of one question
_BASE = 3  # rows of every cell
_END = 100  # of the bounds of x
_LAGS = (1, 2, 3)

Opener = Callable[..., Any]  # as `reticent.open`


@dataclass(frozen=True)
class Tables:
    """Three tables that differ, in each cell or pair of cells, by what happens to one row."""

    relation: str

    @property
    def is_moved(self) -> bool:
        """Return whether the row goes to a neighbouring cell instead of away."""
        return self.relation == RELATIONS[1]

    @property
    def distances(self) -> list[list[float]]:
        """Distances between present, absent and odd rows, in units of the claim: a change is two steps."""
        changed = 1.0 if self.is_moved else 2.0
        return [[0.0, 1.0, changed], [1.0, 0.0, 1.0], [changed, 1.0, 0.0]]

    def rows(self, number: int) -> list[list[Any]]:
        """Return the rows (x, cell, cell as a number, and 0) of table 0, 1 or 2."""
        found = [[0, f"c{cell}", cell, 0] for cell in range(CELLS) for _ in range(_BASE)]
        for cell in range(0, CELLS, 2 if self.is_moved else 1):
            if number == 1:
                found += [[-_END, f"c{cell + 1}", cell + 1, 0]] if self.is_moved else []
            else:
                found.append([_END if number == 0 else "not a number", f"c{cell}", cell, 0])
        return found

    def written(self, folder: Path, number: int) -> Path:
        """Write a table with its declaration, and return the path of the declaration."""
        folder.mkdir(parents=True)
        rows = self.rows(number)
        with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["x", "cell", "place", "k"], *rows])
        path = folder / "invented.yaml"
        path.write_text(
            "name: invented\nversion: 1\nsource: rows.csv\nunit: row\n"
            f"relation: {self.relation}\n" + (f"rows: {len(rows)}\n" if self.is_moved else "") +
            "budget: {epsilon: 1000000, delta: 1.0e-6}\npolicy: share\ncolumns:\n"
            f"  x: {{type: integer, low: {-_END}, high: {_END}}}\n"
            f"  cell: {{type: category, values: [{', '.join(f'c{cell}' for cell in range(CELLS))}]}}\n"
            f"  place: {{type: integer, low: 0, high: {CELLS - 1}}}\n"
            "  k: {type: integer, low: 0, high: 1000000}\n",
            encoding="utf-8",
        )  # fmt: skip
        return path


def question(kind: str, number: int) -> Query:
    """Build a question of a kind about every cell; each number is another question with the same answer."""
    of, is_binned = KIND[kind], KIND[kind].bins_column
    return Query(
        kind,
        column=("place" if is_binned else "x") if of.needs_column else None,
        where=Comparison("k", "<=", number),
        of=Comparison("x", ">=", _END // 2) if of.needs_of else None,
        by=(By("place", bins=CELLS) if is_binned else By("cell"),),
        levels=(0.5,) if of.needs_levels else (),
    )


def name_of(kind: str, relation: str) -> str:
    """Return the name of a kind of question for the report."""
    return f"{kind} ({'replace' if relation == RELATIONS[1] else 'add, remove'})"


def audit_queries(kind: str, relation: str, *, quick: bool = False, opener: Opener = opened) -> Report:
    """Audit one kind of question on invented tables, with the randomness of production.

    Args:
        kind: Kind of question, from `query.kinds`.
        relation: Neighbouring relation: "add or remove one" or "replace one".
        quick: True for 1,024 samples of each table instead of 8,192.
        opener: Function that opens a session: `reticent.open`, or one with a planted bug.
    """
    start = time.process_time()
    tables, size = Tables(relation), QUICK_SAMPLES if quick else FULL_SAMPLES
    with scratch() as folder:
        asked = [_Asked(tables, number, kind, size, folder, opener) for number in range(3)]
        twin = _Asked(tables, 0, kind, 1, folder / "twin", opener)
    found = black_box(
        lambda number, size: asked[number].samples[:size],
        [0, 1, 2],
        epsilon=math.sqrt(MU2),
        gaussian=True,
        distances=tables.distances,
        samples=size,
    )
    others = (_repeats(asked), _streams(asked[0], twin), _charges(asked))
    return Report(
        name_of(kind, relation), math.sqrt(MU2), "mu", None, None, found, others, time.process_time() - start
    )


class _Asked:
    """One table that was asked a kind of question again and again, each time as another question.

    Attributes:
        samples: Answers and recorded values of each cell, or pair of cells.
        repeated: True if the first question, asked again, had the same answer for nothing.
        due: Cost of the questions, in units of the ledger.
        spent: Units that the ledger says were spent.
    """

    def __init__(
        self, tables: Tables, number: int, kind: str, size: int, folder: Path, opener: Opener
    ) -> None:
        path = tables.written(folder / str(number), number)
        per_answer = CELLS // 2 if tables.is_moved else CELLS
        answers, samples = -(-size // per_answer), []
        ledger = SqlLedger(path.parent / "ledger.sqlite")
        with opener(path, ledger=ledger) as session:
            for one in range(answers):
                answer = session.ask(question(kind, one), information=MU2, reuse="key")
                recorded = ledger.reading(answer.receipt.account, answer.receipt.key).nearest()
                samples.append(_cells(answer, recorded).reshape(per_answer, -1))
            first = session.ask(question(kind, 0), information=MU2, reuse="key")
            self.repeated = first.cost == 0 and np.array_equal(
                _cells(first, ledger.reading(first.receipt.account, first.receipt.key).nearest()),
                samples[0].reshape(CELLS, -1),
            )
            self.spent = session.balance().spent
        self.due = answers * round(MU2 * UNITS_PER_ONE)
        self.samples: Array = np.concatenate(samples)


def _cells(answer: Answer, recorded: list[float]) -> Array:
    """Return the recorded values of each cell, after its answer if each cell has an answer of its own."""
    values = np.array(recorded).reshape(CELLS, -1)
    cells = [cell.estimate for cell in answer.cells]
    told = np.array([one.value if one.unbiased is None else one.unbiased for one in cells])
    found = np.column_stack([told, values]) if told.size == CELLS else values
    return np.asarray(np.nan_to_num(found))


def _repeats(asked: list[_Asked]) -> Finding:
    same = all(one.repeated for one in asked)
    words = "the same, and free" if same else "another one, or not free"
    return Finding("repeat", same, f"the answer to a question that is asked again is {words}")


def _streams(one: _Asked, twin: _Asked) -> Finding:
    if np.array_equal(one.samples[: len(twin.samples)], twin.samples):
        return Finding("streams", False, "two openings of equal tables give identical answers")
    values = [independence_p_value(column[:-lag], column[lag:]) for column in one.samples.T for lag in _LAGS]
    least = min(1.0, min(values) * len(values))
    words = "are independent" if least > FALSE_ALARM else "depend on each other"
    detail = f"the noise of openings and cells: {words} (p = {least:.2g})"
    return Finding("streams", least > FALSE_ALARM, detail)


def _charges(asked: list[_Asked]) -> Finding:
    for one in asked:
        if one.spent < one.due:
            return Finding("ledger", False, f"questions that cost {one.due} units were charged {one.spent}")
    return Finding("ledger", True, "every question is charged, once")
