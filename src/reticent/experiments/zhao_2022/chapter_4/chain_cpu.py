"""CPU seconds of queries with the ledger in SQLite beside the data, and with the ledger on a chain.

`ours` is this process: engine, noise and ledger; on a chain also the oracle in its thread, with a ledger of
its own on disk, and everybody's waiting. `node` is the chain, from /proc. Blocks come with each transaction,
and nobody mines: a real network's work is not in here.

Reference: Zhao et al. 2021, Fig. 10 (50 queries, Geth with three mining nodes).
"""

from __future__ import annotations

import time
from contextlib import ExitStack, nullcontext
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.zhao_2022.chapter_4 import chains
from reticent.experiments.zhao_2022.chapter_4.chains import ANALYST, OWNER, Chain
from reticent.experiments.zhao_2022.chapter_4.services import cpu_s
from reticent.ledger import SqlLedger
from reticent.privacy import MAX_UNITS
from reticent.query import Query, Session
from reticent.query import count as how_many
from reticent.query.language.tree import Comparison
from reticent.query.notebook import Notebook

QUERIES, QUICK_QUERIES = 50, 5
TIMES, QUICK_TIMES = 10, 2
INFORMATION = 1e-3
SQLITE, CHAIN = SIDES = ("SQLite", "chain")
FRESH, AGAIN = WAYS = ("fresh", "again")
Series = list[tuple[float, float]]


def run(options: Options) -> Outcome:
    """Ask the same series of questions on both sides, in turns."""
    queries = QUICK_QUERIES if options.quick else QUERIES
    times = options.repetitions or (QUICK_TIMES if options.quick else TIMES)
    found: dict[tuple[str, str], list[Series]] = {(side, way): [] for side in SIDES for way in WAYS}
    with (
        chains.chain() as on,
        TemporaryDirectory() as folder,
        _Sides(on, Path(folder), options.seed) as sides,
    ):
        for done in range(-1, times):  # the first series warms up
            asked = sides.questions(queries)
            for side, way in found:
                series = sides.series(side, way, asked)
                if done >= 0:
                    found[side, way].append(series)
            options.progress(done + 1, times)
    rows = [row for (side, way), series in found.items() for row in _rows(side, way, series)]
    return Outcome(rows, _caption(rows, times), lambda: _draw(rows))


class _Sides:
    """Two sessions on the same rows: with a ledger beside them, and with one on a chain."""

    def __init__(self, on: Chain, folder: Path, seed: int) -> None:
        data = chains.declared("census")
        owner = on.ledger(OWNER)
        owner.open(data.terms)
        owner.allow(data.name, on.keys[ANALYST].address, MAX_UNITS)
        self._chain, self._numbers, self._held = on, count(1), ExitStack()
        rows, ledger = chains.made_up(data, seed), SqlLedger(folder / "ledger.sqlite")
        beside = Session(data, rows, ledger, Notebook(folder / "notebook.sqlite"))
        away = Session(data, None, on.ledger(ANALYST), Notebook(folder / "analyst.sqlite"))
        self._sessions = {SQLITE: beside, CHAIN: away}
        for session in self._sessions.values():
            self._held.enter_context(session)
        same = chains.made_up(data, seed)
        self._oracle = self._held.enter_context(chains.opened_oracle(on, data, same, folder))

    def __enter__(self) -> _Sides:
        return self

    def __exit__(self, *exception: object) -> None:
        self._held.close()

    def questions(self, queries: int) -> list[Query]:
        """New ones."""
        return [how_many(where=Comparison("income", ">", next(self._numbers))) for _ in range(queries)]

    def series(self, side: str, way: str, asked: list[Query]) -> Series:
        """Seconds of this process, and of the node, after each question."""
        session, series = self._sessions[side], []
        measuring = (side, way) == (CHAIN, FRESH)
        with chains.running(self._oracle) if measuring else nullcontext():
            ours, node = time.process_time(), self._node()
            for query in asked:
                answer = session.ask(query, information=INFORMATION)
                assert (answer.cost > 0) == (way == FRESH)
                series.append((time.process_time() - ours, self._node() - node))
        return series

    def _node(self) -> float:
        return cpu_s(self._chain.anvil.pid)


def _rows(side: str, way: str, found: list[Series]) -> list[Row]:
    means = np.array(found).mean(axis=0)  # shape (queries, 2)
    return [
        {
            "ledger": side,
            "way": way,
            "queries": number,
            "ours, s": float(ours),
            "node, s": float(node),
            "ours, ms a query": 1000 * float(ours) / number,
            "node, ms a query": 1000 * float(node) / number,
        }
        for number, (ours, node) in enumerate(means, start=1)
    ]


def _caption(rows: list[Row], times: int) -> str:
    ends = {(row["ledger"], row["way"]): row for row in rows}
    queries = rows[-1]["queries"]
    lines = [
        f"CPU of {queries} queries with the ledger in SQLite beside the data, and on a chain.",
        "",
        "Printed (Fig. 10, a picture without numbers; 50 queries, three mining nodes): CPU usage with the",
        'blockchain "is higher than that using the server to handle directly. However, it is still',
        'acceptable".',
        f"Found (milliseconds of CPU a query; mean of {times} series of {queries}, after one to warm up):",
    ]
    for (side, way), row in ends.items():
        node = f", the node {row['node, ms a query']:.2f}" if side == CHAIN else ""
        lines.append(f"  {side}, {way}: ours {row['ours, ms a query']:.2f}{node}.")
    fresh, again = (
        (ends[CHAIN, way]["ours, s"] + ends[CHAIN, way]["node, s"]) / ends[SQLITE, way]["ours, s"]
        for way in WAYS
    )
    lines += [
        f"With the chain a fresh answer takes {fresh:.1f} times the CPU, one that is bought already "
        f"{again:.1f} times.",
        "Ours on the chain is analyst and oracle together, with their looking for news. Nobody mines here:",
        "what a network spends on agreeing is not in these numbers.",
    ]
    return "\n".join(lines)


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 2, size=(13.0, 5.0))
    for axis, way in zip(axes[0], WAYS, strict=True):
        beside, away = ([row for row in rows if (row["ledger"], row["way"]) == (side, way)] for side in SIDES)
        numbers = [row["queries"] for row in beside]
        axis.plot(numbers, [row["ours, s"] for row in beside], color="#0072B2", label="SQLite")
        axis.plot(
            numbers, [row["ours, s"] for row in away], color=plots.ACCENT, label="chain: analyst and oracle"
        )
        axis.plot(
            numbers, [row["ours, s"] + row["node, s"] for row in away], color=plots.ACCENT, linestyle="--",
            label="chain: with the node",
        )  # fmt: skip
        axis.set_xlabel("queries")
        axis.set_ylabel("CPU seconds in all")
        axis.set_title({FRESH: "charged and measured", AGAIN: "bought already"}[way], loc="left", fontsize=11)
    axes[0][0].legend(frameon=False)
    return figure
